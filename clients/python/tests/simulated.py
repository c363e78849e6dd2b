"""A simulated clock, network and server, on which the core of the package runs without I/O."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from redis_lock_client import scripts
from redis_lock_client.connection import Connection
from redis_lock_client.errors import ServerError
from redis_lock_client.flow import Scheduler
from redis_lock_client.resp import Parser, Push, encode
from redis_lock_client.source import Servers

LATENCY_S = 0.0005
EPOCH_MS = 1_700_000_000_000
KEPT_S = 10.0
FORMS = {b"LOCK.ACQUIRE": "mutex", b"LOCK.REENTER": "reentrant", b"LOCK.SHARE": "shared"}
FLAGS = {b"SESSION", b"ADD", b"NX"}
SCRIPTS = dict(
    zip(scripts.TEXTS, ("LOCK.ACQUIRE", "LOCK.REENTER", "LOCK.RELEASE", "LOCK.EXTEND", "INFO", "KEEP"), strict=True)
)
WAITS = object()


class World:
    """A clock that moves only when ``run`` is called, and what happens at which time."""

    def __init__(self) -> None:
        self.now, self.check = 0.0, lambda: None
        self._events: list[tuple[float, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, function: Callable[[], Any]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), function))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            when, _, function = heapq.heappop(self._events)
            self.now = max(self.now, when)
            function()
            self.check()
        self.now = end


class Pipe:
    """One direction of a connection: bytes arrive in order, in pieces, not before the time until which it stalls."""

    def __init__(self, world: World, arrive: Callable[[bytes], Any]) -> None:
        self.world, self.arrive = world, arrive
        self.latency, self.stalls_until, self.is_cut = LATENCY_S, 0.0, False
        self.data = b""
        self._sent = 0

    def send(self, data: bytes) -> None:
        self.data += data
        self._sent += 1
        piece = len(data) * (self._sent % 4) // 4 or len(data)
        self.world.at(self.world.now + self.latency, lambda: self._deliver(piece))
        if piece < len(data):
            self.world.at(self.world.now + 2 * self.latency, lambda: self._deliver(len(data) - piece))

    def _deliver(self, size: int) -> None:
        if self.is_cut:
            return
        if self.world.now < self.stalls_until:
            self.world.at(self.stalls_until, lambda: self._deliver(size))
            return
        data, self.data = self.data[:size], self.data[size:]
        if data:
            self.arrive(data)

    def cut(self, size: int) -> None:
        """Delivers ``size`` of the bytes that are under way; the others are lost."""
        if not self.is_cut:
            self.is_cut = True
            if self.data[:size]:
                self.arrive(self.data[:size])


class Link:
    """An open connection between a process and the server."""

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self.engine, self.connection, self.server = engine, connection, engine.server
        self.up, self.down = Pipe(engine.world, self._execute), Pipe(engine.world, self._receive)
        self.parser, self.replies, self.is_open, self.version = Parser(), Parser(), True, 2
        self.waiting: deque[list[bytes]] = deque()
        self.is_blocked = False
        self.channels: set[bytes] = set()
        self.tracks, self.tracked = False, set[bytes]()

    def _receive(self, data: bytes) -> None:
        if self.engine.links.get(self.connection) is self:
            if self.connection.polls:
                for reply in self.replies.feed(data):
                    self.connection.reply(reply)
            else:
                self.connection.received(data)

    def _execute(self, data: bytes) -> None:
        if self.is_open:
            self.waiting.extend(self.parser.feed(data))
            self.go_on()

    def go_on(self) -> None:
        while self.waiting and not self.is_blocked and self.is_open:
            reply = self.server.execute(self, self.waiting.popleft())
            if reply is not WAITS:
                self.reply(reply)

    def reply(self, value: Any) -> None:
        if self.is_open:
            self.down.send(to_bytes(value, self.version))

    def cut(self, up: int = 0, down: int = 0, later: float = 0.0) -> None:
        """The process sees the end now, the server later; so many of the bytes that are under way arrive."""
        self.down.cut(down)
        if self.engine.links.get(self.connection) is self:
            del self.engine.links[self.connection]
            self.connection.disconnected(ConnectionResetError("reset"))
        self.engine.world.at(self.engine.world.now + later, lambda: self.end(up))

    def end(self, up: int) -> None:
        self.up.cut(up)
        if self.is_open:
            self.is_open = False
            self.server.closed(self)


class Engine:
    """The engine of one process."""

    def __init__(self, world: World, server: Server, polls: bool = False) -> None:
        self.world, self.server, self.polls = world, server, polls
        self.links: dict[Connection, Link] = {}
        self._wake_at: float | None = None
        self.scheduler = Scheduler(self, self)

    def servers(self, scheduler: Scheduler) -> Servers:
        return Servers(scheduler, Connection(scheduler, None, 5.0, in_cluster=False, polls=self.polls))

    def now(self) -> float:
        return self.world.now

    def open(self, connection: Connection) -> None:
        self.world.at(self.world.now + LATENCY_S, lambda: self._open(connection))

    def _open(self, connection: Connection) -> None:
        if self.world.now < self.server.refuses_until:
            connection.disconnected(ConnectionRefusedError("refused"))
        else:
            assert connection not in self.links
            link = self.links[connection] = Link(self, connection)
            self.server.links.append(link)
            connection.opened()

    def close(self, connection: Connection) -> None:
        if link := self.links.pop(connection, None):
            self.world.at(self.world.now + LATENCY_S, lambda: link.end(1_000_000))

    def send(self, connection: Connection, words: list[Any]) -> None:
        self.links[connection].up.send(encode(words))

    def wake_at(self, when: float) -> None:
        if self._wake_at is None or when < self._wake_at:
            self._wake_at = when
            self.world.at(when, lambda: self._wake(when))

    def _wake(self, when: float) -> None:
        if self._wake_at == when:
            self._wake_at = None
            self.scheduler.tick()


class Held:
    def __init__(self, holds: int, ends: float) -> None:
        self.holds, self.ends, self.lease = holds, ends, 0.0
        self.session: set[Link] = set()
        self.grace = 0.0


class Copy:
    """One request of a queue entry: a connection, and the channel if it does not block."""

    def __init__(self, link: Link, channel: bytes | None, options: dict[bytes, Any]) -> None:
        self.link, self.channel, self.options = link, channel, options


class Entry:
    def __init__(self, form: str, token: bytes) -> None:
        self.form, self.token, self.copies = form, token, list[Copy]()


class Lock:
    def __init__(self) -> None:
        self.form, self.held, self.queue = "free", dict[bytes, Held](), list[Entry]()


class Server:
    """What the module does, and scripts and the server, as far as the package uses them."""

    def __init__(self, world: World, version: int = 3, may_subscribe: bool = True) -> None:
        self.world, self.version, self.may_subscribe, self.has_module = world, version, may_subscribe, True
        self.locks: dict[bytes, Lock] = {}
        self.links: list[Link] = []
        self.known_scripts: set[str] = set()
        #: Tokens whose lock was deleted by another client.
        self.robbed: set[bytes] = set()
        self.refuses_until = self.loads_until = 0.0

    # ---- what happens to it ------------------------------------------------------------------------------------------

    def delete(self, key: bytes) -> None:
        if key in self.locks:
            self.robbed |= {*self.locks[key].held}
            self.locks[key].held.clear()
            self._changed(key)
            self._review(key)

    def restart(self, has_module: bool) -> None:
        for link in self.links[:]:
            link.cut()
            link.end(0)
        for lock in self.locks.values():
            lock.queue.clear()
        self.has_module = has_module
        self.known_scripts.clear()

    def closed(self, link: Link) -> None:
        self.links.remove(link)
        for key, lock in [*self.locks.items()]:
            for entry in lock.queue:
                for copy in [copy for copy in entry.copies if copy.link is link]:
                    self._leave(key, entry, copy)
            for token, held in [*lock.held.items()]:
                if link in held.session:
                    held.session.discard(link)
                    if not held.session:
                        self._set_lease(key, token, held.grace or 1e-9)
            self._review(key)

    # ---- locks -------------------------------------------------------------------------------------------------------

    def _lock(self, key: bytes) -> Lock:
        lock = self.locks.setdefault(key, Lock())
        self._purge(key)
        return lock

    def _purge(self, key: bytes) -> None:
        lock = self.locks[key]
        for token, held in [*lock.held.items()]:
            if held.ends <= self.world.now and held.session:
                self._set_lease(key, token, held.lease)
            elif held.ends <= self.world.now:
                del lock.held[token]
                self._changed(key)
        if not lock.held:
            lock.form = "free"
            if not lock.queue:
                del self.locks[key]

    def _set_lease(self, key: bytes, token: bytes, seconds: float) -> None:
        held = self.locks[key].held[token]
        held.ends = self.world.now + seconds
        if seconds < math.inf:
            self.world.at(held.ends, lambda: self._review(key))
        self._changed(key)

    def _renew(self, key: bytes, token: bytes, held: Held) -> None:
        lock = self.locks.get(key)
        if lock is not None and lock.held.get(token) is held and held.session:
            self._set_lease(key, token, held.lease)
            self.world.at(self.world.now + held.lease / 3, lambda: self._renew(key, token, held))

    def _changed(self, key: bytes) -> None:
        for link in [link for link in self.links if key in link.tracked]:
            link.tracked.discard(key)
            link.reply(Push([b"invalidate", [key]]))

    def _can_have(self, lock: Lock, form: str, limit: int | None) -> bool:
        is_shared = form == lock.form == "shared"
        return not lock.held or (is_shared and (limit is None or len(lock.held) < limit))

    def _review(self, key: bytes) -> None:
        """Grants to the first waiters."""
        if key not in self.locks:
            return
        lock = self._lock(key)
        while first := next((entry for entry in lock.queue if entry.copies), None):
            options = first.copies[-1].options
            if not self._can_have(lock, first.form, options.get(b"LIMIT")):
                return
            lock.queue.remove(first)
            for copy in first.copies:
                self._hold(key, lock, first.form, first.token, copy.options, copy.link)
            for copy in first.copies:
                self._end_wait(key, first.token, copy, "granted")

    def _end_wait(self, key: bytes, token: bytes, copy: Copy, event: str) -> None:
        if copy.channel is not None:
            ends = 0 if event != "granted" else EPOCH_MS + int(self.locks[key].held[token].ends * 1000)
            text = b"%b %d 0 %b %b" % (event.encode(), ends, token, key)
            for link in self.links:
                if copy.channel in link.channels:
                    link.reply(Push([b"smessage", copy.channel, text]))
        elif copy.link.is_blocked:
            copy.link.is_blocked = False
            copy.link.reply(1 if event == "granted" else None)
            copy.link.go_on()

    def _hold(self, key: bytes, lock: Lock, form: str, token: bytes, options: dict[bytes, Any], link: Link) -> None:
        lock.form = form
        lease = options.get(b"PX", math.inf) / 1000
        held = lock.held.get(token)
        if held is None:
            held = lock.held[token] = Held(options.get(b"HOLD", 1), 0)
            self.robbed.discard(token)
            held.lease = lease
            self._set_lease(key, token, lease)
        elif lease < math.inf and held.ends < self.world.now + lease:
            self._set_lease(key, token, lease)
        if b"SESSION" in options and link.is_open:
            if not held.session:
                self.world.at(self.world.now + lease / 3, lambda: self._renew(key, token, held))
            held.session.add(link)
            held.lease, held.grace = max(held.lease, lease), max(held.grace, options.get(b"GRACE", 0) / 1000)

    def _leave(self, key: bytes, entry: Entry, copy: Copy, event: str | None = None) -> None:
        """Ends the wait of a copy; the entry without copies is kept for a while."""
        lock = self.locks.get(key)
        if lock is None or entry not in lock.queue or copy not in entry.copies:
            return
        entry.copies.remove(copy)
        self.world.at(self.world.now + KEPT_S, lambda: self._forget(key, entry))
        if event is not None:
            self._end_wait(key, entry.token, copy, event)
        self._review(key)

    def _forget(self, key: bytes, entry: Entry) -> None:
        if key in self.locks and entry in self.locks[key].queue and not entry.copies:
            self.locks[key].queue.remove(entry)
            self._review(key)

    def _acquire(self, link: Link, form: str, key: bytes, token: bytes, options: dict[bytes, Any]) -> Any:
        lock = self._lock(key)
        held, hold = lock.held.get(token), options.get(b"HOLD", 1)
        if held is not None and lock.form != form:
            return ServerError("OTHERFORM")
        if held is not None:
            if form == "reentrant" and hold not in (held.holds, held.holds + 1):
                return ServerError("HOLDMISMATCH")
            held.holds = hold if form == "reentrant" else 1
            self._hold(key, lock, form, token, options, link)
            return held.holds
        if hold > 1:
            return ServerError("NOTOWNER" if lock.held else "NOTHELD")
        entry = next((one for one in lock.queue if (one.form, one.token) == (form, token)), None)
        has_queue = any(one.copies for one in lock.queue)
        if self._can_have(lock, form, options.get(b"LIMIT")) and not has_queue:
            self.locks[key] = lock
            lock.queue = [one for one in lock.queue if one is not entry]
            self._hold(key, lock, form, token, options, link)
            return 1
        if b"BLOCK" not in options:
            return None
        channel = options.get(b"NOTIFY")
        if channel is not None and not any(channel in one.channels for one in self.links):
            return ServerError("NOSUBSCRIBER")
        if entry is None:
            entry = Entry(form, token)
            lock.queue.append(entry)
        copy = Copy(link, channel, options)
        entry.copies = [one for one in entry.copies if channel is None or one.channel != channel] + [copy]
        until = self.world.now + options[b"BLOCK"] / 1000
        self.world.at(until, lambda: self._leave(key, entry, copy, "timeout"))
        if channel is not None:
            return "WAITING"
        link.is_blocked = True
        return WAITS

    def _release(self, key: bytes, token: bytes, hold: int | None) -> Any:
        lock, had_wait = self._lock(key), False
        for entry in [entry for entry in lock.queue if entry.token == token]:
            lock.queue.remove(entry)
            had_wait = True
            for copy in entry.copies:
                self._end_wait(key, token, copy, "withdrawn")
        held = lock.held.get(token)
        if held is None:
            self._review(key)
            return None if had_wait else ServerError("NOTOWNER" if lock.held else "NOTHELD")
        if hold is not None and hold == held.holds + 1:
            return held.holds
        if hold is not None and hold != held.holds:
            return ServerError("HOLDMISMATCH")
        held.holds -= 1
        if held.holds == 0:
            del lock.held[token]
        self._changed(key)
        self._review(key)
        return held.holds

    def _extend(self, key: bytes, token: bytes, lease_ms: int, add: bool) -> Any:
        lock = self._lock(key)
        held = lock.held.get(token)
        if held is None:
            return ServerError("NOTOWNER" if lock.held else "NOTHELD")
        if held.ends == math.inf:
            return ServerError("NOLEASE")
        lease_ms += int((held.ends - self.world.now) * 1000) if add else 0
        held.lease = lease_ms / 1000
        self._set_lease(key, token, held.lease)
        return lease_ms

    def _info(self, key: bytes) -> dict[str, Any]:
        lock = self._lock(key)
        end = max((held.ends for held in lock.held.values()), default=math.inf)
        owner = next(iter(lock.held), None) if lock.form != "shared" else None
        left = -1 if end == math.inf else int((end - self.world.now) * 1000)
        waiters = sum(len(entry.copies) for entry in lock.queue)
        return {"state": lock.form, "owner": owner, "lease-ms": left, "waiters": waiters}

    # ---- commands ----------------------------------------------------------------------------------------------------

    def execute(self, link: Link, words: list[bytes]) -> Any:
        name, args = words[0], words[1:]
        if name == b"EVALSHA":
            return self._run_script(link, args)
        if name.startswith(b"LOCK."):
            if self.world.now < self.loads_until:
                return ServerError("LOADING Redis is loading the dataset in memory")
            if not self.has_module:
                return ServerError(f"ERR unknown command '{name.decode()}', with args beginning with: ")
            return self._lock_command(link, name, args)
        match [name, *args]:
            case [b"CLIENT", b"TRACKING", b"ON"]:
                link.tracks = True
            case [b"HELLO", b"3"] if self.version == 3:
                link.version = 3
                return {"server": b"redis", "proto": 3, "modules": []}
            case [b"HELLO", *_]:
                return ServerError("NOPROTO unsupported protocol version")
            case [b"SSUBSCRIBE", channel]:
                if not self.may_subscribe:
                    return ServerError("NOPERM No permissions to access a channel")
                link.channels.add(channel)
                return Push([b"ssubscribe", channel, 1])
            case [b"SCRIPT", b"LOAD", text]:
                self.known_scripts.add(next(digest for digest, one in scripts.TEXTS.items() if one == text.decode()))
            case [b"ZSCORE", key, token]:
                held = self._lock(key).held.get(token)
                self._track(link, key)
                return None if held is None else float(held.ends * 1000 + EPOCH_MS)
            case [b"TIME"]:
                micros = int(self.world.now * 1_000_000) + EPOCH_MS * 1000
                return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]
        return "OK"

    def _track(self, link: Link, key: bytes) -> None:
        if link.tracks:
            link.tracked.add(key)

    def _lock_command(self, link: Link, name: bytes, args: list[bytes]) -> Any:
        key, token, rest = args[0], b"".join(args[1:2]), deque(args[2:])
        options: dict[bytes, Any] = {}
        while rest:
            word = rest.popleft()
            value = 1 if word in FLAGS else rest.popleft()
            options[word] = value if word == b"NOTIFY" else int(value)
        if name in FORMS:
            return self._acquire(link, FORMS[name], key, token, options)
        if name == b"LOCK.RELEASE":
            return self._release(key, token, options.get(b"HOLD"))
        if name == b"LOCK.EXTEND":
            return self._extend(key, token, options[b"PX"], b"ADD" in options)
        assert name == b"LOCK.INFO", name
        self._track(link, key)
        return self._info(key)

    def _run_script(self, link: Link, args: list[bytes]) -> Any:
        digest, count = args[0].decode(), int(args[1])
        if digest not in self.known_scripts:
            return ServerError("NOSCRIPT No matching script. Please use EVAL.")
        if self.world.now < self.loads_until:
            return ServerError("LOADING Redis is loading the dataset in memory")
        key, rest = args[2], args[2 + count :]
        token, *numbers = [*rest, b"", b"", b""]
        number = [int(word) if word else None for word in numbers]
        options: dict[bytes, Any] = {b"PX": number[0]} if number[0] else {}
        match SCRIPTS[digest]:
            case "LOCK.ACQUIRE":
                return self._acquire(link, "mutex", key, token, options)
            case "LOCK.REENTER":
                return self._acquire(link, "reentrant", key, token, {**options, b"HOLD": number[1]})
            case "LOCK.RELEASE":
                return self._release(key, token, number[0])
            case "LOCK.EXTEND":
                return self._extend(key, token, number[0] or 0, number[1] == 1)
            case "KEEP":
                lock = self._lock(key)
                if token not in lock.held:
                    return ServerError("NOTOWNER")
                self._set_lease(key, token, math.inf)
                return 1
        self._track(link, key)
        return [part for pair in self._info(key).items() for part in pair][:6]


def to_bytes(value: Any, version: int) -> bytes:
    """Returns a reply as a server sends it in a version of the protocol. Text that is `str` is a simple string."""
    if value is None:
        return b"_\r\n" if version == 3 else b"$-1\r\n"
    if isinstance(value, bool) and version == 3:
        return b"#t\r\n" if value else b"#f\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, float):
        text = repr(value).encode()
        return b",%b\r\n" % text if version == 3 else to_bytes(text, version)
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, str):
        return b"+%b\r\n" % value.encode()
    if isinstance(value, ServerError):
        return b"-%b\r\n" % str(value).encode()
    if isinstance(value, dict):
        items = [part for pair in value.items() for part in pair]
        kind, size = (b"%", len(value)) if version == 3 else (b"*", len(items))
    else:
        items, kind, size = value, b">" if isinstance(value, Push) else b"*", len(value)
    return kind + b"%d\r\n" % size + b"".join(to_bytes(item, version) for item in items)
