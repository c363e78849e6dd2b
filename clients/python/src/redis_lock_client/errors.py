"""The exceptions of the package.

Each is a subclass of the exception of redis-py and valkey-py with the same meaning, of both if both are installed, so
that a program that catches the library's exceptions catches these, too.
"""

import logging
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

#: The public ones.
__all__ = ["LockError", "LockLost", "LockNotOwnedError", "LockQueueFull", "LockTimeout", "ModuleNeededError"]
LIBRARIES = ("redis", "valkey")
logger = logging.getLogger("redis_lock_client")


def library_classes(name: str, module: str = ".exceptions") -> tuple[Any, ...]:
    """Returns what the libraries that are installed have by a name."""
    # A folder of the same name has no origin.
    installed = [library for library in LIBRARIES if (spec := find_spec(library)) and spec.origin]
    found = [getattr(import_module(library + module), name) for library in installed]
    if not found:
        raise ImportError("redis-lock-client needs a client library: install redis or valkey")
    return tuple(found)


if TYPE_CHECKING:
    from redis import exceptions as base
else:
    _NAMES = ("AuthenticationError", "ConnectionError", "LockError", "LockNotOwnedError")
    _NAMES += ("ResponseError", "TimeoutError")
    base = SimpleNamespace(**{name: type(name, library_classes(name), {}) for name in _NAMES})


class LockError(base.LockError):
    """An operation on a lock is not possible.

    ``message`` says why, ``lock_name`` is the name of the lock, which the text of the error contains, too.
    """

    def __init__(self, message: str | None = None, lock_name: Any = None) -> None:
        text = message or ""
        super().__init__(f"{text} (lock {lock_name!r})" if lock_name is not None else text)
        self.message, self.lock_name = message, lock_name


class LockTimeout(LockError):
    """A block was not entered, because the lock was not free within ``blocking_timeout``."""


class LockQueueFull(LockError):
    """As many wait for the lock as ``max_waiters`` or the server allows."""

    code = "QUEUEFULL"


class LockNotOwnedError(base.LockNotOwnedError, LockError):
    """The lock is lost: its lease has expired, or another client has deleted or taken the key."""


LockLost = LockNotOwnedError


class ModuleNeededError(LockError):
    """The server has not loaded the module redis-lock, which this feature needs."""

    code = "UNKNOWN"


class ServerError(base.ResponseError):
    """The server has replied with an error. ``code`` is its first word, such as ``NOTHELD``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        is_unknown = text.lower().removeprefix("err ").startswith("unknown command")
        self.code = "UNKNOWN" if is_unknown else text.partition(" ")[0]


class Disconnected(base.ConnectionError):
    """The connection could not be opened, or was lost. ``sent`` says whether the server may have got the command."""

    #: Another attempt is of no use.
    is_final = False

    def __init__(self, text: str, sent: bool, **named: Any) -> None:
        super().__init__(text, **named)
        self.sent = sent


class Unauthenticated(base.AuthenticationError, Disconnected):
    """The server has refused the password."""

    is_final = True


class TimedOut(base.TimeoutError, Disconnected):
    """The connection could not be opened in time, or the operating system has given it up."""


class NoReply(base.TimeoutError):
    """The server has not replied in time. ``is_replaced``: the next request has a new connection."""

    def __init__(self, text: str, is_replaced: bool = False) -> None:
        super().__init__(text)
        self.is_replaced = is_replaced


for _public in (LockError, LockTimeout, LockQueueFull, LockNotOwnedError, ModuleNeededError):
    _public.__module__ = "redis_lock_client"  # The name in tracebacks is the one that programs import.

#: The server cannot be reached.
UNREACHABLE = (Disconnected, NoReply)
#: What a request can raise unless it is interrupted.
EXPECTED = (LockError, ServerError, *UNREACHABLE)
