"""Lines that a type checker has to find: each ends with a comment. `right` has the same without the mistakes."""

import redis
import redis.asyncio

from redis_lock_client import Lock, several
from redis_lock_client.asyncio import Lock as AsyncLock

client, aclient = redis.Redis(), redis.asyncio.Redis()
lock = Lock(client, "door", timeout=30)


def wrong() -> None:
    Lock(client)  # wrong
    Lock(client, "door", timeot=30)  # wrong
    Lock(client, "door", timeout="30")  # wrong
    Lock(client, "door", limit="2")  # wrong
    Lock(aclient, "door", timeout=30)  # wrong
    Lock(client, "door", lease=30)  # wrong
    lock.acquire(wait=5)  # wrong
    lock.lost.wait("5")  # wrong
    lock.redis.no_such_command()  # wrong
    several([lock], timeout=3)  # wrong


async def wrong_in_task() -> None:
    other = AsyncLock(aclient, "door", timeout=30, session=True, cancel_on_lost=True)
    other.acquire()  # wrong
    AsyncLock(aclient, "door", cancel_on_loss=True)  # wrong
    AsyncLock(client, "door")  # wrong
    await other.lost.wait(5)  # wrong


async def right() -> None:
    Lock(client, "door", timeout=30, limit=2, on_lost=lambda: None)
    with several([lock], blocking_timeout=3) as both, lock:
        both.lost.wait(5)
    other = AsyncLock(aclient, b"door", timeout=30, cancel_on_lost=True)
    async with other:
        await other.lost.wait()
    number: int = await other.fence()
    print(number, await other.acquire(blocking_timeout=3), lock.token, other.name)
