"""Waits and threads for the tests."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class Threads(ThreadPoolExecutor):
    """A pool that does not wait for its threads when the test has failed: they may be why."""

    def __exit__(self, kind: Any, *_: object) -> None:
        self.shutdown(wait=kind is None)


def wait_until(condition: Any, seconds: float = 10, explain: Any = lambda: "") -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {explain()}"
        time.sleep(0.01)


async def until(condition: Any) -> None:
    """Waits until something is so, while the tasks of the loop go on."""
    await asyncio.to_thread(wait_until, condition)


def take_turns(lock_for: Callable[[int], Any], threads: int, times: int = 1, limit: int = 1) -> list[int]:
    """Acquires the locks of threads again and again. Returns how many held at each time, at most the limit."""
    inside, counts = set[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(times):
            with lock_for(number):
                inside.add(number)
                counts.append(len(inside))
                time.sleep(0.001)
                inside.remove(number)

    with Threads(threads) as pool:
        for one in [pool.submit(work, number) for number in range(threads)]:
            one.result(100)
    assert len(counts) == threads * times and max(counts) <= limit
    return counts


def own_threads() -> set[threading.Thread]:  # An interrupted Thread.start leaves one in the list that does not run.
    return {one for one in threading.enumerate() if one.is_alive() and one.name.startswith("redis-lock-client")}
