"""What becomes of a lock that is held: released, extended, renewed, watched. Flows for threads and for tasks alike."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .acquisition import RETRY_S, ask, exchange, take, withdraw
from .connection import track
from .errors import UNREACHABLE, LockError, LockNotOwnedError, ModuleNeededError, ServerError, logger
from .flow import Call, Change, Flow, Pause, Steps
from .request import NOT_HELD, TRY_AGAIN, Request, info, label_of, pairs


@dataclass(eq=False)
class Hold(Request):
    """A request whose lock is held. When it is lost, the event is set, and the function called."""

    engine: Any = None
    renew: bool = False
    lost: Any = None
    on_lost: Callable[[], object] | None = None
    #: The lease that is renewed, in milliseconds.
    renewed_ms: int | None = None
    #: The number of holds of a re-entrant lock, else 1; 0 if it is released.
    count: int = 1
    #: The number of holds that the server may have: more than ``count`` after an error.
    sent: int = 1
    is_lost: bool = False
    #: Whether its holder takes or releases a hold at the moment.
    is_busy: bool = False
    #: The flow that renews and watches it.
    watcher: Flow | None = None
    #: The task whose block is cancelled when it is lost.
    block: Any = None
    #: How many cancellations of that task were requested before.
    cancels: int = 0

    def acquired(self) -> None:
        """Notes that the lock is held."""
        self.renewed_ms = self.lease_ms
        self.set_lease(self.sent_at, self.lease_ms)

    def set_lease(self, asked_at: float, left_ms: int | None) -> None:
        """Notes what remained of the lease when the server was asked; -1 or None without a lease."""
        self.ends_at = math.inf if left_ms is None or left_ms < 0 else asked_at + left_ms / 1000

    def is_expired(self) -> bool:
        """Returns whether the lease has ended by the local clock."""
        return bool(self.engine.now() >= self.ends_at)

    def lose(self) -> None:
        """Reports the loss, once."""
        if not self.is_lost and self.count:
            self.is_lost = True
            if self.lost is not None:
                self.lost.set()
            if self.on_lost is not None:
                self.engine.tell(self.on_lost)
            if self.block is not None:
                self.block.cancel("the lock was lost")

    def begin_watch(self) -> None:
        """Starts the flow that renews and watches the lock, unless it runs."""
        if self.watcher is None and self.count:
            self.watcher = self.engine.scheduler.start(watch, self)

    def end_watch(self) -> None:
        """Ends the flow that renews and watches the lock."""
        if self.watcher is not None:
            self.watcher.scheduler.cancel(self.watcher)

    def drop(self) -> None:
        """Releases the lock, which no caller releases."""
        self.end_watch()
        self.engine.scheduler.start(withdraw, self)


class Taken:
    """What a lock object has of a lock that it holds. When it is collected, the lock is released, with a warning."""

    def __init__(self, hold: Hold, holder: Any) -> None:
        self.hold, self.holder = hold, weakref.ref(holder)
        self._finalizer = weakref.finalize(self, hold.engine.post, _collected, hold)
        self._finalizer.atexit = False

    def detach(self) -> None:
        """Leaves the lock to the caller."""
        self._finalizer.detach()


def _collected(hold: Hold) -> None:
    hold.drop()
    if not hold.is_lost and not hold.is_expired():
        label = label_of(hold.token)
        text = f"a lock that is held was collected as garbage: {hold.key!r}, by {label!r}"
        logger.warning(text)
        warnings.warn(text, ResourceWarning, stacklevel=1)


def release(flow: Flow, hold: Hold) -> Steps:
    """Releases the lock, or one hold of a re-entrant one.

    Returns the holds that are left, None if the token held nothing. If the server cannot be reached now, the lock is
    released later, and a hold of a re-entrant one with the next hold.
    """
    hold.count -= 1
    if hold.count == 0:
        hold.end_watch()
    is_done, hold.is_busy = False, True
    try:
        reply = yield from _lower(flow, hold)
        is_done = True
        return reply
    except ServerError as error:
        is_done = error.code in NOT_HELD
        raise
    finally:
        hold.is_busy = False
        if hold.count == 0:
            # A request on an earlier connection may reach the server after this.
            hold.outcome_unknown = not (is_done and hold.sent_on in (0, flow.number))
            if hold.outcome_unknown:
                flow.scheduler.start(withdraw, hold)


def _lower(flow: Flow, hold: Hold) -> Steps:
    """Releases the holds that the server has above ``count``. Returns the latest reply."""
    reply = None
    while hold.sent > hold.count:
        number = hold.sent
        reply = yield from ask(flow, hold.key, *hold.release(number if hold.reentrant else None))
        hold.sent = min(hold.sent, number - 1)
    return reply


def enter_again(flow: Flow, hold: Hold) -> Steps:
    """Takes one more hold of a re-entrant lock. Its number makes it count once, however often it is sent."""
    if hold.is_lost:
        raise ServerError("NOTHELD the lock was lost")
    hold.is_busy = True
    try:
        yield from _lower(flow, hold)
        hold.sent = number = hold.count + 1
        if (yield from take(flow, hold, number)) is None:
            raise ServerError("NOTOWNER the lock is held by another owner")
        hold.count = hold.sent = number
    finally:
        hold.is_busy = False
    hold.ends_at = max(hold.ends_at, hold.sent_at + (hold.lease_ms or math.inf) / 1000)
    return True


def extend(flow: Flow, hold: Hold, lease_ms: int, add: bool) -> Steps:
    """Sets the lease, or adds to it."""
    if hold.is_lost and hold.session:
        raise ServerError("NOTHELD the session of this lock has ended")
    asked_at = flow.scheduler.now()
    if not add and hold.ends_at < math.inf:  # It may be shorter even if the reply is lost.
        hold.ends_at = min(hold.ends_at, asked_at + lease_ms / 1000)
    try:
        left_ms = yield from ask(flow, hold.key, *hold.extend(lease_ms, add), again=not add)
        hold.renewed_ms = left_ms if add else lease_ms
        hold.set_lease(asked_at, left_ms)
    finally:
        flow.scheduler.key_changed(hold.key)  # The watcher sets its timer again.
    return True


def fence(flow: Flow, hold: Hold, counter: bytes) -> Steps:
    """Returns the next fencing token of a counter."""
    try:
        return (yield from ask(flow, hold.key, ["LOCK.FENCE", hold.key, hold.token, counter]))
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise
        raise LockError(f"Cannot get a fencing token: {error}") from error


def lease_left(flow: Flow, request: Request) -> Steps:
    """Returns the rest of the lease in milliseconds, -1 without a lease, None if the token does not hold the lock."""
    if not request.shared:
        state = pairs((yield from ask(flow, request.key, *info(request.key))))
        return int(str(state[b"lease-ms"])) if state[b"owner"] == request.token else None
    end = yield from exchange(flow, request.key, ["ZSCORE", request.key, request.token])
    if end is None or float(end) == math.inf:
        return None if end is None else -1
    assert flow.connection is not None
    seconds, micros = yield Call(flow.connection, ["TIME"])
    left_ms = int(float(end)) - int(seconds) * 1000 - int(micros) // 1000
    return left_ms if left_ms >= 0 else None


def locked(flow: Flow, key: bytes) -> Steps:
    """Returns whether any client holds the lock."""
    return pairs((yield from ask(flow, key, *info(key))))[b"state"] != b"free"


def owned(flow: Flow, hold: Hold | None) -> Steps:
    """Returns whether the lock is still held."""
    return hold is not None and not hold.is_lost and (yield from lease_left(flow, hold)) is not None


def watch(flow: Flow, hold: Hold) -> Steps:
    """Renews a lock and watches it until it is lost; a release cancels this."""
    flow.scheduler.watch(hold.key, flow)
    try:
        yield from _Watch(flow, hold).run()
    finally:
        flow.scheduler.unwatch(hold.key, flow)
    hold.lose()
    if hold.session:
        flow.scheduler.start(withdraw, hold)  # The server may still renew it.


class _Watch:
    def __init__(self, flow: Flow, hold: Hold) -> None:
        self.flow, self.hold, self.now = flow, hold, flow.scheduler.now
        self.renew_at = self.now() + self._third_s() if hold.renew else math.inf
        #: The number of the connection that the session belongs to.
        self.session = self._connection().number
        self.may_look = True

    def _connection(self) -> Any:
        return self.flow.scheduler.servers.locate(self.hold.key)

    def _third_s(self) -> float:
        return (self.hold.renewed_ms or math.inf) / 3000

    def run(self) -> Steps:
        """Returns when the lock is lost."""
        hold, has_ended = self.hold, False
        while not has_ended:
            try:
                if not (yield from self._look()):
                    return
                self.flow.limit = math.inf
                look_at = self.now() + self._third_s() if hold.session else math.inf
                yield Change(min(hold.ends_at, self.renew_at, look_at) - self.now())
                has_ended = self.now() >= hold.ends_at and not hold.renew and not hold.session
            except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
                code = getattr(error, "code", "TRYAGAIN")
                if code != "HOLDMISMATCH":  # Else the holder takes or releases a hold at the same time.
                    if code in NOT_HELD:
                        return
                    # Without the right to look, the end of the lease is all that is known.
                    self.may_look = self.may_look and code in TRY_AGAIN
                yield Pause(min(RETRY_S, hold.ends_at - self.now()))
                has_ended = self.now() >= hold.ends_at

    def _look(self) -> Steps:
        """Renews the lease if it is time, and asks for what remains of it. Returns whether the lock is held."""
        hold, connection = self.hold, self._connection()
        # No reply is waited for at the end of the lease. That of a session is renewed elsewhere.
        self.flow.limit = math.inf if hold.session or hold.is_expired() else hold.ends_at
        if hold.is_expired() and not hold.session and not hold.renew:
            return False
        if hold.session:
            if self.session and (connection.number != self.session or connection.state != "open"):
                self.session = 0
                # The connection is lost, maybe since the begin of the latest pause: the grace period remains.
                hold.ends_at = min(hold.ends_at, self.now() + hold.grace_ms / 1000 - RETRY_S)
            if not self.session:
                yield from self._begin_session()
        asked_at = self.now()
        if asked_at >= self.renew_at:
            hold.set_lease(asked_at, (yield from ask(self.flow, hold.key, *hold.extend(hold.renewed_ms or 1))))
            self.renew_at = asked_at + self._third_s()
        if not self.may_look:
            if hold.session:
                yield from self._begin_session()  # An error if the lock is not held.
            return True
        for _ in range(2):  # A redirection may lead to another server.
            connection = self._connection()
            yield from track(self.flow, connection)
            asked_at, self.flow.changed = self.now(), False
            left_ms = yield from lease_left(self.flow, hold)
            if self.flow.connection is connection:
                break
        if left_ms is not None:
            hold.set_lease(asked_at, left_ms)
            if hold.session and left_ms < (hold.renewed_ms or 0) / 2:
                yield from self._begin_session()  # The server has ended it, or it would have renewed the lease.
        return left_ms is not None

    def _begin_session(self) -> Steps:
        """Gives the lock to a session of the new connection, if it is still held."""
        hold = self.hold
        yield from ask(self.flow, hold.key, hold.extend(hold.renewed_ms or 1)[0])  # An error if it is not held.
        if hold.is_busy:
            raise ServerError("HOLDMISMATCH the holder takes or releases a hold")
        yield from _lower(self.flow, hold)
        number = hold.count
        if (yield from take(self.flow, hold, number)) is None:
            raise ServerError("NOTHELD the lock was lost with its session")
        hold.sent = max(hold.sent, number)
        self.session = self.flow.number
        hold.set_lease(hold.sent_at, hold.renewed_ms)


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
