"""Clients that execute commands in their own way, which are never bypassed, and the interface of python-redis-lock."""

import contextlib
import ctypes
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from engines import Engine
from servers import DURABLE, OUTAGE, Server, free_port, library, own_connections, waiters
from waits import Threads, take_turns, wait_until

import redis_lock_client
from redis_lock_client import LockError
from redis_lock_client.compat import AlreadyAcquired, Lock, NotAcquired

COMMANDS = ["SET", "GET", "DEL", "EXISTS", "PTTL", "ZSCORE", "EVALSHA", "EVAL", "SCRIPT"]


def prefixing(engine: Engine, server: Server, **options: Any) -> Any:
    """Returns a client that adds a prefix to a key in the commands that its program uses."""
    base: Any = type(engine.client(server))

    class Prefixing(base):  # type: ignore[misc]
        def execute_command(self, name: str, *words: Any, **options: Any) -> Any:
            assert name.split()[0] in COMMANDS
            words = tuple(b"tenant:door" if word in (b"door", "door") else word for word in words)
            return super().execute_command(name, *words, **options)

    retry = engine.library.retry.Retry(library.backoff.NoBackoff(), 0)
    return Prefixing(**{"port": server.port, "retry": retry, **options})


@pytest.fixture(params=["prefixing", "replaced", "fakeredis"])
def own(request: pytest.FixtureRequest, server: Server, engine: Engine) -> Any:
    """A client of its own kind, a plain one, and the key that is the door for it."""
    if request.param == "prefixing":
        return prefixing(engine, server), server.client(), "tenant:door"
    if request.param == "replaced":
        client = engine.client(server)
        client.execute_command = partial(client.execute_command)
        return client, server.client(), "door"
    if library.__name__ != "redis":
        pytest.skip("fakeredis is for redis-py")
    fakeredis = pytest.importorskip("fakeredis")
    kind, shared = fakeredis.FakeRedis if engine.loop is None else fakeredis.FakeAsyncRedis, fakeredis.FakeServer()
    assert engine.lock(kind(server=fakeredis.FakeServer()), "door", timeout=30).acquire(), "it has no data in common"
    return kind(server=shared), fakeredis.FakeRedis(server=shared), "door"


def test_client_of_its_own_kind_is_not_bypassed(own: Any, client: Any, engine: Engine) -> None:
    """It gets the lock of its library."""
    # One of an earlier test may be about to close.
    before, (own_client, plain, key) = {one["id"] for one in own_connections(client)}, own
    make = partial(engine.lock, own_client, "door")
    theirs = make(engine.library.lock.Lock, timeout=30)
    with make(timeout=timedelta(seconds=30), blocking_timeout=90, label="me") as lock:
        assert plain.keys() == [key.encode()] and plain.get(key) == lock.local.token
        assert lock.owned() and lock.locked() and lock.reacquire()
        assert lock.extend(10) and 39_000 < plain.pttl(key) <= 40_000
        assert not theirs.acquire(blocking=False)
    assert not plain.keys() and theirs.acquire(blocking=False)
    assert not lock.acquire(blocking=False) and not lock.acquire(blocking_timeout=0.2)
    theirs.release()
    take_turns(lambda number: make(*[engine.library.lock.Lock] * (number % 5 == 0), timeout=30), 20)
    for options in ({"shared": True}, {"session": True}, {"limit": 1}, {"renew": True}, {"reentrant": True}):
        with pytest.raises(LockError, match=next(iter(options))):
            make(timeout=30, **options)
    if engine.loop is None:
        with pytest.raises(LockError, match="executes"):
            Lock(own_client, "door").acquire()
    assert {one["id"] for one in own_connections(client)} <= before, "the package opens no connection"


def test_own_kind_of_client_without_server_is_an_error(engine: Engine, server: Server) -> None:
    for arguments in ({"blocking": False}, {"blocking_timeout": 0.5}):
        with pytest.raises(OUTAGE):
            engine.lock(prefixing(engine, server, port=free_port()), "door", timeout=30).acquire(**arguments)


EACH_KIND = pytest.mark.parametrize("kind, key", [(Lock, "lock:door"), (redis_lock_client.Lock, "door")])


@pytest.mark.parametrize("id", [None, "me"])
def test_release_in_outage_is_made_up_for(new_server: Any, id: str | None) -> None:
    server = new_server(True, *DURABLE)
    client = server.client()
    lock = Lock(client, "door", expire=60, id=id)
    lock.acquire()
    with server.stopped():
        with pytest.raises(OUTAGE):
            lock.release()
        with pytest.raises(OUTAGE):
            lock.acquire(blocking=False)
    wait_until(lambda: not client.exists("lock:door"))

    def is_acquired() -> bool:
        with contextlib.suppress(AlreadyAcquired):  # Its withdrawal is still under way.
            return lock.acquire(blocking=False)
        return False

    wait_until(is_acquired)
    lock.release()


@pytest.mark.parametrize("step", ["acquire", "try", "extend", "release"])
def test_call_in_an_outage_of_a_second_succeeds(new_server: Any, step: str) -> None:
    """By the retry policy of the client."""
    server = new_server(True, *DURABLE)
    client = server.client(retry=library.retry.Retry(library.backoff.ConstantBackoff(0.2), 50))
    held, other = Lock(client, "door", expire=60), Lock(client, "window", expire=60)
    held.acquire()
    calls: dict[str, Any] = {"acquire": other.acquire, "try": partial(other.acquire, blocking=False)}
    with Threads() as pool:
        server.stop()
        restart = pool.submit(lambda: (time.sleep(1), server.start()))
        (calls.get(step) or getattr(held, step))()
        restart.result(60)
    assert client.exists("lock:door", "lock:window") == {"extend": 1, "release": 0}.get(step, 2)


@pytest.mark.parametrize("count", [1, 20])
@EACH_KIND
def test_interrupted_waiters_leave_nothing(client: Any, kind: Any, key: str, count: int) -> None:
    """By an exception that another thread raises in them."""
    client.set(key, "another holder")
    started, interrupted = list[int](), list[int]()

    def wait(number: int) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            started.append(number)
            kind(client, "door").acquire()
            return
        interrupted.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    wait_until(lambda: waiters(client, key) and len(started) == count)
    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
        )
    for thread in threads:
        thread.join(20)
    assert sorted(interrupted) == list(range(count))
    wait_until(lambda: not waiters(client, key))
    client.delete(key)
    with kind(client, "door"):
        assert client.exists(key)
    assert not client.exists(key)


def test_twenty_threads_take_turns(one_server: Server) -> None:
    client = one_server.client()
    take_turns(lambda _: Lock(client, "door", expire=60), 20, 5)
    assert not client.exists("lock:door")


def test_id_hands_lock_over(client: Any) -> None:
    """Another object with this id extends and releases the lock, also one that was granted to a waiter."""
    before, mine, other = (Lock(client, "door", expire=60, id=id) for id in (None, "me", "me"))
    with Threads() as pool, before:
        taken = pool.submit(mine.acquire)
        wait_until(lambda: waiters(client, "lock:door"))
        with pytest.raises(AlreadyAcquired):
            other.acquire(timeout=1)
        with pytest.raises(NotAcquired):
            other.extend()
    assert taken.result(10)
    other.extend(expire=100)
    assert client.ttl("lock:door") > 60 and other.get_owner_id() == "me"
    other.release()
    assert mine.acquire()
    time.sleep(1.3)  # Nothing of the release comes later.
    assert mine.get_owner_id() == "me"
    mine.release()
    with pytest.raises(NotAcquired):
        other.release()


def test_release_signals_original_waiters(new_server: Any) -> None:
    """Where the server has not loaded the module, and where it signals itself."""
    for server in (new_server(False), new_server(True, "--lock.wake-foreign", "yes")):
        client = server.client()
        with Threads() as pool, Lock(client, "door", expire=60):
            original = pool.submit(client.blpop, "lock-signal:door", 10)
            wait_until(lambda client=client: client.info("clients")["blocked_clients"])
        assert original.result(10) is not None


@pytest.mark.parametrize("name", ["door", "{house}:door"])
@pytest.mark.parametrize("module", [True, False], ids=["module", "scripts"])
def test_lock_works_in_cluster(new_server: Any, module: bool, name: str) -> None:
    """Also where the list of the original's waiters has a slot of its own; and after the slot has moved."""
    cluster = Cluster([new_server(module, *OPTIONS) for _ in range(2)])
    client = cluster.client()
    with Lock(client, name, expire=60) as lock:
        lock.extend()
    assert not client.exists(f"lock:{name}")
    with lock:
        cluster.move(f"lock:{name}")
        lock.extend()
    assert not cluster.client().exists(f"lock:{name}")


def test_expire_of_less_than_a_second_is_refused(client: Any) -> None:
    """It is not taken for none, with which the lock would be held without an end."""
    with pytest.raises(ValueError, match="less than a second"):
        Lock(client, "door", expire=0.5).acquire()
    assert not client.exists("lock:door")
