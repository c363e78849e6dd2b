"""Event loops that end in one way or another, several loops, tasks that the program cancels, and forked processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from servers import CLIENT, LIBRARY, Server, waiters
from test_asyncio import ids_of
from waits import Threads, until, wait_until

import redis_lock_client
from redis_lock_client.asyncio import Lock

#: How locks are held beyond their lease.
LASTING: list[dict[str, Any]] = [{"session": True}, {"renew": True}]
#: Whether tasks begin when they are created, from Python 3.12 on.
EAGER = [False, True] if sys.version_info >= (3, 12) else [False]


def other_tasks() -> list[asyncio.Task[Any]]:
    """Returns all tasks of the loop but the caller."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def be_eager(eager: bool) -> None:
    if eager:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]


def test_each_loop_closes_its_connections(server: Server, client: Any) -> None:
    """Also the loops of many threads at one time. Nothing keeps a closed loop alive."""
    before, loops, interval = ids_of(client), weakref.WeakSet[Any](), sys.getswitchinterval()

    async def contend(number: int) -> None:
        loops.add(asyncio.get_running_loop())
        aclient = server.client_asyncio()
        async with Lock(aclient, f"door:{number}", timeout=30), Lock(aclient, "window", timeout=30):
            assert not await Lock(aclient, f"door:{number}", timeout=30).acquire(blocking_timeout=0.01)
        await aclient.aclose()

    def begin(number: int) -> None:
        for _ in range(20):
            asyncio.run(contend(number))

    sys.setswitchinterval(1e-6)
    try:
        with Threads(6) as pool:
            list(pool.map(begin, range(6)))
    finally:
        sys.setswitchinterval(interval)
    wait_until(lambda: not ids_of(client) - before)
    gc.collect()
    assert len(loops) <= 6, "the last one of each thread"


@pytest.mark.parametrize("lease", [60, None])
@pytest.mark.parametrize("way", ["connects", "waits", "acquires", "is cancelled", "releases"])
def test_loop_ends_while_task_acts(server: Server, client: Any, way: str, lease: float | None) -> None:
    """Nothing is left, whatever the task does when ``asyncio.run`` ends everything."""

    async def begin(steps: int) -> None:
        aclient = server.client_asyncio()
        lock = Lock(aclient, "door", timeout=lease, thread_local=False)
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

    if way in ("connects", "waits"):
        client.set("door", "another client")
    for steps in range(30):
        asyncio.run(begin(steps))
        if way in ("connects", "waits"):
            wait_until(lambda: not waiters(client))
        else:
            wait_until(lambda: not client.exists("door"), explain=lambda steps=steps: steps)


def test_loop_ends_while_server_stalls(new_server: Any) -> None:
    server = new_server()

    async def hold(stack: contextlib.ExitStack) -> float:
        lock = Lock(server.client_asyncio(socket_timeout=8), "door", timeout=60, session=True)
        await lock.acquire()
        assert not lock.lost.is_set()
        await asyncio.sleep(0.3)
        stack.enter_context(server.stalled())
        waits = asyncio.create_task(Lock(server.client_asyncio(), "window", timeout=60).acquire())
        await asyncio.sleep(0.3)
        assert not waits.done()
        return time.monotonic()

    with contextlib.ExitStack() as stack:
        ended = asyncio.run(hold(stack))
        assert time.monotonic() - ended < 4


@pytest.mark.parametrize("options", LASTING)
def test_holder_cleans_up_at_end_of_loop(server: Server, client: Any, options: dict[str, Any]) -> None:
    """``asyncio.run`` cancels the task, which holds the lock until it has ended, longer than one lease."""
    entered: list[bool] = []

    async def hold() -> None:
        lock = Lock(server.client_asyncio(), "door", timeout=2, **options)
        async with lock:
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
        await until(lambda: entered)
        assert not holds.done()

    asyncio.run(main())
    assert entered == [True, True]
    assert not client.exists("door")


@pytest.mark.parametrize("eager", EAGER)
@pytest.mark.parametrize("options", LASTING)
async def test_hold_outlasts_cancelled_tasks(aclient: Any, client: Any, options: dict[str, Any], eager: bool) -> None:
    """The program cancels all tasks of the loop and goes on: the lock is renewed, and its loss is reported."""
    be_eager(eager)
    lock = Lock(aclient, "door", timeout=2, **options)
    await lock.acquire()
    for _ in range(3):
        await asyncio.sleep(0.3)
        for task in other_tasks():
            task.cancel()
    await asyncio.sleep(3)
    assert await lock.owned() and not lock.lost.is_set()
    client.set("door", "another client", px=60_000)
    await asyncio.wait_for(lock.lost.wait(), 5)


async def test_package_has_no_endless_task(aclient: Any) -> None:
    async with Lock(aclient, "door", timeout=30, session=True):
        await asyncio.wait_for(asyncio.gather(*other_tasks()), 5)


PROGRAM = f"""
import asyncio, os, sys, time
from {LIBRARY}.asyncio import {CLIENT}
from redis_lock_client.asyncio import Lock

client = {CLIENT}(port=int(sys.argv[1]))
"""
CLOSED = """
async def main():
    async with Lock(client, "door", timeout=30, session=True) as lock:
        assert not lock.lost.is_set()
        assert not await Lock(client, "door", timeout=30).acquire(blocking_timeout=0.1)
    await client.aclose()

loop = asyncio.new_event_loop()
loop.slow_callback_duration = 10
loop.run_until_complete(main())
if sys.argv[2] == "shut down":
    loop.run_until_complete(loop.shutdown_asyncgens())
if sys.argv[2] != "left open":
    loop.close()
print("done")
"""


@pytest.mark.parametrize("end", ["shut down", "closed", "left open"])
def test_loop_ended_in_any_way_reports_nothing(server: Server, client: Any, end: str) -> None:
    """Python's development mode reports pending tasks, and open connections if the loop was shut down."""
    mode = ["-X", "dev"] if end == "shut down" else []
    words = [sys.executable, *mode, "-c", PROGRAM + CLOSED, str(server.port), end]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "done\n" and (end != "shut down" or ended.stderr == "")
    assert not any(word in ended.stderr for word in ("pending", "never awaited", "redis_lock_client")), ended.stderr
    assert not client.exists("door")


@pytest.mark.parametrize("eager", EAGER)
def test_generator_cleans_up_at_end_of_loop(server: Server, client: Any, eager: bool) -> None:
    cleaned: list[bool] = []

    async def hold() -> AsyncIterator[int]:
        lock = Lock(server.client_asyncio(), "door", timeout=30, session=True, thread_local=False)
        async with lock:
            try:
                yield 1
            finally:
                await asyncio.sleep(0.3)
                cleaned.append(client.exists("door") == 1)
                await lock.release()
                await lock.acquire()
                cleaned.append(await lock.owned())

    generator = hold()

    async def main() -> None:
        be_eager(eager)
        assert await anext(generator) == 1

    before = ids_of(client)
    asyncio.run(main())
    assert cleaned == [True, True]
    gc.collect()
    wait_until(lambda: not client.exists("door") and not ids_of(client) - before)


def test_lock_object_serves_two_loops(server: Server, client: Any) -> None:
    """A lock that was acquired in one is released in the other, and a loss is reported in each."""

    async def take(lock: Lock) -> None:
        await lock.acquire()
        lost = lock.lost
        await asyncio.sleep(0.1)
        client.delete("door")
        await asyncio.wait_for(lost.wait(), 5)
        assert await lock.acquire()

    async def release(lock: Lock) -> None:
        assert await lock.owned() and await lock.extend(5)
        await lock.release()

    lock = Lock(server.client_asyncio(), "door", timeout=30)
    for _ in range(2):
        asyncio.run(take(lock))
        asyncio.run(release(lock))
        assert not client.exists("door")


FORKED = """
async def main():
    lock = Lock(client, "door", timeout=120, session=True)
    await lock.acquire()
    waits = asyncio.create_task(Lock(client, "window", timeout=120).acquire())
    await asyncio.sleep(0.2)
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    await asyncio.sleep(60)

if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.install()
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_forked_child_keeps_nothing_of_its_parent(server: Server, client: Any, kind: str) -> None:
    """When that is killed: the server sees its connection close."""
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    client.set("window", "another client")
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM + FORKED, str(server.port), kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            wait_until(lambda: client.exists("door") and waiters(client, "window"))
            parent.kill()
            wait_until(lambda: not client.exists("door") and not waiters(client, "window"), 20)
            os.kill(child, 0)  # It lives.
        finally:
            parent.kill()
            os.kill(child, signal.SIGKILL)
