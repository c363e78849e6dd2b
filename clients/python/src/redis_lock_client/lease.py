"""The lease of a lock that is held, by the local clock. No I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .flow import Flow

#: A lease is renewed when this part of it has passed.
RENEWALS = 3


@dataclass(eq=False)
class Watcher:
    """What renews and watches a lock."""

    flow: Flow
    #: When it is renewed, by the local clock; never without ``renew``.
    renew_at: float
    #: The number of the connection that its session belongs to, 0 without one, or if it has to begin again.
    session_on: int

    def renew_by(self, when: float) -> None:
        """Sets when it is renewed."""
        self.renew_at = when if self.renew_at < math.inf else math.inf

    def end_by(self, when: float) -> None:
        """Ends its present wait at a time, as the lease may end. The server renews that of a session."""
        if not self.session_on:
            self.flow.limit = min(self.flow.limit, when)
            self.flow.scheduler.set_timer(when, self.flow)


@dataclass(eq=False)
class Held:
    """The state of a lock that is held."""

    #: The lease that is renewed, in milliseconds.
    lease_ms: int | None
    #: The end of the lease by the local clock.
    ends_at: float
    #: Renews and watches it, if it is watched.
    watcher: Watcher | None = None
    #: Extends it, if its grant was heard late.
    confirmation: Flow | None = None
    #: How many commands have changed the lease, and how many of them have no reply yet.
    changes: int = 0
    under_way: int = 0

    def set_lease(self, asked_at: float, left_ms: int | None) -> None:
        """Notes what remained of the lease when the server was asked; -1 or None without a lease."""
        self.ends_at = math.inf if left_ms is None or left_ms < 0 else asked_at + left_ms / 1000

    def flows(self) -> list[Flow]:
        """Returns the flows that extend, renew and watch it."""
        flows = [self.confirmation, None if self.watcher is None else self.watcher.flow]
        return [flow for flow in flows if flow is not None]

    @property
    def third_s(self) -> float:
        """The part of the lease after which it is renewed, in seconds."""
        return (self.lease_ms or math.inf) / 1000 / RENEWALS
