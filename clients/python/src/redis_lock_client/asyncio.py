"""Locks for asyncio.

::

    import redis.asyncio
    from redis_lock_client.asyncio import Lock

    async with Lock(redis.asyncio.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar, Unpack, cast

from .arguments import AsyncClient, Options, Others, Seconds, bytes_of, check_client, check_function
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
from .several import AsyncSeveral
from .source import source_of
from .tasks import engine_of

__all__ = [
    "AsyncSeveral",
    "Lock",
    "LockError",
    "LockLost",
    "LockNotOwnedError",
    "LockQueueFull",
    "LockTimeout",
    "ModuleNeededError",
    "observe",
    "several",
]

AsyncSeveral.__module__ = __name__
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class AsyncOptions(Options, total=False):
    """All arguments of a lock but its client and its name."""

    cancel_on_lost: bool


class Lock(
    BaseLock[AsyncClient, asyncio.Event, Coroutine[Any, Any, None], Coroutine[Any, Any, bool], Coroutine[Any, Any, int]]
):
    """A lock for tasks. Its arguments are described at ``__init__``; ``cancel_on_lost`` is asyncio's alone.

    One object can be shared by tasks: each holds for itself. It is used as a block, ``async with lock:``, by
    ``acquire`` and ``release``, or as a decorator of a coroutine function.

    Every method raises the library's ConnectionError or TimeoutError if the server cannot be reached.
    """

    __slots__ = ("cancel_on_lost",)
    _new_event = asyncio.Event
    _engine_of = staticmethod(engine_of)
    # Methods may be called outside of the loop, as in ``asyncio.run(lock.acquire())``.
    _caller = staticmethod(lambda: asyncio.current_task() if asyncio._get_running_loop() else None)
    _has_loop = True

    def __init__(
        self,
        redis: AsyncClient,
        name: str | bytes,
        timeout: Seconds | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Seconds | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        cancel_on_lost: bool = False,
        **others: Unpack[Others],
    ) -> None:
        """Describes a lock. Its other arguments are those of `redis_lock_client.Lock`.

        ``cancel_on_lost``: a block whose lock is lost is cancelled, and ends with LockNotOwnedError.
        """
        common = (timeout, sleep, blocking, blocking_timeout, thread_local, raise_on_release_error)
        super().__init__(redis, name, *common, **others)
        self.cancel_on_lost = cancel_on_lost
        self.watch |= cancel_on_lost

    def _run(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        return self._wait(method, self._holder(), *args)

    async def _wait(self, method: str, *args: Any) -> Any:
        if self._library is not None:
            with own_errors(self.name):
                return await self._of_library(method, args[1:])
        operation = getattr(self, method)(*args)
        return await self._engine().run(operation.undo, operation.start, *operation.args)

    @classmethod
    def from_url(cls, url: str, name: str | bytes, **options: Unpack[AsyncOptions]) -> Self:
        """Returns a lock with a client of its own for a URL such as ``redis://localhost:6379/0``."""
        return cls(library_classes("from_url", ".asyncio")[0](url), name, **options)

    # These are no coroutine functions, because their caller holds the lock, also if another task awaits them, as that
    # of asyncio.shield, or of asyncio.wait_for in Python 3.11.

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: Seconds | None = None,
        token: str | bytes | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Acquires the lock. Returns False if it was not free within ``blocking_timeout`` seconds.

        Arguments that are not given are those of the lock. ``token``, 1 to 1024 bytes, must not have been used before;
        by default it is random.
        """
        return self._run("_acquire", blocking, blocking_timeout, token)

    def __call__(self, function: F) -> F:
        """Decorates a coroutine function, which is then called with the lock held. Raises TypeError for generators."""
        check_function(function, is_async=True)

        @functools.wraps(function)
        async def locked(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await function(*args, **kwargs)

        return cast("F", locked)

    async def __aenter__(self) -> Self:
        """Acquires the lock. Raises LockTimeout if it was not free in time."""
        if not await self.acquire():
            raise LockTimeout("Unable to acquire lock within the time specified", self.name)
        for hold in [taken.hold for taken in self._held(self._holder())[-1:] if self.cancel_on_lost]:
            hold.blocks += (await asyncio.timeout(0 if hold.is_lost else None).__aenter__(),)
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        was_cancelled = False
        for hold in [taken.hold for taken in self._held(self._holder())[-1:] if taken.hold.blocks]:
            try:
                block, hold.blocks = hold.blocks[-1], hold.blocks[:-1]
                await block.__aexit__(kind, error, trace)
            except TimeoutError:  # This has cancelled the block, and nothing else has.
                was_cancelled = True
        try:
            await self.release()
        except Exception as failure:
            if not was_cancelled and not self._logs(failure, error):
                raise
        if was_cancelled:
            raise LockNotOwnedError("The lock is no longer owned", self.name) from error


def several(locks: Iterable[Lock], blocking_timeout: Seconds | None = None) -> AsyncSeveral:
    """Returns several locks as one, as `redis_lock_client.several` does."""
    return AsyncSeveral(locks, blocking_timeout, asyncio.Event())


async def observe(redis: AsyncClient, name: str | bytes) -> AsyncIterator[str | None]:
    """Yields the label of the holder of a lock, None if it is free, now and after each change.

    The label of a token without one is the token. It goes on while the server cannot be reached, and ends with
    ``aclose`` of the iterator.
    """
    key, engine = bytes_of(name, "the name of a lock"), engine_of(source_of(redis))
    check_client(redis, has_loop=True)
    changes: asyncio.Queue[tuple[str | None, Exception | None]] = asyncio.Queue()

    def end(_: object, error: Exception | None) -> None:
        changes.put_nowait((None, error or LockError("the loop ends", name)))

    flow = engine.scheduler.start(_observe, key, lambda label: changes.put_nowait((label, None)), done=end)
    try:
        while True:
            label, error = await changes.get()
            if error is not None:
                raise error
            yield label
    finally:
        error = None  # Its traceback has this frame.
        engine.scheduler.cancel(flow)
