"""A simulated clock and network, on which the core of the package runs without I/O."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from redis_lock_client.connection import Connection, Incomplete, Push, encode, read
from redis_lock_client.errors import ServerError
from redis_lock_client.flow import Scheduler
from redis_lock_client.source import Source

LATENCY_S = 0.0005
NO_REPLY_YET = object()


class World:
    """A clock that moves only when ``run`` is called, and what happens at which time."""

    def __init__(self) -> None:
        self.now, self.check = 0.0, lambda: None
        self._events: list[tuple[float, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, function: Callable[[], Any]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), function))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            when, _, function = heapq.heappop(self._events)
            self.now = max(self.now, when)
            function()
            self.check()
        self.now = end


class Pipe:
    """One direction of a connection: bytes arrive in order and in pieces, after the time until which it stalls."""

    def __init__(self, world: World, arrive: Callable[[bytes], Any]) -> None:
        self.world, self.arrive = world, arrive
        self.stalls_until, self.is_cut, self.data, self.sent = 0.0, False, b"", 0

    def send(self, data: bytes) -> None:
        self.data, self.sent = self.data + data, self.sent + 1
        piece = len(data) * (self.sent % 4) // 4
        self.world.after(LATENCY_S, lambda: self._deliver(piece))
        self.world.after(2 * LATENCY_S, lambda: self._deliver(len(data) - piece))

    def _deliver(self, size: int) -> None:
        if self.world.now < self.stalls_until:
            self.world.after(self.stalls_until - self.world.now, lambda: self._deliver(size))
        elif size and not self.is_cut:
            data, self.data = self.data[:size], self.data[size:]
            self.arrive(data)

    def cut(self, size: int) -> None:
        """Delivers ``size`` of the bytes that are under way; the others are lost."""
        if not self.is_cut:
            self.is_cut = True
            self.arrive(self.data[:size])


class Link:
    """An open connection between a process and the server."""

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self.engine, self.connection, self.server = engine, connection, engine.server
        self.up, self.down = Pipe(engine.world, self._execute), Pipe(engine.world, self._receive)
        self.commands, self.waiting = b"", deque[list[bytes]]()
        self.is_open, self.is_blocked, self.tracks, self.version = True, False, False, 2
        self.channels, self.tracked = set[bytes](), set[bytes]()

    def _receive(self, data: bytes) -> None:
        if self.engine.links.get(self.connection) is self:
            self.connection.received(data)

    def _execute(self, data: bytes) -> None:
        if self.is_open:
            self.commands += data
            with contextlib.suppress(Incomplete):
                while self.commands:
                    command, size = read(self.commands)
                    self.waiting.append(command)
                    self.commands = self.commands[size:]
            self.go_on()

    def go_on(self) -> None:
        while self.waiting and not self.is_blocked and self.is_open:
            reply = self.server.execute(self, self.waiting.popleft())
            if reply is not NO_REPLY_YET:
                self.reply(reply)

    def reply(self, value: Any) -> None:
        if self.is_open:
            self.down.send(to_bytes(value, self.version))

    def cut(self, up: int = 0, down: int = 0, later: float = 0.0) -> None:
        """The process sees the end now, the server later; ``up`` and ``down`` bytes that are under way arrive."""
        self.up.stalls_until = self.engine.world.now + later + 1e-9
        self.down.cut(down)
        if self.engine.links.get(self.connection) is self:
            del self.engine.links[self.connection]
            self.connection.close(ConnectionResetError("reset"))
        self.engine.world.after(later, lambda: self.end(up))

    def end(self, up: int) -> None:
        self.up.cut(up)
        if self.is_open:
            self.is_open = False
            self.server.closed(self)


class Engine(Source):
    """The engine of one process, and how its connections are opened."""

    is_driven = False

    def __init__(self, world: World, server: Any) -> None:
        self.world, self.server = world, server
        self.links: dict[Connection, Link] = {}
        self._wake_at = math.inf
        self.scheduler = Scheduler(self, self)

    def now(self) -> float:
        return self.world.now

    def tell(self, function: Callable[[], Any]) -> None:
        function()

    def open(self, connection: Connection) -> None:
        self.world.after(LATENCY_S, lambda: self._open(connection))

    def _open(self, connection: Connection) -> None:
        if self.world.now < self.server.accepts_at:
            return self.world.after(self.server.accepts_at - self.world.now, lambda: self._open(connection))
        if self.world.now < self.server.refuses_until:
            return connection.close(ConnectionRefusedError("refused"))
        assert connection not in self.links
        self.links[connection] = Link(self, connection)
        self.server.links.append(self.links[connection])
        connection.opened()

    def close(self, connection: Connection) -> None:
        if link := self.links.pop(connection, None):
            self.world.after(LATENCY_S, lambda: link.end(1_000_000))

    def send(self, connection: Connection, words: list[Any]) -> None:
        self.links[connection].up.send(encode(words))

    def wake_at(self, when: float) -> None:
        if when < self._wake_at:
            self._wake_at = when
            self.world.after(when - self.world.now, lambda: self._wake(when))

    def _wake(self, when: float) -> None:
        if self._wake_at == when:
            self._wake_at = math.inf
            self.scheduler.tick()


def to_bytes(value: Any, version: int) -> bytes:
    """Returns a reply as a server sends it in a version of the protocol. Text that is `str` is a simple string."""
    match value:
        case None:
            return b"_\r\n" if version == 3 else b"$-1\r\n"
        case int():
            return b":%d\r\n" % value
        case float():
            text = repr(value).encode()
            return b",%b\r\n" % text if version == 3 else to_bytes(text, version)
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(value), value)
        case str():
            return b"+%b\r\n" % value.encode()
        case ServerError():
            return b"-%b\r\n" % str(value).encode()
    items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
    kind = b"%" if isinstance(value, dict) and version == 3 else b">" if isinstance(value, Push) else b"*"
    size = len(value) if kind == b"%" else len(items)
    return kind + b"%d\r\n" % size + b"".join(to_bytes(item, version) for item in items)
