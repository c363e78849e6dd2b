"""The driver of this package for clients/vectors/player.py, with locks for tasks."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any

from servers import library, library_asyncio

from redis_lock_client import LockLost, LockQueueFull, LockTimeout, ModuleNeededError
from redis_lock_client.asyncio import Lock, observe, several

CLASSES: tuple[tuple[Any, str], ...] = (
    (LockTimeout, "timeout"),
    (LockQueueFull, "full"),
    (LockLost, "lost"),
    (ModuleNeededError, "module"),
    ((library.ConnectionError, library.TimeoutError), "connection"),
    (asyncio.CancelledError, "cancelled"),
    (ArithmeticError, "failed"),
    ((ValueError, TypeError), "argument"),
    (Exception, "server"),
)
MILLISECONDS = {"lease": "timeout", "wait": "blocking_timeout"}
NUMBERS = {"permits": "limit", "max_waiters": "max_waiters"}
locks: dict[str, Any] = {}
tasks: dict[str, asyncio.Task[None]] = {}
ends: dict[str, asyncio.Future[None]] = {}


def lock_of(client: Any, name: str, options: list[str]) -> tuple[Lock, Any]:
    """Returns the lock that options describe, and the token."""
    arguments: dict[str, Any] = {}
    for option in options:
        word, _, value = option.partition("=")
        if word in MILLISECONDS:
            arguments[MILLISECONDS[word]] = int(value) / 1000
        elif word in NUMBERS:
            arguments[NUMBERS[word]] = int(value)
        else:
            arguments[word] = value or True
    token = arguments.pop("token", None)
    return Lock(client, name, thread_local=False, **arguments), token


async def acquire(client: Any, id: str, name: str, *options: str, **blocking: Any) -> str:
    locks[id], token = lock_of(client, name, [*options])
    is_held = await locks[id].acquire(token=token, **blocking)
    return "held" if is_held else "busy" if blocking else "timeout"


async def block(client: Any, id: str, name: str, *options: str) -> str:
    locks[id], _ = lock_of(client, name, [*options])
    ends[id] = asyncio.get_running_loop().create_future()
    async with locks[id]:
        say(id, "held")
        await ends[id]
    return "released"


async def fence(_: Any, id: str) -> str:
    return f"fence {await locks[id].fence()}"


async def watch(_: Any, id: str) -> str:
    await locks[id].lost.wait()
    return "lost"


async def repeat(client: Any, id: str, number: str, name: str, *options: str) -> str:
    lock, _ = lock_of(client, name, [*options])
    for _ in range(int(number)):
        await lock.acquire()
        await lock.release()
    scheduler = lock._engine().scheduler
    kept = (scheduler.flows, scheduler._timers, scheduler._messages, scheduler._queues, scheduler.watchers)
    return f"left {sum(map(len, kept))}"


async def acquire_several(client: Any, id: str, names: str, *options: str) -> str:
    wait = [option for option in options if option.startswith("wait=")]
    others = [option for option in options if option not in wait]
    patience = int(wait[0].removeprefix("wait=")) / 1000 if wait else None
    block = several([lock_of(client, name, others)[0] for name in names.split(",")], patience)
    locks[id] = await block.__aenter__()
    locks[id].release = lambda: block.__aexit__(None, None, None)
    return "held"


async def report(client: Any, id: str, name: str) -> None:
    async for label in observe(client, name):
        say(id, f"leader {label or 'none'}")


async def attach(client: Any, id: str, name: str, token: str, *options: str) -> str:
    locks[id], _ = lock_of(client, name, [*options])
    await locks[id].attach(token)
    return "held"


async def detach(_: Any, id: str) -> str:
    return f"token {locks[id].detach().decode()}"


async def end(_: Any, id: str, error: BaseException | None = None) -> None:
    if id in ends and not ends[id].done():
        ends[id].set_exception(error) if error else ends[id].set_result(None)


async def plain(id: str, done: str, call: Coroutine[Any, Any, Any]) -> str:
    await call
    return done


STEPS: dict[str, Any] = {
    "acquire": acquire,
    "try": lambda *args: acquire(*args, blocking=False),
    "block": block,
    "end": end,
    "fail": lambda client, id: end(client, id, ArithmeticError("the work fails")),
    "release": lambda _, id: plain(id, "released", locks[id].release()),
    "extend": lambda _, id, ms: plain(id, "extended", locks[id].extend(int(ms) / 1000, replace_ttl=True)),
    "fence": fence,
    "watch": watch,
    "repeat": repeat,
    "several": acquire_several,
    "observe": report,
    "attach": attach,
    "detach": detach,
}


def say(id: str, outcome: str) -> None:
    print(id, outcome, flush=True)


async def run(client: Any, step: str, id: str, args: list[str]) -> None:
    # A lock without a lease is held until it is released, as in redis-py.
    is_acquiring = step in ("acquire", "block") and not any(arg.startswith("lease=") for arg in args)
    if step not in STEPS or is_acquiring:
        print("unsupported", flush=True)
        return
    try:
        if (outcome := await STEPS[step](client, id, *args)) is not None:
            say(id, outcome)
    except BaseException as error:
        word = next(word for kind, word in CLASSES if isinstance(error, kind))
        say(id, word if word in ("cancelled", "failed", "timeout") else f"error {word}")


async def main() -> None:
    client = library_asyncio.from_url(f"redis://{os.environ.get('DRIVER_USER', '')}127.0.0.1:{sys.argv[1]}")
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        step, id, *args = line.split()
        if step == "cancel":
            tasks[id].cancel()
        else:
            tasks[id] = asyncio.create_task(run(client, step, id, args))


asyncio.run(main())
