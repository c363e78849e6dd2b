"""What threads do in one way and tasks in another; ``_async/runtime.py`` has the same for tasks.

At most two threads for each server that locks are waited for at (one listens, one does jobs that must not hold up the
caller), and one for all timers. They are daemons, begin when they are needed, and end when they are not any more.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Event = threading.Event
Semaphore = threading.Semaphore
now = time.monotonic

logger = logging.getLogger("redis_lock_client")


class Ended(BaseException):
    """Never raised: threads are not cancelled."""


#: How long a thread without work stays, in seconds.
IDLE_S = 10.0


# What belongs to this process: a fork leaves all of it behind.
_clients: dict[int, Any] = {}


def clients() -> dict[int, Any]:
    """The clients of this process."""
    return _clients


def at_end(close: Callable[[], None]) -> None:
    """Nothing: the process closes its connections when it ends."""


def can_use(redis: Any) -> bool:
    """Whether this is a client for threads."""
    return not inspect.iscoroutinefunction(getattr(redis, "execute_command", None))


def ready(cluster: Any) -> None:
    """Nothing: a cluster's client knows its nodes."""


def pool(cluster: Any, node: Any) -> Any:
    """The pool that has the arguments of the connections to a node."""
    get_client = getattr(cluster, "get_redis_connection", None) or cluster.get_valkey_connection
    return get_client(node).connection_pool


def sleep(seconds: float) -> None:
    """Stands still. Looked up when it is called: gevent and eventlet may have put their own in its place."""
    time.sleep(seconds)


def spawn(work: Callable[..., None], *args: Any) -> None:
    """Begins to work beside the caller, until the work ends."""
    threading.Thread(target=work, args=args, daemon=True, name="redis-lock-client").start()


def wait(event: threading.Event, timeout: float | None) -> bool:
    """Waits for an event."""
    return event.wait(timeout if timeout is None else max(timeout, 0))


class Exchanges:
    """The exchanges of one acquisition. In threads none is under way beside the caller."""

    def run(self, exchange: T) -> T:
        """What the exchange has answered."""
        return exchange

    def settle(self) -> bool:
        """Waits until none is under way; whether one was."""
        return False


class Worker:
    """Does jobs in the background, one after the other, in a thread that ends when there have been none for a while."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...], Event]] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._runs = False

    def do(self, job: Callable[..., None], *args: Any) -> threading.Event:
        """Does a job; the event says when it is done."""
        done = threading.Event()
        self._jobs.put((job, args, done))
        with self._guard:
            if not self._runs:
                self._runs = True
                spawn(self._run)
        return done

    def do_threadsafe(self, job: Callable[..., None], *args: Any) -> None:
        """Does a job for whoever is collected as garbage, maybe in the midst of the worker's own code."""
        call_later(0, self.do, job, *args)

    def _run(self) -> None:
        while True:
            try:
                job, args, done = self._jobs.get(timeout=IDLE_S)
            except queue.Empty:
                with self._guard:
                    if self._jobs.empty():
                        self._runs = False
                        return
                continue
            try:
                job(*args)
            except Exception:
                logger.exception("a job in the background has failed")
            finally:
                done.set()


class Handle:
    """A call that is due later."""

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._call: tuple[Callable[..., object], tuple[Any, ...]] | None = (function, args)

    def cancel(self) -> None:
        """Sees to it that the call is not made, unless it is being made."""
        self._call = None

    def run(self) -> None:
        """Makes the call."""
        call = self._call
        if call is not None:
            try:
                call[0](*call[1])
            except Exception:
                logger.exception("a timer has failed")


class _Timers:
    """All timers of the process, in one thread."""

    def __init__(self) -> None:
        # Re-entrant, because a collection of garbage can set a timer anywhere.
        self._changed = threading.Condition(threading.RLock())
        self._due: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self._runs = False

    def add(self, at: float, handle: Handle) -> None:
        with self._changed:
            heapq.heappush(self._due, (at, next(self._numbers), handle))
            if not self._runs:
                self._runs = True
                spawn(self._run)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due and not self._changed.wait(IDLE_S) and not self._due:
                    self._runs = False
                    return
                if not self._due:
                    continue
                left = self._due[0][0] - now()
                if left > 0:
                    self._changed.wait(left)
                    continue
                handle = heapq.heappop(self._due)[2]
            handle.run()


# Made when it is needed, because gevent and eventlet may not have been set up when this was imported.
_timers: _Timers | None = None
_left_behind: list[object] = []


def _after_fork() -> None:
    global _timers, _clients
    # Not closed: the connections are the parent's, too, and its threads are not here.
    _left_behind.append(_clients)
    _timers, _clients = None, {}


os.register_at_fork(after_in_child=_after_fork)


def call_later(delay: float, function: Callable[..., object], *args: Any) -> Handle:
    """Calls a function that does not wait, in the thread of the timers."""
    global _timers
    if _timers is None:
        _timers = _Timers()
    handle = Handle(function, args)
    _timers.add(now() + max(delay, 0), handle)
    return handle


def receive(connection: Any, timeout: float) -> Any:
    """The next message, or None when nothing has come in time."""
    if not connection.can_read(timeout=timeout):
        return None
    return connection.read_response(disable_decoding=True)


def close(connection: Any) -> None:
    """Closes a connection at once, whatever state it is in."""
    try:
        connection.disconnect()
    except Exception:
        pass
