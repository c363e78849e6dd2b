"""The lock for asyncio, with a client of redis.asyncio or valkey.asyncio."""

from __future__ import annotations

from ._async.lock import BaseLock
from .errors import LockError, LockNotOwnedError, ModuleNeededError

__all__ = ["Lock", "LockError", "LockNotOwnedError", "ModuleNeededError"]


class Lock(BaseLock):
    """A lock in Redis or Valkey, for tasks. What its arguments mean is said at ``__init__``.

    It can be used as the Lock of redis.asyncio is. One object holds one lock at a time: give each task one of its own.
    A task may be cancelled at any ``await``: what it waited for is given up.
    """

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Takes the lock, or waits for it; whether it was taken.

        What is not given is as for the whole lock. ``token`` must never have been used before; by default it is random.
        """
        return await self._acquire(None, blocking, blocking_timeout, token)
