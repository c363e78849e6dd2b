"""Several locks that are acquired in one order, so that no two callers wait for each other."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable
from typing import Any, Self

from .arguments import Seconds, check, seconds
from .errors import LockError, LockTimeout

_TIMEOUT = "Unable to acquire the locks within the time specified"


class _Several:
    """What both kinds have in common."""

    def __init__(self, locks: Iterable[Any], blocking_timeout: Seconds | None, event: Any) -> None:
        self.locks = sorted(locks, key=lambda lock: lock._key)
        check(self.locks, "there are no locks")
        check(len({lock._key for lock in self.locks}) == len(self.locks), "two of the locks have the same name")
        self.blocking_timeout = seconds(blocking_timeout, "blocking_timeout", 0)
        self._event = event

    @property
    def lost(self) -> Any:
        """An event that is set when one of the locks is lost. They are watched from the first time that it is read."""
        for lock in self.locks:
            lock._report_to(self._event)
        return self._event

    def _deadline(self, blocking_timeout: Seconds | None) -> float:
        patience = seconds(blocking_timeout, "blocking_timeout", 0)
        patience = self.blocking_timeout if patience is None else patience
        return math.inf if patience is None else time.monotonic() + patience

    @property
    def _names(self) -> list[Any]:
        return [lock.name for lock in self.locks]


def _left(deadline: float) -> float | None:
    return None if deadline == math.inf else max(deadline - time.monotonic(), 0.0)


class Several(_Several):
    """Several locks for threads, as `several` returns them."""

    def acquire(self, blocking_timeout: Seconds | None = None) -> bool:
        """Acquires all locks. Returns False, and holds none, if they were not free within ``blocking_timeout`` s."""
        deadline, self._event = self._deadline(blocking_timeout), type(self._event)()
        with contextlib.ExitStack() as undo:
            for lock in self.locks:
                if not lock.acquire(blocking_timeout=_left(deadline)):
                    return False
                undo.callback(_quietly, lock)
            undo.pop_all()
        return True

    def release(self) -> None:
        """Releases all locks in turn. Raises the first error when it has."""
        with contextlib.ExitStack() as stack:
            for lock in self.locks:
                stack.callback(lock.release)

    def __enter__(self) -> Self:
        """Acquires all locks. Raises LockTimeout if they were not free in time."""
        if self.acquire():
            return self
        raise LockTimeout(_TIMEOUT, self._names)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases all locks. An exception of the block comes before that of a release."""
        with contextlib.suppress(*[LockError] if error else []):
            self.release()


def _quietly(lock: Any) -> None:
    with contextlib.suppress(LockError):
        lock.release()


class AsyncSeveral(_Several):
    """Several locks for tasks, as `several` returns them."""

    async def acquire(self, blocking_timeout: Seconds | None = None) -> bool:
        """Acquires all locks. Returns False, and holds none, if they were not free within ``blocking_timeout`` s."""
        deadline, self._event = self._deadline(blocking_timeout), asyncio.Event()
        async with contextlib.AsyncExitStack() as undo:
            for lock in self.locks:
                if not await lock.acquire(blocking_timeout=_left(deadline)):
                    return False
                undo.push_async_callback(_quietly_in_task, lock)
            undo.pop_all()
        return True

    async def release(self) -> None:
        """Releases all locks in turn. Raises the first error when it has."""
        async with contextlib.AsyncExitStack() as stack:
            for lock in self.locks:
                stack.push_async_callback(lock.release)

    async def __aenter__(self) -> Self:
        """Acquires all locks. Raises LockTimeout if they were not free in time."""
        if await self.acquire():
            return self
        raise LockTimeout(_TIMEOUT, self._names)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases all locks. An exception of the block comes before that of a release."""
        with contextlib.suppress(*[LockError] if error else []):
            await self.release()


async def _quietly_in_task(lock: Any) -> None:
    with contextlib.suppress(LockError):
        await lock.release()
