"""How locks are kept by sessions and renewal, what they outlast, how they are lost, and how soon that is reported."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from engines import KINDS, granted
from servers import (
    DURABLE,
    Server,
    free_port,
    info,
    kill_connections,
    library,
    own_connections,
    running_program,
    waiters,
    watched,
)
from waits import wait_until

from redis_lock_client import Lock, LockError, LockNotOwnedError, threads
from redis_lock_client import asyncio as for_tasks

SHORTER = "PEXPIRE door 60"
LOSSES = ["DEL door", "UNLINK door", "SET door another", "FLUSHALL", "RENAME door elsewhere"]
LOSSES += ["PEXPIRE door -1", "PEXPIREAT door 1"]
CASES = [(kind, way) for kind in KINDS for way in LOSSES]
# What belongs to a session, or is renewed, has its lease again before it ends.
CASES += [("plain", SHORTER), ("reentrant", SHORTER)]
CASES += [("shared", "ZREM door TOKEN"), ("shared", "LOCK.SHARE door another PX 60000; ZREM door TOKEN")]


@pytest.mark.parametrize("kind, way", CASES)
def test_loss_is_reported_within_50_ms(client: Any, make: Any, kind: str, way: str) -> None:
    reported = list[float]()
    lock = make("door", timeout=30, on_lost=lambda: reported.append(time.monotonic()), **KINDS[kind])

    def lose() -> float:
        """Returns how many seconds after the server the program knows."""
        assert lock.acquire(blocking=False)
        watched(client)
        for command in way.replace("TOKEN", lock.local.token.decode()).split("; "):
            # The time before the request, because the reply may be later than the report of the loss.
            known = time.monotonic() + 0.06 * (way == SHORTER)
            client.execute_command(*command.split())
        assert lock.lost.wait(5)
        wait_until(lambda: reported)
        # By the local clock, which counts from before the request, a lease ends a moment earlier.
        wait_until(lambda: way != SHORTER or not client.exists("door"))
        with pytest.raises(LockNotOwnedError):
            lock.release()
        client.delete("door")
        return reported.pop() - known

    assert any(lose() < 0.05 for _ in range(10))
    assert not reported, "each is reported once"


@pytest.mark.parametrize("how", ["read", "watch", "unread"])
def test_end_of_lease_is_a_loss(client: Any, make: Any, how: str) -> None:
    lock = make("door", timeout=0.5, watch=how == "watch")
    lock.acquire()
    if how == "read":
        assert lock.lost.wait(10)
    wait_until(lambda: not client.exists("door"))
    if how == "unread":
        assert lock.lost.is_set(), "also if it is read for the first time afterwards"
    wait_until(lambda: lock.lost.is_set(), 5)


def test_callback_delays_and_ends_nothing_else(client: Any, make: Any, engine: Any, caplog: Any) -> None:
    """One that takes long, and those that fail."""
    failures = [None, ZeroDivisionError, SystemExit if engine.loop is None else LookupError]
    calls, ended = list[Any](), threading.Event()

    def on_lost(failure: Any) -> None:
        calls.append(failure)
        if failure is not None:
            raise failure
        ended.wait(60)

    async def on_lost_in_task(failure: Any) -> None:
        await asyncio.to_thread(on_lost, failure)

    call = on_lost if engine.loop is None else on_lost_in_task
    locks = [make(f"door:{n}", timeout=30, on_lost=partial(call, failure)) for n, failure in enumerate(failures)]
    with make("window", timeout=2, renew=True) as renewed:
        for number, lock in enumerate(locks):
            lock.acquire()
            watched(client)
            client.delete(f"door:{number}")
            wait_until(lambda number=number: calls == failures[: number + 1])
            assert lock.lost.wait(5)
        assert not renewed.lost.wait(2.5) and renewed.owned()
    ended.set()
    assert caplog.text.count("on_lost has failed") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_held_lock_that_is_collected_is_released(client: Any, make: Any, kind: str) -> None:
    lock = make("door", timeout=30, **KINDS[kind])
    lock.acquire()
    with pytest.warns(ResourceWarning, match="door"):
        del lock
        gc.collect()
        wait_until(lambda: not client.exists("door"))
        time.sleep(0.05)  # It warns behind the release.


def test_lock_of_a_thread_that_has_ended_is_released(client: Any) -> None:
    lock = Lock(client, "door", timeout=30)
    with pytest.warns(ResourceWarning, match="door"):
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        del thread
        gc.collect()
        wait_until(lambda: not client.exists("door"))
        time.sleep(0.05)  # It warns behind the release.


class Interruption(TimeoutError):
    """What a handler of a signal raises."""


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Objects in reference cycles stay during the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("kept_by", ["session", "renew"])
def test_block_interrupted_at_its_release_frees_the_lock(
    client: Any, monkeypatch: pytest.MonkeyPatch, kept_by: str
) -> None:
    """As soon as nothing refers to the object, because no reference cycle keeps it."""

    def interrupt(*_: object) -> None:
        raise Interruption

    lock = Lock(client, "door", timeout=30, **{kept_by: True})
    with no_collector(), pytest.warns(ResourceWarning, match="door"):
        with contextlib.suppress(Interruption), lock:
            monkeypatch.setattr(threads.Engine, "run", interrupt)
        monkeypatch.undo()
        del lock
        wait_until(lambda: not client.exists("door"))
        time.sleep(0.05)  # It warns behind the release.


def test_interrupted_call_leaves_other_locks_watched(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call of the main thread runs the scheduler, which begins again."""
    kept, other = Lock(client, "gate", timeout=60, watch=True), Lock(client, "door", timeout=60)
    kept.acquire()
    watched(client)
    engine = threads.engine_of(kept._source)
    select = engine._select

    def interrupt(timeout: float) -> None:
        if threading.current_thread() is threading.main_thread():
            raise Interruption
        select(timeout)

    for _ in range(1000):
        monkeypatch.setattr(engine, "_select", interrupt)
        try:
            with other:
                monkeypatch.undo()
        except Interruption:
            break
    else:
        pytest.fail("the caller never runs the scheduler")
    monkeypatch.undo()
    assert kept.owned() and not kept.lost.is_set()
    watched(client)
    client.delete("gate")
    assert kept.lost.wait(5)
    wait_until(lambda: not client.exists("door"))


CALLS = {"release": LockNotOwnedError, "extend": LockNotOwnedError, "acquire": library.ConnectionError}


@pytest.mark.parametrize("name", CALLS)
async def test_failed_call_leaves_no_reference_cycle(client: Any, aclient: Any, server: Server, name: str) -> None:
    words = [60] if name == "extend" else []

    def fail() -> Any:
        lock = Lock(server.client(port=free_port()) if name == "acquire" else client, "door", timeout=60)
        with contextlib.suppress(LockError):
            lock.acquire(token=name) if name != "acquire" else None
            client.delete("door")
        with pytest.raises(CALLS[name]):
            getattr(lock, name)(*words)
        return weakref.ref(lock)

    async def fail_in_task() -> Any:
        own = server.client_asyncio(port=free_port()) if name == "acquire" else aclient
        lock = for_tasks.Lock(own, "door", timeout=60)
        if name != "acquire":
            await lock.acquire()
            client.delete("door")
        with pytest.raises(CALLS[name]):
            await getattr(lock, name)(*words)
        return weakref.ref(lock)

    with no_collector():
        in_thread, in_task = fail(), await fail_in_task()
        await asyncio.sleep(0)  # The loop itself keeps what its present callback has raised.
        assert [in_thread(), in_task()] == [None, None]


WATCHED: list[dict[str, Any]] = [{"on_lost": print}, {"watch": True}, {"session": True}, {"renew": True}]


@pytest.mark.parametrize("options", WATCHED, ids=str)
def test_lock_without_a_thread_to_watch_it_is_not_held(
    new_server: Any, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    """As many threads run as the system allows."""
    client = new_server().client()
    lock = Lock(client, "door", timeout=30, **options)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for blocking in (True, False):
        with pytest.raises(LockError, match="no thread can be started"):
            lock.acquire(blocking=blocking)
        assert lock.local.token is None and not client.exists("door")
    monkeypatch.undo()
    with lock:
        assert lock.owned()


KEEPING = pytest.mark.parametrize("how", ["session", "renew"])
WATCHING = pytest.mark.parametrize("how", ["session", "renew", "watch"])


def kept(engine: Any, where: Any, how: str, name: str = "door", **options: Any) -> Any:
    """Returns a lock that is held, and kept by a session or by renewal, or only watched."""
    lock = engine.lock(where, name, **{how: True, "timeout": 3, "watch": True, **options})
    assert lock.acquire(blocking_timeout=10)
    return lock


@pytest.mark.parametrize("end", ["del lock", "sys.exit()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_session_ends_with_its_holder(server: Server, client: Any, end: str) -> None:
    text = f"""
lock = Lock(client, "door", timeout=30, session=True)
lock.acquire(); print("held"); sys.stdin.readline(); {end}
time.sleep(60)
"""
    with running_program(text, server) as process:
        assert process.stdout.readline() == "held\n" and client.exists("door")
        print(file=process.stdin, flush=True)
        wait_until(lambda: not client.exists("door"))


@WATCHING
@pytest.mark.parametrize("kind", ["plain", "shared", "reentrant"])
def test_cut_connections_keep_holds_and_waits(server: Server, client: Any, engine: Any, how: str, kind: str) -> None:
    """Sessions and queue entries are kept for a while, in which the package connects again; losses are reported."""
    lock = kept(engine, server, how, timeout=30 if how == "watch" else 3, **KINDS[kind])
    with granted(engine.lock(server, "window", timeout=30), client, blocking_timeout=60):
        for _ in range(3):
            watched(client)
            wait_until(lambda: waiters(client, "window"))
            kill_connections(client)
            time.sleep(0.3)
    if how == "session" and kind != "shared":
        wait_until(lambda: info(client)[b"session"])
        assert {*info(client)[b"session"]} <= {int(one["id"]) for one in own_connections(client)}
    assert not lock.lost.wait(3.5) and lock.owned()
    watched(client)
    client.delete("door")
    assert lock.lost.wait(5)


@KEEPING
def test_server_time_out_for_idle_clients(new_server: Any, engine: Any, how: str) -> None:
    server = new_server(True, "--timeout", "3")
    lock = kept(engine, server, how, timeout=3600)
    waiter = engine.lock(server, "window", **{how: True}, timeout=2, thread_local=False)
    with granted(waiter, server.client(), blocking_timeout=30):
        assert not lock.lost.wait(6) and lock.owned()
    assert not waiter.lost.wait(3) and waiter.owned(), "what has waited is kept, too"
    lock.release()
    waiter.release()


@KEEPING
@pytest.mark.parametrize("forgets", [False, True], ids=["has the lock", "has forgotten it"])
def test_restarted_server_decides(new_server: Any, engine: Any, how: str, forgets: bool) -> None:
    """It has the lease of each lock that it has not forgotten, which is renewed as before."""
    server = new_server(True, *DURABLE)
    lock, again = kept(engine, server, how, timeout=3), kept(engine, server, how, "window", timeout=3, reentrant=True)
    assert again.acquire() and again.acquire() and again.extend(600, replace_ttl=True)
    stopped_at = time.monotonic()
    server.stop()
    if forgets:
        server.forget("door")
    server.start()
    if how == "session" and time.monotonic() - stopped_at > 0.6:
        pytest.skip("the machine is too busy to restart a server within the grace period of a session")
    client = server.client()
    wait_until(lambda: how == "renew" or info(client, "window")[b"session"])
    assert client.pttl("window") > 590_000
    for _ in range(3):
        assert client.hgetall("window") == {again.local.token: b"1"}
        again.release()
    assert lock.lost.wait(5 if forgets else 4) is forgets
    if forgets:
        with pytest.raises(LockNotOwnedError):
            lock.release()
    else:
        assert client.exists("door")
        lock.release()
    assert not client.exists("door", "window")


def test_server_was_a_replica_for_a_moment(new_server: Any, engine: Any) -> None:
    """It ends the session, and leaves the connection open."""
    server = new_server()
    client = server.client()
    lock = kept(engine, server, "session", timeout=3)
    client.replicaof("127.0.0.1", 1)
    wait_until(lambda: not info(client)[b"session"])
    client.replicaof("no", "one")
    wait_until(lambda: info(client)[b"session"])
    assert not lock.lost.wait(4) and client.exists("door")
    lock.release()
