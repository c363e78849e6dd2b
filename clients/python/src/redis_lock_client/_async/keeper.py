"""Sees to the locks that are held at one server: renews them, and tells their holders at once when they are lost.

Three things tell: the server, by client-side caching, that a key has changed; a timer, that the lease has ended; and
the server again, asked who holds the lock, which has the last word.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import GONE, Request, Word, code, info
from . import runtime
from .connections import exchange, raised

if TYPE_CHECKING:
    from .node import Node

logger = logging.getLogger("redis_lock_client")
#: How soon to ask again when the server could not be asked, in seconds.
PAUSE_S = 0.1


class Held:
    """A lock that is held. While somebody wants to know, it is watched; it may be renewed."""

    def __init__(
        self, request: Request, lost: runtime.Event, on_lost: Callable[[], object] | None, renew: bool
    ) -> None:
        self.request = request
        self.holds = 1
        #: The server may count one hold more: a request for it, or to give it up, did not come to its end.
        self.in_doubt = False
        self.exchanges = runtime.Exchanges()
        self.renew = renew
        #: The length of the lease, in milliseconds; EXTEND changes it.
        self.lease_ms = request.lease_ms
        #: When the lease ends by the own clock; None if it does not end.
        self.ends_at: float | None = None
        self.watched = False
        #: Who sees to it, once it is taken.
        self.keeper: Keeper | None = None
        self.timers: list[runtime.Handle] = []
        #: Releases a session's lock when nobody has it any more.
        self.abandoned: weakref.finalize[..., Held] | None = None
        self._lost = lost
        self._on_lost = on_lost
        self._over = False
        self._guard = threading.Lock()

    @property
    def over(self) -> bool:
        """Whether it was released or lost."""
        return self._over

    def lease_began(self, at: float, lease_ms: int | None) -> None:
        """Notes a new lease, which counts from before the request for it."""
        self.ends_at = None if lease_ms is None or lease_ms < 0 else at + lease_ms / 1000

    def watch(self) -> None:
        """From now on the holder is told when it is lost."""
        if self.keeper is not None:
            self.watched = True
            self.keeper.leased(self)
            self.keeper.look_at(self)

    def end(self) -> bool:
        """Ends it; whether it was still held."""
        with self._guard:
            was_held, self._over = not self._over, True
        for timer in self.timers:
            timer.cancel()
        if self.abandoned is not None:
            self.abandoned.detach()
        return was_held

    def lose(self) -> None:
        """Tells that it was lost, once."""
        if not self.end():
            return
        self._lost.set()
        if self._on_lost is not None:
            try:
                self._on_lost()
            except Exception:
                logger.exception("on_lost has failed")


class Keeper:
    """The locks that are held at one server."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._guard = threading.RLock()
        # Weak: a lock that nobody can release any more is not renewed for ever.
        self._held: dict[bytes, weakref.WeakSet[Held]] = {}
        self._reader: Any = None
        self._reads_for: int | None = None
        self._tracking = False
        self._reading = runtime.Lock()

    def watches(self) -> bool:
        """Whether any lock is watched, so that the server must be listened to."""
        return any(held.watched and not held.over for held in self._all())

    def add(self, held: Held, watch: bool) -> None:
        """A lock was taken."""
        held.keeper = self
        with self._guard:
            self._held.setdefault(held.request.key, weakref.WeakSet()).add(held)
        if held.request.session:
            held.abandoned = weakref.finalize(held, _abandon, self._node.worker, self._node.withdraw, held.request)
            held.abandoned.atexit = False
        if watch:
            held.watch()

    def remove(self, held: Held) -> None:
        """A lock is being released."""
        held.end()
        self._drop(held)

    def _drop(self, held: Held) -> None:
        with self._guard:
            others = self._held.get(held.request.key)
            if others is not None:
                others.discard(held)
                if not others:
                    del self._held[held.request.key]

    def look_at(self, held: Held) -> None:
        """Asks the server who holds the lock."""
        self._node.worker.do(self._check, weakref.ref(held))

    def changed(self, key: bytes | None) -> None:
        """A key has changed; or any may have, or a connection was lost."""
        for held in self._all() if key is None else list(self._held.get(key, ())):
            if held.watched:
                self.look_at(held)

    def _all(self) -> list[Held]:
        with self._guard:
            return [held for some in self._held.values() for held in some]

    def leased(self, held: Held) -> None:
        """Sets the timers anew, for the end of the lease and for the next look at it."""
        for timer in held.timers:
            timer.cancel()
        held.timers = []
        if held.over or not held.watched or held.ends_at is None or held.lease_ms is None:
            return
        reference = weakref.ref(held)
        left, look_s = held.ends_at - runtime.now(), held.lease_ms / 3000
        if held.renew:
            # Of a lease that could not be renewed in time less is left.
            look_s = min(look_s, max(left / 3, PAUSE_S))
        held.timers = [
            runtime.call_later(left, _lose_if_due, reference),
            runtime.call_later(look_s, self._node.worker.do, self.see, reference),
        ]
        if held.over:
            held.end()

    async def see(self, reference: weakref.ref[Held]) -> None:
        """Renews a lock, or asks who holds it."""
        held = reference()
        if held is not None:
            await self._see(reference, self._extend if held.renew else self._look)

    async def _check(self, reference: weakref.ref[Held]) -> None:
        await self._see(reference, self._look)

    async def _see(self, reference: weakref.ref[Held], see: Any) -> None:
        held = reference()
        if held is None or held.over:
            return
        try:
            if not await see(held):
                held.lose()
        except UNREACHABLE:
            await self._later(held)
        except ANSWERED as error:
            if code(error) in GONE:
                held.lose()
            else:
                await self._later(held)

    async def _later(self, held: Held) -> None:
        """Leaves it to the server that has the key by now, in a cluster, or asks again after a pause."""
        node = await self._node.client.successor(self._node, held.request.key)
        if node is not self._node and not held.over:
            self._drop(held)
            if held.abandoned is not None:
                held.abandoned.detach()
            node.keeper.add(held, watch=False)
        runtime.call_later(PAUSE_S, node.worker.do, node.keeper.see, weakref.ref(held))

    async def _extend(self, held: Held) -> bool:
        asked = runtime.now()
        assert held.lease_ms is not None
        held.lease_began(asked, await self._node.extend(held.request, held.lease_ms))
        self.leased(held)
        # What the server tells of the change is the occasion to read the key again.
        return True

    async def _look(self, held: Held) -> bool:
        asked = runtime.now()
        request = held.request
        if request.shared:
            answer = await self._read(request.key, ["ZSCORE", request.key, request.token])
            if answer is None:
                return False
        else:
            answer = info(await self._read(request.key, ["LOCK.INFO", request.key]))
            if answer[b"owner"] != request.token:
                return False
            left_ms = answer[b"lease-ms"]
            assert isinstance(left_ms, int)
            held.lease_began(asked, left_ms)
        self.leased(held)
        return True

    async def _read(self, key: bytes, words: list[Word]) -> Any:
        """Reads on a connection for which the server remembers what it has read, if there can be one."""
        node = self._node
        if node.may_be_native and await node.listener.ready(key, node.source.timeout_s):
            async with self._reading:
                client_id = node.listener.client_id
                try:
                    if client_id is not None and await self._tracks(client_id):
                        answer = await exchange(self._reader, words)
                        if not (isinstance(answer, ANSWERED) and code(answer) == "ASK"):
                            return raised(answer)
                except UNREACHABLE:
                    await self.close()
                    raise
        if words[0] == "LOCK.INFO":
            return [word for pair in (await node.info(key)).items() for word in pair]
        return await node.call(words)

    async def _tracks(self, client_id: int) -> bool:
        if self._reads_for != client_id:
            await self.close()
            self._reader = self._node.source.connection()
            tracking: list[Word] = ["CLIENT", "TRACKING", "ON", "REDIRECT", client_id, "NOLOOP"]
            self._tracking = not isinstance(await exchange(self._reader, tracking), Exception)
            self._reads_for = client_id
        return self._tracking

    async def close(self) -> None:
        """Closes the connection that reads."""
        reader, self._reader, self._reads_for = self._reader, None, None
        if reader is not None:
            await runtime.close(reader)


def _lose_if_due(reference: weakref.ref[Held]) -> None:
    held = reference()
    if held is not None and held.ends_at is not None and runtime.now() >= held.ends_at:
        held.lose()


def _abandon(worker: runtime.Worker, withdraw: Any, request: Request) -> None:
    """Releases a session's lock that nobody has any more."""
    worker.do_threadsafe(withdraw, request, runtime.Exchanges(), runtime.now())
