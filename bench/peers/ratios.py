"""The Python package of this repository compared with redis-py's Lock: ratios of one process, in turns, and what it holds open.

    ratios.py PORT SECONDS

Writes a line for each figure: a name and a number.
"""

import asyncio
import sys
import threading
import time
from pathlib import Path

import redis
import redis.asyncio

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python" / "src"))

from redis_lock_client import Lock  # noqa: E402
from redis_lock_client.asyncio import Lock as AsyncLock  # noqa: E402

PORT, SECONDS = int(sys.argv[1]), float(sys.argv[2])
TURNS = 5


def rate(lock):
    """Returns the acquisitions of a second in one thread."""
    count, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        lock.acquire()
        lock.release()
        count += 1
    return count / SECONDS


async def rate_of_tasks(locks):
    """Returns the acquisitions of a second of one task for each lock."""
    count, end = 0, time.monotonic() + SECONDS

    async def work(lock):
        nonlocal count
        while time.monotonic() < end:
            await lock.acquire()
            await lock.release()
            count += 1

    await asyncio.gather(*map(work, locks))
    return count / SECONDS


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def threads():
    client = redis.Redis(port=PORT)
    locks = Lock(client, "ratio", timeout=30), client.lock("ratio", timeout=30)
    ratios = []
    for _ in range(TURNS):
        ours, other = map(rate, locks)
        ratios.append(ours / other)
    return median(ratios)


async def tasks(number):
    client = redis.asyncio.Redis(port=PORT, max_connections=200)
    names = [f"ratio{n}" for n in range(number)]
    ratios = []
    for _ in range(TURNS):
        ours = await rate_of_tasks([AsyncLock(client, name, timeout=30) for name in names])
        other = await rate_of_tasks([client.lock(name, timeout=30) for name in names])
        ratios.append(ours / other)
    await client.aclose()
    return median(ratios)


def clients_for_requests():
    """Returns the threads and connections of the package for 150 requests with a client each."""
    before = threading.active_count()
    observer = redis.Redis(port=PORT)

    def request():
        with redis.Redis(port=PORT) as client, Lock(client, "requests", timeout=30, blocking_timeout=60):
            time.sleep(0.001)

    requests = [threading.Thread(target=request) for _ in range(150)]
    for one in requests:
        one.start()
    most_threads = most_connections = 0
    while alive := sum(one.is_alive() for one in requests):
        most_threads = max(most_threads, threading.active_count() - before - alive)
        names = [one["name"] for one in observer.client_list()]
        most_connections = max(most_connections, names.count("redis-lock-client"))
    return most_threads, most_connections


async def idle(number):
    """Returns the percentage of a core that tasks take which wait for locks that others hold."""
    client = redis.asyncio.Redis(port=PORT)
    names = [f"idle{n}" for n in range(number)]
    for name in names:
        await client.set(name, "held by others", px=120_000)
    waits = [asyncio.ensure_future(AsyncLock(client, name, timeout=30).acquire()) for name in names]
    await asyncio.sleep(1)
    began, spent = time.monotonic(), time.process_time()
    await asyncio.sleep(10 * min(SECONDS, 1))
    percentage = 100 * (time.process_time() - spent) / (time.monotonic() - began)
    for one in waits:
        one.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    await client.aclose()
    return percentage


print("one-thread", threads())
print("one-task", asyncio.run(tasks(1)))
print("hundred-tasks", asyncio.run(tasks(100)))
for name, number in zip(("threads", "connections"), clients_for_requests(), strict=True):
    print(name, number)
print("idle", asyncio.run(idle(2000)))
