"""The lock for tasks, on a server with the module."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import Any

import pytest
from conftest import Server, kill_connections, library, until, wait_until, waiters

import redis_lock_client
from redis_lock_client import LockError, LockNotOwnedError
from redis_lock_client.asyncio import Lock


async def test_it_is_taken_and_released(aclient: Any, client: Any) -> None:
    lock = aclient.lock("door", timeout=30, lock_class=Lock)
    assert await lock.acquire()
    assert client.get("door") == lock.local.token
    assert lock.native is True and await lock.owned() and await lock.locked()
    await lock.release()
    assert not await lock.owned() and not await lock.locked()
    with pytest.raises(library.exceptions.LockError):
        await lock.release()


async def test_a_waiter_is_granted_the_lock_when_it_is_released(aclient: Any, client: Any) -> None:
    holder, waiter = Lock(aclient, "door", timeout=30), Lock(aclient, "door", timeout=30)
    await holder.acquire()
    taken = asyncio.create_task(waiter.acquire())
    await until(lambda: waiters(client))
    assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
    await holder.release()
    assert await asyncio.wait_for(taken, 1)


@pytest.mark.parametrize("lease", [30, None])
async def test_a_wait_ends_on_time(aclient: Any, client: Any, lease: float | None) -> None:
    client.set("door", "somebody else")
    began = time.monotonic()
    assert await Lock(aclient, "door", timeout=lease).acquire(blocking_timeout=2.5) is False
    assert 2.5 <= time.monotonic() - began < 3
    assert not waiters(client)


async def test_a_thousand_tasks_over_one_client(aclient: Any, client: Any) -> None:
    inside: set[str] = set()
    fences: dict[str, list[int]] = {}
    most = 0

    async def hold_it(key: str) -> None:
        nonlocal most
        async with Lock(aclient, key, timeout=30, blocking_timeout=60) as lock:
            assert key not in inside
            inside.add(key)
            fences.setdefault(key, []).append(await lock.fence())
            most = max(most, len(waiters(client, key)))
            inside.remove(key)

    await asyncio.gather(*(hold_it(f"door:{n % 10}") for n in range(1000)))
    assert all(len(drawn) == 100 and drawn == sorted(drawn) for drawn in fences.values()) and len(fences) == 10
    assert most == 1, "a hundred tasks have one place in line"


async def test_the_order_is_kept(aclient: Any) -> None:
    order: list[int] = []

    async def hold_it(number: int) -> None:
        async with Lock(aclient, "door", timeout=30):
            order.append(number)

    async with Lock(aclient, "door", timeout=30):
        tasks = [asyncio.create_task(hold_it(number)) for number in range(50)]
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks)
    assert order == list(range(50))


@pytest.mark.parametrize("lease", [30, None])
async def test_a_task_that_is_cancelled_leaves_the_line(aclient: Any, client: Any, lease: float | None) -> None:
    client.set("door", "somebody else")
    task = asyncio.create_task(Lock(aclient, "door", timeout=lease).acquire())
    await until(lambda: waiters(client))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not waiters(client)


async def test_no_orphan_after_many_cancellations(aclient: Any, client: Any) -> None:
    """A task may be cancelled at any moment: before it asks, while it asks, and when it is granted the lock."""
    rounds, chance = 10_000, random.Random(1)

    async def hold_it() -> None:
        async with Lock(aclient, f"door:{chance.randrange(4)}", timeout=60):
            await asyncio.sleep(chance.random() / 2000)

    for _ in range(rounds // 50):
        tasks = [asyncio.create_task(hold_it()) for _ in range(50)]
        for task in tasks:
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() / 1000)
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert ended is None or isinstance(ended, asyncio.CancelledError), repr(ended)
    for number in range(4):
        await until(
            lambda number=number: not client.exists(f"door:{number}") and not waiters(client, f"door:{number}"), 2
        )


async def test_a_release_that_is_cancelled_is_done(aclient: Any, client: Any) -> None:
    for turn in range(200):
        lock = Lock(aclient, "door", timeout=60)
        assert await lock.acquire(blocking_timeout=5), turn
        release = asyncio.create_task(lock.release())
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)
        if lock.local.token is not None:
            await lock.release()
    await until(lambda: not client.exists("door"))


async def test_connections_that_are_cut_while_waiting(aclient: Any, client: Any) -> None:
    client.set("door", "somebody else")
    taken = asyncio.create_task(Lock(aclient, "door", timeout=30).acquire())
    for _ in range(5):
        await until(lambda: waiters(client))
        kill_connections(client)
    client.delete("door")
    assert await asyncio.wait_for(taken, 10)


async def test_a_server_that_restarts_while_tasks_wait_and_hold(new_server: Any) -> None:
    server: Server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    client, aclient = server.client(), server.client_asyncio()
    client.set("door", "somebody else")
    held = Lock(aclient, "window", timeout=30)
    await held.acquire()
    assert not held.lost.is_set()
    taken = asyncio.create_task(Lock(aclient, "door", timeout=30, blocking_timeout=30).acquire())
    await until(lambda: waiters(client))
    await asyncio.to_thread(lambda: (server.stop(), server.start()))
    await until(lambda: waiters(client))
    client.delete("door")
    assert await asyncio.wait_for(taken, 10)
    assert not held.lost.is_set() and await held.owned()
    client.delete("window")
    await asyncio.wait_for(held.lost.wait(), 1)
    await aclient.aclose()


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"reentrant": True}, {"session": True}, {"renew": True}])
async def test_a_loss_is_told_at_once(aclient: Any, client: Any, options: dict[str, Any]) -> None:
    told: list[float] = []
    lock = Lock(aclient, "door", timeout=30, on_lost=lambda: told.append(time.monotonic()), **options)
    await lock.acquire()
    await until(lambda: client.info("clients").get("tracking_clients"))
    await asyncio.sleep(0.05)
    lost = time.monotonic()
    client.delete("door")
    await asyncio.wait_for(lock.lost.wait(), 5)
    assert told.pop() - lost < 0.5
    with pytest.raises(LockNotOwnedError):
        await lock.release()


@pytest.mark.parametrize("how", ["session", "renew"])
async def test_a_lock_that_is_renewed(aclient: Any, client: Any, how: str) -> None:
    renewing: dict[str, Any] = {how: True}
    async with Lock(aclient, "door", timeout=1.5, **renewing) as lock:
        for _ in range(25):
            await asyncio.sleep(0.1)
            assert await lock.owned() and not lock.lost.is_set()
    assert not client.exists("door")


async def test_a_reentrant_lock_counts(aclient: Any, client: Any) -> None:
    lock = Lock(aclient, "door", timeout=30, reentrant=True)
    async with lock:
        async with lock:
            assert client.hgetall("door") == {lock.local.token: b"2"}
        assert client.hgetall("door") == {lock.local.token: b"1"}
    assert not client.exists("door")


async def test_readers_and_permits(aclient: Any) -> None:
    reader, permit = (partial(Lock, aclient, "door", timeout=30, **kind) for kind in ({"shared": True}, {"limit": 2}))
    async with reader(), reader():
        assert not await Lock(aclient, "door", timeout=30).acquire(blocking=False)
    async with permit(), permit():
        assert not await permit().acquire(blocking=False)


async def test_a_block_that_is_not_entered_in_time_raises(aclient: Any, client: Any) -> None:
    client.set("door", "somebody else")
    with pytest.raises(LockError):
        async with Lock(aclient, "door", timeout=30, blocking_timeout=0.1):
            pass


async def test_the_client_must_be_of_the_right_kind(aclient: Any, client: Any) -> None:
    with pytest.raises(TypeError):
        Lock(client, "door")
    with pytest.raises(TypeError):
        redis_lock_client.Lock(aclient, "door")


def test_a_client_of_several_loops(server: Server, client: Any) -> None:
    """Each loop has connections of its own, and closes them at its end."""

    async def contend() -> None:
        aclient = server.client_asyncio()
        async with Lock(aclient, "door", timeout=30):
            assert not await Lock(aclient, "door", timeout=30).acquire(blocking_timeout=0.05)
        await aclient.aclose()

    before = client.info("clients")["connected_clients"]
    for _ in range(3):
        asyncio.run(contend())
    wait_until(lambda: client.info("clients")["connected_clients"] <= before)
