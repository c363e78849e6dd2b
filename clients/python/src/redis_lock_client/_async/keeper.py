"""Sees to the locks that are held at one server: renews them, and tells their holders at once when they are lost.

Three things tell: the server, by client-side caching, that a key has changed; a timer, that the lease has ended; and
the server again, asked who holds the lock, which has the last word.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ..errors import ANSWERED, UNREACHABLE, ModuleNeededError
from ..protocol import GONE, Request, Word, code, info
from . import runtime
from .connections import BROKEN, Place, exchange, raised
from .held import Claim, Held

if TYPE_CHECKING:
    from .node import Node

#: How soon to ask again when the server could not be asked, in seconds.
PAUSE_S = 0.1
#: The shortest pause between two looks at a lock, for each of its holders that are seen to here, in seconds.
LOOK_S = 0.001
#: How late timers must be to say that this process has stood still, and how often to see then whether the server has
#: told that a lock is held, in seconds.
STOOD_STILL_S, ANSWER_S = 0.05, 0.1
#: While locks are watched: how often to see whether the server has closed a connection, and how often to send
#: something, in seconds. Servers and proxies close idle connections.
BEAT_S, PING_S = 0.025, 5.0
#: How many keys there may be at least before those are looked for whose locks nobody has any more.
ENOUGH = 100


class Keeper:
    """The locks that are held at one server."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._guard = threading.RLock()
        # Those that are watched, by their number. Weak: what nobody can release any more is not renewed for ever.
        self._watched: dict[bytes, weakref.WeakValueDictionary[int, Held]] = {}
        #: How many keys there may be before those are looked for that nobody has any more.
        self._enough = ENOUGH
        self._reader = Place()
        self._reads_for: int | None = None
        self._tracking = False
        self._beats = False
        self._next_beat: runtime.Handle | None = None
        self._ping_due = 0.0
        #: When the server has told last whether a lock is held.
        self.told = 0.0

    def watched(self) -> bytes | None:
        """A lock that is watched, so that the server must be listened to."""
        with self._guard:
            left: list[bytes] = []
            for key, some in self._watched.items():
                if any(not held.over for held in _in(some)):
                    break
                left.append(key)
            else:
                key = None
            for other in left:
                self._watched.pop(other, None)
            return key

    def add(self, held: Held, watch: bool) -> None:
        """A lock was taken."""
        held.keeper = self
        if held.request.session:
            # One that comes from another server has its session there, if anywhere.
            held.session = held.session or self.node.connections.session
            if held.claim is None:
                held.claim = self._claim(held)
        if watch:
            held.watch()

    def _claim(self, held: Held) -> Claim:
        claim = Claim(held)
        claim.abandoned = weakref.finalize(claim, _abandon, self.node.withdrawer, self.node.withdraw, held.request)
        claim.abandoned.atexit = False
        return claim

    def watch(self, held: Held) -> None:
        """Its holder is to be told when it is lost."""
        self.note(held)
        self.leased(held)
        self.look_at(held)

    def note(self, held: Held) -> None:
        """Its holder is to hear of changes."""
        with self._guard:
            if len(self._watched) >= self._enough:
                for key in list(self._watched):
                    self._forget_if_empty(key)
                self._enough = max(ENOUGH, 2 * len(self._watched))
            self._note(held)
            begins, self._beats = not self._beats, True
        if begins:
            self._ping_due = runtime.now() + PING_S
            self._beat_later()

    def _note(self, held: Held) -> None:
        some: weakref.WeakValueDictionary[int, Held] | None = None
        while some is None or self._watched.get(held.request.key) is not some:
            # Again if a signal handler has come in between, and has taken away what was empty.
            some = self._watched.setdefault(held.request.key, weakref.WeakValueDictionary())
            some[id(held)] = held

    def _forget_if_empty(self, key: bytes) -> None:
        if not self._watched.get(key):
            # Not empty any more if a signal handler has come in between.
            for held in _in(self._watched.pop(key, None)):
                self._note(held)

    def holder(self, request: Request) -> Held | None:
        """Who holds the lock by the same token, if it is watched."""
        with self._guard:
            some = [held for held in _in(self._watched.get(request.key)) if held.request.token == request.token]
        given = self.node.client.given
        return next((held for held in some if not held.over and not given.is_anothers(held.request)), None)

    def drop(self, held: Held) -> None:
        """Its holder need not hear of changes any more."""
        with self._guard:
            others = self._watched.get(held.request.key)
            if others is not None:
                others.pop(id(held), None)
                self._forget_if_empty(held.request.key)

    def _beat(self) -> None:
        """Sees to the connections on which nothing is sent for long. Without them nobody hears of a loss."""
        with self._guard:
            self._beats = self.watched() is not None
            if not self._beats:
                return
        if runtime.now() >= self._ping_due:
            self._ping_due = runtime.now() + PING_S
            self.node.worker.do(self._ping)
        elif self._reader.was_closed() or self.node.connections.session_was_closed():
            self.node.worker.do(self._let_go)
        else:
            self._beat_later()

    def _beat_later(self) -> None:
        if self._next_beat is not None:
            self._next_beat.cancel()
        self._next_beat = runtime.call_later(BEAT_S, self._beat)

    async def _ping(self) -> None:
        try:
            await self.node.connections.ping_session()
            async with self._reader.guard:
                if self._reader.connection is not None:
                    await exchange(self._reader.connection, ["PING"])
        except BROKEN as error:
            await self.close()
            self.changed(None)
            if isinstance(error, runtime.Ended):
                raise
        finally:
            self._beat_later()

    async def _let_go(self) -> None:
        try:
            await self.node.connections.let_session_go()
            if self._reader.was_closed():
                await self.close()
                self.changed(None)
        finally:
            self._beat_later()

    def look_at(self, held: Held) -> None:
        """Renews the lock if that is due, or asks the server who holds it; once, however often this is called."""
        if held.wants_a_look():
            self._begin_look(held)

    def _begin_look(self, held: Held) -> None:
        # Each change of a lock that many share would otherwise be read as often.
        pause = held.looked + LOOK_S * len(self._watched.get(held.request.key, ())) - runtime.now()
        if pause > 0:
            runtime.call_later(pause, self.node.worker.do, self._see, weakref.ref(held))
        else:
            self.node.worker.do(self._see, weakref.ref(held))

    def changed(self, key: bytes | None) -> None:
        """A key has changed; or any may have, or a connection was lost."""
        with self._guard:
            keys = list(self._watched) if key is None else [key]
            concerned = [held for key in keys for held in _in(self._watched.get(key))]
        for held in concerned:
            self.look_at(held)

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
            look_s = min(look_s, max(left - 2 * look_s, PAUSE_S))
            # A little earlier, because timers may be.
            held.renewal_due = held.ends_at - held.lease_ms * 0.0007
        held.timers = [
            runtime.call_later(left, _lose_if_due, reference),
            runtime.call_later(look_s, _look_at, reference),
        ]
        if held.over:
            held.end()

    async def _see(self, reference: weakref.ref[Held]) -> None:
        held = reference()
        if held is None or held.over:
            return
        held.look_begins()
        try:
            if not await self._is_held(held):
                held.lose()
            self.told = runtime.now()
            self._look_ends(held)
        except UNREACHABLE:
            held.lose_if_due()
            await self._later(held)
        except ModuleNeededError:
            await self._later(held)  # A share, at a server that has lost the module: it is held until its lease ends.
        except ANSWERED as error:
            if code(error) in GONE:
                held.lose()
            else:
                await self._later(held)

    def _look_ends(self, held: Held) -> None:
        if held.look_ends():
            self._begin_look(held)

    async def _is_held(self, held: Held) -> bool:
        """Renews it if that is due, or looks; whether it is held."""
        if self.node.client.given.is_anothers(held.request):
            return False
        try:
            return await (self._extend(held) if runtime.now() >= held.renewal_due else self._look(held))
        except ANSWERED as error:
            if code(error) != "NOPERM":
                raise
        return await self._is_held_unseen(held)

    async def _is_held_unseen(self, held: Held) -> bool:
        """Whether a lock is held at which this user may not look: until its lease ends; a session's can be renewed."""
        if held.request.session:
            try:
                return await self._extend(held)
            except ANSWERED as error:
                # Without that right, too, it is taken for held as long as the connection of its session is open.
                if code(error) != "NOPERM" or not await self.node.connections.has_session(held.session):
                    raise
            held.lease_began(runtime.now(), held.lease_ms)
        self.leased(held)
        return True

    async def _later(self, held: Held) -> None:
        """Leaves it to the server that has the key by now, in a cluster, or asks again after a pause."""
        node = await self.node.client.successor(self.node, held.request.key)
        if node is self.node:
            held.lose_if_due()
        elif not held.over:
            self.drop(held)
            held.session_due = 0.0
            node.keeper.add(held, watch=False)
            node.keeper.note(held)
        runtime.call_later(PAUSE_S, node.worker.do, node.keeper._see, weakref.ref(held))

    async def _extend(self, held: Held) -> bool:
        asked, times_set = runtime.now(), held.times_set
        assert held.lease_ms is not None
        held.lease_was_seen(asked, await self.node.extend(held.request, held.lease_ms), times_set)
        self.leased(held)
        # What the server tells of the change is the occasion to read the key again.
        return True

    async def _look(self, held: Held) -> bool:
        request, times_set = held.request, held.times_set
        asked, read = await self._read(request.key, request.look())
        if request.shared:
            left_ms = await self.node.left_of_share(read)
            if left_ms is None:
                return False
        else:
            answer: Any = info(read)
            if answer[b"owner"] != request.token:
                return False
            left_ms = int(answer[b"lease-ms"])
            if request.session and not answer.get(b"session"):
                held.session = None  # The server has ended it, although the connection is there.
        held.lease_was_seen(asked, left_ms, times_set)
        if request.session and not await self._has_session(held):
            return False
        self.leased(held)
        return True

    async def _has_session(self, held: Held) -> bool:
        """Sees to it that there is a session; whether the lock was held all the time."""
        if runtime.now() < held.session_due or await self.node.connections.has_session(held.session):
            return True
        try:
            begun = await self.node.begin_session_anew(held.request)
        except ANSWERED as error:
            if code(error) == "MOVED":
                raise
            if code(error) == "ASK":
                # The lock has gone ahead of its slot, which will come, or not.
                await self._extend(held)
            # Else there may be too many sessions, or no right to transactions: the lease goes on.
            assert held.request.lease_ms is not None
            held.session_due = runtime.now() + held.request.lease_ms / 3000
            return True
        if begun:
            held.session = self.node.connections.session
        return begun is not False

    async def _read(self, key: bytes, words: list[Word]) -> tuple[float, Any]:
        """Reads on a connection for which the server remembers what it has read, if there can be one.

        When that was asked, by the own clock, and the answer. Before that others may have been waited for.
        """
        node = self.node
        if node.may_be_native and await node.listener.ready(key, node.source.timeout_s):
            async with self._reader.guard:
                client_id = node.listener.client_id
                try:
                    if client_id is not None and await self._tracks(client_id):
                        asked = runtime.now()
                        answer = await exchange(self._reader.connection, words)
                        if not (isinstance(answer, ANSWERED) and code(answer) in ("ASK", "UNKNOWN")):
                            return asked, raised(answer)
                except BROKEN:
                    # The next one would read the answer to this.
                    await self.close()
                    raise
        asked = runtime.now()
        if words[0] == "LOCK.INFO":
            return asked, [word for pair in (await node.info(key)).items() for word in pair]
        return asked, await node.call(words)

    async def _tracks(self, client_id: int) -> bool:
        if self._reads_for != client_id:
            await self.close()
            self._reader.connection = self.node.source.connection()
            tracking: list[Word] = ["CLIENT", "TRACKING", "ON", "REDIRECT", client_id, "NOLOOP"]
            self._tracking = not isinstance(await exchange(self._reader.connection, tracking), Exception)
            self._reads_for = client_id
        return self._tracking

    async def close(self) -> None:
        """Closes the connection that reads."""
        connection, self._reader.connection, self._reads_for = self._reader.connection, None, None
        await runtime.close(connection)


def _in(some: weakref.WeakValueDictionary[int, Held] | None) -> list[Held]:
    """Those that are still there, copied in one step: a handler of signals may come, and a collection of garbage."""
    references = [] if some is None else some.valuerefs()
    return [held for reference in references if (held := reference()) is not None]


def _look_at(reference: weakref.ref[Held]) -> None:
    held = reference()
    if held is not None and held.keeper is not None:
        held.keeper.look_at(held)


def _lose_if_due(reference: weakref.ref[Held]) -> None:
    held = reference()
    if held is None:
        return
    # A server renews what belongs to a session also while this process stands still.
    stood_still = held.ends_at is not None and runtime.now() - held.ends_at > STOOD_STILL_S
    if held.request.session and (stood_still or held.looks) and held.keeper is not None and not held.over:
        held.keeper.look_at(held)
        _lose_unless_told(reference, held.ends_at, runtime.now() if stood_still else 0.0)
    else:
        held.lose_if_due()


def _lose_unless_told(reference: weakref.ref[Held], ended: float | None, asked: float) -> None:
    """Waits until the server has told whether a lock is held, as long as it tells anything.

    When it has told last, it had renewed the lock within a third of the lease.
    """
    held = reference()
    if held is None or held.keeper is None or held.lease_ms is None or held.over or held.ends_at != ended:
        return
    longest = min(held.keeper.node.source.timeout_s, held.lease_ms / 3000)
    if runtime.now() < max(asked, held.keeper.told) + longest:
        runtime.call_later(ANSWER_S, _lose_unless_told, reference, ended, asked)
    else:
        held.lose_if_due()


def _abandon(withdrawer: runtime.Worker, withdraw: Any, request: Request) -> None:
    """Releases a session's lock that nobody has any more, or that its holder has lost by the own clock."""
    # If no thread can begin, the end of the connection releases it.
    with contextlib.suppress(RuntimeError):
        withdrawer.do_threadsafe(withdraw, request, runtime.Exchanges(), runtime.now())
