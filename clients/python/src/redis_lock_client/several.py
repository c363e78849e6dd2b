"""Several locks that are acquired in one order, so that no two callers wait for each other."""

import math
import time
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from .arguments import Seconds, check, seconds
from .errors import LockTimeout

Event = TypeVar("Event")


class Several(Generic[Event]):
    """Several locks, which a block of `several` holds."""

    def __init__(self, locks: Iterable[Any], blocking_timeout: Seconds | None, event: Event) -> None:
        self.locks = sorted(locks, key=lambda lock: lock._kind.key)
        check(self.locks, "there are no locks")
        check(len({lock._kind.key for lock in self.locks}) == len(self.locks), "two of the locks have the same name")
        patience = seconds(blocking_timeout, "blocking_timeout", 0)
        self._deadline = math.inf if patience is None else time.monotonic() + patience
        self._event = event

    @property
    def lost(self) -> Event:
        """An event that is set when one of the locks is lost. They are watched from the first time that it is read."""
        for lock in self.locks:
            lock._report_to(self._event)
        return self._event

    @property
    def _left(self) -> float | None:
        """The rest of the time for all of them, in seconds."""
        return None if self._deadline == math.inf else max(self._deadline - time.monotonic(), 0.0)

    def _timeout(self) -> LockTimeout:
        return LockTimeout("Unable to acquire the locks within the time specified", [lock.name for lock in self.locks])
