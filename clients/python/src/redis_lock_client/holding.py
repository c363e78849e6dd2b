"""What becomes of a lock that is held: released, extended, renewed, watched. Flows for threads and for tasks alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import scripts
from .acquisition import RETRY_S, ask, exchange, take, withdraw
from .connection import track
from .errors import UNREACHABLE, Disconnected, LockError, LockNotOwnedError, ModuleNeededError, ServerError
from .flow import Call, Change, Flow, Pause, Scheduler, Steps
from .request import NOT_HELD, TRY_AGAIN, Request, pairs


class Hold:
    """A lock that one thread or task holds."""

    def __init__(self, request: Request, renew: bool, on_loss: Callable[[Hold], object]) -> None:
        self.request, self.renew = request, renew
        #: The number of holds of a re-entrant lock, else 1; 0 if it is released.
        self.count = 1
        #: The number of holds that the server may have: more than ``count`` after an error.
        self.sent = 1
        self.lease_ms = request.lease_ms
        self.is_lost = False
        #: The flow that renews and watches it.
        self.watcher: Flow | None = None
        #: The task whose block is cancelled when it is lost.
        self.block: Any = None
        self._on_loss = on_loss

    def set_lease(self, asked_at: float, left_ms: int | None) -> None:
        """Notes what remained of the lease when the server was asked; -1 or None without a lease."""
        self.request.ends_at = math.inf if left_ms is None or left_ms < 0 else asked_at + left_ms / 1000

    def lose(self) -> None:
        """Reports the loss, once."""
        if not self.is_lost and self.count:
            self.is_lost = True
            self._on_loss(self)


def end_watch(scheduler: Scheduler, hold: Hold) -> None:
    """Ends the flow that renews and watches a lock."""
    if hold.watcher is not None:
        scheduler.cancel(hold.watcher)


def release(flow: Flow, hold: Hold) -> Steps:
    """Releases the lock, or one hold of a re-entrant one.

    Returns the holds that are left, None if the token held nothing. If the server cannot be reached now, the lock is
    released later, and a hold of a re-entrant one with the next hold.
    """
    hold.count -= 1
    if hold.count == 0:
        end_watch(flow.scheduler, hold)
    request, is_done = hold.request, False
    try:
        reply = yield from _lower(flow, hold)
        is_done = True
        return reply
    except ServerError as error:
        is_done = error.code in NOT_HELD
        raise
    finally:
        if hold.count == 0:
            # A request on an earlier connection may reach the server after this.
            is_done = is_done and flow.connection is not None and request.sent_on == flow.connection.number
            request.outcome_unknown = not is_done
            if not is_done:
                flow.scheduler.start(withdraw, request)


def _lower(flow: Flow, hold: Hold) -> Steps:
    """Releases the holds that the server has above ``count``. Returns the latest reply."""
    reply = None
    while hold.sent > hold.count:
        number = hold.sent
        reply = yield from _release(flow, hold.request, number if hold.request.reentrant else None)
        hold.sent = min(hold.sent, number - 1)
    return reply


def _release(flow: Flow, request: Request, number: int | None) -> Steps:
    words, script = request.release(number), scripts.release(request, number)
    for is_first in (True, False):
        try:
            return (yield from ask(flow, request.key, words, script, again=False))
        except Disconnected as error:
            if not (is_first and error.sent):
                raise
        except ServerError as error:
            if is_first or error.code not in ("NOTHELD", "NOTOWNER"):
                raise
    return 0  # The first one has released it.


def enter_again(flow: Flow, hold: Hold) -> Steps:
    """Takes one more hold of a re-entrant lock. Its number makes it count once, however often it is sent."""
    if hold.is_lost:
        raise ServerError("NOTHELD the lock was lost")
    yield from _lower(flow, hold)
    request, number = hold.request, hold.count + 1
    hold.sent = number
    if (yield from take(flow, request, number)) is None:
        raise ServerError("NOTOWNER the lock is held by another owner")
    hold.count = hold.sent = number
    request.ends_at = max(request.ends_at, request.sent_at + (request.lease_ms or math.inf) / 1000)
    return True


def extend(flow: Flow, hold: Hold, lease_ms: int, add: bool) -> Steps:
    """Sets the lease, or adds to it."""
    if hold.is_lost and hold.request.session:
        raise ServerError("NOTHELD the session of this lock has ended")
    request = hold.request
    script = None if request.shared else scripts.extend(request, lease_ms, add)
    asked_at = flow.scheduler.now()
    if not add and request.ends_at < math.inf:  # It may be shorter even if the reply is lost.
        request.ends_at = min(request.ends_at, asked_at + lease_ms / 1000)
    try:
        left_ms = yield from ask(flow, request.key, request.extend(lease_ms, add), script, again=not add)
        hold.lease_ms = left_ms if add else lease_ms
        hold.set_lease(asked_at, left_ms)
    finally:
        flow.scheduler.key_changed(request.key)  # The watcher sets its timer again.
    return True


def fence(flow: Flow, hold: Hold, counter: bytes) -> Steps:
    """Returns the next fencing token of a counter."""
    try:
        return (yield from ask(flow, hold.request.key, ["LOCK.FENCE", hold.request.key, hold.request.token, counter]))
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise
        raise LockError(f"Cannot get a fencing token: {error}") from error


def info(flow: Flow, key: bytes) -> Steps:
    """Returns the state of a lock, a map as LOCK.INFO has it."""
    return pairs((yield from ask(flow, key, ["LOCK.INFO", key], scripts.info(key))))


def lease_left(flow: Flow, request: Request) -> Steps:
    """Returns the rest of the lease in milliseconds, -1 without a lease, None if the token does not hold the lock."""
    if not request.shared:
        state = yield from info(flow, request.key)
        return int(state[b"lease-ms"]) if state[b"owner"] == request.token else None
    end = yield from exchange(flow, request.key, ["ZSCORE", request.key, request.token])
    if end is None or float(end) == math.inf:
        return None if end is None else -1
    assert flow.connection is not None
    seconds, micros = yield Call(flow.connection, ["TIME"])
    left_ms = int(float(end)) - int(seconds) * 1000 - int(micros) // 1000
    return left_ms if left_ms >= 0 else None


def locked(flow: Flow, key: bytes) -> Steps:
    """Returns whether any client holds the lock."""
    return (yield from info(flow, key))[b"state"] != b"free"


def owned(flow: Flow, hold: Hold | None) -> Steps:
    """Returns whether the lock is still held."""
    return hold is not None and not hold.is_lost and (yield from lease_left(flow, hold.request)) is not None


def watch(flow: Flow, hold: Hold) -> Steps:
    """Renews a lock and watches it until it is lost; a release cancels this."""
    request = hold.request
    flow.scheduler.watch(request.key, flow)
    try:
        yield from _Watch(flow, hold).run()
    finally:
        flow.scheduler.unwatch(request.key, flow)
    hold.lose()
    if request.session:
        flow.scheduler.start(withdraw, request)  # The server may still renew it.


class _Watch:
    def __init__(self, flow: Flow, hold: Hold) -> None:
        self.flow, self.hold, self.request = flow, hold, hold.request
        self.now = flow.scheduler.now
        self.third_s = (hold.lease_ms or math.inf) / 3000
        self.renew_at = self.now() + self.third_s if hold.renew else math.inf
        #: The number of the connection that the session belongs to.
        self.session = self._connection().number
        self.may_look = True
        flow.deadline = self._deadline

    def _deadline(self) -> float:
        """Returns the end of the lease, at which no reply is waited for any more. A session's is renewed elsewhere."""
        is_known = self.request.ends_at > self.now() and not self.request.session
        return self.request.ends_at if is_known else math.inf

    def run(self) -> Steps:
        """Returns when the lock is lost."""
        while True:
            try:
                if not (yield from self._look()):
                    return
            except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
                code = getattr(error, "code", "TRYAGAIN")
                if code == "HOLDMISMATCH":
                    code = "TRYAGAIN"  # The holder takes or releases a hold at the same time.
                if code in NOT_HELD or self.now() >= self.request.ends_at:
                    return
                if code not in TRY_AGAIN:
                    self.may_look = False  # No right to it: the end of the lease is all that is known.
                self._note_connection()
                yield Pause(min(RETRY_S, self.request.ends_at - self.now()))
                continue
            if (yield from self._rest()):
                return

    def _connection(self) -> Any:
        return self.flow.scheduler.servers.locate(self.request.key)

    def _note_connection(self) -> None:
        """Ends the lease with the grace period when the session's connection is lost."""
        connection = self._connection()
        if self.request.session and (connection.number != self.session or connection.state != "open") and self.session:
            self.session = 0
            # It may have been lost at the begin of the latest pause.
            self.request.ends_at = min(self.request.ends_at, self.now() + self.request.grace_ms / 1000 - RETRY_S)

    def _look(self) -> Steps:
        """Renews the lease if it is time, and asks for what remains of it. Returns whether the lock is held."""
        hold, request = self.hold, self.request
        self._note_connection()
        if request.session and not self.session:
            yield from self._begin_session()
        asked_at = self.now()
        if asked_at >= self.renew_at:
            script = None if request.shared else scripts.extend(request, hold.lease_ms or 1, False)
            left_ms = yield from ask(self.flow, request.key, request.extend(hold.lease_ms or 1), script)
            hold.set_lease(asked_at, left_ms)
            self.renew_at = asked_at + self.third_s
        if not self.may_look:
            if request.session:
                yield from self._begin_session()  # An error if the lock is not held.
            return True
        connection = self._connection()
        for _ in range(2):
            yield from track(self.flow, connection)
            asked_at, self.flow.changed = self.now(), False
            left_ms = yield from lease_left(self.flow, request)
            if self.flow.connection is connection:
                break
            connection = self.flow.connection  # A redirection has led to another server.
        if left_ms is not None:
            hold.set_lease(asked_at, left_ms)
            if request.session and left_ms < (hold.lease_ms or 0) / 2:
                yield from self._begin_session()  # The server has ended it, or it would have renewed the lease.
        return left_ms is not None

    def _begin_session(self) -> Steps:
        """Gives the lock to a session of the new connection, if it is still held."""
        hold, request = self.hold, self.request
        yield from ask(self.flow, request.key, request.extend(hold.lease_ms or 1))  # An error if it is not held.
        yield from _lower(self.flow, hold)
        number = hold.count
        if (yield from take(self.flow, request, number)) is None:
            raise ServerError("NOTHELD the lock was lost with its session")
        hold.sent = max(hold.sent, number)
        self.session = self.flow.connection.number if self.flow.connection is not None else 0
        hold.set_lease(request.sent_at, hold.lease_ms)

    def _rest(self) -> Steps:
        """Waits until there is something to do. Returns whether the lease has expired."""
        hold = self.hold
        look_at = self.now() + self.third_s if self.request.session else math.inf
        due = min(hold.request.ends_at, self.renew_at, look_at)
        yield Change(max(due - self.now(), 0))
        self._note_connection()
        self.third_s = (hold.lease_ms or math.inf) / 3000
        return self.now() >= hold.request.ends_at and not hold.renew and not self.request.session


def with_lock_errors(name: object, steps: Steps) -> Steps:
    """Runs steps, and raises the errors that a holder has to know as those of a lock."""
    try:
        return (yield from steps)
    except ServerError as error:
        if error.code in NOT_HELD:
            raise LockNotOwnedError("The lock is no longer owned", name) from error
        if error.code == "NOLEASE":
            raise LockError("Cannot extend a lock with no timeout", name) from error
        raise
