"""Waits and threads for the tests."""

from __future__ import annotations

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


def wait_until(condition: Any, seconds: float = 10.0, explain: Any = lambda: "") -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {explain()}"
        time.sleep(0.01)


async def until(condition: Any, seconds: float = 10) -> None:
    """Waits until something is so, while the other tasks go on."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s"
        await asyncio.sleep(0.01)


def take_turns(lock_for: Callable[[int], Any], threads: int, times: int = 1) -> list[int]:
    """Acquires the locks of threads again and again. Returns the order; asserts that no two hold at one time."""
    inside, order = set[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(times):
            with lock_for(number):
                assert not inside
                inside.add(number)
                order.append(number)
                time.sleep(0)
                inside.remove(number)

    with Threads(threads) as pool:
        for one in [pool.submit(work, number) for number in range(threads)]:
            one.result(100)
    return order


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("redis-lock-client")}
