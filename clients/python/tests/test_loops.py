"""Event loops that end in one way or another, several loops, and tasks that the program cancels."""

import asyncio
import contextlib
import gc
import signal
import sys
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from servers import Server, own_connections, run_program, waiters
from waits import Threads, until, wait_until

from redis_lock_client import source
from redis_lock_client.asyncio import Lock

LASTING = pytest.mark.parametrize("options", [{"session": True}, {"renew": True}], ids=str)
#: Tasks may begin when they are created, from Python 3.12 on.
EAGER = pytest.mark.parametrize("factory", dict.fromkeys([None, getattr(asyncio, "eager_task_factory", None)]))


def test_each_loop_closes_its_connections(new_server: Any) -> None:
    """Also the loops of many threads at one time. Nothing keeps a closed loop alive."""
    server, loops = new_server(), weakref.WeakSet[Any]()

    async def contend(number: int) -> None:
        loops.add(asyncio.get_running_loop())
        aclient = server.client_asyncio()
        async with Lock(aclient, f"door:{number}", timeout=30), Lock(aclient, "window", timeout=30):
            assert not await Lock(aclient, f"door:{number}", timeout=30).acquire(blocking_timeout=0.01)
        await aclient.aclose()

    with Threads(6) as pool, contextlib.ExitStack() as stack:
        stack.callback(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)
        list(pool.map(lambda number: [asyncio.run(contend(number)) for _ in range(20)], range(6)))
    wait_until(lambda: not own_connections(server.client()))
    wait_until(lambda: gc.collect() < 0 or len(loops) <= 6)  # The last one of each thread.


def test_engine_of_other_thread_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Growing(set[int]):
        def __iter__(self) -> Any:
            for one in set.__iter__(self):
                if len(self) < 4:
                    self.add(len(self))  # As another thread does.
                yield one

    monkeypatch.setattr(source, "engines", Growing([0]))
    assert sorted(source.all_engines()) == [0, 1, 2, 3]


@pytest.mark.parametrize("lease", [60, None])
@pytest.mark.parametrize("way", ["connects", "waits", "acquires", "is cancelled", "releases"])
def test_loop_ends_while_task_acts(server: Server, client: Any, way: str, lease: float | None) -> None:
    """Nothing is left, whatever the task does when ``asyncio.run`` ends everything."""

    async def begin(steps: int) -> None:
        lock = Lock(server.client_asyncio(), "door", timeout=lease, thread_local=False)
        if way != "connects":
            await lock.locked()  # There is a connection.
        if way == "releases":
            await lock.acquire()
        task = asyncio.create_task(lock.release() if way == "releases" else lock.acquire())  # type: ignore[arg-type]
        for _ in range(max(steps, way == "releases")):
            await asyncio.sleep(0)
        if way == "is cancelled":
            task.cancel()
        if way in ("acquires", "is cancelled") and lock.local.token:
            await lock.release()

    is_taken = way in ("connects", "waits")
    if is_taken:
        client.set("door", "another client")
    for steps in range(30):
        asyncio.run(begin(steps))
        wait_until(lambda: not (waiters(client) if is_taken else client.exists("door")), explain=lambda n=steps: n)


def test_loop_ends_while_server_stalls(new_server: Any) -> None:
    server = new_server()

    async def hold() -> float:
        lock = Lock(server.client_asyncio(socket_timeout=8), "door", timeout=60, session=True)
        await lock.acquire()
        assert not lock.lost.is_set()
        await asyncio.sleep(0.3)
        server.process.send_signal(signal.SIGSTOP)
        waits = asyncio.create_task(Lock(server.client_asyncio(), "window", timeout=60).acquire())
        await asyncio.sleep(0.3)
        assert not waits.done()
        return time.monotonic()

    ended = asyncio.run(hold())
    assert time.monotonic() - ended < 4


@EAGER
@LASTING
@pytest.mark.parametrize("how", ["task", "generator"])
def test_holder_cleans_up_at_end_of_loop(new_server: Any, how: str, options: Any, factory: Any) -> None:
    """``asyncio.run`` cancels the task, which holds the lock for longer than a lease, or closes the generator."""
    server = new_server()
    client, cleaned = server.client(), list[bool]()
    is_task, (lease, turns) = how == "task", (2, 30) if how == "task" else (30, 3)

    async def hold() -> AsyncIterator[int]:
        async with Lock(server.client_asyncio(), "door", timeout=lease, thread_local=is_task, **options) as lock:
            try:
                yield 1
            finally:
                for _ in range(turns):
                    await asyncio.sleep(0.1)
                    assert not client.set("door", "another client", nx=True)
                cleaned.append(not lock.lost.is_set())
                await lock.release()
                await lock.acquire()
                cleaned.append(await lock.owned())

    async def stay() -> None:
        async with contextlib.aclosing(generator):
            await anext(generator)
            await asyncio.sleep(60)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        stays = asyncio.create_task(stay() if is_task else anext(generator))
        await until(lambda: client.exists("door") and stays.done() is not is_task)

    generator = hold()
    asyncio.run(main())
    assert cleaned == [True, True]
    gc.collect()
    wait_until(lambda: not client.exists("door") and not own_connections(client))


@EAGER
@LASTING
async def test_hold_outlasts_cancelled_tasks(aclient: Any, client: Any, options: dict[str, Any], factory: Any) -> None:
    """The program cancels all tasks of the loop and goes on: the lock is renewed, and its loss is reported."""
    asyncio.get_running_loop().set_task_factory(factory)
    lock = Lock(aclient, "door", timeout=2, **options)
    await lock.acquire()
    await asyncio.wait_for(asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}), 5)  # None is endless.
    for _ in range(3):
        await asyncio.sleep(0.3)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    await asyncio.sleep(3)
    assert await lock.owned() and not lock.lost.is_set()
    client.set("door", "another client", px=60_000)
    await asyncio.wait_for(lock.lost.wait(), 5)


ENDS = """
async def main():
    async with Lock(client, "door", timeout=30, session=True) as lock:
        assert not lock.lost.is_set()
        assert not await Lock(client, "door", timeout=30).acquire(blocking_timeout=0.1)
    await client.aclose()

loop = asyncio.new_event_loop()
loop.slow_callback_duration, run = 10, loop.run_until_complete
run(main())
"""


@pytest.mark.parametrize("end", ["run(loop.shutdown_asyncgens()); loop.close()", "loop.close()", ""])
def test_loop_ended_in_any_way_reports_nothing(server: Server, client: Any, end: str) -> None:
    """Python's development mode reports pending tasks, and open connections if the loop was shut down."""
    mode = ["-X", "dev"] if "shutdown" in end else []
    ended = run_program(f"{ENDS}{end}", server, *mode, tasks=True)
    assert ended.returncode == 0 and (ended.stderr == "" or not mode)
    assert not any(word in ended.stderr for word in ("pending", "never awaited", "redis_lock_client")), ended.stderr
    assert not client.exists("door")


def test_lock_object_serves_two_loops(server: Server, client: Any) -> None:
    lock = Lock(server.client_asyncio(), "door", timeout=30, thread_local=False)

    async def take() -> None:
        await lock.acquire()
        lost = lock.lost
        await asyncio.sleep(0.1)
        client.delete("door")
        await asyncio.wait_for(lost.wait(), 5)
        assert await lock.acquire()

    for _ in range(2):
        asyncio.run(take())
        assert asyncio.run(lock.owned()) and asyncio.run(lock.extend(5))
        asyncio.run(lock.release())
        assert not client.exists("door")
