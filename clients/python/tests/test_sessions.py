"""What a session outlasts, and what ends it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from conftest import (
    CLIENT,
    LIBRARY,
    Pulse,
    Server,
    Threads,
    assert_told_at_once,
    kill_connections,
    library,
    wait_until,
    waiters,
    watched,
)
from proxies import proxy

from redis_lock_client import Lock, LockNotOwnedError
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._sync import connections, keeper, node
from redis_lock_client.protocol import info

HOLDS = """
Lock(client, "door", timeout=2, session=True).acquire()
"""
WAITS = """
threading.Thread(target=Lock(client, "door", timeout=30).acquire, daemon=True).start()
while not client.execute_command("LOCK.WAITERS", "door"): time.sleep(0.01)
"""
PROGRAM = """
import multiprocessing, threading, time
import {library}
from redis_lock_client import Lock
client = {library}.{client}(port={port})
{begins}
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
print(child.pid, flush=True)
time.sleep(60)
"""


@contextmanager
def killed_beside_its_child(server: Server, begins: str) -> Iterator[None]:
    """A program that is killed while a process lives on that it has forked."""
    program = PROGRAM.format(library=LIBRARY, client=CLIENT, port=server.port, begins=begins)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait()
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_a_child_does_not_keep_a_session(server: Server, client: Any) -> None:
    with killed_beside_its_child(server, HOLDS):
        wait_until(lambda: not client.exists("door"), 5)


def test_a_child_does_not_keep_a_place_in_line(server: Server, client: Any) -> None:
    client.set("door", "somebody else")
    with killed_beside_its_child(server, WAITS):
        wait_until(lambda: not waiters(client), 5)
        client.delete("door")
        time.sleep(0.2)
        assert not client.exists("door")


def test_a_request_of_others_that_takes_too_long(new_server: Any) -> None:
    server = new_server()
    own = server.client(socket_timeout=0.3)
    lock = Lock(own, "door", timeout=30, session=True)
    lock.acquire()
    with server.standing_still(), pytest.raises(library.TimeoutError):
        Lock(own, "other", timeout=30).locked()
    time.sleep(0.5)
    assert lock.owned() and not lock.lost.is_set()
    lock.release()


def test_a_server_that_restarts_with_its_locks(new_server: Any) -> None:
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    lock = Lock(server.client(), "door", timeout=3, session=True)
    lock.acquire()
    server.stop()
    server.start()
    time.sleep(5)
    assert server.client().exists("door") and not lock.lost.is_set(), "it is renewed as before"
    lock.release()


def test_a_lock_that_is_lost_while_its_session_begins_anew(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken anew: another may have had it meanwhile."""
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    exchange, fresh = node.exchange, []

    def with_another(connection: Any, words: list[Any]) -> Any:
        if words == ["MULTI"]:
            for command in ("DEL door", "LOCK.ACQUIRE door another", "LOCK.RELEASE door another"):
                fresh.append(server.client().execute_command(*command.split()))
        return exchange(connection, words)

    monkeypatch.setattr(node, "exchange", with_another)
    lock = Lock(server.client(), "door", timeout=30, session=True)
    lock.acquire()
    server.stop()
    server.start()
    assert lock.lost.wait(10)
    assert fresh[:3] == [1, 1, 0]
    assert not server.client().exists("door")


def test_holds_and_a_longer_lease_outlast_a_restart(new_server: Any) -> None:
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    lock = Lock(server.client(), "door", timeout=3, session=True, reentrant=True)
    for _ in range(3):
        lock.acquire()
    lock.extend(600, replace_ttl=True)
    server.stop()
    server.start()
    client = server.client()
    wait_until(lambda: info(client.execute_command("LOCK.INFO", "door"))[b"session"])
    assert client.pttl("door") > 590_000
    for holds in (b"3", b"2", b"1"):
        assert client.hgetall("door") == {lock.local.token: holds}
        lock.release()
    assert not client.exists("door")


def test_a_server_that_was_a_replica_for_a_moment(new_server: Any) -> None:
    """It ends the session and leaves the connection open."""
    server = new_server()
    client = server.client()
    lock = Lock(server.client(), "door", timeout=3, session=True)
    lock.acquire()
    client.replicaof("127.0.0.1", 1)
    wait_until(lambda: not info(client.execute_command("LOCK.INFO", "door"))[b"session"])
    client.replicaof("no", "one")
    wait_until(lambda: info(client.execute_command("LOCK.INFO", "door"))[b"session"])
    time.sleep(4)
    assert client.exists("door") and not lock.lost.is_set()
    lock.release()


def test_a_lock_that_goes_ahead_of_its_slot_for_long(new_server: Any) -> None:
    cluster = Cluster([new_server(True, *OPTIONS) for _ in range(2)])
    lock = Lock(cluster.client(), "door", timeout=2, session=True)
    lock.acquire()
    cluster.begin_to_move("door")
    cluster.move_keys("door")
    assert not lock.lost.wait(5) and cluster.keys_ahead("door") == 1
    cluster.end_move("door")
    client = cluster.nodes[1 - cluster.owner("door")]
    wait_until(lambda: info(client.execute_command("LOCK.INFO", "door"))[b"session"])
    assert not lock.lost.is_set()
    lock.release()
    assert not client.exists("door")


def test_a_slot_that_moves(new_server: Any) -> None:
    cluster = Cluster([new_server(True, *OPTIONS) for _ in range(2)])
    lock = Lock(cluster.client(), "door", timeout=3, session=True)
    lock.acquire()
    cluster.move("door")
    time.sleep(5)
    assert cluster.nodes[1 - cluster.owner("door")].exists("door") and not lock.lost.is_set()
    lock.release()


def test_the_connection_of_sessions_alone_is_cut(client: Any, server: Server, pulse: Pulse) -> None:
    """Somebody else has the lock at once, and the holder is told as soon."""
    late: dict[tuple[int, str], float] = {}
    for turn in range(20):
        lock = Lock(server.client(), "door", timeout=60, session=True)
        lock.acquire()
        watched(client)
        (holder,) = info(client.execute_command("LOCK.INFO", "door"))[b"session"]
        began = time.monotonic()
        client.execute_command("CLIENT", "KILL", "ID", holder)
        wait_until(lambda: not client.exists("door"))
        assert lock.lost.wait(5)
        late[turn, "CLIENT KILL"] = time.monotonic() - began - pulse.late_since(began)
    assert_told_at_once(late)


def test_idle_connections_are_kept(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "PING_S", 0.5)
    server = new_server(True, "--timeout", "2")
    lock = Lock(server.client(), "door", timeout=3600, session=True)
    lock.acquire()
    assert not lock.lost.wait(6) and lock.owned()
    lock.release()


def test_a_server_that_stands_still_keeps_its_sessions(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it does not answer in time is no reason to give them up."""
    monkeypatch.setattr(keeper, "PING_S", 0.2)
    monkeypatch.setattr(connections, "PONG_S", 0.2)
    server = new_server()
    lock = Lock(server.client(socket_timeout=0.5), "door", timeout=30, session=True)
    lock.acquire()
    with server.standing_still():
        assert not lock.lost.wait(3)
    assert not lock.lost.wait(3)
    (before,) = info(server.client().execute_command("LOCK.INFO", "door"))[b"session"]
    other = Lock(server.client(), "other", timeout=30, session=True)
    other.acquire()
    assert lock.owned()
    assert info(server.client().execute_command("LOCK.INFO", "door"))[b"session"] == [before]
    lock.release()


async def test_a_process_that_stands_still(server: Server) -> None:
    """The server renews its sessions meanwhile."""
    client = server.client_asyncio()
    session = for_tasks.Lock(client, "door", timeout=1, session=True)
    renewed = for_tasks.Lock(client, "window", timeout=1, renew=True)
    await session.acquire()
    await renewed.acquire()
    await asyncio.sleep(0.1)
    time.sleep(2)
    await asyncio.sleep(1)
    assert renewed.lost.is_set()
    assert not session.lost.is_set() and await session.owned()
    await session.release()
    await client.aclose()


def test_a_session_that_is_handed_over(client: Any, server: Server) -> None:
    """It outlasts the object that has taken it, but not the process."""
    own = server.client()
    first, other = (Lock(own, "door", timeout=30, session=True) for _ in range(2))
    first.acquire()
    other.local.token = first.local.token
    assert other.owned()
    del first
    gc.collect()
    time.sleep(0.5)
    assert other.owned() and info(client.execute_command("LOCK.INFO", "door"))[b"session"]
    other.release()


def test_a_share_that_is_asked_for_again_by_the_same_token(client: Any) -> None:
    lock = Lock(client, "door", timeout=30, limit=5, session=True)
    assert lock.acquire(token="worker")
    assert not lock.acquire(token="worker", blocking=False)
    gc.collect()
    time.sleep(0.5)
    assert lock.owned() and not lock.lost.is_set()
    lock.release()


async def test_sessions_that_are_taken_side_by_side(server: Server, client: Any) -> None:
    """By a user who may not look: whether they go on is known by their connection alone."""
    client.execute_command("ACL", "SETUSER", "blind", "on", ">blind", "~*", "&*", "+@all", "-lock.info")
    own = server.client_asyncio(username="blind", password="blind")
    locks = [for_tasks.Lock(own, f"door:{number}", timeout=0.5, session=True) for number in range(20)]
    await asyncio.gather(*(lock.acquire() for lock in locks))
    await asyncio.sleep(1.5)
    assert not any(lock.lost.is_set() for lock in locks)
    await asyncio.gather(*(lock.release() for lock in locks))
    await own.aclose()


def test_connections_that_are_cut(client: Any, server: Server) -> None:
    """The session ends with its connection, and its holder is told; what this process renews is held on."""
    session = Lock(server.client(), "door", timeout=30, session=True)
    renewed = Lock(server.client(), "gate", timeout=30, renew=True)
    session.acquire()
    renewed.acquire()
    wait_until(lambda: session.local.held is not None and session.local.held.keeper.node.listener.listens)
    kill_connections(client)
    assert session.lost.wait(2)
    assert not client.exists("door")
    assert renewed.owned() and not renewed.lost.is_set()
    renewed.release()


@pytest.mark.parametrize("taken_again", [False, True])
def test_a_lock_that_was_lost_while_the_server_stood_still(new_server: Any, taken_again: bool) -> None:
    """The server gives it back to the session, whose connection is open, and would renew it for nobody."""
    server = new_server()
    client = server.client()
    lock = Lock(client, "door", timeout=1, session=True)
    lost = lock.lost
    lock.acquire()
    with server.standing_still():
        assert lost.wait(10)
    if taken_again:
        assert lock.acquire(blocking_timeout=10) and lock.owned()
    else:
        del lock
        gc.collect()
        assert Lock(server.client(), "door", timeout=30).acquire(blocking_timeout=10)


@pytest.mark.parametrize("seconds", [None, 2.0])
def test_a_lock_that_was_lost_is_not_extended(new_server: Any, seconds: float | None) -> None:
    """It is being released, although the server may have it yet."""
    server = new_server()
    lock = Lock(server.client(), "door", timeout=1, session=True)
    lost = lock.lost
    lock.acquire()
    with server.standing_still():
        assert lost.wait(10)
        began = time.monotonic()
        with pytest.raises(LockNotOwnedError):
            lock.reacquire() if seconds is None else lock.extend(seconds)
        assert not lock.owned() and time.monotonic() - began < 0.5, "the server is not asked"
    wait_until(lambda: not server.client().exists("door"))


@pytest.mark.parametrize("what", ["acquire", "reacquire", "owned"])
def test_a_lock_is_lost_while_the_server_is_asked(new_server: Any, what: str) -> None:
    """The server still had it when it answered, but it is given up."""
    server = new_server()
    client = server.client()
    lock = Lock(server.client(), "door", timeout=1, session=True, reentrant=True, thread_local=False)
    lost = lock.lost
    lock.acquire()
    with Threads() as pool:
        with server.standing_still():
            asked = pool.submit(getattr(lock, what))
            assert lost.wait(10) and not asked.done()
        if what == "owned":
            assert asked.result(10) is False
        else:
            assert isinstance(asked.exception(10), LockNotOwnedError)
    wait_until(lambda: not client.exists("door"))


def test_a_release_that_does_not_come_through_for_long(
    server: Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is: the connection of its session is open, so the server would renew the lock for nobody."""
    monkeypatch.setattr(node, "WITHDRAW_S", 0.5)
    lock = Lock(server.client(), "door", timeout=0.5, session=True)
    lock.acquire()
    exchange, is_cut = connections.exchange, True

    def cut(connection: Any, words: list[Any]) -> Any:
        if is_cut and words[0] == "LOCK.RELEASE":
            raise library.TimeoutError
        return exchange(connection, words)

    monkeypatch.setattr(connections, "exchange", cut)
    with pytest.raises(library.TimeoutError):
        lock.release()
    time.sleep(3)
    assert client.exists("door"), "the server renews it"
    is_cut = False
    wait_until(lambda: not client.exists("door"))


@pytest.mark.parametrize("options", [{"session": True}, {"renew": True}], ids=["session", "renewed"])
def test_what_is_given_up_holds_up_no_renewal(server: Server, client: Any, options: dict[str, Any]) -> None:
    """The connection on which somebody gives up is dead, without anybody saying so."""
    client.set("window", "somebody else")
    with proxy(server.port) as way:
        own = server.client(port=way.port, socket_timeout=4)
        lock = Lock(own, "door", timeout=1, **options)
        lock.acquire()
        lost = lock.lost
        way.late = b"LOCK.RELEASE"
        assert not Lock(own, "window", timeout=30).acquire(blocking_timeout=0.3)
        assert way.late is None
        assert not lost.wait(3) and lock.owned()
