"""Loops that end in one way or another, several loops, and tasks that somebody else cancels or waits for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from conftest import CLIENT, LIBRARY, Server, Threads, connections_of, wait_until, waiters

import redis_lock_client
from redis_lock_client._async import keeper
from redis_lock_client._async.client import Client
from redis_lock_client.asyncio import Lock

#: How locks are held beyond their lease, for a while at least.
LASTING: list[dict[str, Any]] = [{"session": True}, {"renew": True}]
#: Whether tasks begin at once, which Python 3.12 has brought.
EAGER = [False, True] if sys.version_info >= (3, 12) else [False]


def others() -> list[asyncio.Task[Any]]:
    """All tasks of the loop but the caller."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_a_client_of_several_loops(server: Server, client: Any) -> None:
    """Each loop has connections of its own, and closes them at its end."""

    async def contend() -> None:
        aclient = server.client_asyncio(client_name="of-loops")
        async with Lock(aclient, "door", timeout=30):
            assert not await Lock(aclient, "door", timeout=30).acquire(blocking_timeout=0.05)
            assert connections_of(client, "of-loops") >= 2
        await aclient.aclose()

    for _ in range(3):
        asyncio.run(contend())
    wait_until(lambda: connections_of(client, "of-loops") == 0)


def test_a_loop_ends_while_somebody_begins_to_wait(server: Server, client: Any) -> None:
    """At whatever step: redis-py loses cancellations where it sends, and waits then for what it has not sent."""

    async def begin(steps: int) -> None:
        asking = asyncio.create_task(Lock(server.client_asyncio(), "door", timeout=30).acquire())
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not asking.done()

    client.set("door", "somebody else")
    for steps in (*range(10, 90), *range(10, 90)):
        began = time.monotonic()
        asyncio.run(begin(steps))
        assert time.monotonic() - began < 20, steps
    wait_until(lambda: not waiters(client))


def test_closed_loop_survives_garbage_collection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new loop forgets the clients of a closed one. A garbage collection at the same time removes some of them."""
    leave = Client.leave

    def leave_and_collect(self: Client) -> None:
        leave(self)
        gc.collect()

    async def use(count: int) -> None:
        for _ in range(count):
            aclient = server.client_asyncio()
            # Only a garbage collection finds the pool.
            aclient.connection_pool.itself = aclient.connection_pool
            async with Lock(aclient, "door", timeout=30):
                pass
            await aclient.aclose()

    monkeypatch.setattr(Client, "leave", leave_and_collect)
    gc.disable()
    try:
        asyncio.run(use(3))
        asyncio.run(use(1))
    finally:
        gc.enable()


def test_a_loop_ends_while_the_server_stands_still(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of a PING on the connection of sessions, which is not waited for, nor what would come after it."""
    monkeypatch.setattr(keeper, "PING_S", 0.2)
    server = new_server()

    async def hold(stack: contextlib.ExitStack) -> float:
        lock = Lock(server.client_asyncio(socket_timeout=8), "door", timeout=60, session=True)
        await lock.acquire()
        assert not lock.lost.is_set()
        await asyncio.sleep(0.3)
        stack.enter_context(server.standing_still())
        await asyncio.sleep(0.6)
        return time.monotonic()

    with contextlib.ExitStack() as stack:
        ended = asyncio.run(hold(stack))
        assert time.monotonic() - ended < 4


@pytest.mark.parametrize("options", LASTING)
def test_a_holder_cleans_up_at_the_end_of_the_loop(server: Server, client: Any, options: dict[str, Any]) -> None:
    """``asyncio.run`` cancels the task, which holds the lock until it has ended, longer than one lease."""
    entered: list[bool] = []

    async def hold() -> None:
        lock = Lock(server.client_asyncio(), "door", timeout=2, **options)
        async with lock:
            assert not lock.lost.is_set()
            try:
                entered.append(True)
                await asyncio.sleep(60)
            finally:
                for _ in range(30):
                    await asyncio.sleep(0.1)
                    assert not redis_lock_client.Lock(client, "door", timeout=9).acquire(blocking=False)
                entered.append(not lock.lost.is_set())

    async def main() -> None:
        holds = asyncio.create_task(hold())
        while not entered:
            await asyncio.sleep(0.01)
        assert not holds.done()

    asyncio.run(main())
    assert entered == [True, True]
    assert not client.exists("door")


@pytest.mark.parametrize("options", LASTING)
async def test_all_tasks_are_cancelled_and_the_loop_goes_on(aclient: Any, client: Any, options: dict[str, Any]) -> None:
    """What is held is held, and a loss is told."""
    lock = Lock(aclient, "door", timeout=2, **options)
    await lock.acquire()
    for _ in range(3):
        await asyncio.sleep(0.3)
        for task in others():
            task.cancel()
    await asyncio.sleep(3)
    assert await lock.owned() and not lock.lost.is_set()
    client.set("door", "somebody else", px=60_000)
    await asyncio.wait_for(lock.lost.wait(), 5)


@pytest.mark.parametrize("eager", EAGER)
@pytest.mark.parametrize("options", [{}, *LASTING])
async def test_a_loss_after_all_tasks_were_cancelled(
    aclient: Any, client: Any, options: dict[str, Any], eager: bool
) -> None:
    """It is told at once, not by the next renewal."""
    if eager:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    lock = Lock(aclient, "door", timeout=60, **options)
    await lock.acquire()
    assert not lock.lost.is_set()
    await asyncio.sleep(0.3)
    for task in others():
        task.cancel()
    await asyncio.sleep(0.5)
    client.delete("door")
    await asyncio.wait_for(lock.lost.wait(), 5)


async def test_what_is_given_up_when_all_tasks_are_cancelled(aclient: Any, client: Any) -> None:
    client.set("door", "somebody else")
    asking = asyncio.create_task(Lock(aclient, "door", timeout=60).acquire())
    while not waiters(client):
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.sleep(0)
    for task in others():
        task.cancel()
    await asyncio.wait([asking])
    while waiters(client):
        await asyncio.sleep(0.01)


async def test_all_tasks_are_waited_for(aclient: Any) -> None:
    """The package has none that never ends."""
    async with Lock(aclient, "door", timeout=30):
        pass
    await asyncio.wait_for(asyncio.gather(*others()), 5)


CLOSED = f"""
import asyncio
import sys
from {LIBRARY}.asyncio import {CLIENT}
from redis_lock_client.asyncio import Lock

client = {CLIENT}(port=int(sys.argv[1]))

async def main():
    async with Lock(client, "door", timeout=30, session=True) as lock:
        assert not lock.lost.is_set()
        assert not await Lock(client, "door", timeout=30).acquire(blocking_timeout=0.1)
    await client.aclose()

loop = asyncio.new_event_loop()
loop.run_until_complete(main())
if sys.argv[2] == "brought to its end":
    loop.run_until_complete(loop.shutdown_asyncgens())
if sys.argv[2] != "left":
    loop.close()
print("done")
"""


def test_a_loop_that_is_brought_to_its_end_by_hand(server: Server) -> None:
    """Nothing is left open, of which Python's development mode would tell."""
    arguments = ["-X", "dev", "-c", CLOSED, str(server.port), "brought to its end"]
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=30)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


@pytest.mark.parametrize("eager", EAGER)
def test_a_generator_cleans_up_at_the_end_of_the_loop(server: Server, client: Any, eager: bool) -> None:
    """The loop closes it side by side with what the package has."""
    cleaned: list[bool] = []

    async def hold() -> AsyncIterator[int]:
        lock = Lock(server.client_asyncio(client_name="of-generators"), "door", timeout=30, session=True)
        async with lock:
            try:
                yield 1
            finally:
                await asyncio.sleep(0.3)
                cleaned.append(client.exists("door") == 1 and not lock.lost.is_set())

    generator = hold()

    async def main() -> None:
        if eager:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        assert await anext(generator) == 1

    asyncio.run(main())
    assert cleaned == [True]
    assert not client.exists("door")
    wait_until(lambda: connections_of(client, "of-generators") == 0)


@pytest.mark.parametrize("end", ["closed", "left"])
def test_a_loop_that_is_not_brought_to_an_end(server: Server, end: str) -> None:
    """Nobody is told of tasks that are pending, and of what was never awaited: there is nothing to do about it.

    Of connections that are open the client library may tell.
    """
    ended = subprocess.run(
        [sys.executable, "-c", CLOSED, str(server.port), end], capture_output=True, text=True, timeout=30
    )
    assert ended.stdout == "done\n"
    assert not any(word in ended.stderr for word in ("pending", "never awaited", "redis_lock_client")), ended.stderr


def test_a_lock_object_in_two_loops(server: Server, client: Any) -> None:
    """What was taken in one is released in the other, and a loss is told in each."""
    told: list[str] = []

    async def is_told(lock: Lock) -> None:
        await lock.acquire()
        waits = asyncio.create_task(lock.lost.wait())
        await asyncio.sleep(0.1)
        client.delete("door")
        await asyncio.wait_for(waits, 5)
        told.append("told")
        assert await lock.acquire()

    async def release(lock: Lock) -> None:
        assert await lock.owned()
        await lock.release()

    lock = Lock(server.client_asyncio(), "door", timeout=30)
    for _ in range(2):
        asyncio.run(is_told(lock))
        asyncio.run(release(lock))
        assert not client.exists("door")
    assert told == ["told", "told"]


def test_a_lock_that_is_renewed_in_another_loop(server: Server, client: Any) -> None:
    async def take(lock: Lock) -> None:
        await lock.acquire()
        assert not lock.lost.is_set()

    async def keep(lock: Lock) -> None:
        lost = lock.lost
        assert await lock.reacquire()
        await asyncio.sleep(3)
        assert await lock.owned() and not lost.is_set()
        client.delete("door")
        await asyncio.wait_for(lost.wait(), 5)

    lock = Lock(server.client_asyncio(), "door", timeout=2, renew=True)
    asyncio.run(take(lock))
    asyncio.run(keep(lock))


def test_the_event_of_a_loss_is_taken_outside_of_any_loop(server: Server, client: Any) -> None:
    """Before the lock is taken, and while it is held."""

    async def is_told(lock: Lock) -> None:
        await lock.acquire()
        client.delete("door")
        await asyncio.wait_for(lock.lost.wait(), 5)
        await lock.acquire()

    lock = Lock(server.client_asyncio(), "door", timeout=30)
    assert not lock.lost.is_set()
    asyncio.run(is_told(lock))
    assert not lock.lost.is_set()


def test_loops_of_many_threads(server: Server) -> None:
    """They begin and end side by side."""

    async def lock(number: int) -> None:
        aclient = server.client_asyncio()
        async with Lock(aclient, f"door:{number}", timeout=30):
            pass
        await aclient.aclose()

    def begin(number: int) -> None:
        for _ in range(40):
            asyncio.run(lock(number))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Threads(6) as pool:
            list(pool.map(begin, range(6)))
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("lease", [60, None])
def test_a_loop_ends_just_after_a_task_was_cancelled(server: Server, client: Any, lease: float | None) -> None:
    """What it has asked for is given up, although ``asyncio.run`` cancels that, too."""

    async def begin(steps: int) -> None:
        aclient = server.client_asyncio()
        async with Lock(aclient, "window", timeout=30):
            pass  # There is a connection.
        asking = asyncio.create_task(Lock(aclient, "door", timeout=lease).acquire())
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not asking.done()
        asking.cancel()

    for steps in range(1, 7):
        asyncio.run(begin(steps))
        assert not client.exists("door"), steps


def test_a_loop_ends_while_a_lock_is_released(server: Server, client: Any) -> None:
    async def begin(steps: int) -> None:
        lock = Lock(server.client_asyncio(), "door", timeout=60)
        await lock.acquire()
        release = asyncio.create_task(lock.release())
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not release.done()

    for steps in range(5):
        asyncio.run(begin(steps))
        assert not client.exists("door"), steps
