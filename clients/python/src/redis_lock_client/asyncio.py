"""Locks for asyncio.

::

    import redis.asyncio
    from redis_lock_client.asyncio import Lock

    async with Lock(redis.asyncio.Redis(), "door", timeout=30, blocking_timeout=20):
        print("the door is ours")
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from .errors import LockError, LockLost, LockNotOwnedError, LockTimeout, ModuleNeededError
from .lock import BaseLock, Seconds, Taken
from .tasks import engine_of

__all__ = ["Lock", "LockError", "LockLost", "LockNotOwnedError", "LockTimeout", "ModuleNeededError"]

P = ParamSpec("P")
R = TypeVar("R")


class Lock(BaseLock):
    """A lock for tasks. Its arguments are described at ``__init__``; ``cancel_on_lost`` is asyncio's alone.

    One object can be shared by tasks: each holds for itself. It is used as a block, ``async with lock:``, by
    ``acquire`` and ``release``, or as a decorator of a coroutine function.

    Every method raises the library's ConnectionError or TimeoutError if the server cannot be reached.
    """

    _event = asyncio.Event
    _registry = dict
    _engine_of = staticmethod(engine_of)
    _caller = staticmethod(asyncio.current_task)
    _client_module = ".asyncio"
    _has_loop = True

    def __init__(self, *args: Any, cancel_on_lost: bool = False, **kwargs: Any) -> None:
        """Describes a lock.

        ``cancel_on_lost``: a block whose lock is lost is cancelled, and ends with LockNotOwnedError.
        """
        super().__init__(*args, **kwargs)
        self.cancel_on_lost = cancel_on_lost
        self._is_watched |= cancel_on_lost
        #: The tasks in a block that is cancelled when the lock is lost, and whether that has happened.
        self._blocks: dict[asyncio.Task[Any], bool] = {}

    def _inherited(self) -> list[Taken]:
        ended = [task for task in self._holds if isinstance(task, asyncio.Task) and task.done()]
        return self._holds[ended[-1]] if ended else []

    def _on_loss(self) -> Callable[..., None]:
        task = asyncio.current_task()

        def tell(engine: Any, lost: asyncio.Event, on_lost: Callable[[], object] | None) -> None:
            lost.set()
            if task in self._blocks and not self._blocks[task]:
                self._blocks[task] = True
                task.cancel("the lock was lost")
            if on_lost is not None:
                engine.tell(on_lost)

        return tell

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: Seconds | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquires the lock. Returns False if it was not free within ``blocking_timeout`` seconds.

        Arguments that are not given are those of the lock. ``token``, 1 to 1024 bytes, must not have been used before;
        by default it is random.
        """
        engine, undo, steps = self._acquire(blocking, blocking_timeout, token)
        return bool(await engine.run(undo, steps))

    async def release(self) -> None:
        """Releases the lock. Raises LockNotOwnedError if it is lost, LockError if the caller does not hold it."""
        engine, undo, steps = self._release()
        await engine.run(undo, steps)

    async def extend(self, additional_time: Seconds, replace_ttl: bool = False) -> bool:
        """Adds seconds to the lease, or sets it with ``replace_ttl``.

        Returns True. Raises LockNotOwnedError, LockError.
        """
        engine, undo, steps = self._extend(additional_time, not replace_ttl)
        await engine.run(undo, steps)
        return True

    async def reacquire(self) -> bool:
        """Sets the lease to ``timeout`` again. Returns True. Raises LockNotOwnedError, LockError."""
        engine, undo, steps = self._extend(self.timeout, False)
        await engine.run(undo, steps)
        return True

    async def fence(self, counter: str | bytes | None = None) -> int:
        """Returns a fencing token, greater than each one before. ``counter`` is its key. Raises ModuleNeededError."""
        engine, undo, steps = self._fence(counter)
        return int(await engine.run(undo, steps))

    async def locked(self) -> bool:
        """Returns whether any client holds the lock."""
        engine, undo, steps = self._locked()
        return bool((await engine.run(undo, steps))[b"state"] != b"free")

    async def owned(self) -> bool:
        """Returns whether the caller holds the lock."""
        looked = self._owned()
        return looked is not None and bool(await looked[0].run(*looked[1:]))

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Decorates a coroutine function, which is then called with the lock held."""

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked

    async def __aenter__(self) -> Lock:
        """Acquires the lock. Raises LockTimeout if it was not free in time."""
        task = asyncio.current_task()
        if not await self.acquire():
            raise LockTimeout("Unable to acquire lock within the time specified", self.name)
        if self.cancel_on_lost and task is not None:
            self._blocks[task] = False
            if self.lost.is_set():
                self._blocks[task] = True
                task.cancel("the lock was lost")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        task = asyncio.current_task()
        if task is not None and self._blocks.pop(task, False) and isinstance(error, asyncio.CancelledError):
            if hasattr(task, "uncancel") and task.uncancel() > 0:
                raise error  # It was cancelled by others, too.
            error = None
        try:
            await self.release()
        except LockError as failure:
            self._leave(failure, error)
