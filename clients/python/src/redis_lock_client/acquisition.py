"""How a lock is acquired, so that the server keeps nothing when it is not: flows for threads and for tasks alike."""

import math
import random

from . import scripts
from .connection import Connection, subscribe
from .errors import (
    UNREACHABLE,
    Disconnected,
    LockError,
    LockQueueFull,
    ModuleNeededError,
    NoReply,
    ServerError,
    logger,
)
from .flow import Call, Flow, Message, Pause, Scheduler, Steps, Turn
from .library import pause_after
from .request import MAX_BLOCK_MS, NOT_HELD, TRY_AGAIN, Request, Sent, Words, label_of

#: The request is sent again after this time without a message, in seconds. Less than lock.rejoin-grace-ms. A silent
#: server delays the end of a request by no more.
SILENCE_S = 5.0
#: How late the message that a wait has timed out may be.
LATE_S = 0.25
#: How long a server that has replied may be unreachable, in seconds, if ``blocking_timeout`` does not say less.
OUTAGE_S = 60.0
RETRY_S = 0.1
#: How long scripts are used before a command is tried again, in seconds.
SCRIPTS_S = 5.0
#: RELEASE is sent again after this time if a request may reach the server later than the first one, in seconds.
AGAIN_S = 1.0
#: A grant that is heard after this part of the lease is asked for again.
LATEST_PART = 2 / 3
#: The error if the connection that asks does not listen on its channel.
NO_CHANNEL = "NOSUBSCRIBER"
#: The lease with which a lock without one waits, since NOTIFY needs a lease.
WAIT_LEASE_MS = 60_000
#: How long an unreachable server is asked to forget a token without a lease, in seconds.
WITHDRAW_S = 60.0
MAX_REDIRECTIONS = 5


def ask(flow: Flow, key: bytes, words: Words, script: Words | None = None, again: bool = True) -> Steps:
    """Returns the reply to a LOCK command, or without the module to the script in its place.

    ``again``: the command is sent again if its connection is lost, or the server was there before and the policy of the
    client retries. Raises ModuleNeededError without the module if there is no script.
    """
    until, failures, was_sent = flow.scheduler.now() + OUTAGE_S, 0, False
    while True:
        try:
            return (yield from _command_or_script(flow, key, words, script, again))
        except (Disconnected, ServerError) as error:
            was_sent |= flow.was_repeated
            if isinstance(error, Disconnected):
                flow.scheduler.servers.forget(key)
                is_sent, is_final = error.sent, error.is_final or flow.scheduler.heard_at == -math.inf
            elif was_sent and words[0] == "LOCK.RELEASE" and error.code in ("NOTHELD", "NOTOWNER"):
                return 0  # The first one has released it.
            else:
                is_sent, is_final = False, error.code not in TRY_AGAIN
            failures, was_sent = failures + 1, was_sent or is_sent
            pause = 0.0 if failures == 1 and is_sent else pause_after(flow.retry, failures)
            if pause is None or is_final or (is_sent and not again) or flow.scheduler.now() + pause > until:
                raise
            if pause:
                yield Pause(pause)


def _command_or_script(flow: Flow, key: bytes, words: Words, script: Words | None, again: bool) -> Steps:
    if flow.scheduler.now() >= flow.scheduler.servers.locate(key).scripts_until:
        try:
            return (yield from exchange(flow, key, words, again))
        except ServerError as error:
            if error.code != "UNKNOWN":
                raise
    if script is None:
        feature = "session" if "SESSION" in words else words[0]
        text = f"{feature!s} needs the module redis-lock, which the server has not loaded"
        raise ModuleNeededError(text, key.decode(errors="replace"))
    return (yield from exchange(flow, key, script, again))


def exchange(flow: Flow, key: bytes, words: Words, again: bool = True) -> Steps:
    """Returns the reply to a command from the server that has the key, which redirections name.

    ``again``: the command is sent once more if its connection was silent and is replaced.
    """
    servers, connection, asking = flow.scheduler.servers, flow.scheduler.servers.locate(key), False
    began_at, timeout, redirections, flow.was_repeated = flow.scheduler.now(), None, 0, False
    while True:
        try:
            return (yield Call(connection, words, asking, timeout))
        except NoReply as error:
            if not (again and error.is_replaced) or flow.was_repeated:
                raise
            servers.forget(key)
            connection, asking, flow.was_repeated = servers.locate(key), False, True
            timeout = min(servers.source.timeout_s, SILENCE_S - (flow.scheduler.now() - began_at))
        except ServerError as error:
            _note_error(flow, connection, error)
            if error.code not in ("MOVED", "ASK") or redirections == MAX_REDIRECTIONS or not servers.source.in_cluster:
                raise
            asking, redirections = error.code == "ASK", redirections + 1
            connection = servers.redirected(key, error, asking)


def _note_error(flow: Flow, connection: Connection, error: ServerError) -> None:
    """Notes what an error says of a server."""
    now = flow.scheduler.now()
    if error.code == "UNKNOWN":
        connection.scripts_until = now + SCRIPTS_S
    if error.code == "READONLY" and now - connection.opened_at > 1:  # The address may lead elsewhere.
        connection.close(Disconnected("the server is a replica now", sent=False))


def acquire(flow: Flow, request: Request, patience: float | None, sleep: float) -> Steps:
    """Returns whether the lock was acquired within ``patience`` seconds. 0 is one attempt, None waits without limit.

    If it was not, for whatever reason, the server is asked to forget the token. ``sleep`` is the longest pause between
    two attempts where the server cannot notify. Raises LockError if the token is in use.
    """
    scheduler, is_held, now, began_at = flow.scheduler, False, flow.scheduler.now, flow.scheduler.now()
    earlier = scheduler.tokens.get((request.key, request.token))
    if earlier is not None and earlier.outcome_unknown:
        raise LockError("this process acquires or holds the lock with this token already", request.key.decode())
    most = request.kind.max_waiters or math.inf
    if patience != 0 and scheduler.queue_length(request.key) >= most:
        raise ServerError(f"{LockQueueFull.code} as many wait in this process")
    scheduler.tokens[request.key, request.token] = request
    deadline = math.inf if patience is None else began_at + patience
    if patience != 0:
        flow.retry = None  # The wait itself goes on.
    try:
        if patience != 0 and (yield Turn(request.key, deadline - now(), request.kind.shared)):
            is_held = yield from _wait(flow, request, began_at, deadline, sleep)
        else:  # Also when its turn did not come in time: an outage is an error.
            is_held = yield from take(flow, request)
        return is_held
    finally:
        if not is_held and request.outcome_unknown:
            begin_withdrawal(scheduler, request)
        scheduler.leave_queue(request.key, flow)


def take(flow: Flow, request: Request) -> Steps:
    """Asks for the lock without waiting. Returns whether it is held."""
    was_unknown = note_sent(flow, request)
    try:
        is_held = (yield from ask(flow, request.key, *request.take())) is not None
    except ModuleNeededError:
        request.outcome_unknown = was_unknown
        raise
    request.outcome_unknown = was_unknown or is_held or not request.precedes(flow.number)
    return is_held


def note_sent(flow: Flow, request: Request) -> bool:
    """Notes that a request is about to be sent. Returns whether an earlier one has an unknown outcome."""
    before, request.outcome_unknown, now = request.outcome_unknown, True, flow.scheduler.now()
    if request.sent is None:
        connection = flow.scheduler.servers.locate(request.key)
        request.sent = Sent(connection.number + (connection.state != "open"), now)
    else:
        request.sent.at = now
    return before


def _wait(flow: Flow, request: Request, began_at: float, deadline: float, sleep: float) -> Steps:
    """Waits as the first flow in the local queue. Returns whether the lock was granted before the deadline.

    Raises the error of an outage.
    """
    now, pause = flow.scheduler.now, sleep / 8
    heard_at = max(began_at, flow.scheduler.heard_at)
    while True:
        try:
            outcome = yield from _attempt(flow, request, deadline)
            heard_at = now()
            if outcome == "again":
                continue
            if outcome != "poll":
                return outcome
            rest, pause = pause * random.uniform(0.5, 1), min(pause * 2, sleep)
        except (*UNREACHABLE, ServerError) as error:
            # It is final, too, if no server has ever replied, or for too long.
            is_refusal = isinstance(error, ServerError) and error.code not in TRY_AGAIN
            is_long = deadline == math.inf and now() - heard_at > OUTAGE_S
            if is_refusal or is_long or now() >= deadline or flow.scheduler.heard_at == -math.inf:
                raise
            rest = RETRY_S
        yield Pause(min(rest, deadline - now()))


def _attempt(flow: Flow, request: Request, deadline: float) -> Steps:
    """Returns True if the lock was granted, False if the time is up, else "again" or, after a pause, "poll"."""
    connection = flow.scheduler.servers.locate(request.key)
    has_time, is_first = flow.scheduler.now() < deadline, request.sent is None
    if connection.channel is None or not has_time or not _may_notify(flow, connection, request):
        if (yield from take(flow, request)):
            return is_first or (yield from _remove_lease(flow, request)) or "again"
        if not has_time:
            return False
    connection = flow.scheduler.servers.locate(request.key)
    if _may_notify(flow, connection, request):
        channel = yield from subscribe(flow, connection, request.key)
        if channel is not None:
            return (yield from _by_message(flow, request, deadline, channel))
    return "poll"


def _may_notify(flow: Flow, connection: Connection, request: Request) -> bool:
    return flow.scheduler.now() >= connection.scripts_until and b" " not in request.token


def _by_message(flow: Flow, request: Request, deadline: float, channel: bytes) -> Steps:
    """Waits in the queue of the server for the message that ends the wait. Returns what `_attempt` does."""
    now = flow.scheduler.now
    remaining = min(deadline - now(), MAX_BLOCK_MS / 1000)
    is_first = request.sent is None
    note_sent(flow, request)
    sent_at, words = now(), request.acquire(int(remaining * 1000), channel, WAIT_LEASE_MS)
    try:
        reply = yield from exchange(flow, request.key, words)
    except ServerError as error:
        request.outcome_unknown = not (is_first and request.precedes(flow.number))
        # In a cluster it may be a channel of a slot that has moved.
        if error.code == NO_CHANNEL or (error.code in ("ERR", "NOPERM") and flow.scheduler.source.in_cluster):
            flow.connection.channel = None
        elif error.code != "UNKNOWN":
            raise
        return "poll"
    if reply != 1:
        logger.debug("%r waits for lock %r", label_of(request.token), request.key)
        event = yield Message(request.token + b" " + request.key, min(SILENCE_S, remaining + LATE_S))
        if event == "timeout" and now() >= deadline - LATE_S:
            request.outcome_unknown = not (is_first and request.precedes(flow.number))
            return False
        # The lease counts from before the request: when most of it has passed, this is sent again.
        is_late = now() - sent_at > (request.lease_ms or math.inf) / 1000 * LATEST_PART
        if event != "granted" or is_late:
            return "again"
    # Messages for earlier requests come before the reply to this one.
    return (yield from _remove_lease(flow, request)) or "again"


def _remove_lease(flow: Flow, request: Request) -> Steps:
    """Removes the lease that NOTIFY needs from a lock without one. Returns whether it is still held."""
    try:
        if request.lease_ms is None:
            yield from exchange(flow, request.key, request.script(scripts.KEEP_FOR_EVER))
        return True
    except ServerError as error:
        if error.code in NOT_HELD:
            return False
        raise


def begin_withdrawal(scheduler: Scheduler, request: Request) -> None:
    """Starts the flow that releases what a token holds, unless it runs."""
    flow = request.withdrawal
    if flow is None or flow.ended or flow.scheduler is not scheduler:  # An interrupted engine has another scheduler.
        request.withdrawal = scheduler.start(withdraw, request)


def withdraw(flow: Flow, request: Request) -> Steps:
    """Releases what a token holds and cancels its wait.

    It is sent until the server has replied, at most until the wait has ended and the lease has expired.
    """
    now = flow.scheduler.now
    until = now() + MAX_BLOCK_MS / 1000 + (request.lease_ms / 1000 if request.lease_ms else WITHDRAW_S)
    is_done = False
    while not is_done:
        try:
            yield from ask(flow, request.key, *request.release())
            is_done = True
        except (*UNREACHABLE, ServerError, ModuleNeededError) as error:
            is_done = getattr(error, "code", "TRYAGAIN") not in TRY_AGAIN
        # A request on an earlier connection may reach the server after this.
        is_done = (is_done and request.precedes(flow.number)) or now() >= until
        if not is_done:
            if request.sent is not None:
                request.sent.on = flow.number
            yield Pause(AGAIN_S)
    request.outcome_unknown = False
