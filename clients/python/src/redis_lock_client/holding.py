"""What becomes of a lock that is held: released, extended, renewed, watched. Flows for threads and for tasks alike."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .acquisition import RETRY_S, acquire, ask, begin_withdrawal, exchange, take, withdraw
from .connection import track
from .errors import (
    UNREACHABLE,
    Disconnected,
    LockError,
    LockNotOwnedError,
    LockQueueFull,
    ModuleNeededError,
    ServerError,
    logger,
)
from .flow import Call, Change, Flow, Pause, Steps
from .request import NOT_HELD, TRY_AGAIN, Request, info, label_of, pairs

#: The first look comes after this time in seconds: many locks are released sooner.
FIRST_LOOK_S = 0.005
#: A lease is renewed when this part of it has passed.
RENEWALS = 3


@dataclass(eq=False)
class Watcher:
    """What renews and watches a lock."""

    flow: Flow
    #: When it is renewed, by the local clock.
    renew_at: float
    #: The number of the connection that its session belongs to, 0 if it has to begin again.
    session_on: int


@dataclass(eq=False)
class Hold(Request):
    """A request whose lock is held. When it is lost, the event is set, and the function called."""

    engine: Any = None
    renew: bool = False
    #: The event, if `event` has made it.
    lost: Any = None
    on_lost: Callable[[], object] | None = None
    #: The lease that is renewed, in milliseconds.
    renewed_ms: int | None = None
    #: How many times its holder has acquired it, which is counted here; 0 if it is released.
    count: int = 1
    is_lost: bool = False
    #: Renews and watches it, if it is watched.
    watcher: Watcher | None = None
    #: The time-outs of asyncio that cancel its blocks when it is lost.
    blocks: tuple[Any, ...] = ()

    def acquired(self) -> None:
        """Notes that the lock is held."""
        self.renewed_ms = self.lease_ms
        self.set_lease(self.sent_at, self.lease_ms)
        if self.is_late and self.lease_ms:
            self.engine.scheduler.start(_confirm, self)

    def set_lease(self, asked_at: float, left_ms: int | None) -> None:
        """Notes what remained of the lease when the server was asked; -1 or None without a lease."""
        self.ends_at = math.inf if left_ms is None or left_ms < 0 else asked_at + left_ms / 1000

    @property
    def third_s(self) -> float:
        """The part of the lease after which it is renewed, in seconds."""
        return (self.renewed_ms or math.inf) / 1000 / RENEWALS

    def is_expired(self) -> bool:
        """Returns whether the lease has ended by the local clock."""
        return bool(self.engine.now() >= self.ends_at)

    def event(self, new: Callable[[], Any]) -> Any:
        """Returns the event that is set when the lock is lost."""
        if self.lost is None:
            self.lost = new()
            if self.is_lost:  # Read behind the write, as `lose` does: one of both sets it.
                self.lost.set()
        return self.lost

    def lose(self) -> None:
        """Reports the loss, once."""
        if not self.is_lost and self.count:
            self.is_lost = True
            if self.lost is not None:
                self.lost.set()
            if self.on_lost is not None:
                self.engine.tell(self.on_lost)
            for block in self.blocks:
                block.reschedule(0)

    def begin_watch(self) -> None:
        """Starts the flow that renews and watches the lock, unless it runs."""
        if self.watcher is None and self.count:
            flow = self.engine.scheduler.start(watch, self)
            if not flow.ended:
                flow.scheduler.lasting[flow] = self._watch_again

    def _watch_again(self) -> None:
        """Starts another watcher, because the scheduler of the last one is gone."""
        self.watcher = None
        self.begin_watch()

    def end_watch(self) -> None:
        """Ends the flow that renews and watches the lock."""
        if self.watcher is not None:
            self.watcher.flow.scheduler.cancel(self.watcher.flow)

    def drop(self) -> None:
        """Releases the lock, which no caller releases."""
        self.end_watch()
        begin_withdrawal(self.engine.scheduler, self)


class Taken:
    """What a lock object has of a lock that it holds. When it is collected, the lock is released, with a warning."""

    def __init__(self, hold: Hold, holder: Any) -> None:
        self.hold, self.holder, self._is_mine = hold, weakref.ref(holder), True

    def detach(self) -> None:
        """Leaves the lock to the caller."""
        self._is_mine = False

    def __del__(self) -> None:
        if self._is_mine:
            self.hold.engine.post(_collected, self.hold)


def _collected(hold: Hold) -> None:
    hold.drop()
    if not hold.is_lost and not hold.is_expired():
        text = f"a lock that is held was collected as garbage: {hold.key!r}, by {label_of(hold.token)!r}"
        logger.warning(text)
        warnings.warn(text, ResourceWarning, stacklevel=1)


def release(flow: Flow, hold: Hold) -> Steps:
    """Releases the lock, a re-entrant one with its last acquisition. Returns None if the token held nothing.

    If the server cannot be reached now, the lock is released later.
    """
    hold.count -= 1
    if hold.count:
        if hold.is_lost or (hold.is_expired() and (yield from lease_left(flow, hold)) is None):
            raise ServerError("NOTHELD the lock was lost")
        return hold.count
    hold.end_watch()
    is_done = False
    try:
        reply = yield from ask(flow, hold.key, *hold.release())
        is_done = True
        return reply
    except ServerError as error:
        is_done = error.code in NOT_HELD
        raise
    finally:
        # A request on an earlier connection may reach the server after this.
        hold.outcome_unknown = not (is_done and hold.sent_on in (0, flow.number))
        if hold.outcome_unknown:
            flow.scheduler.start(withdraw, hold)


def enter_again(flow: Flow, hold: Hold) -> Steps:
    """Acquires a re-entrant lock again for its holder."""
    left_ms = None if hold.is_lost else (yield from lease_left(flow, hold))
    if left_ms is None:
        raise ServerError("NOTHELD the lock was lost")
    if hold.lease_ms and 0 <= left_ms < hold.lease_ms:
        yield from extend(flow, hold, hold.lease_ms, False)
    hold.count += 1
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
        if hold.watcher is not None and hold.renew:
            hold.watcher.renew_at = min(hold.watcher.renew_at, asked_at + hold.third_s)
    except Disconnected as error:
        if not add or not error.sent or hold.ends_at == math.inf:
            raise
        # Whether the server has added, or not, the lease ends at the same time.
        yield from extend(flow, hold, lease_ms + max(int((hold.ends_at - asked_at) * 1000), 0), False)
    finally:
        flow.scheduler.key_changed(hold.key)  # The watcher sets its timer again.
    return True


def _confirm(flow: Flow, hold: Hold) -> Steps:
    """Extends a lock whose grant was heard late: it has its whole lease. Without a reply, the certain end counts."""
    certain_end = hold.first_at + (hold.lease_ms or 0) / 1000
    hold.ends_at = math.inf
    try:
        yield from extend(flow, hold, hold.lease_ms or 1, False)
    except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
        hold.ends_at = min(hold.ends_at, certain_end)
        if getattr(error, "code", "") in NOT_HELD:
            hold.lose()
        flow.scheduler.key_changed(hold.key)


def fence(flow: Flow, hold: Hold, counter: bytes) -> Steps:
    """Returns the next fencing token of a counter."""
    return (yield from ask(flow, hold.key, ["LOCK.FENCE", hold.key, hold.token, counter]))


def attach(flow: Flow, hold: Hold) -> Steps:
    """Takes over a lock that another caller has left."""
    if hold.lease_ms:
        yield from ask(flow, hold.key, *hold.extend(hold.lease_ms))
    elif (yield from lease_left(flow, hold)) is None:
        raise ServerError("NOTHELD the token does not hold the lock")
    if hold.session:
        yield from take(flow, hold)
    hold.outcome_unknown = True


def lease_left(flow: Flow, request: Request) -> Steps:
    """Returns the rest of the lease in milliseconds, -1 without a lease, None if the token does not hold the lock."""
    if not request.shared:
        state = pairs((yield from ask(flow, request.key, *info(request.key))))
        return int(str(state[b"lease-ms"])) if state[b"owner"] == request.token else None
    end = yield from exchange(flow, request.key, ["ZSCORE", request.key, request.token])
    if end is None or float(end) == math.inf:
        return None if end is None else -1
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
    now, is_held = flow.scheduler.now, True
    renew_at = now() + hold.third_s if hold.renew else math.inf
    watcher = hold.watcher = Watcher(flow, renew_at, flow.scheduler.servers.locate(hold.key).number)
    flow.scheduler.watch(hold.key, flow)
    try:
        yield Change(min(FIRST_LOOK_S, hold.third_s, hold.ends_at - now()))
        while is_held:
            try:
                is_held = yield from _look(flow, hold, watcher)
                flow.limit = math.inf
                if is_held:
                    look_at = now() + hold.third_s if hold.session else math.inf
                    yield Change(min(hold.ends_at, watcher.renew_at, look_at) - now())
            except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
                is_held = getattr(error, "code", "") not in NOT_HELD and now() < hold.ends_at
                if is_held:
                    pause = RETRY_S if getattr(error, "code", "TRYAGAIN") in TRY_AGAIN else hold.third_s
                    yield Pause(min(pause, hold.ends_at - now()))
    finally:
        flow.scheduler.unwatch(hold.key, flow)
    hold.lose()
    if hold.session:
        flow.scheduler.start(withdraw, hold)  # The server may still renew it.


def _look(flow: Flow, hold: Hold, watcher: Watcher) -> Steps:
    """Renews the lease if it is time, and asks for what remains of it. Returns whether the lock is held."""
    now, locate = flow.scheduler.now, flow.scheduler.servers.locate
    # No reply is waited for at the end of the lease. That of a session is renewed elsewhere.
    flow.limit = math.inf if hold.session or hold.is_expired() else hold.ends_at
    if hold.is_expired() and not hold.session and not hold.renew:
        return False
    connection = locate(hold.key)
    if hold.session:
        if watcher.session_on and (connection.number != watcher.session_on or connection.state != "open"):
            watcher.session_on = 0
            # The connection is lost, maybe since the begin of the latest pause: the grace period remains.
            hold.ends_at = min(hold.ends_at, now() + hold.grace_ms / 1000 - RETRY_S)
        if not watcher.session_on:
            yield from _begin_session(flow, hold, watcher)
    asked_at = now()
    if asked_at >= watcher.renew_at:
        hold.set_lease(asked_at, (yield from ask(flow, hold.key, *hold.extend(hold.renewed_ms or 1))))
        watcher.renew_at = asked_at + hold.third_s
    for _ in range(2):  # A redirection may lead to another server.
        connection = locate(hold.key)
        yield from track(flow, connection)
        asked_at, flow.changed = now(), False
        left_ms = yield from lease_left(flow, hold)
        if flow.connection is connection:
            break
    if left_ms is not None:
        hold.set_lease(asked_at, left_ms)
        if hold.session and left_ms < (hold.renewed_ms or 0) / 2:
            # The server has ended it, or it would have renewed the lease.
            yield from _begin_session(flow, hold, watcher)
    return left_ms is not None


def _begin_session(flow: Flow, hold: Hold, watcher: Watcher) -> Steps:
    """Gives the lock to a session of the new connection, if it is still held."""
    yield from ask(flow, hold.key, hold.extend(hold.renewed_ms or 1)[0])  # An error if it is not held.
    if not (yield from take(flow, hold)):
        raise ServerError("NOTHELD the lock was lost with its session")
    watcher.session_on = flow.number
    hold.set_lease(hold.sent_at, hold.renewed_ms)


def for_holder(flow: Flow, name: object, steps: Callable[..., Steps], *args: Any) -> Steps:
    """Runs a flow, and raises the errors that a holder has to know as those of a lock."""
    try:
        return (yield from steps(flow, *args))
    except ServerError as error:
        # The wrong type is that of the counter.
        is_holders = steps not in (acquire, locked) and (steps is not fence or error.code != "WRONGTYPE")
        if error.code in NOT_HELD and is_holders:
            raise LockNotOwnedError("The lock is no longer owned", name) from error
        if error.code == LockQueueFull.code:
            raise LockQueueFull("As many wait for the lock as is allowed", name) from error
        if error.code == "NOLEASE":
            raise LockError("Cannot extend a lock with no timeout", name) from error
        raise
