"""What is left of locks and clients that are gone: nothing that grows with their number."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
import weakref
from typing import Any

import pytest
from conftest import CLIENT, LIBRARY, Server, connections_of, until, wait_until, waiters

from redis_lock_client import Lock
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._async import keeper as tasks_keeper
from redis_lock_client._async import runtime as tasks_runtime
from redis_lock_client._sync import keeper, runtime
from redis_lock_client._sync.client import Client


def test_clients_of_threads_that_come_and_go(server: Server, client: Any) -> None:
    before = threading.active_count()
    for _ in range(100):
        with server.client(client_name="short-lived") as one, Lock(one, "door", timeout=30):
            pass
        del one
    gc.collect()
    assert threading.active_count() - before < 10
    wait_until(lambda: connections_of(client, "short-lived") == 0)


async def test_clients_of_tasks_that_come_and_go(server: Server, client: Any) -> None:
    before = len(asyncio.all_tasks())
    for _ in range(100):
        one = server.client_asyncio(client_name="short-lived")
        async with for_tasks.Lock(one, "door", timeout=30):
            pass
        await one.aclose()
        del one
    gc.collect()
    await until(lambda: len(asyncio.all_tasks()) <= before)
    await until(lambda: connections_of(client, "short-lived") == 0)


@pytest.mark.parametrize("options", [{}, {"renew": True}, {"session": True}])
def test_locks_that_nobody_releases(client: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """They end with their leases; each has another name."""
    monkeypatch.setattr(keeper, "ENOUGH", 20)
    for number in range(200):
        Lock(client, f"door:{number}", timeout=0.1, **options).acquire()
        if number % 20 == 19:
            gc.collect()
    wait_until(lambda: not client.keys("door:*"))
    seen_to = Client.of(client).node(b"door").keeper._watched
    assert len(seen_to) <= 60


async def test_looks_at_a_server_that_is_away(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look that fails gives occasion for others; there is one at a time for each lock."""
    looks = 0
    look = tasks_keeper.Keeper._look

    async def counted(self: Any, held: Any) -> bool:
        nonlocal looks
        looks += 1
        return await look(self, held)

    monkeypatch.setattr(tasks_keeper.Keeper, "_look", counted)
    server = new_server()
    client = server.client_asyncio()
    locks = [for_tasks.Lock(client, f"door:{number}", timeout=30, on_lost=lambda: None) for number in range(10)]
    for lock in locks:
        await lock.acquire()
    server.stop()
    await asyncio.sleep(0.5)
    looks = 0
    await asyncio.sleep(3)
    assert 10 <= looks <= 10 * 3 / tasks_keeper.PAUSE_S, looks
    assert not any(lock.lost.is_set() for lock in locks)
    await client.aclose()


def test_loops_that_are_closed_with_their_tasks(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of them, as long as the client may live."""
    # Connections of redis-py 5 raise when they are collected, and pytest would keep that, with what is to be collected.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    one = server.client_asyncio(client_name="of-loops")

    async def hold_it() -> None:
        async with for_tasks.Lock(one, "door", timeout=30):
            pass
        await one.connection_pool.disconnect()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(20):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(hold_it())
            loop.close()
        asyncio.run(hold_it())
        gc.collect()
    # What is in a circle with what was collected is collected later.
    wait_until(lambda: gc.collect() >= 0 and connections_of(client, "of-loops") <= 2)
    assert len(tasks_runtime._loops) <= 2
    assert len(weakref.getweakrefs(one.connection_pool)) < 20


def test_timers_of_locks_that_were_released(client: Any) -> None:
    """Their leases last for an hour more."""
    for _ in range(500):
        with Lock(client, "door", timeout=3600, renew=True):
            pass
    timers = runtime._timers
    assert timers is not None
    assert len(timers._due) < 2 * runtime.ENOUGH


TIMERS = """
import time
import {library}
from redis_lock_client import Lock
from redis_lock_client._sync import runtime

runtime.IDLE_S = 0.2
with Lock({library}.{CLIENT}(port={port}), "door", timeout=3600, renew=True):
    while not runtime._timers._runs.locked():
        time.sleep(0.01)
while runtime._timers._runs.locked():
    time.sleep(0.01)
print("it has ended")
"""


def test_the_thread_of_timers_ends(server: Server) -> None:
    program = TIMERS.format(library=LIBRARY, CLIENT=CLIENT, port=server.port)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "it has ended\n"


def test_a_wait_longer_than_clocks_can_tell(client: Any) -> None:
    """Whoever waits in the process, too, may do so for as long as a number can say."""
    lock = Lock(client, "door", timeout=1e12, renew=True)
    with lock:
        others = [
            threading.Thread(target=Lock(client, "door", timeout=0.1).acquire, kwargs={"blocking_timeout": 1e18})
            for _ in range(2)
        ]
        for other in others:
            other.start()
    for other in others:
        other.join(5)
        assert not other.is_alive()


LAST = """
import atexit, sys
import {library}
from redis_lock_client import Lock

client = {library}.{CLIENT}(port={port})

def at_the_end():
    with Lock(client, "door", timeout=30, session={session}) as lock:
        print("the door is ours", lock.locked())

atexit.register(at_the_end)
"""


@pytest.mark.parametrize("session", [False, True])
def test_a_lock_that_is_taken_at_the_end(server: Server, client: Any, session: bool) -> None:
    """No thread can begin any more when the interpreter collects what is left, and none is waited for."""
    program = LAST.format(library=LIBRARY, CLIENT=CLIENT, port=server.port, session=session)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the door is ours True\n", "")
    assert not client.exists("door")


@pytest.mark.parametrize("busy", [False, True])
def test_no_thread_can_begin(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch, busy: bool) -> None:
    """There are too many, or the interpreter is at its end: what needs one is an error, and leaves nothing behind."""

    def spawn(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(runtime, "spawn", spawn)
    monkeypatch.setattr(runtime, "_timers", None)
    if busy:
        client.set("door", "somebody else")
    own = server.client()
    with pytest.raises(RuntimeError, match="thread"):
        Lock(own, "door", timeout=30, renew=True).acquire(blocking_timeout=1)
    assert client.get("door") == (b"somebody else" if busy else None) and not waiters(client)
    client.delete("door")
    with Lock(own, "door", timeout=30):
        assert client.exists("door")
    assert not client.exists("door")
