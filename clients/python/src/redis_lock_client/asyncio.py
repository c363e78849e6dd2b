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
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .arguments import Seconds, check_function
from .errors import LockError, LockLost, LockNotOwnedError, LockTimeout, ModuleNeededError
from .holding import Taken
from .lock import BaseLock
from .tasks import engine_of

__all__ = ["Lock", "LockError", "LockLost", "LockNotOwnedError", "LockTimeout", "ModuleNeededError"]

P = ParamSpec("P")
R = TypeVar("R")


def _caller() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # Called outside of a loop, as in ``asyncio.run(lock.acquire())``.


class Lock(BaseLock):
    """A lock for tasks. Its arguments are described at ``__init__``; ``cancel_on_lost`` is asyncio's alone.

    One object can be shared by tasks: each holds for itself. It is used as a block, ``async with lock:``, by
    ``acquire`` and ``release``, or as a decorator of a coroutine function.

    Every method raises the library's ConnectionError or TimeoutError if the server cannot be reached.
    """

    _event = asyncio.Event
    _registry = dict
    _engine_of = staticmethod(engine_of)
    _caller = staticmethod(_caller)
    _client_module = ".asyncio"

    def __init__(self, *args: Any, cancel_on_lost: bool = False, **kwargs: Any) -> None:
        """Describes a lock.

        ``cancel_on_lost``: a block whose lock is lost is cancelled, and ends with LockNotOwnedError.
        """
        super().__init__(*args, **kwargs)
        self.cancel_on_lost = cancel_on_lost
        self._is_watched |= cancel_on_lost

    def _inherited(self) -> list[Taken]:
        holds: list[Taken] = []
        expired: list[Taken] = []
        for task in [task for task in [*self._holds] if isinstance(task, asyncio.Task) and task.done()]:
            if all(taken.hold.is_expired() for taken in self._holds[task]):
                expired = self._holds.pop(task)
                for taken in expired:  # No caller will release it.
                    taken.detach()
            else:
                holds = self._holds[task]
        return holds or expired

    def _run(self, prepare: Callable[..., tuple[Any, ...]], *args: Any) -> Coroutine[Any, Any, Any]:
        return self._wait(prepare, self._holder(), *args)

    async def _wait(self, prepare: Callable[..., tuple[Any, ...]], *args: Any) -> Any:
        return await self._engine().run(*prepare(*args))

    # These are no coroutine functions, because their caller holds the lock, also if another task awaits them, as that
    # of asyncio.shield, or of asyncio.wait_for in Python 3.10 and 3.11.

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
        return self._run(self._acquire, blocking, blocking_timeout, token)

    def release(self) -> Coroutine[Any, Any, None]:
        """Releases the lock. Raises LockNotOwnedError if it is lost, LockError if the caller does not hold it."""
        return self._run(self._release)

    def extend(self, additional_time: Seconds, replace_ttl: bool = False) -> Coroutine[Any, Any, bool]:
        """Adds seconds to the lease, or sets it with ``replace_ttl``.

        Returns True. Raises LockNotOwnedError, LockError.
        """
        return self._run(self._extend, additional_time, not replace_ttl)

    def reacquire(self) -> Coroutine[Any, Any, bool]:
        """Sets the lease to ``timeout`` again. Returns True. Raises LockNotOwnedError, LockError."""
        return self._run(self._extend, self.timeout, False)

    def fence(self, counter: str | bytes | None = None) -> Coroutine[Any, Any, int]:
        """Returns a fencing token, greater than each one before. ``counter`` is its key. Raises ModuleNeededError."""
        return self._run(self._fence, counter)

    def owned(self) -> Coroutine[Any, Any, bool]:
        """Returns whether the caller holds the lock."""
        return self._run(self._owned)

    def locked(self) -> Coroutine[Any, Any, bool]:
        """Returns whether any client holds the lock."""
        return self._run(self._locked)

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """Decorates a coroutine function, which is then called with the lock held. Raises TypeError for generators."""
        check_function(function, is_async=True)

        @functools.wraps(function)
        async def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            async with self:
                return await function(*args, **kwargs)

        return locked

    async def __aenter__(self) -> Lock:
        """Acquires the lock. Raises LockTimeout if it was not free in time."""
        if not await self.acquire():
            raise LockTimeout("Unable to acquire lock within the time specified", self.name)
        if self.cancel_on_lost:
            if self.lost.is_set():
                await self.release()
                raise LockNotOwnedError("The lock is no longer owned", self.name)
            for taken in self._held(self._holder())[-1:]:
                task: Any = asyncio.current_task()
                taken.hold.block, taken.hold.cancels = task, task.cancelling() if hasattr(task, "cancelling") else 0
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Releases the lock. An exception of the block comes before that of the release."""
        was_cancelled, holder = False, self._holder()
        if isinstance(error, GeneratorExit) and holder not in self._holds and len(self._holds) == 1:
            holder = next(iter(self._holds))  # The loop closes an asynchronous generator in another task.
        task: Any = holder if isinstance(holder, asyncio.Task) else asyncio.current_task()
        for hold in [taken.hold for taken in self._held(holder)[-1:]]:
            if hold.block is task and hold.is_lost:  # This has cancelled the block.
                others = task.uncancel() > hold.cancels if hasattr(task, "uncancel") else False
                was_cancelled = isinstance(error, asyncio.CancelledError) and not others
            if hold.is_lost or hold.count == 1:
                hold.block = None
        try:
            await self._wait(self._release, holder)
        except Exception as failure:
            if not was_cancelled:
                self._leave(failure, error)
        if was_cancelled:
            raise LockNotOwnedError("The lock is no longer owned", self.name) from error
