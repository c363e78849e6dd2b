"""Locks for asyncio.

::

    import redis.asyncio
    from redis_lock_client.asyncio import Lock

    async with Lock(redis.asyncio.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar, cast

from . import errors, leader
from .arguments import AsyncClient, Seconds, check_function
from .errors import *  # noqa: F403
from .errors import LockNotOwnedError
from .library import own_errors
from .lock import BaseLock
from .several import Several
from .tasks import engine_of

__all__ = ["Lock", "observe", "several"]
__all__ += errors.__all__
F = TypeVar("F", bound=Callable[..., Awaitable[Any]])


class Lock(
    BaseLock[AsyncClient, asyncio.Event, Coroutine[Any, Any, None], Coroutine[Any, Any, bool], Coroutine[Any, Any, int]]
):
    """A lock for tasks. Its arguments are described at ``__init__``.

    One object can be shared by tasks: each holds for itself. It is used as a block, ``async with lock:``, by
    ``acquire`` and ``release``, or as a decorator of a coroutine function.

    Every method raises the library's ConnectionError or TimeoutError if the server cannot be reached.
    """

    __slots__ = ()
    _new_event = asyncio.Event
    _engine_of = staticmethod(engine_of)
    # Methods may be called outside of the loop, as in ``asyncio.run(lock.acquire())``.
    _caller = staticmethod(lambda: asyncio.current_task() if asyncio._get_running_loop() else None)
    _has_loop = True

    # These are no coroutine functions, because their caller holds the lock, also if another task awaits them, as that
    # of asyncio.shield, or of asyncio.wait_for in Python 3.11.

    def _run(self, method: str, **arguments: Any) -> Coroutine[Any, Any, Any]:
        return self._wait(method, self._holder(), arguments)

    async def _wait(self, method: str, holder: Any, arguments: dict[str, Any]) -> Any:
        if self._library is not None:
            with own_errors(self.name):
                return await self._of_library(method, arguments)
        operation = getattr(self, method)(holder, **arguments)
        return await self._engine().run(operation.undo, operation.start, *operation.args)

    def acquire(
        self, blocking: bool | None = None, blocking_timeout: Seconds | None = None, token: str | bytes | None = None
    ) -> Coroutine[Any, Any, bool]:
        """Acquires the lock. Returns False if it was not free within ``blocking_timeout`` seconds.

        Arguments that are not given are those of the lock. ``token``, 1 to 1024 bytes, must not have been used before;
        by default it is random.
        """
        return self._run("_acquire", blocking=blocking, blocking_timeout=blocking_timeout, token=token)

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
            raise self._timeout()
        if self.cancel_on_lost:
            hold = self._held(self._holder())[-1].hold
            hold.blocks.append(await asyncio.timeout(0 if hold.is_lost else None).__aenter__())
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        holds, was_cancelled = self._held(self._holder()), False
        if holds and holds[-1].hold.blocks:
            try:
                await holds[-1].hold.blocks.pop().__aexit__(kind, error, trace)
            except TimeoutError:  # This has cancelled the block, and nothing else has.
                was_cancelled = True
        try:
            await self.release()
        except Exception as failure:
            if not was_cancelled and not self._logs(failure, error):
                raise
        if was_cancelled:
            raise LockNotOwnedError("The lock is no longer owned", self.name) from error


@contextlib.asynccontextmanager
async def several(
    locks: Iterable[Lock], blocking_timeout: Seconds | None = None
) -> AsyncIterator[Several[asyncio.Event]]:
    """Holds several locks in a block, as `redis_lock_client.several` does."""
    all_of_them = Several(locks, blocking_timeout, asyncio.Event())
    async with contextlib.AsyncExitStack() as stack:
        for lock in all_of_them.locks:
            if not await lock.acquire(blocking_timeout=all_of_them._left):
                raise all_of_them._timeout()
            stack.push_async_exit(lock)
        yield all_of_them


async def observe(redis: AsyncClient, name: str | bytes) -> AsyncIterator[str | None]:
    """Yields the label of the holder of a lock, None if it is free, now and after each change.

    The label of a token without one is the token. It goes on while the server cannot be reached, and ends with
    ``aclose`` of the iterator.
    """
    reports: asyncio.Queue[Any] = asyncio.Queue()
    end = leader.begin(redis, name, engine_of, reports.put_nowait, has_loop=True)
    try:
        while True:
            yield leader.label_in(await reports.get())
    finally:
        end()
