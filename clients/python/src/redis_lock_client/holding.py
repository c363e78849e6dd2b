"""What becomes of a lock that is held: released, extended, renewed, watched. Flows for threads and for tasks alike."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .acquisition import RETRY_S, acquire, ask, begin_withdrawal, exchange, note_sent, withdraw
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
from .lease import Held, Watcher
from .request import NOT_HELD, TRY_AGAIN, Request, Words, info, label_of, pairs

#: The first look comes after this time in seconds: many locks are released sooner.
FIRST_LOOK_S = 0.005
#: A grant that is heard later than this part of the lease is extended.
LATE_PART = 20


class State(Enum):
    """The states of a lock that is not `Held`."""

    ASKED = "asked"
    LOST = "lost"
    RELEASED = "released"


@dataclass(eq=False)
class Hold(Request):
    """A request, and the lock that it was granted: ASKED, then `Held`, then RELEASED, or first LOST and reported."""

    engine: Any = None
    state: Held | State = State.ASKED
    #: How many times its holder has acquired it, which is counted here.
    count: int = 1
    #: The event that is set when it is lost, if `event` has made it.
    lost: Any = None
    #: The time-outs of asyncio that cancel its blocks when it is lost.
    blocks: list[Any] = field(default_factory=list)

    @property
    def held(self) -> Held | None:
        """Its state while it is held."""
        return self.state if isinstance(self.state, Held) else None

    @property
    def is_lost(self) -> bool:
        """Whether a loss was reported."""
        return self.state is State.LOST

    def acquired(self, asked_at: float) -> None:
        """Notes that the lock is held, for which the server was asked at a time."""
        lease_ms = self.lease_ms
        self.state = held = Held(lease_ms, asked_at + (lease_ms or math.inf) / 1000)
        if lease_ms and self.engine.now() > asked_at + lease_ms / 1000 / LATE_PART:
            held.confirmation = self.engine.scheduler.start(_confirm, self)

    def is_expired(self) -> bool:
        """Returns whether the lease has ended by the local clock."""
        return (held := self.held) is not None and bool(self.engine.now() >= held.ends_at)

    def event(self, new: Callable[[], Any]) -> Any:
        """Returns the event that is set when the lock is lost."""
        if self.lost is None:
            self.lost = new()
            if self.is_lost:  # Read behind the write, as `lose` does: one of both sets it.
                self.lost.set()
        return self.lost

    def lose(self) -> None:
        """Reports the loss, once."""
        if self.held is not None:
            self.state = State.LOST
            if self.lost is not None:
                self.lost.set()
            if self.kind.on_lost is not None:
                self.engine.tell(self.kind.on_lost)
            for block in self.blocks:
                block.reschedule(0)

    def begin_watch(self) -> None:
        """Starts the flow that renews and watches the lock, unless it runs."""
        if (held := self.held) is not None and held.watcher is None:
            flow = self.engine.scheduler.start(watch, self, held)
            if not flow.ended:
                flow.scheduler.lasting[flow] = self._watch_again

    def _watch_again(self) -> None:
        """Starts another watcher, because the scheduler of the last one is gone."""
        if self.held is not None:
            self.held.watcher = None
            self.begin_watch()

    def end_watch(self) -> None:
        """Ends the flows that extend, renew and watch the lock."""
        if (held := self.held) is not None:
            for flow in held.flows():
                flow.scheduler.cancel(flow)

    def drop(self) -> None:
        """Releases the lock, which no caller releases."""
        self.end_watch()
        self.state = State.RELEASED
        begin_withdrawal(self.engine.scheduler, self)


class Taken:
    """What a lock object has of a lock that it holds. When it is collected, the lock is released, with a warning."""

    def __init__(self, hold: Hold) -> None:
        self.hold, self._is_mine = hold, True

    def detach(self) -> None:
        """Leaves the lock to the caller."""
        self._is_mine = False

    def __del__(self) -> None:
        if self._is_mine:
            self.hold.engine.post(_collected, self.hold)


def _collected(hold: Hold) -> None:
    is_held = hold.held is not None and not hold.is_expired()
    hold.drop()
    if is_held:
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
    hold.state, is_done = State.RELEASED, False
    try:
        reply = yield from ask(flow, hold.key, *hold.release())
        is_done = True
        return reply
    except ServerError as error:
        is_done = error.code in NOT_HELD
        raise
    finally:
        hold.outcome_unknown = not (is_done and hold.precedes(flow.number))
        if hold.outcome_unknown:
            flow.scheduler.start(withdraw, hold)


def enter_again(flow: Flow, hold: Hold) -> Steps:
    """Acquires a re-entrant lock again for its holder."""
    left_ms = None if hold.held is None else (yield from lease_left(flow, hold))
    if left_ms is None:
        raise ServerError("NOTHELD the lock was lost")
    if hold.lease_ms and 0 <= left_ms < hold.lease_ms:
        yield from extend(flow, hold, hold.lease_ms, False)
    hold.count += 1
    return True


def extend(flow: Flow, hold: Hold, lease_ms: int, add: bool) -> Steps:
    """Sets the lease, or adds to it."""
    if (held := hold.held) is None:
        raise ServerError("NOTHELD the lock was lost")
    left_s = held.ends_at - flow.scheduler.now() if add and held.ends_at < math.inf else 0.0
    sum_ms = lease_ms + max(int(left_s * 1000), 0)
    try:
        yield from _change(flow, hold, held, hold.extend(lease_ms, add), sum_ms, again=not add)
    except Disconnected as error:
        if not add or not error.sent or held.ends_at == math.inf:
            raise
        # Whether the server has added, or not, the lease ends at the same time.
        yield from _change(flow, hold, held, hold.extend(sum_ms), sum_ms)
    return True


def _change(
    flow: Flow, hold: Hold, held: Held, commands: tuple[Words, Words | None], lease_ms: int, again: bool = True
) -> Steps:
    """Changes the lease, which renewals set from now on, unless this fails.

    The reply to the latest command sets the end. The replies to others, which may be executed later, only shorten it.
    """
    asked_at, before_ms = flow.scheduler.now(), held.lease_ms
    number = held.changes = held.changes + 1
    held.under_way, held.lease_ms = held.under_way + 1, lease_ms
    if (end := asked_at + lease_ms / 1000) < held.ends_at:  # It may be shorter even if the reply is lost.
        held.ends_at = end
        if held.watcher is not None:
            held.watcher.renew_by(min(held.watcher.renew_at, asked_at + held.third_s))
            held.watcher.end_by(end)
    try:
        left_ms = yield from ask(flow, hold.key, *commands, again=again)
        before_end, before_ms = held.ends_at, left_ms if "ADD" in commands[0] else lease_ms
        held.set_lease(asked_at, left_ms)
        if hold.kind.session and held.watcher is not None and not held.watcher.session_on:
            # The server may notice the loss of the connection later, and set the lease to the grace period.
            held.ends_at = min(held.ends_at, asked_at + hold.grace_ms / 1000)
        if number != held.changes or held.under_way > 1:
            held.ends_at = min(held.ends_at, before_end)
        elif held.watcher is not None:
            held.watcher.renew_by(asked_at + held.third_s)
    finally:
        held.under_way -= 1
        if number == held.changes:
            held.lease_ms = before_ms
        if (watcher := held.watcher) is not None and watcher.flow is not flow:
            watcher.flow.scheduler.wake(watcher.flow)  # It sets its timer again.


def _confirm(flow: Flow, hold: Hold) -> Steps:
    """Extends a lock whose grant was heard late: it has its whole lease. Without a reply, the certain end counts."""
    try:
        yield from extend(flow, hold, hold.lease_ms or 1, False)
    except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
        if getattr(error, "code", "") in NOT_HELD:
            hold.lose()


def fence(flow: Flow, hold: Hold, words: Words) -> Steps:
    """Returns the next fencing token, for which these words ask."""
    return (yield from ask(flow, hold.key, words))


def attach(flow: Flow, hold: Hold) -> Steps:
    """Takes over a lock that another caller has left."""
    if hold.lease_ms:
        yield from ask(flow, hold.key, *hold.extend(hold.lease_ms))
    elif (yield from lease_left(flow, hold)) is None:
        raise ServerError("NOTHELD the token does not hold the lock")
    if hold.kind.session:
        try:
            yield from _begin_session(flow, hold)
        except Disconnected:
            yield from ask(flow, hold.key, *hold.extend(hold.lease_ms or 1))
            yield from _begin_session(flow, hold)
    hold.outcome_unknown = True


def lease_left(flow: Flow, request: Request) -> Steps:
    """Returns the rest of the lease in milliseconds, -1 without a lease, None if the token does not hold the lock."""
    if not request.kind.shared:
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
    return hold is not None and hold.held is not None and (yield from lease_left(flow, hold)) is not None


def watch(flow: Flow, hold: Hold, held: Held) -> Steps:
    """Renews a lock and watches it until it is lost; a release cancels this."""
    now, is_held, in_session = flow.scheduler.now, True, hold.kind.session
    renew_at = now() + held.third_s if hold.kind.renew else math.inf
    session_on = flow.scheduler.servers.locate(hold.key).number if in_session else 0
    watcher = held.watcher = Watcher(flow, renew_at, session_on)
    flow.scheduler.watch(hold.key, flow)
    try:
        yield Change(min(FIRST_LOOK_S, held.third_s, held.ends_at - now()))
        while is_held:
            try:
                is_held = yield from _look(flow, hold, held, watcher)
                flow.limit = math.inf
                if is_held:
                    look_at = now() + held.third_s if in_session else math.inf
                    yield Change(min(held.ends_at, watcher.renew_at, look_at) - now())
            except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
                is_held = getattr(error, "code", "") not in NOT_HELD and now() < held.ends_at
                if is_held:
                    pause = RETRY_S if getattr(error, "code", "TRYAGAIN") in TRY_AGAIN else held.third_s
                    yield Pause(min(pause, held.ends_at - now()))
    finally:
        flow.scheduler.unwatch(hold.key, flow)
    hold.lose()
    if in_session:
        flow.scheduler.start(withdraw, hold)  # The server may still renew it.


def _look(flow: Flow, hold: Hold, held: Held, watcher: Watcher) -> Steps:
    """Renews the lease if it is time, and asks for what remains of it. Returns whether the lock is held."""
    now, locate, connection = flow.scheduler.now, flow.scheduler.servers.locate, flow.scheduler.servers.locate(hold.key)
    if watcher.session_on and (connection.number != watcher.session_on or connection.state != "open"):
        watcher.session_on = 0
        # The connection is lost, maybe since the begin of the latest pause: the grace period remains.
        held.ends_at = min(held.ends_at, now() + hold.grace_ms / 1000 - RETRY_S)
    if not watcher.session_on:  # The server renews a lease with a session.
        if hold.is_expired():
            return False
        flow.limit = held.ends_at
    if now() >= watcher.renew_at:
        yield from extend(flow, hold, held.lease_ms or 1, False)
    if hold.kind.session and not watcher.session_on:
        yield from _continue_session(flow, hold, held, watcher)
    for _ in range(2):  # A redirection may lead to another server.
        connection = locate(hold.key)
        yield from track(flow, connection)
        asked_at, flow.changed = now(), False
        changes = None if held.under_way else held.changes
        left_ms = yield from lease_left(flow, hold)
        if flow.connection is connection:
            break
    if left_ms is not None and changes == held.changes:  # Otherwise the reply to the change sets the end.
        held.set_lease(asked_at, left_ms)
        if hold.kind.session and left_ms < (held.lease_ms or 0) / 2:
            # The server has ended it, or it would have renewed the lease.
            yield from _continue_session(flow, hold, held, watcher)
    return left_ms is not None


def _continue_session(flow: Flow, hold: Hold, held: Held, watcher: Watcher) -> Steps:
    """Gives the lock to a session of the present connection, if it is still held."""
    # Without this, the request could acquire a lock that is free by now.
    yield from extend(flow, hold, held.lease_ms or 1, False)
    flow.limit = held.ends_at
    yield from _begin_session(flow, hold)
    watcher.session_on, flow.limit = flow.number, math.inf


def _begin_session(flow: Flow, hold: Hold) -> Steps:
    """Asks for the lock that the token holds, which begins a session. It is sent once, as an EXTEND comes first."""
    note_sent(flow, hold)
    if (yield from exchange(flow, hold.key, hold.acquire(), again=False)) is None:
        raise ServerError("NOTHELD the lock was lost with its session")


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
