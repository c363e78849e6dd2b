"""Locks that are kept for as long as the process lives: sessions and renewal. What they outlast, and what ends them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from servers import (
    DURABLE,
    Server,
    begin_wait,
    info,
    kill_connections,
    own_connections,
    running_program,
    waiters,
    watched,
)
from waits import wait_until

from redis_lock_client import LockNotOwnedError

KEEPING = pytest.mark.parametrize("how", ["session", "renew"])


def kept(engine: Any, where: Any, how: str, **options: Any) -> Any:
    """Returns a lock that is held, and kept by a session or by renewal, or only watched."""
    lock = engine.lock(where, "door", **{how: True, "timeout": 2, "watch": True, **options})
    assert lock.acquire(blocking_timeout=10)
    return lock


def test_session_is_that_of_the_one_connection(client: Any, make: Any) -> None:
    with make("door", timeout=30, session=True), make("window", timeout=30, session=True):
        (one,) = info(client)[b"session"]
        assert info(client, "window")[b"session"] == [one]
        assert one in {int(connection["id"]) for connection in own_connections(client)}


def test_session_that_waited_is_renewed(client: Any, make: Any) -> None:
    holder, waiter = make("door", timeout=30), make("door", timeout=2, session=True, thread_local=False)
    holder.acquire()
    with begin_wait(waiter, client) as taken:
        holder.release()
        assert taken.result(10)
    assert not waiter.lost.wait(3) and client.exists("door")
    waiter.release()


@pytest.mark.parametrize("how", ["collected", "killed", "ended"])
def test_session_ends_with_its_holder(server: Server, client: Any, how: str) -> None:
    end = {"collected": "del lock", "killed": "", "ended": "sys.exit()"}[how]
    text = f"""
lock = Lock(client, "door", timeout=30, session=True)
lock.acquire(); print("held"); sys.stdin.readline(); {end}
time.sleep(60)
"""
    with running_program(text, server) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert client.exists("door")
        if how == "killed":
            process.kill()
        else:
            print(file=process.stdin, flush=True)
        wait_until(lambda: not client.exists("door"))


@pytest.mark.parametrize("how", ["session", "renew", "watch"])
@pytest.mark.parametrize("kind", [{}, {"shared": True}, {"reentrant": True}], ids=["mutex", "share", "re-entrant"])
def test_cut_connections_keep_holders(server: Server, client: Any, engine: Any, how: str, kind: dict[str, Any]) -> None:
    """The session has a grace period, in which the package connects again. Later losses are reported."""
    lock = kept(engine, server, how, timeout=30 if how == "watch" else 2, **kind)
    for _ in range(3):
        watched(client)
        kill_connections(client)
        time.sleep(0.3)
    if how == "session":
        wait_until(lambda: info(client)[b"session"] or kind == {"shared": True})
    assert not lock.lost.wait(2.5) and lock.owned()
    watched(client)
    client.delete("door")
    assert lock.lost.wait(5)


def test_cut_connections_keep_waiters(client: Any, make: Any) -> None:
    """The queue entry is kept for a while, and the wait never ends with False while the lock is free."""
    client.set("door", "another holder")
    lock = make("door", timeout=30, blocking_timeout=60, thread_local=False)
    with begin_wait(lock, client) as taken:
        for _ in range(5):
            wait_until(lambda: waiters(client))
            kill_connections(client)
        client.delete("door")
        assert taken.result(20) is True
    lock.release()


@KEEPING
def test_server_time_out_for_idle_clients(new_server: Any, engine: Any, how: str) -> None:
    server = new_server(True, "--timeout", "3")
    client = server.client()
    lock = kept(engine, server, how, timeout=3600)
    client.set("window", "another holder")
    with begin_wait(engine.lock(server, "window", timeout=30), client, blocking_timeout=30) as waiting:
        assert not lock.lost.wait(6) and lock.owned()
        client.delete("window")
        assert waiting.result(10) is True
    lock.release()


@KEEPING
@pytest.mark.parametrize("forgets", [False, True], ids=["has the lock", "has forgotten it"])
def test_restarted_server_decides(new_server: Any, engine: Any, how: str, forgets: bool) -> None:
    server = new_server(True, *DURABLE)
    client = server.client()
    lock = kept(engine, server, how, timeout=3)
    server.stop()
    if forgets:
        server.forget("door")
    server.start()
    if forgets:
        assert lock.lost.wait(5)
        with pytest.raises(LockNotOwnedError):
            lock.release()
    else:
        assert not lock.lost.wait(4) and client.exists("door"), "it is renewed as before"
        lock.release()
    assert not client.exists("door")


def test_holds_outlast_a_restart(new_server: Any, engine: Any) -> None:
    server = new_server(True, *DURABLE)
    lock = kept(engine, server, "session", timeout=3, reentrant=True)
    lock.acquire()
    lock.acquire()
    lock.extend(600, replace_ttl=True)
    server.stop()
    server.start()
    client = server.client()
    wait_until(lambda: info(client)[b"session"])
    assert client.pttl("door") > 590_000
    for holds in (b"3", b"2", b"1"):
        assert client.hgetall("door") == {lock.local.token: holds}
        lock.release()
    assert not client.exists("door")


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


@pytest.mark.parametrize("how", ["session", "renew", "watch"])
def test_server_stalls_for_less_than_the_lease(new_server: Any, engine: Any, how: str) -> None:
    """That it does not reply in time is no reason to give the lock up."""
    server = new_server()
    lock = kept(engine, engine.client(server, socket_timeout=0.5), how, timeout=30)
    with server.stalled():
        assert not lock.lost.wait(2)
    assert not lock.lost.wait(1) and lock.owned()
    lock.release()


@pytest.mark.parametrize("how", ["session", "renew", "watch"])
def test_server_stalls_for_more_than_the_lease(new_server: Any, engine: Any, how: str) -> None:
    """The loss needs no reply. The server gives the lock back to a session, which would renew it for no holder."""
    server = new_server()
    lock = kept(engine, engine.client(server, socket_timeout=0.5), how, timeout=1)
    with server.stalled():
        assert lock.lost.wait(10)
        if how == "session":
            with pytest.raises(LockNotOwnedError):
                lock.extend(5)
            assert not lock.owned()
    if how == "watch":
        time.sleep(0.5)  # The server's clock ends the lease a moment later.
        with pytest.raises(LockNotOwnedError):
            lock.release()
    assert lock.acquire(blocking_timeout=10) and lock.owned() and not lock.lost.is_set()
    lock.release()
    assert engine.lock(server, "door", timeout=30).acquire(blocking_timeout=10)


STALLS = """
session, renewed = Lock(client, "door", timeout=1, session=True), Lock(client, "window", timeout=1, renew=True)
for lock in (session, renewed):
    lock.acquire(); lock.lost
print("held")
while sys.stdin.readline():
    time.sleep(0.5)
    print(session.lost.is_set(), renewed.lost.is_set(), session.owned(), renewed.owned())
"""


def test_process_stalls_for_more_than_the_lease(server: Server, client: Any) -> None:
    """The server renews its sessions; what the process itself renews is lost, and it sees that when it goes on."""
    with running_program(STALLS, server) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: not client.exists("window"))
        client.set("window", "another holder")
        os.kill(process.pid, signal.SIGCONT)
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "False True True False\n"
        assert client.get("window") == b"another holder"


def test_session_is_handed_over_by_its_token(client: Any, make: Any) -> None:
    """It outlasts the object that has acquired it, but not the process."""
    first, other = (make("door", timeout=30, session=True) for _ in range(2))
    first.acquire()
    other.local.token = first.local.token
    first.local.token = None
    del first
    time.sleep(0.3)
    assert other.owned() and info(client)[b"session"]
    other.release()
    assert not client.exists("door")
