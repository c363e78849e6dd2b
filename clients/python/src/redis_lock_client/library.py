"""The parts of redis-py and valkey-py that are not public, and what they say of a client."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

from .errors import LIBRARIES, LockError, LockNotOwnedError, library_classes

#: What clients of their own kind are not.
WHOSE = "a client whose commands redis-py or valkey-py executes"
#: The methods of a client and of its connections by which commands are executed.
_EXECUTE = ("execute_command", "_connect", "send_command", "send_packed_command", "read_response")


def is_executed_by_library(client: Any) -> bool:
    """Returns whether the library's own functions execute the commands of a client and send them.

    Monitoring tools wrap these functions, which changes nothing about the commands.
    """
    own = vars(client).get("execute_command")
    # Without that attribute, a wrapper of one client may change its commands.
    is_own = own is None or _is_library_function(_unwrapped("execute_command", getattr(own, "__wrapped__", None)))
    return is_own and _are_executed(*_kinds(client))


@functools.lru_cache(maxsize=64)
def _are_executed(*kinds: Any) -> bool:
    return all(_is_library_function(_unwrapped(*one)) for one in _functions(*kinds))


def is_wrapped(client: Any) -> bool:
    """Returns whether a monitoring tool wraps these functions."""
    return not all(_is_library_function(function) for _, function in _functions(*_kinds(client)))


def _kinds(client: Any) -> tuple[Any, Any]:
    return type(client), getattr(getattr(client, "connection_pool", None), "connection_class", None)


def _functions(*kinds: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(kind, name)) for kind in kinds for name in _EXECUTE if hasattr(kind, name)]


def _unwrapped(name: str, function: Any) -> Any:
    """Returns the method with a name that wrappers call in the end."""
    while True:
        # Without an attribute that names it, a wrapper has it in its closure.
        cells = () if _is_library_function(function) else getattr(function, "__closure__", None) or ()
        inner = [cell.cell_contents for cell in cells if getattr(_content(cell), "__name__", None) == name]
        within = getattr(function, "__wrapped__", None) or getattr(function, "__func__", None) or (inner or [None])[0]
        if within is None or within is function:
            return function
        function = within


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # It is empty.
        return None


def _is_library_function(function: Any) -> bool:
    is_plain = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")
    return is_plain and str(function.__globals__.get("__name__", "")).partition(".")[0] in LIBRARIES


def retry_of(client: Any) -> Any:
    """Returns the retry policy of a client, None if it has none."""
    pool = getattr(client, "connection_pool", None)
    return getattr(pool, "connection_kwargs", {}).get("retry") or getattr(client, "retry", None)


def pause_after(retry: Any, failures: int) -> float | None:
    """Returns the pause in seconds before the next attempt that a retry policy has, None if it has no more."""
    retries = getattr(retry, "_retries", 0)
    return float(retry._backoff.compute(failures)) if retry and (retries < 0 or failures <= retries) else None


def library_lock(lock: Any, client: Any) -> Any:
    """Returns the lock that the library has for a client. Raises LockError if it has no such locks."""
    asked = {**lock._kind._asdict(), "key": None, "watch": lock.watch}
    for option in [name for name, value in asked.items() if value]:
        raise LockError(f"{option} needs {WHOSE}", lock.name)
    names = ("timeout", "sleep", "blocking", "blocking_timeout", "thread_local")
    return client.lock(lock.name, **{name: getattr(lock, name) for name in names})


@contextlib.contextmanager
def own_errors(name: object) -> Iterator[None]:
    """Raises the errors of the library's lock as those of the package."""
    try:
        yield
    except library_classes("LockError") as error:
        if isinstance(error, LockError):
            raise
        is_lost = isinstance(error, library_classes("LockNotOwnedError"))
        raise (LockNotOwnedError if is_lost else LockError)(str(error), name) from error


def socket_of(opened: Any) -> Any:
    """Returns the socket of an open connection, None if it has none."""
    return opened._sock


def transport_of(opened: Any) -> Any:
    """Returns the transport of an open connection for asyncio."""
    return opened._writer.transport


def disown(opened: Any) -> None:
    """Takes the transport from a connection for asyncio, which would warn that it is open."""
    opened._reader = opened._writer = None
