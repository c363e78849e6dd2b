"""Locks in Redis and Valkey that wait in a fair queue, by the server module redis-lock or by scripts.

::

    import redis
    from redis_lock_client import Lock

    with Lock(redis.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")

`Lock` is also the ``lock_class`` for ``client.lock(...)``. ``redis_lock_client.asyncio`` has the lock for asyncio.
"""

import functools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar, Unpack, cast

from .arguments import Options, Seconds, SyncClient, bytes_of, check_client, check_function
from .errors import (
    LockError,
    LockLost,
    LockNotOwnedError,
    LockQueueFull,
    LockTimeout,
    ModuleNeededError,
    library_classes,
)
from .leader import observe as _observe
from .library import own_errors
from .lock import BaseLock
from .several import Several
from .source import source_of
from .threads import engine_of

__all__ = [
    "Lock",
    "LockError",
    "LockLost",
    "LockNotOwnedError",
    "LockQueueFull",
    "LockTimeout",
    "ModuleNeededError",
    "Several",
    "__version__",
    "observe",
    "several",
]
__version__ = "0.1.0"
Several.__module__ = __name__

F = TypeVar("F", bound=Callable[..., Any])


class Lock(BaseLock[SyncClient, threading.Event, None, bool, int]):
    """A lock for threads. Its arguments are described at ``__init__``.

    One object can be shared by threads: each holds for itself. It is used as a block, ``with lock:``, by ``acquire``
    and ``release``, or as a decorator. A forked process holds none of its parent's locks.

    Every method raises the library's ConnectionError or TimeoutError if the server cannot be reached.
    """

    __slots__ = ()
    _new_event = threading.Event
    _engine_of = staticmethod(engine_of)
    _caller = staticmethod(threading.current_thread)
    _has_loop = False

    def _run(self, method: str, *args: Any) -> Any:
        if self._library is not None:
            with own_errors(self.name):
                return self._of_library(method, args)
        operation = getattr(self, method)(self._holder(), *args)
        return self._engine().run(operation.undo, operation.start, *operation.args)

    @classmethod
    def from_url(cls, url: str, name: str | bytes, **options: Unpack[Options]) -> Self:
        """Returns a lock with a client of its own for a URL such as ``redis://localhost:6379/0``."""
        return cls(library_classes("from_url", "")[0](url), name, **options)

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
        if self._library is not None:
            return bool(self._run("_acquire", sleep, blocking, blocking_timeout, token))
        return bool(self._run("_acquire", blocking, blocking_timeout, token, sleep))

    def __call__(self, function: F) -> F:
        """Decorates a function, which is then called with the lock held. Raises TypeError for generators."""
        check_function(function, is_async=False)

        @functools.wraps(function)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast("F", locked)

    def __enter__(self) -> Self:
        """Acquires the lock. Raises LockTimeout if it was not free in time."""
        if self.acquire():
            return self
        raise LockTimeout("Unable to acquire lock within the time specified", self.name)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        try:
            self.release()
        except Exception as failure:
            if not self._logs(failure, error):
                raise


def several(locks: Iterable[Lock], blocking_timeout: Seconds | None = None) -> Several:
    """Returns several locks as one: a block, or ``acquire``, ``release`` and ``lost``, acquires them in one order.

    ``blocking_timeout`` is the time for all of them, in seconds. If one is not free in time, none is held. Raises
    ValueError for two locks with one name.
    """
    return Several(locks, blocking_timeout, threading.Event())


def observe(redis: SyncClient, name: str | bytes) -> Iterator[str | None]:
    """Yields the label of the holder of a lock, None if it is free, now and after each change.

    The label of a token without one is the token. It goes on while the server cannot be reached, and ends with
    ``close`` of the iterator.
    """
    key, engine = bytes_of(name, "the name of a lock"), engine_of(source_of(redis))
    check_client(redis, has_loop=False)
    changes: queue.SimpleQueue[tuple[str | None, Exception | None]] = queue.SimpleQueue()
    flows: list[Any] = []

    def report(label: str | None, error: Exception | None = None) -> None:
        changes.put((label, error))

    def begin() -> None:
        flows.append(engine.scheduler.start(_observe, key, report, done=report))

    engine.post(begin)
    try:
        while True:
            label, error = changes.get()
            if error is not None:
                raise error
            yield label
    finally:
        error = None  # Its traceback has this frame.
        engine.post(lambda: flows and flows[0].scheduler.cancel(flows[0]))
