"""Locks in Redis and Valkey that wait in a fair queue, by the server module redis-lock or by scripts.

::

    import redis
    from redis_lock_client import Lock

    with Lock(redis.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")

`Lock` is also the ``lock_class`` for ``client.lock(...)``. ``redis_lock_client.asyncio`` has the lock for asyncio.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .arguments import Seconds, check_function
from .errors import LockError, LockLost, LockNotOwnedError, LockTimeout, ModuleNeededError
from .lock import BaseLock
from .threads import engine_of

__all__ = ["Lock", "LockError", "LockLost", "LockNotOwnedError", "LockTimeout", "ModuleNeededError", "__version__"]
__version__ = "0.1.0"

P = ParamSpec("P")
R = TypeVar("R")


class Lock(BaseLock):
    """A lock for threads. Its arguments are described at ``__init__``.

    One object can be shared by threads: each holds for itself. It is used as a block, ``with lock:``, by ``acquire``
    and ``release``, or as a decorator. A forked process holds none of its parent's locks.

    Every method raises the library's ConnectionError or TimeoutError if the server cannot be reached.
    """

    _event = threading.Event
    _registry = weakref.WeakKeyDictionary
    _engine_of = staticmethod(engine_of)
    _caller = staticmethod(threading.current_thread)
    _client_module = ""

    def _run(self, prepare: Callable[..., tuple[Any, ...]], *args: Any) -> Any:
        return self._engine().run(*prepare(self._holder(), *args))

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: Seconds | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquires the lock. Returns False if it was not free within ``blocking_timeout`` seconds.

        Arguments that are not given are those of the lock. ``token``, 1 to 1024 bytes, must not have been used before;
        by default it is random.
        """
        return bool(self._run(self._acquire, blocking, blocking_timeout, token, sleep))

    def release(self) -> None:
        """Releases the lock. Raises LockNotOwnedError if it is lost, LockError if the caller does not hold it."""
        self._run(self._release)

    def extend(self, additional_time: Seconds, replace_ttl: bool = False) -> bool:
        """Adds seconds to the lease, or sets it with ``replace_ttl``.

        Returns True. Raises LockNotOwnedError, LockError.
        """
        return bool(self._run(self._extend, additional_time, not replace_ttl))

    def reacquire(self) -> bool:
        """Sets the lease to ``timeout`` again. Returns True. Raises LockNotOwnedError, LockError."""
        return bool(self._run(self._extend, self.timeout, False))

    def fence(self, counter: str | bytes | None = None) -> int:
        """Returns a fencing token, greater than each one before. ``counter`` is its key. Raises ModuleNeededError."""
        return int(self._run(self._fence, counter))

    def locked(self) -> bool:
        """Returns whether any client holds the lock."""
        return bool(self._run(self._locked))

    def owned(self) -> bool:
        """Returns whether the caller holds the lock."""
        return bool(self._run(self._owned))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates a function, which is then called with the lock held. Raises TypeError for generators."""
        check_function(function, is_async=False)

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return locked

    def __enter__(self) -> Lock:
        """Acquires the lock. Raises LockTimeout if it was not free in time."""
        if self.acquire():
            return self
        raise LockTimeout("Unable to acquire lock within the time specified", self.name)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        try:
            self.release()
        except Exception as failure:
            self._leave(failure, error)
