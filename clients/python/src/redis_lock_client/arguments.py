"""Checks of arguments, before anything is sent."""

import inspect
import math
import re
from datetime import timedelta
from typing import Any, Protocol

from .errors import LIBRARIES

Seconds = float | timedelta


class AnyClient(Protocol):
    """A client of redis-py or valkey-py."""

    def execute_command(self, *args: Any, **options: Any) -> Any: ...


class SyncClient(AnyClient, Protocol):
    """One for threads."""

    def __enter__(self) -> Any: ...


class AsyncClient(AnyClient, Protocol):
    """One for asyncio."""

    async def __aenter__(self) -> Any: ...


#: The shortest and the longest lease, in seconds. The server can add the longest to any time.
LEASES = 0.001, 100 * 365 * 86400
#: The shortest lease of a session, in seconds.
MIN_SESSION_S = 0.1
MAX_COUNT = 2**31 - 1


def bytes_of(value: Any, what: str) -> bytes:
    """Returns text or bytes as bytes. Raises TypeError, or ValueError if it is empty."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{what} must be str or bytes, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{what} is empty")
    return value.encode() if isinstance(value, str) else value


def plain(value: Any) -> Any:
    """Returns a timedelta as seconds, anything else unchanged."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def seconds(value: Any, what: str, least: float = -math.inf, most: float = math.inf) -> float | None:
    """Returns a time in seconds, None for None. Raises TypeError, or ValueError if it is out of range."""
    number = plain(value)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{what} must be a number of seconds or a timedelta")
    if not least <= number <= most:
        raise ValueError(f"{what} must be {least} to {most} seconds")
    return number


def check(is_valid: object, text: str) -> None:
    """Raises ValueError if an argument is not valid."""
    if not is_valid:
        raise ValueError(text)


def check_count(value: Any, what: str) -> None:
    """Raises ValueError for anything but None and the numbers from 1 on that the server takes."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT
    if value is not None and not is_count:
        raise ValueError(f"{what} must be an integer, 1 to {MAX_COUNT}")


def check_options(
    lease: float | None, session: bool, renew: bool, limit: Any, max_waiters: Any, on_lost: Any, label: Any
) -> None:
    """Raises ValueError for options that are out of range or do not fit."""
    check(lease or not (session or renew), "session and renew need a timeout")
    check(not (session and renew), "the server renews a session: give session or renew")
    check(not session or (lease or 0) >= MIN_SESSION_S, "a session needs a timeout of 0.1 s or more")
    check_count(limit, "limit")
    check_count(max_waiters, "max_waiters")
    check(on_lost is None or callable(on_lost), "on_lost must be a function")
    is_label = label is None or (isinstance(label, str) and re.fullmatch("[!-~]{1,64}", label))
    check(is_label, "label must be 1 to 64 printable ASCII characters without a space")


def check_function(function: Any, is_async: bool) -> None:
    """Raises TypeError for a function that would run after a decorator has released the lock."""
    is_later = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if is_later or inspect.iscoroutinefunction(function) > is_async:
        raise TypeError(f"{function!r} would run without the lock: use a block in it")


def check_client(redis: Any, has_loop: bool) -> None:
    """Raises TypeError for an object that is no client, or is one of the other kind of lock."""
    if not hasattr(redis, "execute_command"):
        raise TypeError(f"{redis!r} is no client")
    module = type(redis).__module__
    if ("asyncio" in module) != has_loop and module.partition(".")[0] in LIBRARIES:
        raise TypeError(f"this client needs redis_lock_client.{'Lock' if has_loop else 'asyncio.Lock'}")
