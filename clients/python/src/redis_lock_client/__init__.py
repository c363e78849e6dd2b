"""Locks in Redis and Valkey that wait in a fair queue, by the server module redis-lock or by scripts.

::

    import redis
    from redis_lock_client import Lock

    with Lock(redis.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")

`Lock` is also the ``lock_class`` for ``client.lock(...)``. ``redis_lock_client.asyncio`` has the lock for asyncio.
"""

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar, cast

from . import errors, leader
from .arguments import Seconds, SyncClient, check_function
from .errors import *  # noqa: F403
from .library import own_errors
from .lock import BaseLock
from .several import Several
from .threads import engine_of

__all__ = ["Lock", "__version__", "observe", "several"]
__all__ += errors.__all__
__version__ = "0.1.0"

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

    def _run(self, method: str, **arguments: Any) -> Any:
        if self._library is not None:
            with own_errors(self.name):
                return self._of_library(method, arguments)
        operation = getattr(self, method)(self._holder(), **arguments)
        return self._engine().run(operation.undo, operation.start, *operation.args)

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
        how = {"sleep": sleep, "blocking": blocking, "blocking_timeout": blocking_timeout, "token": token}
        return bool(self._run("_acquire", **how))

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
        raise self._timeout()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        try:
            self.release()
        except Exception as failure:
            if not self._logs(failure, error):
                raise


@contextlib.contextmanager
def several(locks: Iterable[Lock], blocking_timeout: Seconds | None = None) -> Iterator[Several[threading.Event]]:
    """Holds several locks in a block, which are acquired in one order. Its ``lost`` is set when one of them is lost.

    ``blocking_timeout`` is the time for all of them, in seconds. Raises LockTimeout if one is not free in time,
    ValueError for two locks with one name.
    """
    all_of_them = Several(locks, blocking_timeout, threading.Event())
    with contextlib.ExitStack() as stack:
        for lock in all_of_them.locks:
            if not lock.acquire(blocking_timeout=all_of_them._left):
                raise all_of_them._timeout()
            stack.push(lock)
        yield all_of_them


def observe(redis: SyncClient, name: str | bytes) -> Iterator[str | None]:
    """Yields the label of the holder of a lock, None if it is free, now and after each change.

    The label of a token without one is the token. It goes on while the server cannot be reached, and ends with
    ``close`` of the iterator.
    """
    reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
    end = leader.begin(redis, name, engine_of, reports.put, has_loop=False)
    try:
        while True:
            yield leader.label_in(reports.get())
    finally:
        end()
