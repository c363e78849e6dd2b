"""Requests that the server comes to when their caller has long given up: nothing of them is left behind."""

from __future__ import annotations

import asyncio
import time

import pytest
from conftest import Server, Threads, library, until, wait_until
from proxies import proxy

from redis_lock_client import Lock
from redis_lock_client import asyncio as for_tasks

#: The server hears of the request before it has heard that it was given up, or some time after.
PAUSES = [0, 1.5]
FAILURES = (library.ConnectionError, library.TimeoutError)


def asks(server: Server, reentrant: bool) -> bytes:
    return b"EVAL" if not server.module else b"LOCK.REENTER" if reentrant else b"LOCK.ACQUIRE"


def runs(server: Server) -> int:
    """How many requests for locks the server has come to."""
    statistics = server.client().info("commandstats")
    return sum(one["calls"] for name, one in statistics.items() if "eval" in name or "lock.re" in name or "acq" in name)


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("blocking", [False, True])
def test_a_thread_gives_up(one_server: Server, blocking: bool, pause: float) -> None:
    with proxy(one_server.port) as way:
        lock = Lock(one_server.client(port=way.port, socket_timeout=0.3), "door", timeout=60)
        assert not lock.locked()
        way.late = asks(one_server, False)
        with pytest.raises(FAILURES):
            lock.acquire(blocking=blocking)
        time.sleep(pause)
        before = runs(one_server)
        way.deliver.set()
        wait_until(lambda: runs(one_server) > before)
        wait_until(lambda: not one_server.client().exists("door"))
        assert lock.acquire(blocking=False)
        lock.release()


@pytest.mark.parametrize("pause", PAUSES)
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_task_gives_up(one_server: Server, blocking: bool, pause: float) -> None:
    with proxy(one_server.port) as way:
        client = one_server.client_asyncio(port=way.port, socket_timeout=0.3)
        lock = for_tasks.Lock(client, "door", timeout=60)
        assert not await lock.locked()
        way.late = asks(one_server, False)
        with pytest.raises(FAILURES):
            await lock.acquire(blocking=blocking)
        await asyncio.sleep(pause)
        before = runs(one_server)
        way.deliver.set()
        await until(lambda: runs(one_server) > before)
        await until(lambda: not one_server.client().exists("door"))
        assert await lock.acquire(blocking=False)
        await lock.release()
        await client.aclose()


@pytest.mark.parametrize("pause", PAUSES)
def test_a_request_that_was_asked_again(one_server: Server, pause: float) -> None:
    """The lock is granted by the second one, and released before the server comes to the first."""
    client = one_server.client()
    client.set("door", "somebody else")
    with proxy(one_server.port) as way, Threads() as pool:
        lock = Lock(one_server.client(port=way.port, socket_timeout=0.3), "door", timeout=60, thread_local=False)
        assert lock.locked()
        taken = pool.submit(lock.acquire)
        before = runs(one_server)
        wait_until(lambda: runs(one_server) > before)
        way.late = asks(one_server, False)
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda: way.late is None)
        before = runs(one_server)
        wait_until(lambda: runs(one_server) > before)
        client.delete("door")
        assert taken.result(10)
        lock.release()
        time.sleep(pause)
        before = runs(one_server)
        way.deliver.set()
        wait_until(lambda: runs(one_server) > before)
        wait_until(lambda: not client.exists("door"))
        time.sleep(0.5)
        assert not client.exists("door")


@pytest.mark.parametrize("lease", [20, None])
async def test_a_task_that_is_cancelled_while_it_asks(one_server: Server, lease: float | None) -> None:
    """Its request goes on without it, and is not answered in time."""
    client = one_server.client()
    with proxy(one_server.port) as way:
        own = one_server.client_asyncio(port=way.port, socket_timeout=0.3)
        lock = for_tasks.Lock(own, "door", timeout=lease)
        assert not await lock.locked()
        if lease is None and one_server.module:
            client.set("door", "somebody else")
        way.late = b"BLOCK" if lease is None and one_server.module else asks(one_server, False)
        task = asyncio.create_task(lock.acquire())
        await until(lambda: way.late is None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(1.5)
        client.delete("door")
        before = runs(one_server)
        way.deliver.set()
        await until(lambda: runs(one_server) > before)
        await until(lambda: not client.exists("door"))
        await asyncio.sleep(0.5)
        assert not client.exists("door")
        await own.aclose()


def test_a_late_hold_and_a_release_that_is_not_answered(one_server: Server) -> None:
    """The lock does not stay, and the object can be used again."""
    with proxy(one_server.port) as way:
        lock = Lock(one_server.client(port=way.port, socket_timeout=0.3), "door", timeout=60, reentrant=True)
        lock.acquire()
        way.late = asks(one_server, True)
        with pytest.raises(FAILURES):
            lock.acquire()
        # Until its connection is given up, a second request is not answered either.
        way.slow = (b"LOCK.RELEASE" if one_server.module else b"EVAL", 1.0)
        with pytest.raises(FAILURES):
            lock.release()
        way.slow = None
        way.deliver.set()
        wait_until(lambda: not one_server.client().exists("door"))
        with lock:
            assert lock.owned()


def test_a_hold_that_is_counted_late_does_not_end_those_outside(one_server: Server) -> None:
    with proxy(one_server.port) as way:
        lock = Lock(one_server.client(port=way.port, socket_timeout=0.3), "door", timeout=60, reentrant=True)
        with lock, lock:
            way.late = asks(one_server, True)
            with pytest.raises(FAILURES):
                lock.acquire()
            assert lock.acquire()
            lock.release()
            before = runs(one_server)
            way.deliver.set()
            wait_until(lambda: runs(one_server) > before)
        assert not one_server.client().exists("door")


@pytest.mark.parametrize("delay", [0.6, 1.0])
async def test_tasks_that_give_up_at_the_same_time(one_server: Server, delay: float) -> None:
    """Each withdraws what it has asked for itself, also while others wait for the same answers."""
    keys = [f"door:{number}" for number in range(3)]
    with proxy(one_server.port) as way:
        client = one_server.client_asyncio(port=way.port, socket_timeout=0.3)
        locks = [for_tasks.Lock(client, key, timeout=60) for key in keys]
        await asyncio.gather(*(lock.locked() for lock in locks))
        way.slow = (asks(one_server, False), delay)
        answers = await asyncio.gather(*(lock.acquire(blocking=False) for lock in locks), return_exceptions=True)
        way.slow = None
        assert all(isinstance(answer, FAILURES) for answer in answers), answers
        await asyncio.sleep(2 * delay)
        await until(lambda: not one_server.client().exists(*keys))
        await client.aclose()


@pytest.mark.parametrize("when", ["before", "between"])
def test_one_more_hold_that_is_counted_late(one_server: Server, when: str) -> None:
    """The last release gives up all holds, also one that was given up before the server came to it."""
    with proxy(one_server.port) as way:
        client = one_server.client()
        lock = Lock(one_server.client(port=way.port, socket_timeout=0.3), "door", timeout=60, reentrant=True)
        lock.acquire()
        way.late = asks(one_server, True)
        with pytest.raises(FAILURES):
            lock.acquire()
        if when == "before":
            way.deliver.set()
        lock.acquire()
        assert client.hgetall("door") == {lock.local.token: b"2"}
        lock.release()
        if when == "between":
            assert client.hgetall("door") == {lock.local.token: b"1"}
            way.deliver.set()
            wait_until(lambda: client.hgetall("door") == {lock.local.token: b"2"})
        lock.release()
        assert not client.exists("door")
