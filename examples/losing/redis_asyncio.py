# Cancels work when its lock is lost: redis-py with asyncio, Python 3.11 and later. See docs/guides/losing-a-lock.md.

import asyncio
import contextlib
import secrets

import redis.asyncio as redis

GONE = ("NOTHELD", "NOTOWNER", "WRONGTYPE")
USABLE = 0.9  # of a lease: the work needs some time to end


class LockLost(Exception):
    """Another client may hold the lock now."""


@contextlib.asynccontextmanager
async def held(client, key, token, lease_ms):
    """Keeps an acquired lock. When it is lost, the body is cancelled, and LockLost raised."""
    limit = asyncio.timeout(lease_ms / 1000 * USABLE)  # by the clock of the client
    watched = asyncio.get_running_loop().create_future()
    keeper = asyncio.create_task(keep(client, key, token, lease_ms / 1000, limit, watched))
    try:
        async with limit:
            await watched
            yield
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        while not keeper.done():
            keeper.cancel()  # Before Python 3.12 one cancellation may not be enough.
            await asyncio.wait([keeper], timeout=0.1)
    if limit.expired():
        raise LockLost(key)


async def keep(client, key, token, lease_s, limit, watched):
    """Extends the lease, and asks whenever the lock may have been lost."""
    now = asyncio.get_running_loop().time
    while True:
        try:
            async with own_connection(client) as connection:
                await ask(connection, "CLIENT", "TRACKING", "ON", "NOLOOP")
                while True:
                    asked = now()
                    await ask(connection, "LOCK.EXTEND", key, token, "PX", round(lease_s * 1000))
                    limit.reschedule(asked + lease_s * USABLE)
                    # From here on the server sends one message when the key changes.
                    info = await ask(connection, "LOCK.INFO", key)
                    if info["owner"] != token:
                        return limit.reschedule(now())
                    if not watched.done():
                        watched.set_result(None)
                    # Returns after a message, and when it is time to extend the lease.
                    await connection.read_response(push_request=True, timeout=lease_s / 3)
        except RuntimeError:
            return  # The limit cannot be moved any more: the work has ended, or is about to.
        except redis.RedisError as error:
            if not watched.done():
                return watched.set_exception(error)
            if str(error).startswith(GONE):
                return limit.reschedule(now())
            # The connection is lost, or the error decides nothing.
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def own_connection(client):
    """A connection that nothing else uses. It is closed in the end, because it has registrations."""
    connection = await client.connection_pool.get_connection()
    try:
        yield connection
    finally:
        await connection.disconnect(nowait=True)
        await client.connection_pool.release(connection)


async def ask(connection, *command):
    await connection.send_command(*command)
    return await connection.read_response()  # Skips messages that came before: the reply is newer.


# Example
async def work():
    print("the door is ours", flush=True)
    for step in range(20):
        await asyncio.sleep(0.1)


async def work_alone(client):
    token = secrets.token_hex(16)
    if await client.execute_command("LOCK.ACQUIRE", "door", token, "PX", 30000):
        try:
            async with held(client, "door", token, lease_ms=30000):
                await work()
        finally:
            # An error after finished work: the lock was lost in the last moment.
            await client.execute_command("LOCK.RELEASE", "door", token)
        print("all is done")


async def main():
    async with redis.Redis(port=6379, protocol=3, decode_responses=True) as client:
        try:
            await work_alone(client)
        except (LockLost, redis.ResponseError) as error:
            print("the door is lost:", error)


asyncio.run(main())
