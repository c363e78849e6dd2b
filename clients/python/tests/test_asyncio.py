"""The lock for tasks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from proxies import proxy
from servers import OUTAGE, Server, waiters
from waits import until

from redis_lock_client import LockLost, LockNotOwnedError
from redis_lock_client.asyncio import Lock

#: Ten thousand in all, by how the tasks wait.
CANCELLATIONS = {"by NOTIFY": 4_000, "without a lease": 3_000, "without the module": 3_000}


def ids_of(client: Any) -> set[str]:
    """Returns the ids of the package's connections that the server has."""
    return {one["id"] for one in client.client_list() if one["name"] == "redis-lock-client"}


async def begin_wait(lock: Lock, client: Any, key: str = "door", **arguments: Any) -> asyncio.Task[bool]:
    """Returns a task that waits for a lock in the server's queue."""
    task = asyncio.create_task(lock.acquire(**arguments))
    await until(lambda: waiters(client, key))
    return task


async def test_clients_of_one_loop_share_a_connection(server: Server, client: Any) -> None:
    """Also a client for each request; and they have one entry in the server's queue."""
    client.set("door", "another client")
    before = ids_of(client)
    clients = [server.client_asyncio() for _ in range(50)]
    order: list[int] = []

    async def hold(number: int) -> None:
        async with Lock(clients[number], "door", timeout=30):
            order.append(number)

    tasks = [asyncio.create_task(hold(number)) for number in range(50)]
    await until(lambda: waiters(client))
    assert len(waiters(client)) == 1 and len(ids_of(client) - before) == 1
    client.delete("door")
    await asyncio.gather(*tasks)
    assert order == [*range(50)]


async def test_thousand_tasks_hold_one_at_a_time(aclient: Any, client: Any) -> None:
    inside: set[str] = set()
    fences: dict[str, list[int]] = {}

    async def hold(key: str) -> None:
        async with Lock(aclient, key, timeout=30, blocking_timeout=60) as lock:
            assert key not in inside
            inside.add(key)
            fences.setdefault(key, []).append(await lock.fence())
            inside.remove(key)

    await asyncio.gather(*(hold(f"door:{n % 10}") for n in range(1000)))
    assert all(len(drawn) == 100 and drawn == sorted(drawn) for drawn in fences.values()) and len(fences) == 10


@pytest.mark.parametrize(("how", "wanted"), CANCELLATIONS.items())
async def test_cancellations_leave_no_lock(new_server: Any, how: str, wanted: int) -> None:
    """A task may be cancelled at any moment: before it asks, while it asks, and when it is granted the lock."""
    server = new_server(how != "without the module")
    client, chance = server.client(), random.Random(1)
    clients = [server.client_asyncio() for _ in range(4)]
    keys = [f"door:{number}" for number in range(10)]
    locks = [Lock(clients[n % 4], key, timeout=None if how == "without a lease" else 60) for n, key in enumerate(keys)]
    inside: set[str] = set()
    hits = 0

    async def hold(lock: Any) -> None:
        async with lock:
            assert lock.name not in inside
            inside.add(lock.name)
            try:
                await asyncio.sleep(chance.random() / 500)
            finally:
                inside.remove(lock.name)

    async def be_cancelled(number: int) -> None:
        nonlocal hits
        while hits < wanted:
            task = asyncio.create_task(hold(chance.choice(locks)))
            # About as long as an exchange and a hold take, or some steps of the loop.
            if chance.random() < 0.5:
                asyncio.get_running_loop().call_later(chance.expovariate(500), task.cancel)
            else:
                for _ in range(chance.randrange(10)):
                    await asyncio.sleep(0)
                task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            assert ended is None or isinstance(ended, asyncio.CancelledError), repr(ended)
            hits += ended is not None

    await asyncio.gather(*(be_cancelled(number) for number in range(40)))
    await until(lambda: not client.exists(*keys))
    if server.module:
        await until(lambda: not any(waiters(client, key) for key in keys))


async def test_cancelled_release_is_done(aclient: Any, client: Any) -> None:
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


async def test_wait_for_leaves_nothing(aclient: Any, client: Any) -> None:
    lock = Lock(aclient, "door", timeout=30)
    client.set("door", "another client")
    for seconds in (0, 0.001, 0.05):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(lock.acquire(), seconds)
    await until(lambda: not waiters(client))


async def test_caller_holds_what_other_task_awaits(aclient: Any, client: Any) -> None:
    """As asyncio.shield and asyncio.gather do, and asyncio.wait_for in Python 3.10 and 3.11."""
    lock, reentrant = Lock(aclient, "door", timeout=0.2), Lock(aclient, "window", timeout=30, reentrant=True)
    assert await asyncio.wait_for(lock.acquire(), 5) and await asyncio.wait_for(lock.extend(0.1), 5)
    assert await lock.owned() and not lock.lost.is_set()
    await asyncio.shield(lock.release())
    assert await asyncio.shield(reentrant.acquire()) and await asyncio.shield(reentrant.acquire())
    assert await asyncio.gather(lock.acquire()) == [True]

    async def hold_next() -> None:
        assert await asyncio.wait_for(lock.acquire(), 5) and await asyncio.wait_for(lock.extend(30), 5)
        assert not await reentrant.acquire(blocking=False)
        expired.set()
        await released.wait()
        assert await lock.owned()
        await asyncio.wait_for(lock.release(), 5)

    expired, released = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(hold_next())
    await expired.wait()
    with pytest.raises(LockNotOwnedError):
        await asyncio.shield(lock.release())
    released.set()
    await task
    await asyncio.shield(reentrant.release())
    await asyncio.shield(reentrant.release())
    assert not client.exists("door", "window")


@pytest.mark.parametrize("blocking", [False, True])
async def test_late_request_leaves_nothing(one_server: Server, blocking: bool) -> None:
    """The server executes it after the task has ended with an error, or has asked again on another connection."""
    client = one_server.client()
    with proxy(one_server.port) as way:
        lock = Lock(one_server.client_asyncio(port=way.port, socket_timeout=0.3), "door", timeout=60)
        assert not await lock.locked()
        way.late = b"LOCK.ACQUIRE" if one_server.module else b"EVAL"
        with contextlib.suppress(OUTAGE):
            assert await lock.acquire(blocking=blocking) and blocking
            await lock.release()
        way.deliver.set()
        await until(lambda: not one_server.module or "cmdstat_lock.release" in client.info("commandstats"))
        await until(lambda: not client.exists("door"))
        assert await lock.acquire(blocking=False)
        await lock.release()


async def test_collected_lock_warns_and_is_released(aclient: Any, client: Any) -> None:
    lock = Lock(aclient, "door", timeout=30)
    await lock.acquire()
    with pytest.warns(ResourceWarning, match="door"):
        del lock
        gc.collect()
        await until(lambda: not client.exists("door"))


async def test_slow_on_lost_delays_no_other(aclient: Any, client: Any, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def on_lost(name: str) -> None:
        told.append(name)
        await asyncio.sleep(0.01 if name == "door:0" else 60)
        raise LookupError("this is logged")

    locks = [Lock(aclient, f"door:{n}", timeout=30, on_lost=lambda n=n: on_lost(f"door:{n}")) for n in range(5)]
    for lock in locks:
        await lock.acquire()
    client.delete(*(lock.name for lock in locks))
    await until(lambda: len(told) == 5 and "this is logged" in caplog.text)
    await asyncio.gather(*(lock.lost.wait() for lock in locks))


@contextlib.contextmanager
def uncancelled() -> Iterator[None]:
    """Asserts that the task is not being cancelled after the block."""
    yield
    task = asyncio.current_task()
    assert sys.version_info < (3, 11) or (task is not None and task.cancelling() == 0)


def cancelling(aclient: Any, name: str = "door", **arguments: Any) -> Lock:
    return Lock(aclient, name, timeout=30, cancel_on_lost=True, **arguments)


async def test_cancel_on_lost_cancels_block(aclient: Any, client: Any) -> None:
    for _ in range(3):
        with uncancelled(), pytest.raises(LockLost, match="door"):
            async with cancelling(aclient):
                asyncio.get_running_loop().call_later(0.05, client.delete, "door")
                await asyncio.sleep(60)
        await asyncio.sleep(0)
    with uncancelled(), pytest.raises(LockLost):
        async with cancelling(aclient, raise_on_release_error=False):
            client.delete("door")
            await asyncio.sleep(60)

    @cancelling(aclient)
    async def work() -> None:
        client.delete("door")
        await asyncio.sleep(60)

    with uncancelled(), pytest.raises(LockLost):
        await work()


async def test_cancel_on_lost_spares_other_code(aclient: Any, client: Any) -> None:
    """The task itself, after the block or outside of any, is not cancelled; its own exception comes first."""
    lock = cancelling(aclient)
    with uncancelled():
        async with lock:
            pass
        await lock.acquire()
        client.delete("door")
        await asyncio.wait_for(lock.lost.wait(), 5)
        with pytest.raises(LockLost):
            await lock.release()
        with pytest.raises(LookupError):
            async with lock:
                client.delete("door")
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                raise LookupError


async def test_cancel_on_lost_keeps_outer_cancellation(aclient: Any, client: Any) -> None:
    async def hold() -> None:
        async with cancelling(aclient):
            await asyncio.sleep(60)

    task = asyncio.create_task(hold())
    await until(lambda: client.exists("door"))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client.exists("door")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="has no timeout")
async def test_cancel_on_lost_nests(aclient: Any, client: Any) -> None:
    """Within a time-out, another block and a task group."""
    with uncancelled(), pytest.raises(LockLost, match="window"):
        async with asyncio.timeout(60), cancelling(aclient), cancelling(aclient, "window"):
            client.delete("window")
            await asyncio.sleep(60)
    assert not client.exists("door")
    with uncancelled(), pytest.raises(LockLost, match="door"):
        async with cancelling(aclient), cancelling(aclient, "window"):
            client.delete("door")
            await asyncio.sleep(60)
    assert not client.exists("window")
    with uncancelled(), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), cancelling(aclient):
            await asyncio.sleep(60)
    with uncancelled(), pytest.raises(BaseExceptionGroup) as failure:  # noqa: F821
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            async with cancelling(aclient):
                client.delete("door")
                await asyncio.sleep(60)
    assert [type(one) for one in failure.value.exceptions] == [LockLost]
