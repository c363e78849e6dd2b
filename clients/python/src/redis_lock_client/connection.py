"""One connection to a server: commands and their replies in one order, and messages between them. No I/O.

Bytes are those of the Redis protocol, in its versions 2 and 3. They are not read and written by hiredis: its
`pack_command` ends the process if a signal handler raises an exception in it.

All flows share it. The server executes commands in the order in which they were sent, so a flow can be cancelled at any
moment: the reply to its command is dropped, and a RELEASE that is sent afterwards is executed afterwards.
"""

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

from .errors import Disconnected, NoReply, ServerError, TimedOut, Unauthenticated, library_classes, logger
from .flow import Call, Flow, Scheduler, Steps, waits
from .request import TRY_AGAIN, Words, channel_of, message_of

#: What the libraries raise if a server refuses a connection.
_REFUSALS = library_classes("ResponseError")
_UNAUTHENTICATED = library_classes("AuthenticationError")
_LATE = (TimeoutError, *library_classes("TimeoutError"))
#: What may pass; other exceptions come from a program's own functions.
_PASSING = (OSError, *library_classes("ConnectionError"), *_LATE)
#: The name in CLIENT LIST.
NAME = "redis-lock-client"


class Push(list[Any]):
    """A message that is not the reply to a command."""


class Incomplete(Exception):
    """The rest of a reply has not come yet."""


#: How replies of one line are read, by their first byte.
_LINES: dict[bytes, Callable[[bytes], Any]] = {
    b"+": bytes,
    b"-": lambda line: ServerError(line.decode(errors="replace")),
    b":": int,
    b",": float,
    b"_": lambda _: None,
    b"#": lambda line: line == b"t",
    b"(": int,
}
#: How replies whose size is given are read, by their first byte; a verbatim string begins with its format.
_SIZED: dict[bytes, Callable[[bytes], Any]] = {b"$": bytes, b"=": lambda text: text[4:], b"!": _LINES[b"-"]}


def encode(words: Words) -> bytes:
    """Returns the bytes of a command."""
    data = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n%b" % (len(data), b"".join([b"$%d\r\n%b\r\n" % (len(one), one) for one in data]))


def read(data: bytes, start: int = 0) -> tuple[Any, int]:
    """Returns the reply that begins at ``start``, and where it ends. An error of the server is a ServerError.

    Raises Incomplete, and ValueError if the bytes are not a reply.
    """
    end = data.find(b"\r\n", start)
    if end < 0:
        raise Incomplete
    kind, line, start = data[start : start + 1], data[start + 1 : end], end + 2
    if kind in _LINES:
        return _LINES[kind](line), start
    if kind not in _SIZED and kind not in (b"*", b">", b"%", b"~"):
        raise ValueError(f"not a reply: {kind + line!r}")
    size = int(line)
    if size < 0:
        return None, start
    if kind in _SIZED:
        if len(data) < start + size + 2:
            raise Incomplete
        return _SIZED[kind](data[start : start + size]), start + size + 2
    items: list[Any] = Push() if kind == b">" else []
    for _ in range(2 * size if kind == b"%" else size):
        item, start = read(data, start)
        items.append(item)
    return dict(zip(items[::2], items[1::2], strict=True)) if kind == b"%" else items, start


class Connection:
    """A connection that is opened for the first command, and again after it was lost."""

    def __init__(self, scheduler: Scheduler, address: Any = None) -> None:
        self.scheduler, self.engine, self.address = scheduler, scheduler.engine, address
        self.state = "closed"  # or "opening", "open"
        #: Grows each time that it is opened. It begins with the time, as an interrupted engine has used other numbers.
        self.number = int(scheduler.now() * 1000)
        self.opened_at, self.tracks = 0.0, False
        #: The channel of its messages.
        self.channel: bytes | None = None
        #: Whether messages can come between replies, None if that is unknown yet.
        self.has_messages: bool | None = None
        #: Scripts are used until this time, because the server has replied that it has no module.
        self.scripts_until = 0.0
        self._unread, self._received_at = b"", 0.0
        #: The commands whose replies are due, or that are sent when it is open, with the waits for their replies.
        self.sent: deque[tuple[Any, int, Words]] = deque()

    # ---- commands ----------------------------------------------------------------------------------------------------

    def send(self, flow: Flow | None, words: Words, asking: bool = False) -> None:
        """Sends a command, the reply to which resumes the flow. ``asking``: behind ASKING."""
        if asking:
            self.send(None, ["ASKING"])
        if not self.sent:
            self._received_at = self.scheduler.now()
        self.sent.append((flow, flow.wait_number if flow else 0, words))
        if self.state == "open":
            self.engine.send(self, words)
        elif self.state == "closed":
            self.state = "opening"
            self.engine.open(self)

    def opened(self) -> None:
        """The engine has opened it."""
        self.state, self.number, self.opened_at = "open", self.number + 1, self.scheduler.now()
        self._unread = b""
        unsent, self.sent = self.sent, deque()
        self.send(None, ["CLIENT", "SETNAME", NAME])
        for flow, wait_number, words in unsent:
            if waits(flow, wait_number) or words == ["ASKING"]:
                self.send(flow, words)

    def close_if_silent(self) -> bool:
        """Closes the connection if replies are due and nothing was received for too long. Returns whether it did."""
        is_due, silence_s = self.state == "open" and bool(self.sent), self.scheduler.now() - self._received_at
        if is_silent := is_due and bool(silence_s >= self.scheduler.source.silence_s):
            self.close(NoReply("the server has not replied for too long", is_replaced=True))
        return is_silent

    # ---- what the engine reports -------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes have come from the server."""
        self._received_at = self.scheduler.heard_at = self.scheduler.now()
        self._unread, number = self._unread + data, self.number
        # A reply may close the connection, and those after it are not for the next one.
        while self._unread and self.state == "open" and self.number == number:
            try:
                reply, size = read(self._unread)
            except Incomplete:
                return
            except ValueError as error:
                return self.close(Disconnected(str(error), sent=True))
            self._unread = self._unread[size:]
            if isinstance(reply, Push):
                self._hear(reply)
            else:
                self.reply(reply)
            reply = None  # See `reply`.

    def reply(self, reply: Any) -> None:
        """Resumes the flow whose command comes next."""
        if not self.sent:
            return self.close(Disconnected("a reply without a command", sent=True))
        flow, wait_number, _ = self.sent.popleft()
        error = reply if isinstance(reply, ServerError) else None
        if waits(flow, wait_number):
            self.scheduler.resume(flow, None if error else reply, error)
        reply = error = None  # The traceback of the error keeps this frame: it would keep itself alive.

    def _hear(self, message: list[Any]) -> None:
        match message:
            case [b"ssubscribe", *_]:
                self.reply(True)  # The one reply that comes as a message.
            case [b"smessage", _, text]:
                event, tag = message_of(text)
                self.scheduler.notify(tag, event)
            case [b"sunsubscribe", *_]:
                self.channel = None
                self.scheduler.connection_lost(self)
            case [b"invalidate", keys]:
                for key in keys or [None]:
                    self.scheduler.key_changed(key)

    def close(self, error: BaseException) -> None:
        """Closes it, or notes that it was lost or could not be opened. A later command opens it again."""
        self.engine.close(self)
        was_open, self.state = self.state == "open", "closed"
        if was_open:
            self.scheduler.heard_at = self.scheduler.now()
        self.channel, self.tracks, self.has_messages = None, False, None
        lost, self.sent = self.sent, deque()
        for flow, wait_number, _ in lost:
            if waits(flow, wait_number):
                self.scheduler.resume(flow, None, _as_lost(error, was_open))
        self.scheduler.connection_lost(self)


def _as_lost(error: BaseException, sent: bool) -> Exception:
    """Returns the error of a command whose connection was lost, or could not be opened."""
    if isinstance(error, NoReply):
        return NoReply(str(error), error.is_replaced)
    if isinstance(error, _REFUSALS):
        return ServerError(str(error))
    is_refused, is_late = isinstance(error, _UNAUTHENTICATED), isinstance(error, _LATE)
    kind = Unauthenticated if is_refused else TimedOut if is_late else Disconnected
    failure = kind(str(error) or "Connection closed by server.", sent)
    failure.__cause__ = error
    failure.is_final = kind.is_final or not isinstance(error, _PASSING)
    return failure


def hears(flow: Flow, connection: Connection) -> Steps:
    """Returns whether messages can come between replies, which needs version 3 of the protocol."""
    if connection.has_messages is None:
        try:
            yield Call(connection, ["HELLO", 3])
            connection.has_messages = True
        except ServerError as error:
            _raise_if_passing(error)
            connection.has_messages = False
    return connection.has_messages


def _raise_if_passing(error: ServerError) -> None:
    """Raises an error after which the same command may succeed later."""
    if error.code in TRY_AGAIN:
        raise error


def subscribe(flow: Flow, connection: Connection, key: bytes) -> Steps:
    """Returns the channel of the connection for messages about a key, None if there can be none."""
    if connection.channel is None and (yield from hears(flow, connection)):
        # In a cluster it is in the slot of the key.
        channel = channel_of(key if flow.scheduler.source.in_cluster else None, secrets.token_hex(16))
        if channel is None:
            return None
        try:
            yield Call(connection, ["SSUBSCRIBE", channel])
            connection.channel = channel
        except ServerError as error:  # The user has no right to it: it is tried again on the next connection.
            _raise_if_passing(error)
            connection.has_messages = False
            if not flow.scheduler.has_warned:
                logger.warning("waits for locks poll: the user has no right to the channels redis-lock:*")
            flow.scheduler.has_warned = True
    return connection.channel


def track(flow: Flow, connection: Connection) -> Steps:
    """Makes the server report changes of the keys that are read on this connection."""
    if not connection.tracks and (yield from hears(flow, connection)):
        connection.tracks = True
        try:
            yield Call(connection, ["CLIENT", "TRACKING", "ON"])
        except ServerError as error:  # Or the user has no right to it: a loss is seen at the next look.
            if error.code in TRY_AGAIN:
                connection.tracks = False
                flow.scheduler.key_changed(None)  # Others have relied on it.
                raise
