"""Servers that cannot be reached: an error, never False. Requests in progress are finished, or undone later."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
from conftest import Server, Threads, free_port, library, wait_until, waiters
from proxies import proxy

from redis_lock_client import Lock, LockError, LockNotOwnedError

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
UNREACHABLE = (library.ConnectionError, library.TimeoutError)


@pytest.mark.parametrize(
    "arguments", [{"blocking": False}, {"blocking_timeout": 0}, {"blocking_timeout": 20}, {}], ids=str
)
def test_address_without_server_is_an_error(arguments: dict[str, Any]) -> None:
    client = getattr(library, library.__name__.capitalize())(port=free_port())
    began = time.monotonic()
    for lock in (Lock(client, "door", timeout=30), Lock(client, "door")):
        with pytest.raises(library.ConnectionError):
            lock.acquire(**arguments)
        with pytest.raises(library.ConnectionError):
            lock.locked()
    assert time.monotonic() - began < 5


def test_silent_address_is_an_error() -> None:
    """It accepts connections, and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = getattr(library, library.__name__.capitalize())(port=port, socket_timeout=0.5)
        for arguments in ({"blocking": False}, {"blocking_timeout": 0.1}, {"blocking_timeout": 5}):
            began = time.monotonic()
            with pytest.raises(UNREACHABLE):
                Lock(client, "door", timeout=30).acquire(**arguments)
            assert time.monotonic() - began < 5


@pytest.mark.parametrize("module", [True, False])
def test_server_that_dies_is_an_error(new_server: Any, module: bool) -> None:
    server = new_server(module)
    server.client().set("door", "another holder")
    lock = Lock(server.client(), "door", timeout=30)
    with Threads() as pool:
        waiting = pool.submit(lock.acquire, blocking_timeout=1.5)
        wait_until(lambda: lock.native is not None)
        server.stop()
        with pytest.raises(UNREACHABLE):
            waiting.result(10)
    for arguments in ({"blocking": False}, {"blocking_timeout": 0.3}):
        with pytest.raises(UNREACHABLE) as raised:
            lock.acquire(**arguments)
        assert not isinstance(raised.value, LockError)
    with pytest.raises(UNREACHABLE), Lock(server.client(), "door", timeout=30, blocking_timeout=0.2):
        pass


def test_holder_of_a_dead_server(new_server: Any) -> None:
    """Its methods raise, and it has lost the lock when its lease ends."""
    server = new_server()
    lock = Lock(server.client(), "door", timeout=2, watch=True)
    lock.acquire()
    server.stop()
    for method in (lock.owned, lock.reacquire, lock.fence):
        with pytest.raises(UNREACHABLE):
            method()
    assert lock.lost.wait(4)
    with pytest.raises((*UNREACHABLE, LockError)):
        lock.release()


def test_server_restarts_during_a_wait(new_server: Any) -> None:
    server = new_server(True, *DURABLE)
    server.client().set("door", "another holder")
    lock = Lock(server.client(), "door", timeout=30, sleep=30, thread_local=False)
    with Threads() as pool:
        taken = pool.submit(lock.acquire, blocking_timeout=30)
        for _ in range(2):
            wait_until(lambda: waiters(server.client()))
            server.stop()
            time.sleep(0.5)
            server.start()
        wait_until(lambda: waiters(server.client()))
        server.client().delete("door")
        assert taken.result(5)
    lock.release()


def test_server_restarts_while_threads_hold(new_server: Any) -> None:
    """They keep what it still knows, and lose what it has forgotten."""
    server = new_server(True, *DURABLE)
    client = server.client()
    locks = {key: Lock(client, key, timeout=60, watch=True) for key in ("door", "window", "gate")}
    for lock in locks.values():
        lock.acquire()
    server.stop()
    server.forget("window")
    server.start()
    assert locks["window"].lost.wait(10)
    client.delete("gate")
    assert locks["gate"].lost.wait(10)
    assert client.exists("door") and not locks["door"].lost.wait(0.5)
    locks["door"].release()
    for key in ("window", "gate"):
        with pytest.raises(LockNotOwnedError):
            locks[key].release()
    assert not client.exists(*locks)


@pytest.mark.parametrize(
    "options", [{}, {"session": True}, {"reentrant": True}], ids=["plain", "session", "re-entrant"]
)
@pytest.mark.parametrize("blocking", [False, True])
def test_stalled_server_keeps_nothing(new_server: Any, options: dict[str, Any], blocking: bool) -> None:
    """The caller gets the time-out error, and what it asked for is undone when the server goes on."""
    server = new_server()
    client = server.client()
    lock = Lock(server.client(socket_timeout=0.5), "door", timeout=60, **options)
    lock.locked()
    with server.standing_still(), pytest.raises(library.TimeoutError):
        lock.acquire(blocking=blocking, blocking_timeout=0.5)
    wait_until(lambda: not client.exists("door") and not waiters(client))
    other = Lock(client, "door", timeout=30)
    assert other.acquire(blocking_timeout=5)
    time.sleep(0.5)
    assert other.owned()
    other.release()


def test_many_ask_a_stalled_server(new_server: Any) -> None:
    """None waits for the time-outs of the others."""
    server = new_server()
    own = server.client(socket_timeout=1)
    Lock(own, "door", timeout=30).locked()
    began = time.monotonic()
    with server.standing_still(), Threads(30) as pool:
        asked = [pool.submit(Lock(own, f"door:{n}", timeout=60).acquire, blocking=False) for n in range(30)]
        assert all(isinstance(one.exception(20), library.TimeoutError) for one in asked)
        assert time.monotonic() - began < 6
    wait_until(lambda: not server.client().keys("door:*"))


def test_stalled_server_does_not_end_a_wait(new_server: Any) -> None:
    server = new_server()
    client = server.client()
    client.set("door", "another holder")
    lock = Lock(server.client(socket_timeout=0.5), "door", timeout=30, thread_local=False)
    with Threads() as pool:
        taken = pool.submit(lock.acquire, blocking_timeout=30)
        wait_until(lambda: waiters(client))
        with server.standing_still():
            time.sleep(2)
        client.delete("door")
        assert taken.result(15)
    lock.release()


@pytest.mark.parametrize("session", [False, True])
def test_release_whose_reply_is_late_is_done(new_server: Any, session: bool) -> None:
    server = new_server()
    lock = Lock(server.client(socket_timeout=0.5), "door", timeout=60, session=session)
    lock.acquire()
    with server.standing_still(), pytest.raises(library.TimeoutError):
        lock.release()
    wait_until(lambda: not server.client().exists("door"))


@pytest.mark.parametrize(
    "options, word",
    [
        ({}, b"LOCK.ACQUIRE"),
        ({}, b"LOCK.RELEASE"),
        ({"reentrant": True}, b"LOCK.REENTER"),
        ({"reentrant": True}, b"LOCK.RELEASE"),
    ],
)
def test_command_that_is_late_takes_nothing(server: Server, client: Any, options: dict[str, Any], word: bytes) -> None:
    """It reaches the server when its connection is lost already, and the package has another one."""
    with proxy(server.port) as way:
        own = server.client(port=way.port, socket_timeout=1)
        lock = Lock(own, "door", timeout=5, **options)
        lock.locked()
        way.late = word
        try:
            lock.acquire(blocking=False)
            lock.release()
        except UNREACHABLE:
            pass
        way.close_connections()
        lock.locked()
        way.deliver.set()
        wait_until(lambda: not client.exists("door"), 4)
        time.sleep(1.2)
        with Lock(client, "door", timeout=30, blocking_timeout=1) as other:
            assert other.owned()


def test_connection_closed_while_idle_is_no_error(server: Server, client: Any) -> None:
    """Also for a command that is not sent twice."""
    lock = Lock(server.client(), "door", timeout=30)
    lock.acquire()
    for method in (lambda: lock.extend(1), lock.owned, lock.fence, lock.release, lock.acquire):
        time.sleep(0.3)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(0.05)
        assert method() is not False
    lock.release()


@pytest.mark.parametrize("failures", [1, 2])
def test_failed_releases_of_holds_are_made_up(new_server: Any, failures: int) -> None:
    server = new_server()
    client = server.client()
    lock = Lock(server.client(socket_timeout=0.5), "door", timeout=60, reentrant=True)
    for _ in range(failures + 1):
        lock.acquire()
    with server.standing_still():
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
