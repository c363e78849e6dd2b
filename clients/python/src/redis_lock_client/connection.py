"""One connection to a server: commands and their replies in one order, and messages between them. No I/O.

All flows share it. The server executes commands in the order in which they were sent, so a flow can be cancelled at any
moment: the reply to its command is dropped, and a RELEASE that is sent afterwards is executed afterwards.
"""

import math
import secrets
from collections import deque
from typing import Any

from .errors import Disconnected, NoReply, ServerError
from .flow import Call, Flow, Scheduler, Steps
from .request import hash_tag
from .resp import BadReply, Parser, Push, Word

#: The name in CLIENT LIST.
NAME = "redis-lock-client"
#: A connection on which nothing was received for this time in seconds, while a reply was due, is closed.
SILENCE_S = 20.0


class Sent:
    """A command that was sent or is to be sent. The flow is None if the reply is dropped."""

    __slots__ = ("flow", "words")

    def __init__(self, flow: Flow | None, words: list[Word]) -> None:
        self.flow, self.words = flow, words

    def drop(self) -> None:
        self.flow = None


class Connection:
    """A connection that is opened for the first command, and again after it was lost."""

    def __init__(self, scheduler: Scheduler, address: Any = None) -> None:
        self.scheduler, self.engine, self.address = scheduler, scheduler.engine, address
        self.timeout_s, self.in_cluster = scheduler.source.timeout_s, scheduler.source.in_cluster
        self.polls: bool = scheduler.source.polls
        self.state = "closed"  # or "opening", "open"
        #: Grows each time that it is opened. It begins with the time, as an interrupted engine has used other numbers.
        self.number = int(scheduler.now() * 1000)
        self.opened_at = 0.0
        #: The channel of its messages.
        self.channel: bytes | None = None
        self.tracks = False
        #: Whether messages can come between replies, None if that is unknown yet.
        self.has_messages: bool | None = None
        #: Scripts are used until this time, because the server has replied that it has no module.
        self.scripts_until = math.inf if self.polls else 0.0
        #: Whether the server has the module, by its latest reply.
        self.native: bool | None = False if self.polls else None
        self._parser = Parser()
        #: The commands whose replies are due, or that are sent when it is open.
        self.sent: deque[Sent] = deque()
        self._received_at = 0.0

    # ---- commands ----------------------------------------------------------------------------------------------------

    def send(self, flow: Flow | None, words: list[Word], asking: bool = False) -> None:
        """Sends a command, the reply to which resumes the flow. ``asking``: behind ASKING."""
        if asking:
            self._queue(Sent(None, ["ASKING"]))
        sent = Sent(flow, words)
        if flow is not None:
            flow.stop_waiting = sent.drop
        self._queue(sent)

    def _queue(self, sent: Sent) -> None:
        if not self.sent:
            self._received_at = self.scheduler.now()
        self.sent.append(sent)
        if self.state == "open":
            self.engine.send(self, sent.words)
        elif self.state == "closed":
            self.state = "opening"
            self.engine.open(self)

    def opened(self) -> None:
        """The engine has opened it."""
        if self.state != "opening":  # It was closed before.
            self.engine.close(self)
            return
        self.state, self.number, self.opened_at = "open", self.number + 1, self.scheduler.now()
        self._parser = Parser()
        unsent, self.sent = self.sent, deque()
        if not self.polls:
            self.send(None, ["CLIENT", "SETNAME", NAME])
        for sent in unsent:
            if sent.flow is not None or sent.words == ["ASKING"]:
                self._queue(sent)

    def close_if_silent(self) -> None:
        """Closes the connection if replies are due and nothing was received for too long."""
        if self.state == "open" and self.sent and self.scheduler.now() - self._received_at > SILENCE_S:
            self.close(NoReply("the server has not replied for too long"))

    # ---- what the engine reports -------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Bytes have come from the server."""
        self._received_at = self.scheduler.heard_at = self.scheduler.now()
        parser = self._parser
        try:
            for reply in parser.feed(data):
                if self.state != "open" or self._parser is not parser:
                    return  # The reply before this has closed the connection.
                if isinstance(reply, Push):
                    self._hear(reply)
                else:
                    self.reply(reply)
        except BadReply as error:
            self.close(Disconnected(str(error), sent=True))

    def reply(self, reply: Any) -> None:
        """Resumes the flow whose command comes next."""
        if not self.sent:
            raise BadReply("a reply without a command")
        flow = self.sent.popleft().flow
        if flow is not None:
            error = reply if isinstance(reply, ServerError) else None
            self.scheduler.resume(flow, None if error else reply, error)

    def _hear(self, message: list[Any]) -> None:
        match message:
            case [b"ssubscribe", *_]:
                self.reply(True)  # The one reply that comes as a message.
            case [b"smessage", _, text]:
                event, _, _, tag = text.split(b" ", 3)
                self.scheduler.notify(tag, event.decode())
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
        if was_open and not self.polls:
            self.scheduler.heard_at = self.scheduler.now()
        self.channel, self.tracks, self.has_messages = None, False, None
        lost, self.sent = self.sent, deque()
        for sent in lost:
            if sent.flow is not None:
                self.scheduler.resume(sent.flow, None, self._error(error, was_open))
        self.scheduler.connection_lost(self)

    @staticmethod
    def _error(error: BaseException, sent: bool) -> Exception:
        if isinstance(error, NoReply | ServerError):
            return error
        failure = Disconnected(str(error) or "Connection closed by server.", sent)
        failure.__cause__ = error
        return failure


def hears(flow: Flow, connection: Connection) -> Steps:
    """Returns whether messages can come between replies, which needs version 3 of the protocol."""
    if connection.has_messages is None and not connection.polls:
        try:
            yield Call(connection, ["HELLO", 3])
            connection.has_messages = True
        except ServerError:
            connection.has_messages = False
    return connection.has_messages


def subscribe(flow: Flow, connection: Connection, key: bytes) -> Steps:
    """Returns the channel of the connection for messages about a key, None if there can be none."""
    if connection.channel is None and (yield from hears(flow, connection)):
        tag = hash_tag(key) if connection.in_cluster else b"redis-lock"
        if tag is None:
            return None
        channel = b"{%b}:%b" % (tag, secrets.token_hex(16).encode())
        try:
            yield Call(connection, ["SSUBSCRIBE", channel])
            connection.channel = channel
        except ServerError:
            connection.has_messages = False  # The user has no right to it: it is tried again on the next connection.
    return connection.channel


def track(flow: Flow, connection: Connection) -> Steps:
    """Makes the server report changes of the keys that are read on this connection."""
    if not connection.tracks and (yield from hears(flow, connection)):
        connection.tracks = True
        try:
            yield Call(connection, ["CLIENT", "TRACKING", "ON"])
        except ServerError:
            pass  # The user has no right to it: a loss is seen at the next look.
