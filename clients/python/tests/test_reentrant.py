"""Re-entrant locks, with the module and without it: each hold counts once, whatever becomes of the lock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from conftest import Server, library, until, wait_until
from proxies import proxy

from redis_lock_client import Lock, LockError, LockNotOwnedError
from redis_lock_client import asyncio as for_tasks


@pytest.mark.parametrize("holds", [1, 2, 3])
@pytest.mark.parametrize("tries_again", [False, True])
def test_each_hold_of_a_lost_lock_is_released(one_server: Server, holds: int, tries_again: bool) -> None:
    """The lock is nobody's then, but the object is as good as new when its last hold was released."""
    client = one_server.client()
    lock = Lock(client, "door", timeout=30, reentrant=True)
    for _ in range(holds):
        lock.acquire()
    client.delete("door")
    if tries_again:
        with pytest.raises(LockNotOwnedError):
            lock.acquire()
    for _ in range(holds):
        with pytest.raises(LockNotOwnedError):
            lock.release()
    with pytest.raises(LockError, match="already unlocked"):
        lock.release()
    with lock, lock:
        assert client.hgetall("door") == {lock.local.token: b"2"}
    assert not client.exists("door")


def seconds_until_told(lock: Lock, began: float) -> float:
    """When the holder is told of the end of the lease."""
    assert lock.lost.wait(20)
    return time.monotonic() - began


def test_a_lease_that_was_lengthened_is_not_lengthened_again_by_another_hold(one_server: Server) -> None:
    """Whoever takes a lock again asks for the lease of the lock object, which is over before the present one."""
    lock = Lock(one_server.client(), "door", timeout=1, reentrant=True)
    lock.acquire()
    assert not lock.lost.is_set()
    began = time.monotonic()
    lock.extend(3, replace_ttl=True)
    time.sleep(1.5)
    lock.acquire()
    with one_server.standing_still():
        assert 2.9 < seconds_until_told(lock, began) < 4.2, "not by as much as the present one was lengthened"


def test_a_lease_is_lengthened_by_another_hold(one_server: Server) -> None:
    """By its end, not by as much as it is for."""
    lock = Lock(one_server.client(), "door", timeout=2, reentrant=True)
    lock.acquire()
    assert not lock.lost.is_set()
    time.sleep(1)
    began = time.monotonic()
    lock.acquire()
    with one_server.standing_still():
        assert 1.9 < seconds_until_told(lock, began) < 2.8, "neither when the first ends, nor when both would"


@pytest.mark.parametrize("watched", [False, True])
def test_a_lost_lock_that_is_entered_again(one_server: Server, watched: bool) -> None:
    """It is not taken anew inside of a block that believes that it holds it, also if the loss has been told."""
    client = one_server.client()
    lock = Lock(client, "door", timeout=2, reentrant=True, on_lost=(lambda: None) if watched else None)
    with pytest.raises(LockNotOwnedError), lock:
        client.delete("door")
        assert not watched or lock.lost.wait(5)
        with lock:
            pytest.fail("it was taken anew")
    assert not client.exists("door")


async def test_a_release_of_a_hold_in_doubt_is_cancelled(server: Server, client: Any) -> None:
    """A task is cancelled while it takes one more hold, and again while it gives up what it has."""
    with proxy(server.port) as way:
        aclient = server.client_asyncio(port=way.port)
        lock = for_tasks.Lock(aclient, "door", timeout=60, reentrant=True)

        async def work() -> None:
            async with lock:
                way.slow = (b"LOCK.", 0.2)
                async with lock:
                    pass

        task = asyncio.create_task(work())
        await until(lambda: way.slow)
        for pause in (0.1, 0.05):
            await asyncio.sleep(pause)
            task.cancel()
        await asyncio.wait([task])
        await until(lambda: not client.exists("door"))
        assert task.cancelled()
        await aclient.aclose()


def test_a_lock_that_was_lost_is_released_before_it_is_taken_anew(new_server: Any) -> None:
    """Also where a server that stood still has it yet: nobody would see to it."""
    server = new_server()
    lock = Lock(server.client(), "door", timeout=1, reentrant=True, session=True)
    lost = lock.lost
    lock.acquire()
    with server.standing_still():
        assert lost.wait(10)
    with pytest.raises(LockNotOwnedError):
        lock.acquire()
    with contextlib.suppress(LockNotOwnedError):  # Unless it is given up in the background first.
        lock.release()
    with lock:
        assert not lost.is_set() and lock.owned()


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_releases_that_fail_one_after_the_other(new_server: Any, failures: int) -> None:
    """Each hold was given up by its holder, so none is left when the last one is."""
    server = new_server()
    client = server.client()
    lock = Lock(server.client(socket_timeout=0.3), "door", timeout=20, reentrant=True, renew=True)
    holds = failures + 1
    for _ in range(holds):
        lock.acquire()
    with server.standing_still():
        for _ in range(failures):
            with pytest.raises(library.TimeoutError):
                lock.release()
    assert client.exists("door")
    lock.release()
    assert not client.exists("door") and lock.local.held is None


@pytest.mark.parametrize("failures", [1, 2])
def test_a_hold_after_releases_that_have_failed(new_server: Any, failures: int) -> None:
    server = new_server()
    client = server.client()
    lock = Lock(server.client(socket_timeout=0.3), "door", timeout=20, reentrant=True)
    for _ in range(4):
        lock.acquire()
    with server.standing_still():
        for _ in range(failures):
            with pytest.raises(library.TimeoutError):
                lock.release()
    lock.acquire()
    assert client.hgetall("door") == {lock.local.token: b"%d" % (5 - failures)}
    for _ in range(5 - failures):
        lock.release()
    assert not client.exists("door")


async def test_releases_that_are_cancelled_one_after_the_other(aclient: Any, client: Any) -> None:
    """As scopes do that cancel their task again and again until it has ended."""
    lock = for_tasks.Lock(aclient, "door", timeout=20, reentrant=True, renew=True)

    async def hold() -> None:
        async with lock, lock, lock:
            await asyncio.sleep(30)

    task = asyncio.create_task(hold())
    await until(lambda: client.hvals("door") == [b"3"])
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    await until(lambda: not client.exists("door"))
    assert lock.local.held is None


def test_a_release_that_comes_late_and_was_sent_again(server: Server, client: Any) -> None:
    """It takes away a hold that was taken since, which is no loss: the next one brings it back."""
    with proxy(server.port) as way:
        lock = Lock(server.client(port=way.port, socket_timeout=0.3), "door", timeout=60, reentrant=True)
        assert lock.acquire() and lock.acquire()
        way.late = b"LOCK.RELEASE"
        lock.release()
        assert lock.acquire() and client.hvals("door") == [b"2"]
        way.deliver.set()
        wait_until(lambda: client.hvals("door") == [b"1"])
        assert lock.acquire() and client.hvals("door") == [b"3"]
        for holds in (b"2", b"1"):
            lock.release()
            assert client.hvals("door") == [holds]
        lock.release()
    assert not client.exists("door")


@pytest.mark.parametrize("late", [1, 2, 3])
def test_holds_that_were_taken_away_are_taken_again(client: Any, late: int) -> None:
    """As by releases that were answered too late, and to which the server comes once more."""
    lock = Lock(client, "door", timeout=60, reentrant=True)
    for _ in range(4):
        lock.acquire()
    for hold in range(4, 4 - late, -1):
        client.execute_command("LOCK.RELEASE", "door", lock.local.token, "HOLD", hold)
    assert lock.acquire() and client.hvals("door") == [b"5"]
    for _ in range(5):
        lock.release()
    assert not client.exists("door")


def test_a_hold_of_what_is_counted_otherwise_takes_nothing_anew(client: Any) -> None:
    lock = Lock(client, "door", timeout=60, reentrant=True)
    lock.acquire()
    client.hset("door", lock.local.token, 7)
    with pytest.raises(LockNotOwnedError):
        lock.acquire()
    assert client.hvals("door") == [b"7"]
