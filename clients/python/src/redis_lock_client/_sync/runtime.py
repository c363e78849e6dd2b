"""What threads do in one way and tasks in another; ``_async/runtime.py`` has the same for tasks.

At most three threads for each server that locks are waited for at (one listens, one checks and renews what is held, one
gives up), and one for all timers. They are daemons, begin when they are needed, and end when they are not any more.
"""

from __future__ import annotations

import contextlib
import heapq
import inspect
import itertools
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

now = time.monotonic

logger = logging.getLogger("redis_lock_client")


def Lock() -> Any:
    """A lock. Looked up when it is called: gevent and eventlet may have put their own in its place."""
    return threading.Lock()


class Event:
    """An event as ``threading.Event``, whose own lock can stay locked when a thread is interrupted in it."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: deque[Any] = deque()

    def is_set(self) -> bool:
        """Whether it has happened."""
        return self._is_set

    def set(self) -> None:
        """Wakes all who wait."""
        self._is_set = True
        for waiter in list(self._waiters):
            try:
                waiter.release()
            except RuntimeError:
                pass  # Somebody else has just woken it.

    def clear(self) -> None:
        """From now on it has not happened."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it has happened; whether it has."""
        waiter = Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        longest = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
        try:
            return self._is_set or waiter.acquire(timeout=longest)
        finally:
            self._waiters.remove(waiter)


#: What a callback may raise without an effect on others. ``sys.exit`` ends nothing but the thread that it is called in.
FAILED = (Exception, SystemExit)


class Ended(BaseException):
    """Never raised: threads are not cancelled."""


#: How long a thread without work stays, in seconds.
IDLE_S = 10.0
#: How many timers there may be before those are looked for that were cancelled.
ENOUGH = 100


# What belongs to this process: a fork leaves all of it behind.
_clients: dict[int, Any] = {}
_commons: dict[object, Any] = {}


def clients() -> dict[int, Any]:
    """The clients of this process."""
    return _clients


def commons() -> dict[object, Any]:
    """What clients in this process have in common."""
    return _commons


def at_end(close: Callable[[], None]) -> Callable[[], None]:
    """Nothing: the process closes its connections when it ends. What this returns closes them before, in any thread."""
    process = os.getpid()

    def at_once() -> None:
        if _goes_on(process):
            # No thread can begin at the end of the interpreter, which closes what is open.
            with contextlib.suppress(RuntimeError):
                call_later(0, close)

    return at_once


def here() -> object:
    """Where an event can be waited for: anywhere."""
    return None


def loop_runs() -> bool:
    """Whether somebody can be told something here: always."""
    return True


def user() -> int:
    """Who asks: a thread, or the signal handler in it."""
    return threading.get_ident()


def tell(callback: Callable[[], object]) -> None:
    """Calls a callback."""
    callback()


def _goes_on(process: int) -> bool:
    """Whether a process can still work: a child is another one, and at the end of the interpreter no thread begins."""
    return process == os.getpid() and not sys.is_finalizing()


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


def wait(event: Event, timeout: float | None) -> bool:
    """Waits for an event."""
    return event.wait(timeout)


class Exchanges:
    """The exchanges of one acquisition. In threads none is under way beside the caller."""

    under_way = False

    def run(self, exchange: T) -> T:
        """What the exchange has answered."""
        return exchange

    def settle(self) -> None:
        """Nothing: none is under way."""


class _Service:
    """A thread that is given its work through a queue: it begins when it is needed, and ends when it is not any more.

    An interrupt of who gives it work leaves nothing locked, and nothing that is taken for a thread.
    """

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Any] = queue.SimpleQueue()
        #: Locked by the thread that runs: there is one at most, however many begin to.
        self._runs = threading.Lock()

    def _give(self, work: object) -> None:
        # May come in the midst of itself, when a collection of garbage gives work.
        self._given.put(work)
        if not self._runs.locked():
            spawn(self._run)

    def _run(self) -> None:
        while self._runs.acquire(blocking=False):
            try:
                self._serve()
            finally:
                self._runs.release()
            if self._given.empty():
                return

    def _serve(self) -> None:
        """Works until there has been nothing to do for a while."""
        raise NotImplementedError


class Worker(_Service):
    """Does jobs in the background, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()

    def do(self, job: Callable[..., None], *args: Any) -> Event:
        """Does a job; the event says when it is done."""
        done = Event()
        self._give((job, args, done))
        return done

    def do_threadsafe(self, job: Callable[..., None], *args: Any) -> None:
        """Does a job for whoever is collected as garbage, maybe in the midst of the worker's own code.

        What is collected in a child, after a fork, is only a copy: the lock is the parent's, and the connections are.
        """
        if _goes_on(self._process):
            call_later(0, self.do, job, *args)

    def _serve(self) -> None:
        while True:
            try:
                job, args, done = self._given.get(timeout=IDLE_S)
            except queue.Empty:
                return
            if not _goes_on(self._process):
                return  # A greenlet is copied by a fork.
            try:
                job(*args)
            except BaseException:  # What a callback raises ends nothing but itself: others have jobs here, too.
                logger.exception("a job in the background has failed")
            finally:
                done.set()
                # The job may hold on to a lock that nobody has any more.
                del job, args


class Handle:
    """A call that is due later."""

    def __init__(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._call: tuple[Callable[..., object], tuple[Any, ...]] | None = (function, args)

    def cancel(self) -> None:
        """Sees to it that the call is not made, unless it is being made."""
        self._call = None

    @property
    def cancelled(self) -> bool:
        """Whether there is nothing to call any more."""
        return self._call is None

    def run(self) -> None:
        """Makes the call."""
        call = self._call
        if call is not None:
            try:
                call[0](*call[1])
            except BaseException:  # What a callback raises ends nothing but itself: others have timers, too.
                logger.exception("a timer has failed")


class _Timers(_Service):
    """All timers of the process, in one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[tuple[float, int, Handle]] = []
        self._enough = ENOUGH
        self._numbers = itertools.count()

    def add(self, at: float, handle: Handle) -> None:
        self._give((at, next(self._numbers), handle))

    def _serve(self) -> None:
        while True:
            idle = IDLE_S  # Tests change it while this thread waits.
            left = self._due[0][0] - now() if self._due else idle
            try:
                heapq.heappush(self._due, self._given.get(timeout=max(min(left, idle), 0)))
                if len(self._due) > self._enough:
                    self._sweep()
            except queue.Empty:
                if left >= idle:
                    self._sweep()
                    if not self._due:
                        return
                elif self._due[0][0] <= now():
                    heapq.heappop(self._due)[2].run()

    def _sweep(self) -> None:
        """Forgets what was cancelled. Leases are long, and most locks are released long before theirs ends."""
        self._due = [due for due in self._due if not due[2].cancelled]
        heapq.heapify(self._due)
        self._enough = max(2 * len(self._due), ENOUGH)


# Made when it is needed, because gevent and eventlet may not have been set up when this was imported.
_timers: _Timers | None = None
_left_behind: list[object] = []


def _after_fork() -> None:
    global _timers, _clients, _commons
    # Their connections are closed in source.py. Kept, so that nothing of theirs is collected and tells the server.
    _left_behind.extend((_clients, _commons))
    _timers, _clients, _commons = None, {}, {}


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


def is_open(connection: Any) -> bool:
    """Whether something may have been sent on a connection, and is still answered there."""
    return getattr(connection, "_sock", None) is not None


def unless_locked(guard: Any, look: Callable[[], bool]) -> bool:
    """What a function finds, or False if somebody has the lock."""
    if not guard.acquire(blocking=False):
        return False
    try:
        return look()
    finally:
        guard.release()


def has_ended(connection: Any) -> bool:
    """Whether the server has closed a connection on which nothing is under way."""
    try:
        # Without a socket the library would open another one.
        return not is_open(connection) or bool(connection.can_read(timeout=0))
    except Exception:
        return True


def drain(connection: Any, timeout: float) -> bool:
    """Closes a connection once the server has done what was asked there; whether it is known that it has.

    TimeoutError if it may yet do it.
    """
    sock = getattr(connection, "_sock", None)
    if sock is None:
        return False  # The library has closed it, as it does where the request was being sent.
    try:
        sock.settimeout(timeout)
        # The server closes its side after the last request.
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass
        return True
    except TimeoutError:
        raise
    except OSError:
        return False
    finally:
        close(connection)


def close(connection: Any) -> None:
    """Closes a connection at once, whatever state it is in."""
    try:
        connection.disconnect()
    except Exception:
        pass
