"""The engine for threads: the connections of one server or cluster, and threads that open them."""

from __future__ import annotations

import contextlib
import os
import selectors
import ssl
import threading
from functools import partial
from typing import Any

from .connection import Connection, encode
from .driver import HAS_DAEMONS, Driver
from .errors import LockError
from .library import socket_of
from .source import all_engines, engines

#: How many bytes are read at most at a time.
SIZE = 65536
_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Link:
    """An open connection: that of the library, its socket, and the bytes to be sent."""

    def __init__(self, opened: Any) -> None:
        self.opened, self.socket, self.unsent = opened, socket_of(opened), bytearray()
        self.socket.setblocking(False)
        self.is_encrypted = hasattr(self.socket, "pending")


class Engine(Driver):
    """Moves the bytes of the connections of one source."""

    def __init__(self, of: Any) -> None:
        super().__init__(of)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        #: The library's connections that are being opened.
        self._opening: set[Any] = set()

    def _select(self, timeout: float) -> None:
        for key, events in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_in.recv(65536)
            else:
                self._move(key.data, events)

    def _move(self, connection: Connection, events: int) -> None:
        if connection not in self._links:
            return
        link: _Link = self._links[connection]
        if events & selectors.EVENT_WRITE:
            self._flush(connection, link)
        while self._links.get(connection) is link:
            try:
                data = link.socket.recv(SIZE)
            except _WAIT:
                return
            except OSError as error:
                if error.errno is None:
                    raise  # A signal handler has raised it.
                return connection.close(error)
            if not data:
                return connection.close(ConnectionError("Connection closed by server."))
            connection.received(data)
            if len(data) < SIZE and not link.is_encrypted:
                return  # There is no more.

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
        link: Any = self._links.get(connection)
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

    def close(self, connection: Connection) -> None:
        """Closes a connection."""
        link: Any = self._links.get(connection)
        if link is not None:
            with contextlib.suppress(Exception):
                self._selector.unregister(link.socket)
            with contextlib.suppress(Exception):
                link.opened.disconnect()
            del self._links[connection]  # Not before, so that an interruption here is made up for.

    def _close(self) -> None:
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()


def engine_of(of: Any) -> Engine:
    """Returns the engine for a source of connections."""
    engine: Engine = vars(of).get("engine") or vars(of).setdefault("engine", Engine(of))
    return engine


def _after_fork() -> None:
    """Replaces the sockets of a forked child, which are the parent's, since something may close them later."""
    empty = os.open(os.devnull, os.O_RDWR)
    for engine in all_engines():
        vars(engine.source).pop("engine", None)
        opening = [socket_of(opened) for opened in getattr(engine, "_opening", ())]
        for one in [*(link.socket for link in engine._links.values()), *opening]:
            if one is not None and one.fileno() >= 0:
                os.dup2(empty, one.fileno())
    os.close(empty)
    engines.clear()


def _end_all() -> None:
    """Ends the threads of a sub-interpreter, which ends."""
    for engine in all_engines():
        if isinstance(engine, Engine):
            engine.post(engine._end)


if not HAS_DAEMONS:
    threading._register_atexit(_end_all)  # type: ignore[attr-defined] # As concurrent.futures does.

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
