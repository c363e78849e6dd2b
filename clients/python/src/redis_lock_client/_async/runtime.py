"""What tasks do in one way and threads in another; ``_sync/runtime.py`` has the same for threads."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

Event = asyncio.Event
Lock = asyncio.Lock
sleep = asyncio.sleep
now = time.monotonic
#: The loop is at its end: nothing else cancels what the package does beside its callers.
Ended = asyncio.CancelledError

# The loop itself keeps only weak references to its tasks.
_tasks: set[asyncio.Task[Any]] = set()


# For each loop what belongs to it: connections are of no use in another one.
_clients: dict[int, tuple[asyncio.AbstractEventLoop, dict[int, Any]]] = {}


def clients() -> dict[int, Any]:
    """The clients of the loop that runs."""
    loop = asyncio.get_running_loop()
    known = _clients.get(id(loop))
    if known is None or known[0] is not loop:
        for number, (other, _) in list(_clients.items()):
            if other.is_closed():
                del _clients[number]
        known = _clients[id(loop)] = (loop, {})
    return known[1]


def at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Closes what is open when the loop cancels its tasks, as it does at its end."""
    spawn(_close_at_end, close)


async def _close_at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await close()


def can_use(redis: Any) -> bool:
    """Whether this is a client for tasks."""
    return inspect.iscoroutinefunction(getattr(redis, "execute_command", None))


async def ready(cluster: Any) -> None:
    """Sees to it that a cluster's client knows its nodes."""
    await cluster.initialize()


def pool(cluster: Any, node: Any) -> Any:
    """What has the arguments of the connections to a node."""
    return node


def spawn(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    """Begins to work beside the caller, until the work ends or the loop does."""
    _keep(asyncio.get_running_loop().create_task(work(*args)))


def _keep(task: asyncio.Task[Any]) -> None:
    _tasks.add(task)
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # Whoever waited for it has been told; else nobody is left to tell.


async def wait(event: asyncio.Event, timeout: float | None) -> bool:
    """Waits for an event. Unlike ``asyncio.wait_for``, it swallows no cancellation (before Python 3.12)."""
    if event.is_set() or timeout is None:
        return await event.wait()
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(event.wait())
    try:
        await asyncio.wait([waiting], timeout=max(timeout, 0))
    finally:
        waiting.cancel()
    return event.is_set()


class Exchanges:
    """The exchanges of one acquisition that are under way. They go on when the caller is cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, exchange: Coroutine[Any, Any, T]) -> T:
        """Lets an exchange come to its end, in any case, so that its connection can be used again."""
        task = asyncio.get_running_loop().create_task(exchange)
        _keep(task)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    @property
    def under_way(self) -> bool:
        """Whether one is under way."""
        return bool(self._under_way)

    async def settle(self) -> None:
        """Waits until none is under way."""
        if self._under_way:
            await asyncio.wait(list(self._under_way))


class Worker:
    """Does jobs in the background: each is a task of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def do(self, job: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> asyncio.Event:
        """Does a job; the event says when it is done."""
        done = asyncio.Event()
        task = self._loop.create_task(job(*args))
        _keep(task)
        task.add_done_callback(lambda _: done.set())
        return done

    def do_threadsafe(self, job: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Does a job for whoever may be in another thread, or is collected as garbage."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.do, job, *args)


Handle = asyncio.TimerHandle


def call_later(delay: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
    """Calls a function that does not wait."""
    return asyncio.get_running_loop().call_later(max(delay, 0), function, *args)


async def receive(connection: Any, timeout: float) -> Any:
    """The next answer or message, or None when nothing has come in time."""
    return await connection.read_response(disable_decoding=True, timeout=timeout, disconnect_on_error=False)


async def drain(connection: Any, timeout: float) -> bool:
    """Closes a connection whose user was interrupted. Tasks never are in an exchange, which comes to its end."""
    await close(connection)
    return True


async def close(connection: Any) -> None:
    """Closes a connection at once, whatever state it is in."""
    try:
        await connection.disconnect(nowait=True)
    except Exception:
        pass
