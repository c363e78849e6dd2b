"""A lock that is held, as its holder and whoever sees to it know it."""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..protocol import Request
from . import runtime

if TYPE_CHECKING:
    from .keeper import Keeper

logger = logging.getLogger("redis_lock_client")


class Owner:
    """What a lock object has while it has a lock, or each of its threads has."""


class Claim:
    """What those have in common who may have to release a lock: a session's is released when the last one is gone."""

    def __init__(self, held: Held) -> None:
        #: Releases the lock when the last one is collected, unless it has left before.
        self.abandoned: weakref.finalize[..., Claim] | None = None
        self._holders = weakref.WeakSet([held])
        # What is guarded takes no time, but a signal handler may come in between and want the same.
        self._guard = threading.RLock()

    def join(self, held: Held) -> bool:
        """One more may have to release it, unless nobody has to any more."""
        with self._guard:
            self._holders.add(held)
            return self.abandoned is not None and self.abandoned.alive

    def leave(self, held: Held) -> None:
        """One less may have to: it has handed the lock over, maybe to one that is still to come."""
        with self._guard:
            self._holders.discard(held)
            if not any(one.is_wanted for one in self._holders):
                self.end()

    def end(self) -> None:
        """None of them has to: one has released the lock, or it is known to be lost."""
        if self.abandoned is not None:
            self.abandoned.detach()

    def give_up(self, held: Held) -> None:
        """One less, which has lost it by the own clock. The server may have it yet, so the last one releases it."""
        self._holders.discard(held)
        if self.abandoned is not None and not self._holders:
            self.abandoned()


class Held:
    """A lock that is held. While somebody wants to know, it is watched; it may be renewed."""

    def __init__(
        self, request: Request, lost: runtime.Event, on_lost: Callable[[], object] | None, renew: bool
    ) -> None:
        self.request = request
        self.holds = 1
        #: How many holds more the server may count: requests for them, or to give them up, did not come to their end.
        self.in_doubt = 0
        self.exchanges = runtime.Exchanges()
        #: The connection of its session, if it has been seen since; and when to begin another one at the earliest.
        self.session: Any = None
        self.session_due = 0.0
        self.renew = renew
        #: The length of the lease, in milliseconds; EXTEND changes it.
        self.lease_ms = request.lease_ms
        #: When the lease ends by the own clock; None if it does not end.
        self.ends_at: float | None = None
        #: How often its holder has set the lease. What the server was asked before may be of another one.
        self.times_set = 0
        #: How often the server has told of the lease: what its holder has asked for may have come before that.
        self.times_seen = 0
        self.watched = False
        #: Who sees to it, once it is taken.
        self.keeper: Keeper | None = None
        self.timers: list[runtime.Handle] = []
        self.claim: Claim | None = None
        self.owner: weakref.ref[Owner] | None = None
        self._lost = lost
        self._on_lost = on_lost
        #: When to renew it.
        self.renewal_due = math.inf
        #: When the server was asked for it last.
        self.looked = -math.inf
        self._over = False
        #: The server is being asked for it, or is about to be; and again, because something has changed since.
        self._looks = self._looks_again = False
        self._guard = threading.RLock()

    @property
    def is_wanted(self) -> bool:
        """Whether a lock object has it. Whoever looks at it may have it for a moment longer."""
        return self.owner is not None and self.owner() is not None

    @property
    def over(self) -> bool:
        """Whether it was released or lost."""
        return self._over

    @property
    def is_being_released(self) -> bool:
        """Whether it was lost, and is given up where the server does not know of that: as a session's is."""
        return self._over and self.request.session

    def lease_began(self, at: float, lease_ms: int | None) -> None:
        """Notes a new lease, which counts from before the request for it."""
        self.ends_at = None if lease_ms is None or lease_ms < 0 else at + lease_ms / 1000

    def lease_was_set(self, at: float, lease_ms: int, times_seen: int) -> None:
        """Notes a lease of another length, which renewals have from now on, too."""
        with self._guard:
            self.times_set += 1
            self.lease_ms = lease_ms
            self.lease_began(at, lease_ms)
            again = self.times_seen != times_seen
        if self.keeper is not None:
            self.keeper.leased(self)
            if again:
                # A renewal may have come after it, and have set the lease to the former length.
                self.keeper.look_at(self)

    def lease_was_seen(self, at: float, lease_ms: int, times_set: int) -> None:
        """Notes what the server says of the lease, or has it asked again if the holder has set it meanwhile."""
        with self._guard:
            self.times_seen += 1
            if self.times_set == times_set:
                self.lease_began(at, lease_ms)
                return
        self.wants_a_look()

    def lease_was_lengthened(self, at: float) -> None:
        """Notes one more hold, whose lease lengthens the present one or leaves it as it is."""
        if self.ends_at is not None and self.request.lease_ms is not None:
            with self._guard:
                self.times_set += 1
                self.ends_at = max(self.ends_at, at + self.request.lease_ms / 1000)
            if self.keeper is not None:
                self.keeper.leased(self)

    def inherit(self, former: Held) -> None:
        """It was handed over by another one, which has it, too, as long as it is there."""
        self.lease_ms, self.ends_at, self.session = former.lease_ms, former.ends_at, former.session
        claim = former.claim
        self.claim = claim if claim is not None and claim.join(self) else None

    def watch(self) -> None:
        """From now on the holder is told when it is lost."""
        if self.keeper is not None:
            self.watched = True
            self.keeper.watch(self)

    def leave(self) -> None:
        """Nobody sees to it any more: it is being released, or was lost."""
        self.end()
        self.keep()
        if self.keeper is not None:
            self.keeper.drop(self)

    def hand_over(self) -> None:
        """Whoever has its token sees to it from now on."""
        if self.claim is not None:
            self.claim.leave(self)
            self.claim = None
        self.leave()

    def end(self) -> bool:
        """Ends it; whether it was still held. From now on nobody is told that it was lost."""
        with self._guard:
            was_held, self._over = not self._over, True
        for timer in self.timers:
            timer.cancel()
        return was_held

    def keep(self) -> None:
        """It is not released when nobody has it any more."""
        if self.claim is not None:
            self.claim.end()
            self.claim = None

    @property
    def looks(self) -> bool:
        """Whether the server is being asked, or is about to be."""
        return self._looks

    def wants_a_look(self) -> bool:
        """Notes that the server is to be asked; whether nobody is about to do that."""
        with self._guard:
            nobody, self._looks = not self._looks, True
            self._looks_again = not nobody
            return nobody

    def look_begins(self) -> None:
        """The server is asked: what has changed until now is seen."""
        self.looked, self._looks_again = runtime.now(), False

    def look_ends(self) -> bool:
        """The server was asked; whether to ask it again at once."""
        with self._guard:
            self._looks, self._looks_again = self._looks_again, False
            return self._looks

    def lose_if_due(self) -> None:
        """Tells that it was lost if its lease has ended by the own clock."""
        if self.ends_at is not None and runtime.now() >= self.ends_at:
            # A server that stood still, too, lets the session have it again, for as long as its connection is open.
            self.lose(release=True)

    def lose(self, release: bool = False) -> None:
        """Tells that it was lost, once. A session's is released with ``release``."""
        with self._guard:
            if not self.end():
                return
            # At once: whoever takes the lock again by the same object ends this one first, and then clears the event.
            self._lost.set()
        if release and self.claim is not None:
            self.claim.give_up(self)
            self.claim = None
        self.leave()
        if self._on_lost is not None:
            try:
                runtime.tell(self._on_lost)
            except runtime.FAILED:
                logger.exception("on_lost has failed")
