"""The engine for threads: one thread for each server or cluster. It ends when there is nothing to do.

While nothing else is under way, the caller itself does what the thread would do, which saves two switches between
threads.
"""

import contextlib
import math
import os
import queue
import selectors
import socket
import ssl
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from .connection import Connection, encode
from .errors import LockError, logger
from .flow import Flow, Scheduler, Steps

#: After several flows at a time, the thread ends this time after the last of them, in seconds.
IDLE_S = 0.1
_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Link:
    """An open connection: that of the library, its socket, and the bytes to be sent."""

    def __init__(self, opened: Any) -> None:
        self.opened, self.socket, self.unsent = opened, opened._sock, bytearray()
        self.socket.setblocking(False)


class Engine:
    """Moves the bytes of the connections of one source. Callers use `post` and `run`, from any thread."""

    now = staticmethod(time.monotonic)

    def __init__(self, source: Any) -> None:
        self.source = source
        self.scheduler = Scheduler(self, source)
        self._inbox: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.process = os.getpid()
        #: The thread that runs the scheduler. An interruption leaves no doubt about that, unlike with a lock.
        self._runner: dict[None, int] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._links: dict[Connection, _Link] = {}
        #: The library's connections that are being opened.
        self._opening: set[Any] = set()
        _all.add(self)
        self._wake_at = math.inf
        #: Whether a caller runs the scheduler.
        self.is_driven = False
        #: When a caller ran the scheduler last.
        self._used_at = 0.0

    # ---- for callers -------------------------------------------------------------------------------------------------

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls a function in the engine's thread, and does not wait for it."""
        if self.process != os.getpid() or sys.is_finalizing():
            return  # In a forked child it is a copy, and the locks are the parent's.
        self._inbox.put(partial(function, *args))
        with contextlib.suppress(BlockingIOError):  # It is full, so the thread wakes up.
            self._wake_out.send(b"!")
        if not self._runner:
            with contextlib.suppress(LockError):  # A later call tries it again.
                self._begin_thread()

    def _begin_thread(self) -> None:
        self._start(f"redis-lock-client {self.source.title}", self._run)

    def _start(self, name: str, target: Callable[..., object], *args: Any) -> None:
        try:
            threading.Thread(target=target, args=args, daemon=True, name=name).start()
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
                        self._begin_thread()  # The thread could not begin before.
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
        caller, has_begun, is_whole = threading.get_ident(), False, True
        try:
            if self._runner.setdefault(None, caller) != caller or self.scheduler.flows or not self._inbox.empty():
                return False
            has_begun, is_whole, self.is_driven = True, False, True
            if self.now() > self._used_at + IDLE_S:
                self._select(0)  # The server may have closed the connection.
            begin()
            self._loop(outcome)
            is_whole = True
        finally:
            self.is_driven = False
            if not is_whole:
                self._reset()
            self._used_at = self.now()
            if self._runner.get(None) == caller:
                del self._runner[None]
            # Otherwise the caller begins the thread after it has posted, so that no later caller precedes it.
            if has_begun and (self.scheduler.flows or not self._inbox.empty()):
                with contextlib.suppress(LockError):
                    self._begin_thread()
        return bool(outcome)

    def _reset(self) -> None:
        """Begins again after an interruption in the midst of anything. The caller's flow was the only one."""
        for connection in [*self._links]:
            self.close(connection)
        self._wake_at = math.inf
        before, self.scheduler = self.scheduler, Scheduler(self, self.source)
        self.scheduler.tokens, self.scheduler.heard_at = before.tokens, before.heard_at

    def tell(self, callback: Callable[[], Any]) -> None:
        """Calls a function of the caller in a thread of its own."""
        self._start("redis-lock-client on_lost", _call, callback)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        caller = threading.get_ident()
        while self._runner.setdefault(None, caller) == caller:
            try:
                self._loop(None)
            finally:
                del self._runner[None]
            if self._inbox.empty() and not self.scheduler.flows:
                return

    def _loop(self, outcome: list[Any] | None) -> None:
        """Runs until nothing was to do for a while, there is an outcome, or other callers need the scheduler."""
        idle_at = self.now()
        while not outcome:
            while not self._inbox.empty():
                if outcome is not None:
                    return
                try:
                    self._inbox.get()()
                except Exception:
                    logger.exception("a call in the thread of locks has failed")
            if outcome:
                return
            now = self.now()
            if len(self.scheduler.flows) > 1:
                idle_at = now + IDLE_S  # Several callers at a time would begin the thread again.
            elif not self.scheduler.flows and now >= idle_at:
                return  # The connections stay open for the next flow.
            until = idle_at if not self.scheduler.flows else now + 10.0
            self._select(max(min(until, self._wake_at) - now, 0))
            if self.now() >= self._wake_at:
                self._wake_at = math.inf
                self.scheduler.tick()

    def _select(self, timeout: float) -> None:
        for key, events in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_in.recv(65536)
            else:
                self._move(key.data, events)

    def _move(self, connection: Connection, events: int) -> None:
        link = self._links.get(connection)
        if link is None:
            return
        if events & selectors.EVENT_WRITE:
            self._flush(connection, link)
        while self._links.get(connection) is link:
            try:
                data = link.socket.recv(65536)
            except _WAIT:
                return
            except OSError as error:
                if error.errno is None:
                    raise  # A signal handler has raised it.
                return connection.close(error)
            if not data:
                return connection.close(ConnectionError("Connection closed by server."))
            connection.received(data)

    # ---- for the scheduler -------------------------------------------------------------------------------------------

    def open(self, connection: Connection) -> None:
        """Opens a connection in a thread of its own, since it may take long."""
        try:
            self._start(f"redis-lock-client connects to {self.source.title}", self._connect, connection)
        except LockError as error:
            self._inbox.put(partial(connection.close, error))

    def _connect(self, connection: Connection) -> None:
        opened = None
        try:
            opened = self.source.connection(connection.address)
            self._opening.add(opened)
            opened.connect()
        except Exception as error:
            self.post(connection.close, error)
        else:
            self.post(self._opened, connection, opened)
        finally:
            self._opening.discard(opened)

    def _opened(self, connection: Connection, opened: Any) -> None:
        # Its scheduler was interrupted, or it was closed before, or a later attempt was faster.
        if connection.scheduler is not self.scheduler or connection.state != "opening":
            opened.disconnect()
            return
        link = self._links[connection] = _Link(opened)
        self._selector.register(link.socket, selectors.EVENT_READ, connection)
        connection.opened()

    def send(self, connection: Connection, words: list[Any]) -> None:
        """Sends a command."""
        link = self._links.get(connection)
        if link is None:
            return  # The scheduler of this connection was interrupted.
        link.unsent += encode(words)
        self._flush(connection, link)

    def _flush(self, connection: Connection, link: _Link) -> None:
        try:
            while link.unsent:
                del link.unsent[: link.socket.send(link.unsent)]
        except OSError as error:  # It is full. Another error comes when it is read.
            if error.errno is None:
                raise
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.unsent else 0)
        had_events = self._selector.get_key(link.socket).events
        if events != had_events:
            self._selector.modify(link.socket, events, connection)

    def wake_at(self, when: float) -> None:
        """Calls the scheduler's `tick` then."""
        self._wake_at = min(self._wake_at, when)

    def close(self, connection: Connection) -> None:
        """Closes a connection."""
        link = self._links.get(connection)
        if link is not None:
            with contextlib.suppress(Exception):
                self._selector.unregister(link.socket)
            with contextlib.suppress(Exception):
                link.opened.disconnect()
            del self._links[connection]  # Not before, so that an interruption here is made up for.


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except (Exception, SystemExit):
        logger.exception("on_lost has failed")


#: All engines, also those for tasks.
_all: weakref.WeakSet[Any] = weakref.WeakSet()


def engine_of(source: Any) -> Engine:
    """Returns the engine for a source of connections."""
    engine: Engine = vars(source).get("engine") or vars(source).setdefault("engine", Engine(source))
    return engine


def _after_fork() -> None:
    """Replaces the sockets of a forked child, which are the parent's, since something may close them later."""
    empty = os.open(os.devnull, os.O_RDWR)
    for engine in [*_all]:
        vars(engine.source).pop("engine", None)
        opening = [opened._sock for opened in getattr(engine, "_opening", ())]
        for one in [*(link.socket for link in engine._links.values()), *opening]:
            if one is not None and one.fileno() >= 0:
                os.dup2(empty, one.fileno())
    os.close(empty)
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
