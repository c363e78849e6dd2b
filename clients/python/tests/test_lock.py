"""The lock, for threads and for tasks: its arguments, methods, errors and tokens, and how it is waited for."""

import logging
import time
from datetime import timedelta
from typing import Any

import pytest
from engines import EACH_LOOP
from servers import Server, begin_wait, info, library, own_connections, waiters
from waits import Threads, take_turns, wait_until

import redis_lock_client
from redis_lock_client import Lock, LockError, LockLost, LockNotOwnedError, LockTimeout

CLIENTS: list[dict[str, Any]] = [{}, {"decode_responses": True}, {"protocol": 3}, {"unix_socket_path": "s"}, {"db": 2}]
WRONG: list[dict[str, Any]] = [
    *({"session": True}, {"renew": True}, {"limit": 0}, {"shared": True, "reentrant": True}, {"timeout": -1}),
    *({"timeout": 0.0001}, {"label": ""}, {"label": "a b"}, {"label": "x" * 65}),
]


@EACH_LOOP
@pytest.mark.parametrize("options", CLIENTS, ids=str)
def test_lock_is_acquired_and_released(
    one_server: Server, engine: Any, options: dict[str, Any], monkeypatch: Any
) -> None:
    monkeypatch.chdir(one_server.folder)
    client, own = one_server.client(db=options.get("db", 0)), engine.client(one_server, **options)
    lock, other = engine.lock(own, "door", timeout=30), engine.lock(own, "door", timeout=timedelta(seconds=30))
    methods = (lambda: lock.extend(1), lock.reacquire, lock.release)
    tokens, fences = set[bytes](), [0]
    for one, more, less in ((lock, 10, 5), (other, timedelta(seconds=10), timedelta(seconds=5)), (lock, 10, 5)):
        assert one.acquire()
        tokens.add(one.local.token)
        assert client.get("door") == one.local.token and 29_000 < client.pttl("door") <= 30_000
        assert one.owned() and one.locked()
        assert one.extend(more) and 39_000 < client.pttl("door") <= 40_000
        assert one.extend(less, replace_ttl=True) and 4_000 < client.pttl("door") <= 5_000
        assert one.reacquire() and 29_000 < client.pttl("door") <= 30_000
        if one_server.module:
            fences.append(one.fence())
            assert one.fence("{door}:own") and client.exists("{door}:own", "{door}:fence") == 2
        assert not one.lost.is_set()
        one.release()
        assert not client.exists("door") and not one.owned() and not one.locked() and one.local.token is None
    assert len(tokens) == 3 and fences == sorted(set(fences))
    for method in methods:
        with pytest.raises(LockError):
            method()
    assert lock.acquire()
    client.set("door", "another holder")
    for method in methods:
        with pytest.raises(LockNotOwnedError):
            method()
    for arguments in ({"blocking": False}, {"blocking_timeout": 0}):
        assert other.acquire(**arguments) is False
        assert not (one_server.module and waiters(client))
    assert not other.acquire(blocking_timeout=timedelta(milliseconds=50)) and client.get("door") == b"another holder"


def test_wrong_arguments_are_errors(server: Server, client: Any) -> None:
    for wrong in WRONG:
        with pytest.raises(ValueError):
            Lock(client, "door", **wrong)
    with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio\.Lock"):
        Lock(server.client_asyncio(), "door")
    with pytest.raises(TypeError, match=r"redis_lock_client\.Lock"):
        redis_lock_client.asyncio.Lock(client, "door")
    with Lock(client, "door", timeout=30) as lock:
        for seconds in (0, -1, 2**60):  # With such a lease the server would delete the lock.
            with pytest.raises(ValueError):
                lock.extend(seconds, replace_ttl=True)
        assert client.pttl("door") > 20_000


def test_decorated_function_runs_with_the_lock(client: Any) -> None:
    @client.lock("door", timeout=30, blocking_timeout=0.05, lock_class=Lock)
    def state(name: str) -> Any:
        """Returns a state."""
        return info(client)[name.encode()]

    assert state("state") == b"mutex" and state.__doc__ == "Returns a state."
    client.set("door", "another holder")
    with pytest.raises(LockTimeout):
        state("state")


def test_errors_are_those_of_the_library(client: Any, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """And an exception of a block comes first."""
    with pytest.raises(library.exceptions.LockError, match="door") as raised:
        make("door").release()
    assert raised.value.lock_name == "door"
    with pytest.raises(library.exceptions.LockNotOwnedError, match="door"), make("door", timeout=30):
        client.delete("door")
    with make("door", timeout=30, raise_on_release_error=False):
        client.delete("door")
    assert "lost before it was released" in caplog.text
    for error, is_lost in ((ZeroDivisionError, False), (ZeroDivisionError, True), (KeyboardInterrupt, False)):
        with pytest.raises(error), make("door", timeout=30):
            assert not is_lost or client.delete("door")
            raise error
        assert not client.exists("door")
    client.set("door", "another holder")
    with pytest.raises(LockTimeout, match="door"), make("door", timeout=30, blocking_timeout=0.1):
        pass
    assert not make("door", timeout=30, blocking=False).acquire()
    wait_until(lambda: not waiters(client))
    assert LockLost is LockNotOwnedError and issubclass(LockTimeout, LockError)
    theirs, ours = library.exceptions.LockError("message", "door"), LockTimeout("message", "door")
    for name in ("error_type", "status_code"):
        assert getattr(ours, name, None) == getattr(theirs, name, None)


def test_other_data_is_no_lock(one_server: Server) -> None:
    client = one_server.client()
    client.rpush("door", "an item")
    for options in ({}, {"reentrant": True}):
        for blocking in (False, True):
            with pytest.raises(library.ResponseError, match="WRONGTYPE"):
                Lock(client, "door", timeout=30, **options).acquire(blocking=blocking)
    assert client.lrange("door", 0, -1) == [b"an item"]


@EACH_LOOP
@pytest.mark.parametrize("lease", [30, None])
def test_waiter_is_granted_within_50_ms(client: Any, make: Any, lease: float | None) -> None:
    holder, waiter = make("door", timeout=lease), make("door", timeout=lease, thread_local=False)

    def hand_over() -> float:
        """Returns how many seconds it takes."""
        holder.acquire()
        with Threads() as pool:
            granted_at = pool.submit(lambda: waiter.acquire(blocking_timeout=1e18) and time.monotonic())
            wait_until(lambda: waiters(client))
            assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
            released_at = time.monotonic()
            holder.release()
            took: float = granted_at.result(20) - released_at
        assert (client.ttl("door") == -1) is (lease is None)
        if lease is None:
            with pytest.raises(LockError, match="timeout"):
                waiter.extend(1)
        waiter.release()
        return took

    assert any(hand_over() < 0.05 for _ in range(10))


def test_waiters_are_granted_in_order(server: Server, client: Any, engine: Any) -> None:
    """A connection of the package has one queue entry: whose next caller stands behind the other connections."""
    client.set("door", "another holder")
    started, order, before = list[Any](), list[Any](), len(own_connections(client))

    def take(connection: int, number: int) -> None:
        # Clients with the same arguments have a connection in common.
        lock = engine.lock(engine.client(server, socket_timeout=60 + connection), "door", timeout=30)
        started.append(lock)
        with lock:
            order.append((number, connection))
            wait_until(lambda: len(waiters(client)) == min(3, 30 - len(order)))

    with Threads(30) as pool:
        for count in range(30):
            pool.submit(take, *divmod(count, 10))
            wait_until(lambda count=count: len(started) > count and len(waiters(client)) == count // 10 + 1)
            time.sleep(0.02)  # It sends its request.
        assert len(own_connections(client)) <= before + 3
        client.delete("door")
    assert order == [(number, connection) for number in range(10) for connection in range(3)]


def test_wait_ends_on_time_and_not_before(new_server: Any, engine: Any) -> None:
    """Whatever the time-outs of the client, and that of the server for idle clients; with and without the module."""
    servers = [new_server(True, "--timeout", "3"), new_server(False)]
    kinds: list[dict[str, Any]] = [{}, {"socket_timeout": None}, {"socket_timeout": 2}, {"protocol": 3}]

    def wait(own: Any, lease: float | None, seconds: float) -> None:
        began = time.monotonic()
        assert engine.lock(own, "door", timeout=lease).acquire(blocking_timeout=seconds) is False
        assert seconds - 0.1 < time.monotonic() - began < seconds + 2

    for server in servers:
        server.client().set("door", "another holder")
    clients = [engine.client(server, **kind) for server in servers for kind in kinds]
    with Threads(32) as pool:
        waits = [pool.submit(wait, own, lease, s) for own in clients for lease in (30, None) for s in (1, 17)]
        for one in waits:
            one.result(60)
    wait_until(lambda: not waiters(servers[0].client()))


def test_reentrant_lock_counts_its_holds(one_server: Server, engine: Any) -> None:
    """If it was lost, it is not acquired again inside of its block, and its last release is an error."""
    client = one_server.client()
    lock, other = (engine.lock(one_server, "door", timeout=30, reentrant=True) for _ in range(2))
    for _ in range(2):
        with lock:
            with lock:
                assert client.hgetall("door") == {lock.local.token: b"1"}
                assert not other.acquire(blocking=False)
            assert client.hgetall("door") == {lock.local.token: b"1"}
        assert not client.exists("door")
        with pytest.raises(LockError):
            lock.release()
        with pytest.raises(LockNotOwnedError), lock:
            client.delete("door")
            with lock:
                pytest.fail("it was acquired inside of a block that had lost it")
        assert lock.acquire() and lock.acquire() and lock.acquire()
        client.delete("door")
        lock.release()
        lock.release()
        with pytest.raises(LockNotOwnedError):
            lock.release()


def test_lock_object_is_shared_by_callers(one_server: Server, engine: Any) -> None:
    lock = engine.lock(one_server, "door", timeout=30, blocking_timeout=90)
    take_turns(lambda _: lock, 10, 5)
    assert not one_server.client().exists("door")


def test_shares_exclude_a_writer_and_are_limited(client: Any, make: Any) -> None:
    """A semaphore object that callers share has as many holds as it was granted, also in one thread."""
    one, other, writer = (make("door", timeout=30, shared=shared) for shared in (True, True, False))
    with one, other:
        assert one.owned() and other.owned()
        assert not writer.acquire(blocking=False)
    with writer:
        assert not one.acquire(blocking=False)
    permits = make("door", timeout=30, limit=3, blocking_timeout=60)
    assert max(take_turns(lambda _: permits, 10, 5, limit=3)) > 1 and not client.exists("door")
    with permits, permits, permits:
        assert client.zcard("door") == 3
        assert not permits.acquire(blocking=False)
    assert not client.exists("door")


def test_threads_release_one_object_together(client: Any) -> None:
    """Without `thread_local` any thread releases what another has acquired, and each release is one permit."""
    lock = Lock(client, "door", timeout=30, limit=20, thread_local=False)
    assert all(lock.acquire() for _ in range(20))
    with Threads() as pool:
        for released in [pool.submit(lock.release) for _ in range(20)]:
            released.result(20)
    assert not client.exists("door")


@pytest.mark.parametrize("reentrant", [True, False])
def test_other_caller_does_not_release_or_enter(make: Any, reentrant: bool) -> None:
    lock, of_all = (make("door", timeout=30, thread_local=own, reentrant=reentrant) for own in (True, False))
    with Threads() as pool:
        with lock:
            assert pool.submit(lock.acquire, blocking=False).result() is False
            assert pool.submit(lock.owned).result() is False
            with pytest.raises(LockError):
                pool.submit(lock.release).result()
        of_all.acquire()
        assert pool.submit(of_all.owned).result()
        pool.submit(of_all.release).result()
    assert of_all.acquire(blocking=False)


def test_expired_holder_takes_nothing_from_the_next(client: Any, make: Any) -> None:
    """Both by one lock object: the lease of the first caller has expired when it releases."""
    lock = make("door", timeout=3, blocking_timeout=30)
    lock.acquire()
    lock.extend(0.1, replace_ttl=True)
    with Threads() as pool:
        assert pool.submit(lock.acquire).result(10) and pool.submit(lock.extend, 60).result(10)
        with pytest.raises(LockNotOwnedError):
            lock.release()
        assert info(client)[b"state"] == b"mutex"
        assert pool.submit(lock.owned).result(10)
        pool.submit(lock.release).result(10)
    assert not client.exists("door")


def test_lock_that_is_lost_to_its_own_object_is_reported(client: Any, make: Any) -> None:
    lock = make("door", timeout=30, thread_local=False)
    lock.acquire()
    lost = lock.lost
    client.delete("door")
    assert lock.acquire(blocking_timeout=5) and lost.is_set() and not lock.lost.is_set()
    lock.release()


def test_lock_that_is_handed_over_outlasts_its_object(client: Any, make: Any) -> None:
    first, other = make("door", timeout=2, renew=True), make("door", timeout=30, session=True)
    first.acquire()
    token = first.detach()
    with pytest.raises(LockError):
        first.release()
    del first
    other.attach(token.decode())
    assert other.owned() and info(client)[b"session"] and client.pttl("door") > 28_000
    client.delete("door")
    with pytest.raises(LockNotOwnedError):
        other.release()


def test_given_token_is_used_once(client: Any, make: Any) -> None:
    lock, waiter, other = (make("door", timeout=30, thread_local=False) for _ in range(3))
    assert lock.acquire(token="my token") and client.get("door") == b"my token"
    with begin_wait(waiter, client, token=b"another-token", blocking_timeout=30) as taken:
        for token in ("my token", "another-token"):
            with pytest.raises(LockError, match="this token already"):
                other.acquire(token=token, blocking=False)
        assert lock.owned()
        lock.release()
        assert taken.result(10)
    assert client.get("door") == b"another-token"
    waiter.release()
    assert waiter.acquire(token="with a space", blocking_timeout=5)  # Its waits poll.
    waiter.release()


def test_debug_log_has_waiters_and_holders(client: Any, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redis_lock_client")
    with make("door", timeout=30, label="first") as holder:
        assert holder.local.token.startswith(b"first:")
        with begin_wait(make("door", timeout=30, label="second"), client, blocking_timeout=1.5) as waiting:
            assert waiters(client)[0][b"token"].startswith(b"second:")
            assert waiting.result(20) is False
    assert "'second' waits for lock b'door'" in caplog.text
    assert "'second' did not get lock 'door' after 1.5" in caplog.text
    assert "'first' got lock 'door' after" in caplog.text and "'first' released lock 'door'" in caplog.text


def test_attribute_that_would_be_ignored_is_refused(client: Any, make: Any) -> None:
    """celery-redbeat sets a script that extends the lock otherwise; timeouts can be set as with redis-py's Lock."""
    lock = make("door", timeout=30)
    for name in ("lua_extend", "name", "redis"):
        with pytest.raises(AttributeError, match=name):
            setattr(lock, name, "other")
    lock.timeout, lock.blocking_timeout = 10, 0.1
    with lock:
        assert 9_000 < client.pttl("door") <= 10_000
        with pytest.raises(LockTimeout), make("door", timeout=30, blocking_timeout=0.1):
            pass


def test_client_of_its_own_kind_has_the_errors_of_the_package(server: Server, engine: Any) -> None:
    """So programs can test with fakeredis what they do when they do not get a lock, or lose it."""
    fakeredis = pytest.importorskip("fakeredis")
    own = (fakeredis.FakeRedis if engine.loop is None else fakeredis.FakeAsyncRedis)(server=fakeredis.FakeServer())
    lock, other = (
        engine.lock(own, "door", timeout=30, blocking_timeout=timedelta(seconds=0.1)),
        engine.lock(own, "door"),
    )
    with lock:
        with pytest.raises(LockTimeout), engine.lock(own, "door", timeout=30, blocking_timeout=0.1):
            pass
        with pytest.raises(LockError, match="executes"):
            lock.fence()
        with pytest.raises(LockError) as raised:
            other.release()
        assert raised.value.lock_name == "door"
