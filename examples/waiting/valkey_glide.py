# Waits for a lock in slices: valkey-glide 2.6. A client has one connection, which a waiting request delays for all, so each wait
# has a client of its own. Its time-out, 250 ms by default, must be longer than a slice. See docs/guides/clients.md.

import asyncio
import contextlib
import secrets
import time

from glide import AdvancedGlideClientConfiguration, GlideClient, GlideClientConfiguration, Logger, LogLevel, NodeAddress
from glide import RequestError

SLICE_MS = 2000

Logger.set_logger_config(LogLevel.OFF)  # it writes to the standard output
configuration = GlideClientConfiguration(
    [NodeAddress("127.0.0.1", 6379)],
    request_timeout=SLICE_MS + 5000,
    advanced_config=AdvancedGlideClientConfiguration(connection_timeout=5000),
)


async def wait(key, token, lease_ms, patience_ms):
    waiting = await GlideClient.create(configuration)
    end = time.monotonic() + patience_ms / 1000
    left_ms = patience_ms
    try:
        while left_ms > 0:
            block_ms = min(left_ms, SLICE_MS)
            ask = ["LOCK.ACQUIRE", key, token, "PX", str(lease_ms), "BLOCK", str(block_ms)]
            if await waiting.custom_command(ask):
                return True
            left_ms = int((end - time.monotonic()) * 1000)
        return False
    finally:
        await waiting.close()


async def release(client, key, token, held):
    try:
        await client.custom_command(["LOCK.RELEASE", key, token])
    except RequestError as error:
        if held or not str(error).startswith(("NOTHELD", "NOTOWNER")):
            raise


@contextlib.asynccontextmanager
async def lock(client, key, lease_ms, patience_ms):
    token = secrets.token_hex(16)
    held = False
    try:
        held = await wait(key, token, lease_ms, patience_ms)
        yield token if held else None
    finally:
        # A second cancellation does not stop it.
        await asyncio.shield(release(client, key, token, held))


async def main():
    client = await GlideClient.create(configuration)
    async with lock(client, "door", lease_ms=30000, patience_ms=20000) as token:
        if token:
            print("the door is ours")
    await client.close()


asyncio.run(main())
