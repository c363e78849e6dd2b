"""What a lock object knows of a lock that it holds, and what becomes of one that no caller releases."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from . import acquisition
from .flow import Scheduler
from .holding import Hold, end_watch
from .request import label_of

logger = logging.getLogger("redis_lock_client")


class Taken:
    """What a lock object knows of a lock that it holds. When it is collected, the lock is released, with a warning."""

    def __init__(self, engine: Any, hold: Hold, lost: Any, holder: Any) -> None:
        self.holder = weakref.ref(holder)
        self.engine, self.hold, self.lost = engine, hold, lost
        self._finalizer = weakref.finalize(self, engine.post, _collected, engine, hold)
        self._finalizer.atexit = False

    def detach(self) -> None:
        """Leaves the lock to the caller."""
        self._finalizer.detach()


def _collected(engine: Any, hold: Hold) -> None:
    is_held = not hold.is_lost and engine.now() < hold.request.ends_at
    drop(engine.scheduler, hold)
    if is_held:
        text = (
            f"a lock that is held was collected as garbage: {hold.request.key!r}, by {label_of(hold.request.token)!r}"
        )
        logger.warning(text)
        warnings.warn(text, ResourceWarning, stacklevel=1)


def drop(scheduler: Scheduler, hold: Hold) -> None:
    """Releases a lock that no caller releases."""
    end_watch(scheduler, hold)
    scheduler.start(acquisition.withdraw, hold.request)


def tell(engine: Any, lost: Any, on_lost: Callable[[], object] | None, hold: Hold) -> None:
    """Reports a loss: sets the event, and calls a function of the caller."""
    lost.set()
    if on_lost is not None:
        engine.tell(on_lost)


class Local:
    """The token by which the caller holds a lock. Setting it hands a lock over, by its token."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    @property
    def token(self) -> bytes | None:
        """The token, None if the caller holds nothing."""
        holds = self._lock._held(self._lock._holder())
        return holds[-1].hold.request.token if holds else None

    @token.setter
    def token(self, token: str | bytes | None) -> None:
        lock, engine, holder = self._lock, self._lock._engine(), self._lock._holder()
        for taken in lock._holds.pop(holder, []):
            taken.detach()
            taken.engine.post(end_watch, taken.engine.scheduler, taken.hold)
        if token is not None:
            request = lock._request(token)
            request.sent_at = engine.now()
            lock._note(engine, holder, request).detach()
