"""Checks of arguments, before anything is sent."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta
from typing import Any

from .errors import LIBRARIES

Seconds = float | timedelta
#: The shortest and the longest lease, in seconds.
LEASES = 0.001, 1e12


def key_of(name: Any) -> bytes:
    """Returns the key of a lock. Raises TypeError for a name that is not text, bytes or a number."""
    if isinstance(name, str):
        return name.encode()
    if isinstance(name, int | float) and not isinstance(name, bool):
        return repr(name).encode()
    if not isinstance(name, bytes):
        raise TypeError(f"the name of a lock must be str or bytes, not {type(name).__name__}")
    return name


def token_of(token: Any) -> bytes:
    """Returns the bytes of a token. Raises TypeError, or ValueError if it has not 1 to 1024 bytes."""
    data = token.encode() if isinstance(token, str) else token
    if not isinstance(data, bytes):
        raise TypeError(f"a token must be str or bytes, not {type(token).__name__}")
    if not 1 <= len(data) <= 1024:
        raise ValueError("a token must have 1 to 1024 bytes")
    return data


def seconds(value: Any, what: str, least: float = -math.inf, most: float = math.inf) -> float | None:
    """Returns a time in seconds, None for None. Raises TypeError, or ValueError if it is out of range."""
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError(f"{what} must be a number of seconds or a timedelta")
    if not least <= number <= most:
        raise ValueError(f"{what} must be {least} to {most} seconds")
    return number


def check_limit(limit: Any) -> None:
    """Raises ValueError unless it is None or a number from 1 on."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError("limit must be an integer, 1 or more")


def check_label(label: Any) -> None:
    """Raises ValueError unless it is None or 1 to 64 printable characters."""
    is_text = isinstance(label, str) and label.isascii() and label.isprintable() and " " not in label
    if label is not None and not (is_text and 0 < len(label) <= 64):
        raise ValueError("label must be 1 to 64 printable ASCII characters without a space")


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
        kind = "redis_lock_client.Lock" if has_loop else "redis_lock_client.asyncio.Lock"
        raise TypeError(f"this client needs {kind}")
