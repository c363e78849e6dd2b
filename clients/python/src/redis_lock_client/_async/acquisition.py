"""How a lock is taken, at once or by waiting, so that nothing is left behind when it is not."""

from __future__ import annotations

import math
import random
from typing import Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import ELSEWHERE, PASSING, Request, code
from . import runtime
from .client import Client
from .connections import exchange, raised
from .listener import SILENCE_S, Wait
from .node import Node

#: The longest wait that is asked for at once, in seconds: whoever is gone without notice stands in line no longer.
BLOCK_S = 15.0
#: The longest wait on a connection that it blocks, in seconds; and never more than half of the time-out.
SLICE_S = 2.0
#: For how long to wait without an end for a server that cannot be reached, in seconds.
PATIENCE_S = 60.0
#: How long a caller that gives up stays to see that it has left the line, in seconds. It leaves in any case.
WITHDRAW_S = 0.25


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
        #: From when the lease counts, by the own clock.
        self.asked = 0.0

    def _left(self) -> float:
        return self._deadline - runtime.now()

    async def run(self, blocking: bool) -> bool:
        """Whether the lock was taken. Who gets an exception has to withdraw."""
        granted = await (self._wait() if blocking else self._try())
        if blocking and not granted:
            await self.withdraw()
        return granted

    async def withdraw(self) -> None:
        """Leaves the line, or gives up what was granted; can be done twice."""
        if self.node is not None:
            self.node.listener.forget(self._request.token)
            done = self.node.worker.do(self.node.withdraw, self._request, self._exchanges, runtime.now())
            await runtime.wait(done, WITHDRAW_S)

    async def _try(self) -> bool:
        """Asks once, or twice if the key is elsewhere."""
        for again in (True, False):
            self.node = await self._client.node(self._request.key)
            try:
                return await self._exchanges.run(self._take(self.node))
            except ANSWERED as error:
                if not again or code(error) not in ELSEWHERE:
                    raise
                await self._client.refresh()
        return False

    async def _take(self, node: Node) -> bool:
        self.asked = runtime.now()
        return await node.take(self._request) is not None

    async def _wait(self) -> bool:
        turn, lines = runtime.Event(), self._client.lines
        try:
            try:
                return await self._in_line(turn)
            finally:
                lines.leave(self._request.key, turn)
        except BaseException:
            # It may have come while leaving, and then nobody would have the next turn.
            lines.leave(self._request.key, turn)
            raise

    async def _in_line(self, turn: runtime.Event) -> bool:
        self._client.lines.join(self._request.key, turn)
        if not turn.is_set() and not await runtime.wait(turn, None if self._left() == math.inf else self._left()):
            return False
        return await self._at_the_head()

    async def _at_the_head(self) -> bool:
        """Asks until the lock is granted or the time is up; a server that was reached once may be away for a while."""
        heard: float | None = None
        while True:
            try:
                self.node = await self._client.node(self._request.key)
                if await self._ask(self.node):
                    return True
                heard = runtime.now()
            except (*UNREACHABLE, *ANSWERED) as error:
                reason = code(error)
                if isinstance(error, ANSWERED) and reason not in PASSING + ELSEWHERE:
                    raise
                if reason in PASSING + ELSEWHERE:
                    heard = heard or runtime.now()
                if heard is None or runtime.now() - heard > PATIENCE_S or self._left() <= 0:
                    raise
                await runtime.sleep(max(min(self._pause, self._left()), 0))
                await self._refresh()
            if self._left() <= 0:
                return False

    async def _refresh(self) -> None:
        try:
            await self._client.refresh()
        except (*UNREACHABLE, *ANSWERED):
            pass  # None of the servers can be reached: the next attempt says so.

    async def _ask(self, node: Node) -> bool:
        listener = node.listener
        if not node.may_be_native:
            return await self._poll(node)
        if not listener.listens and await self._exchanges.run(self._take(node)):
            return True
        if not node.native:
            return await self._poll(node, 0)
        if self._left() <= 0:
            return False
        if self._request.may_notify and listener.can_serve(self._request.key):
            if await listener.ready(self._request.key, min(node.source.timeout_s, self._left())):
                return await self._by_notify(node)
            if not listener.refused:
                return False
        return await self._by_slices(node)

    async def _poll(self, node: Node, taken: int = 1) -> bool:
        """Without the module, or while a slot is on its way, nobody tells: asks, and then less and less often."""
        if taken and await self._exchanges.run(self._take(node)):
            return True
        await runtime.sleep(max(min(self._backoff * random.uniform(0.5, 1), self._left()), 0))
        self._backoff = min(self._backoff * 2, self._pause)
        return False

    async def _by_notify(self, node: Node) -> bool:
        """Stands in line, and waits for news; not granted means to ask again."""
        request, listener = self._request, node.listener
        wait = Wait()
        # Before the request, because the message may come before the answer.
        listener.note(request.token, request.key, wait)
        try:
            block_ms = max(int(min(self._left(), BLOCK_S) * 1000), 1)
            self.asked = asked = runtime.now()
            try:
                if await self._exchanges.run(node.wait(request, block_ms)) == 1:
                    return True
            except ANSWERED as error:
                if code(error) == "ASK":
                    return await self._poll(node)
                if code(error) == "NOPERM":
                    listener.refused = True
                    return False
                if code(error) != "NOSUBSCRIBER":
                    raise
            if not node.native:
                return False
            if await wait.news(min(SILENCE_S, self._left())) != "granted":
                return False
            self.asked = runtime.now()
            # Whoever stood still may hear of a grant whose lease has ended. The same request tells.
            return request.lease_ms is None or self.asked - asked < request.lease_ms / 1000
        finally:
            listener.forget(request.token)

    async def _by_slices(self, node: Node) -> bool:
        """Blocks a connection of its own, for less than its time-out at a time."""
        async with node.connections.own() as connection:
            while self._left() > 0:
                block_ms = max(int(min(self._left(), SLICE_S, node.source.timeout_s / 2) * 1000), 1)
                self.asked = runtime.now()
                words: Any = self._request.take(block_ms=block_ms)
                answer = await self._exchanges.run(exchange(connection, words))
                if isinstance(answer, ANSWERED) and code(answer) == "ASK":
                    return await self._poll(node)
                if raised(answer) is not None:
                    self.asked = runtime.now()
                    # A session belongs to its connection: now to one that stays.
                    return not self._request.session or await self._exchanges.run(self._take(node))
        return False
