"""How a lock is acquired, so that the server keeps nothing when it is not: flows for threads and for tasks alike."""

from __future__ import annotations

import logging
import math
import random

from . import scripts
from .connection import Connection, subscribe
from .errors import UNREACHABLE, Disconnected, LockError, ModuleNeededError, ServerError
from .flow import Call, Flow, Message, Pause, Steps, Turn
from .request import TRY_AGAIN, Request, label_of, pairs
from .resp import Word

logger = logging.getLogger("redis_lock_client")

#: The longest wait that the server is asked for: a process that is gone without notice keeps its queue entry for no
#: longer.
BLOCK_S = 15.0
#: The request is sent again after this time without a message, in seconds. Less than lock.rejoin-grace-ms.
SILENCE_S = 5.0
#: How late the message that a wait has timed out may be.
LATE_S = 0.25
#: How long a server that has replied may be unreachable, in seconds, if ``blocking_timeout`` does not say less.
OUTAGE_S = 60.0
RETRY_S = 0.1
#: How long scripts are used before a command is tried again, in seconds.
SCRIPTS_S = 5.0
#: A grant that is heard later than this part of the lease is asked for again.
FRESH = 1 / 3
#: The lease with which a lock without one waits, since NOTIFY needs a lease.
WAIT_LEASE_MS = 60_000
#: How long an unreachable server is asked to forget a token without a lease, in seconds.
WITHDRAW_S = 60.0
MAX_REDIRECTIONS = 5


def ask(flow: Flow, key: bytes, words: list[Word], script: list[Word] | None = None, again: bool = True) -> Steps:
    """Returns the reply to a LOCK command, or without the module to a script.

    ``again``: the command is sent again if its connection is lost. Raises ModuleNeededError without the module if there
    is no script.
    """
    for is_last in (not again, True):
        try:
            if flow.scheduler.now() >= flow.scheduler.servers.locate(key).scripts_until:
                try:
                    return (yield from exchange(flow, key, words))
                except ServerError as error:
                    if error.code != "UNKNOWN":
                        raise
            if script is None:
                feature = "session" if "SESSION" in words else words[0]
                why = (
                    "a client of its own kind cannot use"
                    if flow.scheduler.source.polls
                    else "this server has not loaded"
                )
                text = f"{feature!s} needs the server module redis-lock, which {why}"
                raise ModuleNeededError(text, key.decode(errors="replace"))
            return (yield from run_script(flow, key, script))
        except Disconnected as error:
            flow.scheduler.servers.forget(key)
            if is_last or not error.sent:
                raise
    raise AssertionError


def run_script(flow: Flow, key: bytes, script: list[Word]) -> Steps:
    """Returns the reply to a script, which the server is given if it does not know it yet."""
    try:
        return (yield from exchange(flow, key, script))
    except ServerError as error:
        if "NOSCRIPT" not in str(error):
            raise
    assert flow.connection is not None
    yield Call(flow.connection, ["SCRIPT", "LOAD", scripts.TEXTS[str(script[1])]])
    return (yield from exchange(flow, key, script))


def exchange(flow: Flow, key: bytes, words: list[Word]) -> Steps:
    """Returns the reply to a command from the server that has the key, which redirections name."""
    servers, connection, asking = flow.scheduler.servers, flow.scheduler.servers.locate(key), False
    for redirections in range(MAX_REDIRECTIONS + 1):
        try:
            reply = yield Call(connection, words, asking)
            if str(words[0]).startswith("LOCK."):
                connection.native = True
            return reply
        except ServerError as error:
            _note_error(flow, connection, error)
            if error.code not in ("MOVED", "ASK") or redirections == MAX_REDIRECTIONS or not connection.in_cluster:
                raise
            asking = error.code == "ASK"
            connection = servers.at(error.address) if asking else servers.moved(key, error.address)
    raise AssertionError


def _note_error(flow: Flow, connection: Connection, error: ServerError) -> None:
    """Notes what an error says of a server."""
    now = flow.scheduler.now()
    if error.code == "UNKNOWN":
        connection.native, connection.scripts_until = False, max(connection.scripts_until, now + SCRIPTS_S)
    if error.code == "READONLY" and now - connection.opened_at > 1:  # The address may lead elsewhere.
        connection.close(Disconnected("the server is a replica now", sent=False))


def acquire(flow: Flow, request: Request, patience: float | None, sleep: float) -> Steps:
    """Returns whether the lock was acquired within ``patience`` seconds. 0 is one attempt, None waits without limit.

    If it was not, for whatever reason, the server is asked to forget the token. ``sleep`` is the longest pause between
    two attempts where the server cannot notify. Raises LockError if the token is in use.
    """
    scheduler, is_held, began_at = flow.scheduler, False, flow.scheduler.now()
    name = request.key, request.token
    earlier = scheduler.tokens.get(name)
    if earlier is not None and earlier.outcome_unknown and scheduler.now() < earlier.ends_at:
        raise LockError("this process acquires or holds the lock with this token already", request.key.decode())
    scheduler.tokens[name] = request
    deadline = math.inf if patience is None else began_at + patience
    try:
        is_next = scheduler.has_queue(request.key)
        if patience != 0 and (yield Turn(request.key, deadline - scheduler.now())):
            is_held = yield from _Wait(flow, request, began_at, deadline, sleep, is_next).run()
        else:  # Also when its turn did not come in time: an outage is an error.
            is_held = (yield from take(flow, request)) is not None
        return is_held
    finally:
        if not is_held and request.outcome_unknown:
            scheduler.start(withdraw, request)
        scheduler.leave_queue(request.key, flow)


def take(flow: Flow, request: Request, hold: int = 1) -> Steps:
    """Asks for the lock without waiting. Returns the number of holds, or None."""
    was_unknown = note_sent(flow, request)
    script = None if request.session or request.shared else scripts.take(request, hold)
    reply = yield from ask(flow, request.key, request.acquire(hold), script)
    request.outcome_unknown = was_unknown or reply is not None
    return reply


def note_sent(flow: Flow, request: Request) -> bool:
    """Notes that a request is about to be sent. Returns whether an earlier one has an unknown outcome."""
    before, request.outcome_unknown = request.outcome_unknown, True
    connection = flow.scheduler.servers.locate(request.key)
    request.sent_on = request.sent_on or connection.number + (connection.state != "open")
    request.sent_at = flow.scheduler.now()
    request.times += 1
    return before


class _Wait:
    """The wait of the first flow in the local queue of a key."""

    def __init__(
        self, flow: Flow, request: Request, began_at: float, deadline: float, sleep: float, is_next: bool
    ) -> None:
        self.flow, self.request, self.deadline, self.sleep = flow, request, deadline, sleep
        self.began_at = began_at
        self.now = flow.scheduler.now
        self.pause = sleep / 8
        #: When the server replied last.
        self.heard_at: float | None = None
        if is_next and flow.scheduler.servers.locate(request.key).state == "open":
            self.heard_at = self.now()  # It was the server that let the flow before it wait.

    def run(self) -> Steps:
        """Returns whether the lock was granted before the deadline. Raises the error of an outage."""
        held = None
        while held is None:
            try:
                held = yield from self._attempt()
                self.heard_at = self.now()
            except (*UNREACHABLE, ServerError) as error:
                if self._is_final(error):
                    raise
                yield Pause(min(RETRY_S, max(self.deadline - self.now(), 0)))
        return held

    def _is_final(self, error: Exception) -> bool:
        # An error of a connection is final, too, if no server has replied at this address yet.
        connection = self.flow.connection
        if connection is not None and connection.lost_at > self.began_at:
            self.heard_at = self.heard_at or self.now()  # The server was there when the wait began.
        is_refusal = error.code not in TRY_AGAIN if isinstance(error, ServerError) else self.heard_at is None
        if is_refusal or self.now() >= self.deadline:
            return True
        self.heard_at = self.heard_at or self.now()
        return self.deadline == math.inf and self.now() - self.heard_at > OUTAGE_S

    def _attempt(self) -> Steps:
        """Returns True if the lock was granted, False if the time is up, None to go on."""
        connection = self.flow.scheduler.servers.locate(self.request.key)
        has_time = self.now() < self.deadline
        if connection.channel is None or not has_time or not self._may_notify(connection):
            if (yield from take(self.flow, self.request)) is not None:
                if self.request.times > 1:
                    yield from self._remove_lease()
                return True
            if not has_time:
                return False
        if logger.isEnabledFor(logging.DEBUG) and self.request.times <= 1:
            yield from self._log_position()
        connection = self.flow.scheduler.servers.locate(self.request.key)
        if self._may_notify(connection):
            channel = yield from subscribe(self.flow, connection, self.request.key)
            if channel is not None:
                return (yield from self._by_message(channel))
        yield self._back_off()
        return None

    def _back_off(self) -> Pause:
        pause, self.pause = self.pause, min(self.pause * 2, self.sleep)
        return Pause(min(pause * random.uniform(0.5, 1), self.deadline - self.now()))

    def _may_notify(self, connection: Connection) -> bool:
        return self.now() >= connection.scripts_until and b" " not in self.request.token

    def _log_position(self) -> Steps:
        request = self.request
        reply = pairs((yield from ask(self.flow, request.key, ["LOCK.INFO", request.key], scripts.info(request.key))))
        position = f"at position {int(str(reply[b'waiters'])) + 1}" if b"waiters" in reply else "by polling"
        label, holder = label_of(request.token), label_of(reply[b"owner"])
        logger.debug("%r waits for lock %r %s; held by %r", label, request.key, position, holder)

    def _by_message(self, channel: bytes) -> Steps:
        """Waits in the queue of the server for the message that ends the wait."""
        request = self.request
        remaining = min(self.deadline - self.now(), BLOCK_S)
        note_sent(self.flow, request)
        words = request.acquire(1, max(int(remaining * 1000), 1), channel, WAIT_LEASE_MS)
        try:
            reply = yield from exchange(self.flow, request.key, words)
        except ServerError as error:
            self._refused(error)
            if self.flow.connection is not self.flow.scheduler.servers.locate(request.key):
                yield self._back_off()  # The key has left its slot's server, and no messages come from there.
            return None
        if reply != 1:
            self.heard_at = self.now()
            event = yield Message(request.tag, min(SILENCE_S, remaining + LATE_S))
            if event == "timeout" and self.now() >= self.deadline - LATE_S:
                request.outcome_unknown = request.times > 1
                return False
            if event != "granted":
                return None
            return (yield from self._confirm())
        yield from self._remove_lease()
        return True

    def _confirm(self) -> Steps:
        """Returns True after a grant, None if it was an earlier one. The lease counts from the latest request."""
        request = self.request
        is_fresh = self.now() - request.sent_at <= FRESH * (request.lease_ms or WAIT_LEASE_MS) / 1000
        if (request.times > 1 or not is_fresh) and (yield from take(self.flow, request)) is None:
            return None
        yield from self._remove_lease()
        return True

    def _refused(self, error: ServerError) -> None:
        connection = self.flow.connection
        assert connection is not None
        # In a cluster it may be a channel of a slot that has moved.
        if error.code == "NOSUBSCRIBER" or (error.code in ("ERR", "NOPERM") and connection.in_cluster):
            connection.channel = None
        elif error.code != "UNKNOWN":
            raise error
        self.request.outcome_unknown = self.request.times > 1

    def _remove_lease(self) -> Steps:
        request = self.request
        if request.lease_ms is None:
            yield from run_script(self.flow, request.key, scripts.keep_for_ever(request))


def withdraw(flow: Flow, request: Request) -> Steps:
    """Releases what a token holds and cancels its wait.

    It is sent until the server has replied, at most until the wait has ended and the lease has expired.
    """
    now = flow.scheduler.now
    until = now() + BLOCK_S + (request.lease_ms / 1000 if request.lease_ms else WITHDRAW_S)
    is_done = False
    while not is_done:
        try:
            while (yield from ask(flow, request.key, request.release(), scripts.release(request, None))):
                pass  # There are more holds.
            is_done = True
        except (*UNREACHABLE, ServerError) as error:
            is_done = isinstance(error, ServerError) and error.code not in TRY_AGAIN
        # A request on an earlier connection may reach the server after this.
        number = flow.connection.number if flow.connection is not None else 0
        is_done, request.sent_on = (is_done and request.sent_on == number) or now() >= until, number
        if not is_done:
            yield Pause(1.0)
    request.outcome_unknown = False
