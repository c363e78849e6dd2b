"""Locks in Redis and Valkey that wait in a fair line, by the module redis-lock, and by scripts where it is missing.

::

    import redis
    from redis_lock_client import Lock

    with Lock(redis.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")

``Lock`` is also what ``client.lock(name, lock_class=Lock)`` takes. ``redis_lock_client.asyncio`` has the same for
asyncio.
"""

from __future__ import annotations

from ._sync.lock import BaseLock
from .errors import LockError, LockNotOwnedError, ModuleNeededError

__all__ = ["Lock", "LockError", "LockNotOwnedError", "ModuleNeededError"]


class Lock(BaseLock):
    """A lock in Redis or Valkey, for threads. What its arguments mean is said at ``__init__``.

    It can be used as redis-py's Lock is: ``with lock: ...``, or ``acquire`` and ``release``. Each thread has a token
    of its own (``thread_local``). A process that was forked has none of the locks that its parent holds.
    """

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Takes the lock, or waits for it; whether it was taken.

        What is not given is as for the whole lock. ``token`` must never have been used before; by default it is random.
        """
        return self._acquire(sleep, blocking, blocking_timeout, token)
