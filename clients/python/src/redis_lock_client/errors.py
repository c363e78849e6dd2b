"""Exceptions. They are also those of the client library, so that code written for its own Lock catches them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_LIBRARIES = ("redis", "valkey")


def _classes(name: str) -> tuple[type[Any], ...]:
    """The exceptions of that name in the client libraries that are installed."""
    found: list[type[Any]] = []
    for library in _LIBRARIES:
        try:
            module = import_module(f"{library}.exceptions")
        except ModuleNotFoundError as error:
            if error.name != library:
                raise
        else:
            found += [getattr(module, name)] if hasattr(module, name) else []
    return tuple(found)


#: The server could not be reached, or did not answer in time.
UNREACHABLE: tuple[type[Exception], ...] = (
    *_classes("ConnectionError"),
    *_classes("TimeoutError"),
    *_classes("RedisClusterException"),
    *_classes("ValkeyClusterException"),
    OSError,
)
#: The server answered an error.
ANSWERED: tuple[type[Exception], ...] = _classes("ResponseError")

if TYPE_CHECKING:
    from redis.exceptions import ConnectionError as _NotConnected
    from redis.exceptions import LockError as _Error
    from redis.exceptions import LockNotOwnedError as _NotOwned
    from redis.exceptions import TimeoutError as _TimedOut
else:
    if not ANSWERED:
        raise ImportError("redis-lock-client needs a client library: install redis or valkey")
    _Error = type("_Error", _classes("LockError"), {})
    _NotOwned = type("_NotOwned", _classes("LockNotOwnedError"), {})
    _NotConnected = type("ConnectionError", _classes("ConnectionError"), {})
    _TimedOut = type("TimeoutError", _classes("TimeoutError"), {})


class LockError(_Error):
    """Something is wrong with a lock, or was not possible with it."""

    def __init__(self, message: str | None = None, lock_name: Any = None) -> None:
        # Not the library's own, which does not know the name everywhere.
        Exception.__init__(self, message)
        self.message = message
        self.lock_name = lock_name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"


class LockNotOwnedError(_NotOwned, LockError):
    """The lock is not held any more: its lease has ended, or somebody has taken it away."""

    __init__ = LockError.__init__
    __repr__ = LockError.__repr__


class StandstillError(_TimedOut):
    """The server has not answered others in time, so it is not asked."""

    was_sent = False


class NoConnectionError(_NotConnected):
    """A connection could not be made, for a reason that is not the library's: no credentials were provided, maybe."""

    was_sent = False


class ModuleNeededError(LockError):
    """The server does not have the module redis-lock, without which this cannot be had."""
