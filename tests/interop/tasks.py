"""Clients for asyncio, as docs/guides/recipes.md describes them: whom a wait holds up, and how it leaves the line."""

import asyncio
import sys

import coredis
from glide import AdvancedGlideClientConfiguration, GlideClient, GlideClientConfiguration, Logger, LogLevel, NodeAddress
from harness import connect, lock, run, wait_for_waiters

PORT = int(sys.argv[1])
WAIT = ("LOCK.ACQUIRE", "door", "waiter", "PX", "30000", "BLOCK", "0")


def ask_coredis(client, blocking):
    request = client.create_request(WAIT[0].encode(), *WAIT[1:], callback=bool)
    request.blocking = blocking or request.blocking
    return asyncio.ensure_future(request.run())


async def in_line(count):
    await asyncio.to_thread(wait_for_waiters, "door", count)


async def cancel(task):
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def with_coredis(blocking):
    """Waits, has another task ask for something else, and cancels the wait. Whether the other was answered meanwhile."""
    assert lock(connect(), "ACQUIRE", "door", "holder") == 1
    async with coredis.Redis(port=PORT) as client:
        wait = ask_coredis(client, blocking)
        await in_line(1)
        other = asyncio.ensure_future(client.ping())
        done, _ = await asyncio.wait({other}, timeout=10 if blocking else 0.3)
        await cancel(wait)
        await in_line(0 if blocking else 1)
        if not blocking:
            assert lock(connect(), "RELEASE", "door", "holder") == 0
            await other
        return bool(done)


def check_a_request_of_coredis_that_is_marked_holds_up_nobody_and_leaves_when_it_is_cancelled():
    assert asyncio.run(with_coredis(blocking=True))


def check_a_request_of_coredis_that_is_not_marked_holds_up_others_and_stays_when_it_is_cancelled():
    assert not asyncio.run(with_coredis(blocking=False))
    assert lock(connect(), "RELEASE", "door", "waiter") == 0, "it was granted to nobody"


async def with_glide():
    assert lock(connect(), "ACQUIRE", "door", "holder") == 1
    configuration = GlideClientConfiguration(
        [NodeAddress("127.0.0.1", PORT)],
        request_timeout=250,
        advanced_config=AdvancedGlideClientConfiguration(connection_timeout=5000),
    )
    client = await GlideClient.create(configuration)
    for request in (list(WAIT), ["PING"]):
        try:
            await client.custom_command(request)
        except Exception as error:
            assert "timed out" in str(error), error
        else:
            raise AssertionError(f"{request} was answered")
        await in_line(1)
    await client.close()
    await in_line(0)


def check_a_request_of_glide_that_has_timed_out_holds_up_others_and_leaves_when_its_client_is_closed():
    asyncio.run(with_glide())


Logger.set_logger_config(LogLevel.OFF)
run(globals())
