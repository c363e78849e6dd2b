"""Which thread runs the scheduler of an engine for threads: its own, or a caller while nothing else is under way.

The latter saves two switches between threads. Invariants:

- At most one thread runs the scheduler: the one in ``_runner``. Each step of a dictionary is one of the interpreter, so
  that an exception of a signal handler leaves no doubt about it, unlike with a lock.
- A caller begins to run it only while there are no calls of others, and no flows but those that watch locks, which can
  begin again. So an interruption in the midst of anything harms only its own flow: `_reset` makes a new scheduler.
- The thread begins with the first call, before anything is sent, and ends with the idle connections. It sleeps while
  there are no flows, until the bell rings. A caller that stops running the scheduler and leaves flows or calls rings.
  While callers leave watched locks again and again, it does not ring: the thread looks every `PARK_S`.
"""

import _thread
import contextlib
import math
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from . import source
from .connection import Connection
from .errors import LockError, logger
from .flow import Flow, Scheduler, Steps

#: After several flows at a time, the thread ends this time after the last of them, in seconds.
IDLE_S = 0.1
#: How long the thread leaves the scheduler to callers, in seconds: a loss is reported so much later.
PARK_S = 0.003
#: A sub-interpreter has no daemon threads: it waits for its threads when it ends.
HAS_DAEMONS: bool = getattr(_thread, "daemon_threads_allowed", lambda: True)()


class Driver(source.BaseEngine):
    """Runs the flows of one source. Callers use `post` and `run`, from any thread. The engine adds the connections."""

    now = staticmethod(time.monotonic)
    #: Moves bytes, and waits at most this time in seconds for them.
    _select: Callable[[float], None]
    #: Closes a connection without a word to its flows.
    close: Callable[[Connection], None]
    #: Closes what the engine itself has open.
    _close: Callable[[], None]

    def __init__(self, of: Any) -> None:
        super().__init__(of)
        self._inbox: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.process = os.getpid()
        self._runner: dict[None, int] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._wake_at = math.inf
        #: Whether a caller runs the scheduler.
        self.is_driven = False
        #: The thread, which enters itself.
        self._thread: dict[None, int] = {}
        #: When watched locks were last left to the thread.
        self._left_at = -math.inf
        #: Whether the thread will look soon for flows that callers have left.
        self._looks = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        #: No client is left.
        self._has_ended = False

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls a function in the engine's thread, and does not wait for it."""
        if self._has_ended or self.process != os.getpid() or sys.is_finalizing():
            return  # In a forked child it is a copy, and the locks are the parent's.
        self._inbox.put(partial(function, *args))
        with contextlib.suppress(BlockingIOError):  # It is full, so the thread wakes up.
            self._wake_out.send(b"!")
        if not self._runner:
            with contextlib.suppress(LockError):  # A later call tries it again.
                self._ring()

    def _ring(self) -> None:
        """Wakes the thread, or begins it."""
        self._bell.put(None)
        if not self._thread:
            self._start(f"redis-lock-client {self.source.title}", self._run)

    def _start(self, name: str, target: Callable[..., object], *args: Any) -> None:
        try:
            threading.Thread(target=target, args=args, daemon=HAS_DAEMONS, name=name).start()
        except (RuntimeError, KeyError) as error:
            if error.__context__ is not None:
                raise error.__context__ from None  # Python makes this of an interruption.
            # There are too many, or the interpreter shuts down.
            raise LockError(f"no thread can be started: {error}") from error

    def run(self, undo: Callable[[], None], start: Callable[..., Steps], *args: Any) -> Any:
        """Returns the result of a flow.

        If the caller is interrupted, the flow is cancelled, or its result is undone.
        """
        if sys.is_finalizing():  # The thread has ended in the midst of anything, and none can begin.
            raise LockError("the interpreter shuts down")
        if self._runner.get(None) == threading.get_ident():
            self.post(undo)
            raise LockError("a signal handler or finalizer cannot wait for a lock while its thread is asking for one")
        outcome: list[Any] = []
        flow: list[Flow] = []
        done = threading.Lock()  # An Event can be left locked by an interruption.
        done.acquire()

        def begin() -> None:
            flow.append(self.scheduler.start(start, *args, done=end))

        def end(value: Any, error: Exception | None) -> None:
            outcome.append((value, error))
            done.release()

        def give_up() -> None:
            if flow:
                flow[0].scheduler.cancel(flow[0])
            undo()

        try:
            if not self._drive(begin, outcome):
                if not flow and not outcome:
                    self.post(begin)
                while not done.acquire(timeout=1.0):
                    if not self._runner:
                        self._ring()  # An interruption came before the bell rang.
        except BaseException:  # Ctrl-C, or an exception that another thread raises here.
            if self._runner.get(None) == threading.get_ident():  # A second one, while `_drive` cleaned up.
                self._reset()
                del self._runner[None]
            self.post(give_up)
            raise
        value, error = outcome.pop()
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error  # Its traceback has this frame: they would keep each other alive.

    def _drive(self, begin: Callable[[], None], outcome: list[Any]) -> bool:
        """Runs the scheduler in the caller's thread until there is an outcome.

        Returns False if the thread has to do that.
        """
        caller, has_begun, is_whole, began_at = threading.get_ident(), False, True, self.now()
        try:
            if self._runner.setdefault(None, caller) != caller or self.scheduler.busy() or not self._inbox.empty():
                return False
            has_begun, is_whole, self.is_driven = True, False, True
            if not self._thread:
                self._ring()
            if began_at > self.scheduler.heard_at + IDLE_S:
                self._select(0)  # The server may have closed the connection.
            begin()
            self._loop(outcome)
            is_whole = True
        finally:
            if self._runner.get(None) == caller:
                if not is_whole:
                    self._reset()
                ended_at = self.now()
                if has_begun and self.scheduler.lasting:
                    self._left_at = ended_at
                self.is_driven = False
                del self._runner[None]
                # Otherwise the caller rings after it has posted, so that no later caller precedes it.
                if has_begun and is_whole and (self.scheduler.flows or not self._inbox.empty()):
                    is_short = ended_at - began_at < PARK_S and not self.scheduler.busy() and self._inbox.empty()
                    if not (is_short and self._looks):  # It sees the flows before it stops looking.
                        self._ring()
        return bool(outcome)

    def _reset(self) -> None:
        """Begins again after an interruption in the midst of anything. The caller's flow was the only one."""
        for connection in [*self._links]:
            self.close(connection)
        self._wake_at = math.inf
        before, self.scheduler = self.scheduler, Scheduler(self, self.source)
        self.scheduler.tokens, self.scheduler.heard_at = before.tokens, before.heard_at
        for begin in before.lasting.values():
            self._inbox.put(begin)

    def end_soon(self) -> None:
        """Ends the engine, whose clients are gone. The garbage collector calls it: it begins no thread."""
        if self._thread:
            super().end_soon()
        else:  # Nothing is open.
            self._end()
            self._close()

    def _end(self) -> None:
        if vars(self.source).get("engine") is self:
            del self.source.engine
        self._has_ended = True
        self._disconnect()

    def tell(self, callback: Callable[[], Any]) -> None:
        """Calls a function of the caller in a thread of its own."""
        try:
            self._start("redis-lock-client on_lost", _call, callback)
        except LockError:
            logger.exception("on_lost was not called")

    def _run(self) -> None:
        caller, began_at = threading.get_ident(), self.now()
        while self._thread.setdefault(None, caller) == caller:
            self._park()
            if self._runner.setdefault(None, caller) != caller:
                continue
            try:
                self._loop(None)
                is_idle = self._is_idle() and self.now() - began_at >= source.IDLE_S
                if is_idle:
                    self._disconnect()
            finally:
                del self._runner[None]
            if is_idle or self._has_ended:
                del self._thread[None]
                if self._has_ended or (self._inbox.empty() and not self.scheduler.flows):
                    break
        if self._has_ended:
            self._close()

    def _park(self) -> None:
        """Leaves the scheduler to callers for as long as they run it again and again, or nothing is to be done."""
        while True:
            self._looks = self.now() - self._left_at < PARK_S
            if not self.is_driven and not self._inbox.empty():
                return
            if not (self.is_driven or self._looks) and self.scheduler.flows:
                return
            try:
                return self._bell.get(timeout=PARK_S if self._looks else source.IDLE_S / 2)
            except queue.Empty:
                if not (self.is_driven or self._looks):
                    return

    def _loop(self, outcome: list[Any] | None) -> None:
        """Runs until nothing was to do for a while, there is an outcome, or other callers need the scheduler."""
        idle_at, was_called = self.now(), False
        while not outcome and not self._has_ended:
            while not self._inbox.empty():
                if outcome is not None:
                    return
                was_called = True
                try:
                    self._inbox.get()()
                except Exception:
                    logger.exception("a call in the thread of locks has failed")
            if outcome:
                return
            now = self.now()
            busy, is_left = self.scheduler.busy(), was_called or not self.scheduler.flows
            if busy > 1:
                idle_at = now + IDLE_S  # Several callers at a time would begin the thread again.
            elif not busy and is_left and now >= idle_at:
                self._left_at = now if self.scheduler.flows else self._left_at
                return  # Callers may go on.
            until = idle_at if not busy and is_left else now + 10.0
            self._select(max(min(until, self._wake_at) - now, 0))
            if self.now() >= self._wake_at:
                self._wake_at = math.inf
                self.scheduler.tick()

    def wake_at(self, when: float) -> None:
        """Calls the scheduler's `tick` then."""
        self._wake_at = min(self._wake_at, when)


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except (Exception, SystemExit):
        logger.exception("on_lost has failed")
