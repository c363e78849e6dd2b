# Waits for many locks on one connection: redis-py with asyncio. See docs/guides/multiplexed-clients.md.

import asyncio
import secrets
import time

import redis.asyncio as redis

SILENCE_S = 5  # less than lock.rejoin-grace-ms


class Locks:
    """Waits for many locks on one connection, and listens on another."""

    def __init__(self, port):
        self.channel = "locks:" + secrets.token_hex(16)
        self.waiters = {}  # for each waiting token: the future of its next event
        self.client = redis.Redis(port=port, single_connection_client=True, redis_connect_func=self.connected)
        self.listener = asyncio.create_task(self.listen())

    async def connected(self, connection):
        await connection.on_connect()
        self.notify_all("lost")

    async def listen(self):
        while True:
            try:
                async with self.client.pubsub() as pubsub:
                    await pubsub.ssubscribe(self.channel)
                    async for message in pubsub.listen():
                        self.receive(message)
            except (redis.ConnectionError, redis.TimeoutError):
                await asyncio.sleep(1)

    def receive(self, message):
        if message["type"] == "smessage":
            event, _, _, token, _ = message["data"].decode().split(" ", 4)
            self.notify(token, event)
        else:
            # A new subscription: messages may have been lost before.
            self.notify_all("lost")

    def notify(self, token, event):
        waiter = self.waiters.get(token)
        if waiter and not waiter.done():
            waiter.set_result(event)

    def notify_all(self, event):
        for token in self.waiters:
            self.notify(token, event)

    async def ask(self, key, token, lease_ms, block_ms):
        # Before the request, because the message may come before the reply.
        waiter = self.waiters[token] = asyncio.get_running_loop().create_future()
        request = ("LOCK.ACQUIRE", key, token, "PX", lease_ms, "BLOCK", block_ms, "NOTIFY", self.channel)
        try:
            if await self.client.execute_command(*request) == 1:
                return "granted"
        except redis.ResponseError as error:
            # A new subscription will wake this wait.
            if not str(error).startswith("NOSUBSCRIBER"):
                raise
        await asyncio.wait([waiter], timeout=min(SILENCE_S, block_ms / 1000))
        return waiter.result() if waiter.done() else "lost"

    async def acquire(self, key, lease_ms, patience_ms):
        """The token that holds the lock, or None."""
        token = secrets.token_hex(16)
        end = time.monotonic() + patience_ms / 1000
        event = "lost"
        try:
            while event == "lost" and (left_ms := int((end - time.monotonic()) * 1000)) > 0:
                event = await self.ask(key, token, lease_ms, left_ms)
            return token if event == "granted" else None
        finally:
            self.waiters.pop(token, None)
            if event != "granted":
                # Withdraws. A second cancellation does not stop it.
                await asyncio.shield(self.release(key, token))

    async def release(self, key, token):
        try:
            await self.client.execute_command("LOCK.RELEASE", key, token)
        except redis.ResponseError as error:
            # The lease has ended, or the request was sent twice.
            if not str(error).startswith(("NOTHELD", "NOTOWNER")):
                raise

    async def close(self):
        self.listener.cancel()
        await self.client.aclose()


# Example
async def hold_alone(locks, key, inside, fences):
    token = await locks.acquire(key, lease_ms=30000, patience_ms=60000)
    assert token, "not left waiting"
    assert key not in inside, "alone"
    inside.add(key)
    fence = await locks.client.execute_command("LOCK.FENCE", key, token, "fence")
    assert fence > fences.get(key, 0), "after all others"
    fences[key] = fence
    await asyncio.sleep(0.005)
    inside.remove(key)
    await locks.release(key, token)


async def main():
    locks = Locks(port=6379)
    inside, fences = set(), {}
    await asyncio.gather(*(hold_alone(locks, f"door:{n % 10}", inside, fences) for n in range(1000)))
    await locks.close()
    print("1000 tasks held a lock alone")


asyncio.run(main())
