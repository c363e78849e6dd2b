"""Servers that cannot be reached: an error, never False. Requests in progress are finished, or undone later."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from proxies import proxy
from servers import DURABLE, OUTAGE, Server, begin_wait, free_port, library, waiters
from waits import Threads, wait_until

from redis_lock_client import Lock, LockError, LockNotOwnedError

ATTEMPTS: list[dict[str, Any]] = [{"blocking": False}, {"blocking_timeout": 0}, {"blocking_timeout": 20}, {}]


def assert_unreachable(engine: Any, client: Any, seconds: float) -> None:
    """Asserts that each method raises the library's error, soon."""
    began = time.monotonic()
    for arguments in ATTEMPTS:
        with pytest.raises(OUTAGE) as raised:
            engine.lock(client, "door", timeout=30).acquire(**arguments)
        assert not isinstance(raised.value, LockError)
    with pytest.raises(OUTAGE):
        engine.lock(client, "door").locked()
    with pytest.raises(OUTAGE), engine.lock(client, "door", timeout=30, blocking_timeout=0.2):
        pass
    assert time.monotonic() - began < seconds


def test_address_without_server_is_an_error(server: Server, engine: Any) -> None:
    assert_unreachable(engine, engine.client(server, port=free_port()), 15)


def test_silent_address_is_an_error(server: Server, engine: Any) -> None:
    """It accepts connections, and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert_unreachable(engine, engine.client(server, port=port, socket_timeout=0.5), 20)


def test_server_that_dies_is_an_error(one_server: Server, engine: Any) -> None:
    """For waiters, holders and others; the lock of the holder is lost when its lease ends."""
    one_server.client().set("door", "another holder")
    waiter, held = engine.lock(one_server, "door", timeout=30), engine.lock(one_server, "window", timeout=3, watch=True)
    held.acquire()
    with Threads() as pool:
        waiting = pool.submit(waiter.acquire, blocking_timeout=1.5)
        time.sleep(0.3)
        one_server.stop()
        with pytest.raises(OUTAGE):
            waiting.result(20)
    for method in (held.owned, held.reacquire):
        with pytest.raises(OUTAGE):
            method()
    assert held.lost.wait(10)
    with pytest.raises((*OUTAGE, LockError)):
        held.release()
    assert_unreachable(engine, engine.client(one_server), 15)


def test_server_restarts_during_a_wait(new_server: Any, engine: Any) -> None:
    server = new_server(True, *DURABLE)
    client = server.client()
    client.set("door", "another holder")
    lock = engine.lock(server, "door", timeout=30, sleep=30, thread_local=False)
    with begin_wait(lock, client, blocking_timeout=60) as taken:
        for _ in range(2):
            wait_until(lambda: waiters(client))
            server.stop()
            time.sleep(0.5)
            server.start()
        wait_until(lambda: waiters(client))
        client.delete("door")
        assert taken.result(10)
    lock.release()


def test_server_restarts_while_callers_hold(new_server: Any, engine: Any) -> None:
    """They keep what it still has, and lose what it has forgotten. A release that failed is made up for."""
    server = new_server(True, *DURABLE)
    client, own = server.client(), engine.client(server)
    locks = {key: engine.lock(own, key, timeout=60, watch=True) for key in ("door", "window", "gate", "hatch")}
    for lock in locks.values():
        lock.acquire()
    server.stop()
    with pytest.raises(OUTAGE):
        locks["hatch"].release()
    server.forget("window")
    server.start()
    assert locks["window"].lost.wait(10)
    client.delete("gate")
    assert locks["gate"].lost.wait(10)
    wait_until(lambda: not client.exists("hatch"))
    assert client.exists("door") and not locks["door"].lost.wait(0.5)
    locks["door"].release()
    for key in ("window", "gate"):
        with pytest.raises(LockNotOwnedError):
            locks[key].release()
    assert not client.exists(*locks)


STALLED: list[dict[str, Any]] = [{}, {"session": True}, {"reentrant": True}]


@pytest.mark.parametrize("options", STALLED, ids=["plain", "session", "re-entrant"])
@pytest.mark.parametrize("blocking", [False, True])
def test_stalled_server_keeps_nothing(new_server: Any, engine: Any, options: dict[str, Any], blocking: bool) -> None:
    """The caller gets the time-out error, and what it asked for is undone when the server goes on."""
    server = new_server()
    client, own = server.client(), engine.client(server, socket_timeout=0.5)
    lock = engine.lock(own, "door", timeout=60, **options)
    lock.locked()
    with server.stalled(), pytest.raises(library.TimeoutError):
        lock.acquire(blocking=blocking, blocking_timeout=0.5)
    wait_until(lambda: not client.exists("door") and not waiters(client))
    other = engine.lock(server, "door", timeout=30)
    assert other.acquire(blocking_timeout=5)
    with server.stalled():
        time.sleep(0.5)
    assert other.owned()
    other.release()
    lock.acquire()
    with server.stalled(), pytest.raises(library.TimeoutError):
        lock.release()
    wait_until(lambda: not client.exists("door"))


def test_many_ask_a_stalled_server(new_server: Any, engine: Any) -> None:
    """None waits for the time-outs of the others."""
    server = new_server()
    own = engine.client(server, socket_timeout=1)
    engine.lock(own, "door", timeout=30).locked()
    began = time.monotonic()
    with server.stalled(), Threads(30) as pool:
        asked = [pool.submit(engine.lock(own, f"door:{n}", timeout=60).acquire, blocking=False) for n in range(30)]
        assert all(isinstance(one.exception(30), library.TimeoutError) for one in asked)
        assert time.monotonic() - began < 10
    wait_until(lambda: not server.client().keys("door:*"))


def test_stalled_server_does_not_end_a_wait(new_server: Any, engine: Any) -> None:
    server = new_server()
    client = server.client()
    client.set("door", "another holder")
    lock = engine.lock(engine.client(server, socket_timeout=0.5), "door", timeout=30, thread_local=False)
    with begin_wait(lock, client, blocking_timeout=60) as taken:
        with server.stalled():
            time.sleep(2)
        client.delete("door")
        assert taken.result(20)
    lock.release()


LATE = [({}, b"LOCK.ACQUIRE"), ({}, b"LOCK.RELEASE"), ({"reentrant": True}, b"LOCK.REENTER")]
LATE += [({"reentrant": True}, b"LOCK.RELEASE")]


@pytest.mark.parametrize("options, word", LATE)
def test_late_command_takes_nothing(server: Server, engine: Any, options: dict[str, Any], word: bytes) -> None:
    """It reaches the server when its connection is lost already, and the package has another one."""
    client = server.client()
    with proxy(server.port) as way:
        lock = engine.lock(engine.client(server, port=way.port, socket_timeout=1), "door", timeout=5, **options)
        lock.locked()
        way.late = word
        try:
            lock.acquire(blocking=False)
            lock.release()
        except OUTAGE:
            pass
        way.close_connections()
        wait_until(lambda: is_reached(lock))
        way.deliver.set()
        wait_until(lambda: not client.exists("door"), 4)
        time.sleep(1.2)
        with Lock(client, "door", timeout=30, blocking_timeout=1) as other:
            assert other.owned()


def is_reached(lock: Any) -> bool:
    try:
        lock.locked()
        return True
    except OUTAGE:
        return False


def test_connection_closed_while_idle_is_no_error(server: Server, client: Any, engine: Any) -> None:
    """Also for a command that is not sent twice."""
    lock = engine.lock(server, "door", timeout=30)
    lock.acquire()
    for method in (lambda: lock.extend(1), lock.owned, lock.fence, lock.release, lock.acquire):
        time.sleep(0.3)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(0.1)
        assert method() is not False
    lock.release()


@pytest.mark.parametrize("failures", [1, 2])
def test_failed_releases_of_holds_are_made_up(new_server: Any, engine: Any, failures: int) -> None:
    server = new_server()
    client = server.client()
    lock = engine.lock(engine.client(server, socket_timeout=0.5), "door", timeout=60, reentrant=True)
    for _ in range(failures + 1):
        lock.acquire()
    with server.stalled():
        for _ in range(failures):
            with pytest.raises(library.TimeoutError):
                lock.release()
    lock.acquire()
    assert client.hgetall("door") == {lock.local.token: b"2"}
    lock.release()
    lock.release()
    assert not client.exists("door")


def test_renewal_outlasts_failing_credentials(server: Server, client: Any) -> None:
    fails = threading.Event()
    base = library.credentials.CredentialProvider

    class Provider(base):  # type: ignore[misc, valid-type]
        def get_credentials(self) -> tuple[str, str]:
            if fails.is_set():
                raise RuntimeError("no credentials for a moment")
            return "worker", "secret"

    client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all")
    lock = Lock(server.client(credential_provider=Provider()), "door", timeout=3, renew=True)
    lock.acquire()
    fails.set()
    client.execute_command("CLIENT", "KILL", "USER", "worker")
    with pytest.raises(library.ConnectionError):
        lock.owned()
    time.sleep(0.5)
    fails.clear()
    assert not lock.lost.wait(4) and lock.owned()
    lock.release()
