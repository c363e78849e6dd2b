"""Runs flows: generators that say what they wait for. No I/O, no threads, no tasks.

A flow, such as ``acquisition.acquire``, yields a `Call`, `Message`, `Change`, `Turn` or `Pause`, and is resumed with
the result, or with the exception that it gets in its place. It can be cancelled at any moment: its ``finally`` starts
the flow that cleans up. One scheduler runs all flows for one server or cluster. Its engine (`threads.py`, `tasks.py`)
moves bytes and tells the time, and calls every method from one thread.
"""

from __future__ import annotations

import heapq
import itertools
import math
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import EXPECTED, NoReply

if TYPE_CHECKING:
    from .connection import Connection

Steps = Generator[Any, Any, Any]


#: How many requests for shares of one lock are under way together.
TOGETHER = 64


class Call(NamedTuple):
    """Sends a command; the result is the reply. Raises ServerError, Disconnected or NoReply."""

    connection: Connection
    words: list[Any]
    asking: bool = False
    #: How many seconds the reply may take, None for as long as a server may be silent.
    timeout: float | None = None


class Message(NamedTuple):
    """Waits for the message that ends a wait at the server; the result is its event, or None after ``timeout`` seconds.

    ``"lost"`` is the event of a connection that was lost, too. ``tag`` is that of the request.
    """

    tag: bytes
    timeout: float


class Change(NamedTuple):
    """Waits until a watched key has changed or its connection was lost, at most ``timeout`` seconds."""

    timeout: float


class Turn(NamedTuple):
    """Waits in the local queue of a key; the result is True, or None after ``timeout`` seconds.

    Shares that are next to each other have their turn together.
    """

    key: bytes
    timeout: float
    is_share: bool = False


class Pause(NamedTuple):
    """Waits for ``timeout`` seconds; the result is None."""

    timeout: float


class Operation(NamedTuple):
    """What an engine runs for a caller: a flow with its arguments, and what undoes it if the caller is interrupted."""

    undo: Callable[[], None]
    start: Callable[..., Steps]
    args: tuple[Any, ...]


class Flow:
    """A generator that runs, and what it waits for."""

    def __init__(
        self, scheduler: Scheduler, start: Callable[..., Steps], args: tuple[Any, ...], done: Callable[..., None]
    ) -> None:
        self.scheduler = scheduler
        self.steps = start(self, *args)
        self.done = done
        self.ended = False
        #: What it waits for; None while it runs.
        self.wanted: Any = None
        #: The connection of its latest command.
        self.connection: Any = None
        #: It is in a local queue for a share.
        self.is_share = False
        #: The key that it watches has changed since it was read, or the connection was lost.
        self.changed = False
        #: Grows with each wait, so that an earlier timer does not end a later wait.
        self.wait_number = 0
        #: The retry policy of the caller's client, None if the flow has its own.
        self.retry: Any = None
        #: The latest command was sent a second time, because the first connection was silent.
        self.was_repeated = False
        #: The time at which each wait ends, whatever it waits for.
        self.limit = math.inf

    @property
    def number(self) -> int:
        """The number of the connection of its latest command."""
        return self.connection.number if self.connection is not None else 0


def nothing(*_: object) -> None:
    pass


#: The result of a wait is not there yet.
_PENDING = object()


class Scheduler:
    """The flows of one server or cluster, their timers, local queues and watched keys.

    The engine has ``now()``, the time of a clock that is never set; ``open(connection)``, which calls its ``opened`` or
    ``close`` later; ``close(connection)``; ``send(connection, words)``; and ``wake_at(time)``, which calls
    `tick` then or earlier. If ``is_driven``, exceptions of signal handlers can come from everywhere.
    """

    def __init__(self, engine: Any, source: Any) -> None:
        self.engine, self.source, self.now = engine, source, engine.now
        self.servers = source.servers(self, source)
        self.flows: set[Flow] = set()
        #: The flows that watch held locks, with the functions that start them again in another scheduler.
        self.lasting: dict[Flow, Callable[[], None]] = {}
        #: When a server replied last, or its connection was lost.
        self.heard_at = -math.inf
        #: That waits poll was logged.
        self.has_warned = False
        self._timers: list[tuple[float, int, Flow, int]] = []
        self._numbers = itertools.count(1)
        #: The latest request with each token.
        self.tokens: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self._messages: dict[bytes, Flow] = {}
        #: Ordered, so that a flow in the middle leaves in one step.
        self._queues: dict[bytes, OrderedDict[Flow, None]] = {}
        #: The flows that watch a key.
        self.watchers: dict[bytes, set[Flow]] = {}

    def start(self, start: Callable[..., Steps], *args: Any, done: Callable[..., None] = nothing) -> Flow:
        """Starts a flow. ``done`` is called with its result and its exception, one of which is None."""
        flow = Flow(self, start, args, done)
        self.flows.add(flow)
        self.resume(flow)
        return flow

    def busy(self) -> int:
        """Returns how many flows do more than watch held locks."""
        return len(self.flows) - len(self.lasting)

    def cancel(self, flow: Flow) -> None:
        """Ends a flow where it waits."""
        if not flow.ended:
            self._stop_waiting(flow)
            flow.steps.close()
            self._end(flow, None, None)

    def resume(self, flow: Flow, value: Any = None, error: BaseException | None = None) -> None:
        """Ends the wait of a flow with a result or an exception."""
        while True:
            self._stop_waiting(flow)
            try:
                wanted = flow.steps.throw(error) if error is not None else flow.steps.send(value)
            except StopIteration as stop:
                return self._end(flow, stop.value, None)
            except Exception as failure:
                if self.engine.is_driven and not isinstance(failure, EXPECTED):
                    raise  # A signal handler has raised it, in the midst of anything.
                return self._end(flow, None, failure)
            finally:
                error = None  # Its traceback has this frame: they would keep each other, and the lock object, alive.
            value = self._wait(flow, wanted)
            if value is _PENDING:
                return None

    def _stop_waiting(self, flow: Flow) -> None:
        if isinstance(flow.wanted, Message):
            self._messages.pop(flow.wanted.tag, None)
        flow.wanted, flow.wait_number = None, flow.wait_number + 1

    def _end(self, flow: Flow, value: Any, error: Exception | None) -> None:
        flow.ended = True
        self.flows.discard(flow)
        self.lasting.pop(flow, None)
        flow.done(value, error)

    def _wait(self, flow: Flow, wanted: Any) -> Any:
        flow.wanted = wanted
        match wanted:
            case Call(connection, words, asking):
                flow.connection = connection
                connection.send(flow, words, asking)
            case Message(tag, _):
                self._messages[tag] = flow
            case Change() if flow.changed:
                return "changed"
            case Turn(key, _, is_share):
                flow.is_share = is_share
                queue = self._queues.setdefault(key, OrderedDict())
                queue[flow] = None
                if flow in _first(queue):
                    return True
        timeout = self.source.silence_s if wanted.timeout is None else wanted.timeout
        until = min(flow.limit, self.now() + max(timeout, 0))
        if until < math.inf:
            self.set_timer(until, flow)
        return _PENDING

    def leave_queue(self, key: bytes, flow: Flow) -> None:
        """Removes a flow from the local queue of a key; the next one has its turn."""
        queue = self._queues.get(key)
        if queue is None or flow not in queue:
            return
        del queue[flow]
        if not queue:
            del self._queues[key]
            return
        for one in _first(queue):
            if isinstance(one.wanted, Turn):
                # In the next tick, because many may leave one after the other.
                self.set_timer(self.now(), one)

    def queue_length(self, key: bytes) -> int:
        """Returns how many flows wait for a lock or ask for it."""
        return len(self._queues.get(key, ()))

    # ---- timers ------------------------------------------------------------------------------------------------------

    def set_timer(self, when: float, flow: Flow) -> None:
        """Ends the present wait of a flow at a time."""
        if len(self._timers) > 2 * len(self.flows) + 64:
            self._timers = [timer for timer in self._timers if waits(*timer[2:])]
            heapq.heapify(self._timers)
        heapq.heappush(self._timers, (when, next(self._numbers), flow, flow.wait_number))
        if self._timers[0][0] == when:
            self.engine.wake_at(when)

    def tick(self) -> None:
        """Resumes the flows whose time has come."""
        now = self.now()
        while self._timers and (self._timers[0][0] <= now or not waits(*self._timers[0][2:])):
            _, _, flow, wait_number = heapq.heappop(self._timers)
            if waits(flow, wait_number):
                self._end_wait(flow)
        if self._timers:
            self.engine.wake_at(self._timers[0][0])

    def _end_wait(self, flow: Flow) -> None:
        if isinstance(flow.wanted, Call):
            if not flow.wanted.connection.close_if_silent():
                self.resume(flow, None, NoReply("Timeout reading from the server"))
        else:
            has_turn = isinstance(flow.wanted, Turn) and flow in _first(self._queues[flow.wanted.key])
            self.resume(flow, has_turn or None)

    # ---- messages ----------------------------------------------------------------------------------------------------

    def notify(self, tag: bytes, event: str) -> None:
        """Delivers the message that ends a wait at the server."""
        if flow := self._messages.get(tag):
            self.resume(flow, event)

    def watch(self, key: bytes, flow: Flow) -> None:
        """Resumes a flow that waits for a `Change` when the key changes."""
        self.watchers.setdefault(key, set()).add(flow)

    def unwatch(self, key: bytes, flow: Flow) -> None:
        """Ends `watch`."""
        watchers = self.watchers[key]
        watchers.discard(flow)
        if not watchers:
            del self.watchers[key]

    def key_changed(self, key: bytes | None) -> None:
        """Resumes the flows that watch a key, or all of them."""
        for one in [*self.watchers] if key is None else [key]:
            for flow in [*self.watchers.get(one, ())]:
                self.wake(flow)

    def wake(self, flow: Flow) -> None:
        """Resumes a flow that waits for a `Change`, now or when it waits next."""
        flow.changed = True
        if isinstance(flow.wanted, Change):
            self.resume(flow, "changed")

    def connection_lost(self, connection: Connection) -> None:
        """Resumes the flows that wait for messages on a connection, or watch keys on it."""
        watchers = [flow for flows in self.watchers.values() for flow in flows]
        for flow in [*self._messages.values(), *watchers]:
            waits = isinstance(flow.wanted, Message | Change)
            # A request that is sent again, maybe to another server, would hide the loss.
            flow.changed |= not waits or flow.connection is connection
            if waits and flow.connection is connection:
                self.resume(flow, "lost")


def _first(queue: OrderedDict[Flow, None]) -> list[Flow]:
    """Returns the flows that have their turn: the first one, or the shares that are next to each other."""
    group = itertools.takewhile(lambda flow: flow.is_share, itertools.islice(queue, TOGETHER))
    return [*group] or [next(iter(queue))]


def waits(flow: Flow | None, wait_number: int) -> bool:
    """Returns whether a flow is still in the wait with this number."""
    return flow is not None and not flow.ended and flow.wait_number == wait_number
