"""The engine for asyncio: callbacks of the loop, and a task while a connection is being opened."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any

from . import source
from .connection import Connection, encode
from .errors import Disconnected, logger
from .flow import Steps
from .library import disown, transport_of
from .source import all_engines

#: How long the end of a loop waits for releases that are under way, in seconds.
END_S = 2.0


class _Link(asyncio.Protocol):
    """An open connection: that of the library and its transport, which is handed over to this protocol."""

    def __init__(self, engine: Engine, connection: Connection, opened: Any) -> None:
        self.engine, self.connection, self.opened = engine, connection, opened
        self.transport = transport_of(opened)
        self.socket = self.transport.get_extra_info("socket")
        self.transport.set_protocol(self)
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self.connection.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.engine._links.get(self.connection) is self:
            self.connection.close(exc or Disconnected("", sent=True))


class Engine(source.BaseEngine):
    """Moves the bytes of the connections of one source in one loop."""

    def __init__(self, of: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        super().__init__(of)
        self._timer: asyncio.Handle | None = None
        self._is_ending, self.is_driven, self.callers = False, False, 0
        self.tasks: set[asyncio.Task[Any]] = set()

    async def run(self, undo: Callable[[], None], start: Callable[..., Steps], *args: Any) -> Any:
        """Returns the result of a flow. If the caller is cancelled, the flow is cancelled, or its result is undone."""
        outcome: asyncio.Future[Any] = self.loop.create_future()

        def end(value: Any, error: Exception | None) -> None:
            if outcome is not None and not outcome.done():
                outcome.set_result(value) if error is None else outcome.set_exception(error)

        flow = self.scheduler.start(start, *args, done=end)
        self.callers += 1
        try:
            return await outcome
        except BaseException as error:
            if not outcome.done() or outcome.cancelled() or outcome.exception() is not error:
                self.scheduler.cancel(flow)
                undo()
            raise
        finally:
            outcome = None  # type: ignore[assignment] # Its exception would keep this frame alive, and so itself.
            self.callers -= 1
            if self._is_ending and not self.callers and not self.scheduler.watchers:
                self.close_all()  # An asynchronous generator has cleaned up.

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls a function in the loop, from any thread."""
        if not self.loop.is_closed():
            with contextlib.suppress(RuntimeError):  # It is closed in this moment.
                self.loop.call_soon_threadsafe(function, *args)

    def tell(self, callback: Callable[[], Any]) -> None:
        """Calls a function of the caller in a task of its own; it may be a coroutine function."""
        self._begin(_call(callback), "redis-lock-client on_lost")

    def _begin(self, coroutine: Any, name: str) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=self.loop, name=name)  # Never eager: its caller is in a flow.
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    # ---- for the scheduler -------------------------------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        """Opens a connection in a task."""
        task = self._begin(self._open(connection), f"redis-lock-client connects to {self.source.title}")
        task.add_done_callback(lambda task: self._opened(connection, task))

    async def _open(self, connection: Connection) -> None:
        opened = self.source.connection(connection.address)
        await opened.connect()
        if connection.state != "opening":  # It was closed before, or a later attempt was faster.
            await opened.disconnect()
        else:
            if not self._links:
                self.loop.call_later(source.IDLE_S / 2, self.close_if_idle)
            self._links[connection] = _Link(self, connection, opened)
            connection.opened()

    def _opened(self, connection: Connection, task: asyncio.Task[None]) -> None:
        """Reports why a connection could not be opened. A program may have cancelled all tasks."""
        error = Disconnected("the task was cancelled", sent=False) if task.cancelled() else task.exception()
        if error is not None and connection.state == "opening":
            connection.close(error)

    def send(self, connection: Connection, words: list[Any]) -> None:
        """Sends a command."""
        self._links[connection].transport.write(encode(words))

    def wake_at(self, when: float) -> None:
        """Calls the scheduler's `tick` then."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(when, self.scheduler.tick)

    def close(self, connection: Connection) -> None:
        """Closes a connection."""
        link = self._links.pop(connection, None)
        if link is not None:
            link.transport.abort()
            disown(link.opened)

    def is_busy(self) -> bool:
        """Returns whether anything but watching locks is under way."""
        return bool(self.callers or self.scheduler.flows.difference(*self.scheduler.watchers.values()))

    def _end(self) -> None:
        _loops[self.loop][0].pop(self.source, None)
        self._disconnect()

    def close_if_idle(self) -> None:
        """Closes the connections if nothing has needed them for long, and looks again later."""
        if self._is_idle():
            self._disconnect()
        elif self._links:
            self.loop.call_later(source.IDLE_S / 2, self.close_if_idle)

    def close_all(self) -> None:
        """Ends all flows and closes all connections, because the loop ends."""
        self._is_ending = True
        for _ in range(2):  # Those that end may start others, which withdraw.
            for flow in [*self.scheduler.flows]:
                self.scheduler.cancel(flow)
        self._disconnect()


async def _call(callback: Callable[[], Any]) -> None:
    try:
        if inspect.isawaitable(result := callback()):
            await result
    except Exception:
        logger.exception("on_lost has failed")


_loops: weakref.WeakKeyDictionary[Any, tuple[dict[Any, Engine], AsyncGenerator[None, None]]] = (
    weakref.WeakKeyDictionary()
)


def engine_of(of: Any) -> Engine:
    """Returns the engine of the running loop for a source of connections."""
    loop = asyncio.get_running_loop()
    if loop not in _loops:
        for reference in _loops.keyrefs():
            if (other := reference()) is not None and other.is_closed():
                _loops.pop(other, None)  # Its engines would keep it alive.
        own: dict[Any, Engine] = {}
        ending = _close_at_end(loop)
        with contextlib.suppress(StopIteration):
            ending.__anext__().send(None)  # The loop closes the generator after its tasks have ended.
        _loops[loop] = own, ending
    own = _loops[loop][0]
    if of not in own:
        own[of] = Engine(of)
    return own[of]


async def _close_at_end(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        own = [engine for engine in all_engines() if getattr(engine, "loop", None) is loop]
        # Other asynchronous generators end at the same time, and release their locks.
        await asyncio.sleep(0)
        until = loop.time() + END_S
        while any(engine.is_busy() for engine in own) and loop.time() < until:
            await asyncio.sleep(0.01)
        for engine in own:
            engine.close_all()
        tasks = [task for engine in own for task in engine.tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_loops.clear)
