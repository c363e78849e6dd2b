"""The lock for tasks: tasks that are cancelled, and ``cancel_on_lost``."""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from servers import waiters
from waits import until

from redis_lock_client import LockLost, LockNotOwnedError
from redis_lock_client.asyncio import Lock

#: Ten thousand in all, by how the tasks wait.
CANCELLATIONS = {"by NOTIFY": 4_000, "without a lease": 3_000, "without the module": 3_000}


async def pass_steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_thousand_tasks_hold_one_at_a_time(aclient: Any) -> None:
    drawn: list[int] = []

    async def hold() -> None:
        async with Lock(aclient, "door", timeout=30, blocking_timeout=60) as lock:
            number = await lock.fence()
            await asyncio.sleep(0)
            drawn.append(number)

    await asyncio.gather(*(hold() for _ in range(1000)))
    assert len(drawn) == 1000 and drawn == sorted(drawn)


@pytest.mark.parametrize("how", CANCELLATIONS)
async def test_cancellations_leave_no_lock(new_server: Any, how: str) -> None:
    """A task may be cancelled at any moment: before it asks, while it asks, and when it is granted the lock."""
    server, chance, hits = new_server(how != "without the module"), random.Random(1), 0
    client, clients = server.client(), [server.client_asyncio() for _ in range(4)]
    lease = None if how == "without a lease" else 60
    locks, inside = [Lock(clients[n % 4], f"door:{n}", timeout=lease) for n in range(10)], set[Lock]()

    async def hold(lock: Lock) -> None:
        async with lock:
            assert lock not in inside
            inside.add(lock)
            try:
                await asyncio.sleep(chance.random() / 500)
            finally:
                inside.remove(lock)

    async def cancel_some() -> None:
        nonlocal hits
        while hits < CANCELLATIONS[how]:
            task = asyncio.create_task(hold(chance.choice(locks)))
            # About as long as an exchange and a hold take, or some steps of the loop.
            if chance.random() < 0.5:
                asyncio.get_running_loop().call_later(chance.expovariate(500), task.cancel)
            else:
                await pass_steps(chance.randrange(10))
                task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            assert ended is None or isinstance(ended, asyncio.CancelledError), repr(ended)
            hits += ended is not None

    await asyncio.gather(*(cancel_some() for _ in range(40)))
    for lock in locks:
        await until(lambda key=lock.name: not client.exists(key) and not (server.module and waiters(client, key)))


async def test_time_of_cancelled_waiters_grows_with_their_number(aclient: Any, client: Any) -> None:
    client.set("door", "another holder")

    async def seconds(count: int) -> float:
        waits = [asyncio.create_task(Lock(aclient, "door", timeout=60).acquire()) for _ in range(count)]  # type: ignore[arg-type]
        await asyncio.sleep(0.3)
        began_at = time.process_time()
        for one in reversed(waits):
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        return time.process_time() - began_at

    few = min([await seconds(500) for _ in range(3)])
    assert await seconds(8_000) < 16 * 4 * few


async def test_cancelled_release_is_done(aclient: Any, client: Any) -> None:
    for turn in range(200):
        lock = Lock(aclient, "door", timeout=60)
        assert await lock.acquire(blocking_timeout=5), turn
        release = asyncio.create_task(lock.release())
        await pass_steps(turn % 5)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)
        if lock.local.token is not None:
            await lock.release()
    await until(lambda: not client.exists("door"))


async def test_caller_holds_what_other_task_awaits(aclient: Any, client: Any) -> None:
    """As asyncio.shield and asyncio.gather do, and asyncio.wait_for in Python 3.11."""
    lock, reentrant = Lock(aclient, "door", timeout=0.2), Lock(aclient, "window", timeout=30, reentrant=True)
    expired, released = asyncio.Event(), asyncio.Event()
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

    task = asyncio.create_task(hold_next())
    await expired.wait()
    with pytest.raises(LockNotOwnedError):
        await asyncio.shield(lock.release())
    released.set()
    await task
    for _ in range(2):
        assert client.exists("window")
        await asyncio.shield(reentrant.release())
    assert not client.exists("door", "window")


@contextlib.contextmanager
def ends_with(error: type[BaseException], **words: str) -> Iterator[Any]:
    """Asserts that the block ends with an error, and that the task is not being cancelled afterwards."""
    with pytest.raises(error, **words) as failure:
        yield failure
    task: Any = asyncio.current_task()
    assert sys.version_info < (3, 11) or task.cancelling() == 0


def cancelling(aclient: Any, name: str = "door", **arguments: Any) -> Lock:
    return Lock(aclient, name, timeout=30, cancel_on_lost=True, **arguments)


async def lose(client: Any, name: str = "door", after: float = 0) -> None:
    asyncio.get_running_loop().call_later(after, client.delete, name)
    await asyncio.sleep(60)


async def test_cancel_on_lost_cancels_block(aclient: Any, client: Any) -> None:
    for after in (0.05, 0.05, 0):
        for raises in (True, False):
            with ends_with(LockLost, match="door"):
                async with cancelling(aclient, raise_on_release_error=raises):
                    await lose(client, after=after)
            await asyncio.sleep(0)
    with ends_with(LockLost):
        await cancelling(aclient)(lose)(client)


async def test_cancel_on_lost_spares_other_code(aclient: Any, client: Any) -> None:
    """The task after a block, or outside of any. Its own exception, and a cancellation of its own, come first."""
    lock = cancelling(aclient)
    async with lock:
        pass
    await lock.acquire()
    client.delete("door")
    await asyncio.wait_for(lock.lost.wait(), 5)
    with ends_with(LockLost):
        await lock.release()
    with ends_with(LookupError):
        async with lock:
            with contextlib.suppress(asyncio.CancelledError):
                await lose(client)
            raise LookupError

    @lock
    async def hold() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(hold())  # type: ignore[arg-type]
    await until(lambda: client.exists("door"))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client.exists("door")


async def test_cancel_on_lost_nests(aclient: Any, client: Any) -> None:
    """Within a time-out, another block and a task group."""
    for lost, other in (("window", "door"), ("door", "window")):
        with ends_with(LockLost, match=lost):
            async with asyncio.timeout(60), cancelling(aclient), cancelling(aclient, "window"):
                await lose(client, lost)
        assert not client.exists(other)
    with ends_with(TimeoutError):
        async with asyncio.timeout(0.05), cancelling(aclient):
            await asyncio.sleep(60)
    with ends_with(BaseExceptionGroup) as failure:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            async with cancelling(aclient):
                await lose(client)
    assert [type(one) for one in failure.value.exceptions] == [LockLost]
