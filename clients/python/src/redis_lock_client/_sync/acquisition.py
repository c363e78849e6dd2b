# Made from _async/acquisition.py by generate.py.
"""How a lock is taken, at once or by waiting, so that nothing is left behind when it is not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import ELSEWHERE, PASSING, Request, code
from . import runtime
from .client import Client
from .connections import exchange, raised, timed_out, was_sent
from .listener import REFUSED_S, SILENCE_S, Wait
from .node import UNKNOWN, Node

#: The longest wait that is asked for at once, in seconds: whoever is gone without notice stands in line no longer.
BLOCK_S = 15.0
#: The longest wait on a connection that it blocks, in seconds; and never more than half of the time-out.
SLICE_S = 2.0
#: For how long to wait without an end for a server that cannot be reached, in seconds.
PATIENCE_S = 60.0
#: How soon to ask again when a server could not be asked, in seconds.
RETRY_S = 0.1
#: How long a caller that gives up stays to see that it has left the line, in seconds. It leaves in any case.
WITHDRAW_S = 0.25
#: How much of a lease may have passed when a grant is heard of; beyond that the server is asked again.
FRESH = 1 / 3


class Acquisition:
    """One attempt to take a lock for one token."""

    def __init__(self, client: Client, request: Request, patience: float | None, pause: float) -> None:
        self._client = client
        self._request = request
        self._deadline = math.inf if patience is None else runtime.now() + patience
        self._pause = pause
        self._backoff = pause / 8
        self._exchanges = runtime.Exchanges()
        #: The server that was asked last.
        self.node: Node | None = None
        #: From when the lease counts, by the own clock: from before the last request.
        self.asked = 0.0
        #: A server may have got a request.
        self._sent = False
        #: When the server has answered last.
        self._heard: float | None = None
        #: How often news were asked for. Those of an earlier request may still come.
        self._times_in_line = 0
        #: The caller does not want it any more, but what is under way goes on.
        self._given_up = False
        #: Where its news arrive.
        self._wait: Wait | None = None

    def _left(self) -> float:
        return self._deadline - runtime.now()

    def _sleep(self, seconds: float) -> None:
        """Pauses, but not beyond the end of the patience."""
        runtime.sleep(max(min(seconds, self._left()), 0))

    def run(self, blocking: bool) -> bool:
        """Whether the lock was taken. Who gets an exception has to withdraw."""
        request = self._request
        if request.given:
            # Not beside others of this process that have the same token.
            granted = self._in_turn((request.key, request.token), partial(self._alone, blocking))
        else:
            granted = self._attempt(blocking)
        if blocking and not granted:
            self.withdraw()
        elif not granted:
            self._client.given.is_over(self._request)
        if granted and self.node is not None and self.node.connections.in_doubt(self._request.token):
            # The sooner the server comes to what was asked before, the better: now it changes nothing.
            self.node.withdrawer.do(self.node.settle, self._request.token)
        return granted

    def withdraw(self) -> None:
        """Leaves the line, or gives up what was granted; can be done twice."""
        self._given_up = True
        self._client.given.is_over(self._request)
        if self.node is not None and self._sent:
            self.node.listener.forget(self._request.token, self._request.key, self._wait)
            done = self.node.begin_to_withdraw(self._request, self._exchanges)
            runtime.wait(done, WITHDRAW_S)

    def _alone(self, blocking: bool, turn: runtime.Event) -> bool:
        granted = (self._has_come(turn) if blocking else turn.is_set()) and self._attempt(blocking)
        if granted:
            self._client.given.has_held(self._request)
        return granted

    def _attempt(self, blocking: bool) -> bool:
        if not blocking:
            return self._once()
        while not self._in_turn(self._request.key, self._in_line):
            if self._left() <= 0:
                return False
            # Another one has it by this token. Not at the head of the queue: there may be a permit for others.
            self._sleep(RETRY_S)
        return True

    def _has_come(self, turn: runtime.Event) -> bool:
        """Waits for a turn in a local queue; whether it has come in time."""
        return turn.is_set() or runtime.wait(turn, None if self._left() == math.inf else self._left())

    def _once(self) -> bool:
        """Asks once, or twice if the key is elsewhere."""
        return bool(
            self._noted(
                lambda: self._client.ask(self._request.key, self._take_unless_taken, self._exchanges),
            )
        )

    def _run(self, exchange: Callable[[], Any]) -> Any:
        """Lets an exchange with the server come to its end."""
        return self._noted(lambda: self._exchanges.run(exchange()))

    def _noted(self, exchange: Callable[[], Any]) -> Any:
        """Notes whether a server may have got the request: else there is nothing to withdraw."""
        before, self._sent = self._sent, True
        try:
            return exchange()
        except UNREACHABLE as error:
            if not was_sent(error):
                self._sent = before
            raise
        except ANSWERED as error:
            if code(error) == "OTHERFORM":
                # Another one has it by this token, and would lose it.
                self._sent = before
                self._client.given.is_over(self._request)
            raise

    def _take_unless_taken(self, node: Node) -> bool:
        if self._request.given and self._is_taken(node):
            return False
        return self._turns_to(node) and self._take(node)

    def _may_ask(self, node: Node) -> bool:
        """Whether nobody else has it by this token, or is giving it up."""
        if self._request.given and self.node is None and self._exchanges.run(self._is_taken(node)):
            return False
        return self._turns_to(node)

    def _turns_to(self, node: Node) -> bool:
        """Whether something is about to be asked there: not if the caller does not want it any more."""
        if self._given_up or not self._client.given.begin(self._request):
            return False
        self.node = node
        return True

    def _is_taken(self, node: Node) -> bool:
        """Whether another holds it by this token, not sent yet: the server would tell both that it is theirs."""
        request = self._request
        told = self._as_far_as_known(lambda: node.info(request.key))
        if told is None or told[b"state"] == b"shared":
            taken = self._as_far_as_known(lambda: node.share(request)) is not None
        else:
            taken = told[b"owner"] == request.token
        self._heard = runtime.now()
        return taken

    def _as_far_as_known(self, look: Callable[[], Any]) -> Any:
        """What a look tells, or None if it is a lock of another form, or one at which this user may not look."""
        try:
            return look()
        except ANSWERED as error:
            if code(error) not in ("NOPERM", "WRONGTYPE"):
                raise
            return None

    def _take(self, node: Node) -> bool:
        self.asked = runtime.now()
        granted = node.take(self._request) is not None
        self._heard = runtime.now()
        return granted

    def _in_turn(self, line: object, attempt: Callable[[runtime.Event], Any]) -> bool:
        """Attempts to take the lock by means of a place in a local queue."""
        turn, lines = runtime.Event(), self._client.lines
        try:
            try:
                lines.join(line, turn)
                return bool(attempt(turn))
            finally:
                lines.leave(line, turn)
        except BaseException:
            # It may have come while leaving, and then nobody would have the next turn.
            lines.leave(line, turn)
            raise

    def _in_line(self, turn: runtime.Event) -> bool:
        return self._has_come(turn) and self._at_the_head()

    def _at_the_head(self) -> bool:
        """Asks until the lock is granted, the time is up, or another one has it by this token.

        A server that was reached once may be away for a while.
        """
        while True:
            try:
                node = self._client.node(self._request.key)
                if not self._may_ask(node):
                    if self.node is None:
                        return False
                    # It has a place in line at the server, so it keeps the one here.
                    self._sleep(RETRY_S)
                elif self._ask(node):
                    return True
            except (*UNREACHABLE, *ANSWERED) as error:
                reason = code(error)
                if isinstance(error, ANSWERED) and reason not in PASSING + ELSEWHERE:
                    raise
                if reason in PASSING + ELSEWHERE:
                    self._heard = self._heard or runtime.now()
                if self._heard is not None and timed_out(error) and self._left() <= 0:
                    return False  # The server has answered before, and this could not be waited for.
                if self._heard is None or runtime.now() - self._heard > PATIENCE_S or self._left() <= 0:
                    raise
                self._sleep(RETRY_S)
                self._refresh()
            if self._left() <= 0:
                return False

    def _refresh(self) -> None:
        try:
            self._client.refresh_if_due()
        except (*UNREACHABLE, *ANSWERED):
            pass  # None of the servers can be reached: the next attempt says so.

    def _ask(self, node: Node) -> bool:
        listener = node.listener
        if not node.may_be_native:
            return self._poll(node)
        # Who listens already is told soon enough, unless there is no time to be told anything.
        is_told = listener.listens and node.native and self._left() > 0
        if not is_told and self._run(lambda: self._take(node)):
            return True
        if not node.native:
            return self._poll(node, asked=not is_told)
        if self._left() <= 0:
            return False
        if self._request.may_notify and listener.can_serve(self._request.key):
            if listener.ready(self._request.key, min(node.source.timeout_s, self._left())):
                return self._by_notify(node)
            if not listener.refused:
                return False
        return self._by_slices(node)

    def _poll(self, node: Node, asked: bool = False) -> bool:
        """Without the module, or while a slot is on its way, nobody tells: asks, and then less and less often."""
        if not asked and self._run(lambda: self._take(node)):
            return True
        self._pause_a_little()
        return False

    def _pause_a_little(self) -> None:
        """For longer each time."""
        self._sleep(self._backoff * random.uniform(0.5, 1))
        self._backoff = min(self._backoff * 2, self._pause)

    def _still_holds(self, node: Node) -> bool:
        """Whether a grant that was heard of is there, for most of its lease.

        Whoever stood still hears late, and what is heard may be of an earlier grant, which is over. The same request
        tells, and a holder has the whole lease from then on.
        """
        lease_ms = self._request.lease_ms
        if lease_ms is None:
            return True
        # A token that was given may have been granted the lock in an earlier attempt, of which news may still come.
        first = self._times_in_line <= (0 if self._request.given else 1)
        if first and runtime.now() - self.asked < FRESH * lease_ms / 1000:
            return True
        return bool(self._run(lambda: self._take(node)))

    def _by_notify(self, node: Node) -> bool:
        """Stands in line, and waits for news; not granted means to ask again."""
        request, listener = self._request, node.listener
        wait = self._wait = Wait()
        # Before the request, because the message may come before the answer.
        listener.note(request.token, request.key, wait)
        try:
            block_ms = max(int(min(self._left(), BLOCK_S) * 1000), 1)
            self._times_in_line += 1
            self.asked = runtime.now()
            try:
                answer = self._run(lambda: node.wait(request, block_ms))
            except ANSWERED as error:
                if code(error) == "ASK":
                    return self._poll(node)
                if code(error) == "NOPERM":
                    # It may be the key that is not permitted, or the channel not any more.
                    return self._by_slices(node)
                if code(error) != "NOSUBSCRIBER":
                    raise
            else:
                self._heard = runtime.now()
                if answer == 1:
                    return True
                if answer is UNKNOWN:
                    return False
            if wait.news(min(SILENCE_S, self._left())) != "granted":
                return False
            self._heard = runtime.now()
            return self._still_holds(node)
        finally:
            listener.forget(request.token, request.key, wait)

    def _by_slices(self, node: Node) -> bool:
        """Blocks a connection of its own, for less than its time-out at a time; later it may be told by NOTIFY."""
        until = min(self._deadline, runtime.now() + REFUSED_S)
        with node.connections.own(self._request.token) as connection:
            while runtime.now() < until:
                block_ms = max(int(min(self._left(), SLICE_S, node.source.timeout_s / 2) * 1000), 1)
                self.asked = runtime.now()
                words: Any = self._request.take(block_ms=block_ms)
                answer = self._run(partial(exchange, connection, words))
                self._heard = runtime.now()
                if isinstance(answer, ANSWERED) and code(answer) == "ASK":
                    return self._poll(node)
                if raised(answer) is not None:
                    if self._request.session:
                        # It belongs to its connection: now to one that stays.
                        return bool(self._run(lambda: self._take(node)))
                    return self._still_holds(node)
        return False
