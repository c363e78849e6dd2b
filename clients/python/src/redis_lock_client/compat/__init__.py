"""The interface of python-redis-lock, on the same keys.

Differences: the server grants the lock to waiters in the order of their arrival; renewal needs no thread for each
lock; an id that is not given is a new one for each acquisition. The lists ``lock-signal:NAME``, on which python-redis-
lock's own waiters wait, are written by the server (``lock.wake-foreign``), or by this package where the server has not
loaded the module.
"""

from __future__ import annotations

import math
import os
import weakref
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from typing import Any

from .. import acquisition, holding, scripts
from ..errors import LockError, ServerError
from ..flow import Flow, Steps, nothing
from ..holding import Hold
from ..lease import Held
from ..library import retry_of
from ..request import NOT_HELD, Kind, Words, hash_tag
from ..source import source_of
from ..threads import engine_of

logger = getLogger(__name__)
#: The longest pause in seconds between two attempts without the module.
PAUSE_S = 0.1
#: A release without the module, after which one of python-redis-lock's waiters goes on.
_RELEASE = f"""
local function release()
    {scripts.RELEASE}
end
local left = release()
if left == 0 then
    redis.call('del', KEYS[2])
    redis.call('lpush', KEYS[2], 1)
    redis.call('pexpire', KEYS[2], ARGV[3])
end
return left
"""


class AlreadyAcquired(RuntimeError):
    """The lock is held with this id."""


class NotAcquired(RuntimeError):
    """The lock is not held with this id."""


class AlreadyStarted(RuntimeError):
    """Never raised: no thread for each lock is started."""


class TimeoutNotUsable(RuntimeError):
    """A timeout was given for an attempt that does not wait."""


class InvalidTimeout(RuntimeError):
    """A timeout is negative."""


class TimeoutTooLarge(RuntimeError):
    """A timeout is longer than ``expire``."""


class NotExpirable(RuntimeError):
    """The lock has no expiry time that could be extended."""


@dataclass(eq=False)
class _Hold(Hold):
    """A hold with the list of python-redis-lock's waiters and its lifetime in milliseconds."""

    signal: Words = field(default_factory=list)

    def release(self) -> tuple[Words, Words | None]:
        words, script = super().release()
        if not self.signal:
            return words, script
        return words, ["EVAL", _RELEASE, 2, self.key, self.signal[0], self.token, "", self.signal[1]]


class Lock:
    """A lock as python-redis-lock has it."""

    def __init__(
        self,
        redis_client: Any,
        name: str,
        expire: float | str | None = None,
        id: str | bytes | None = None,
        auto_renewal: bool = False,
        strict: bool = True,
        signal_expire: int = 1000,
        blocking: bool = True,
    ) -> None:
        """Describes a lock; nothing is sent yet.

        Args:
            redis_client: A client of redis-py or valkey-py.
            name: The lock is the key ``lock:NAME``.
            expire: The lease in whole seconds, after which the lock is free. None: it is held until it is released.
            id: Identifies the holder. Every object with the holder's id can extend and release the lock. Two processes
                must not wait with the same id.
            auto_renewal: Renews the lock for as long as this object exists.
            strict: Raises ValueError for an object that is no client.
            signal_expire: The lifetime in milliseconds of the list on which python-redis-lock's own waiters wait.
            blocking: Whether ``with`` waits.
        """
        if strict and not hasattr(redis_client, "execute_command"):
            raise ValueError("redis_client must be a client. Use strict=False if you know what you're doing.")
        if auto_renewal and expire is None:
            raise ValueError("Expire may not be None when auto_renewal is set")
        self._client = redis_client
        self._expire = _whole_seconds(expire)
        self._signal_expire = signal_expire
        self._is_given, self._is_used = id is not None, False
        self._id = _new_id() if id is None else _readable(id)
        self._name = "lock:" + name
        self._renews = auto_renewal
        self._hold: Hold | None = None
        self._process = os.getpid()
        self._end_renewal: Any = None
        self.blocking = blocking

    @property
    def id(self) -> str:
        """The id with which this object holds the lock."""
        return self._id

    def get_owner_id(self) -> str | None:
        """Returns the id of the holder, None if the lock is free."""
        owner = self._client.get(self._name)
        return owner.decode("ascii", "replace") if isinstance(owner, bytes) else owner

    def locked(self) -> bool:
        """Returns whether any client holds the lock."""
        return bool(self._client.exists(self._name) == 1)

    def acquire(self, blocking: bool = True, timeout: float | str | None = None) -> bool:
        """Acquires the lock, and waits for it for ``timeout`` whole seconds. Returns whether it was acquired."""
        logger.debug("Acquiring Lock(%r) ...", self._name)
        if (self._is_given or self._is_used) and self.get_owner_id() == self._id:
            raise AlreadyAcquired("Already acquired from this Lock instance.")
        patience = self._patience(timeout) if blocking else 0
        if not blocking and timeout is not None:
            raise TimeoutNotUsable("Timeout cannot be used if blocking=False")
        id = _new_id() if self._is_used and not self._is_given else self._id
        self._is_used = True
        hold = self._new_hold(id)
        try:
            is_held = self._run(hold, partial(self._give_back, hold), self._acquiring, hold, patience)
        except LockError as error:
            raise AlreadyAcquired("This process acquires the lock with this id already.") from error
        if not is_held:
            logger.warning("Failed to acquire Lock(%r).", self._name)
            return False
        logger.info("Acquired Lock(%r).", self._name)
        return True

    def _run(self, hold: Hold, undo: Callable[[], None], steps: Callable[..., Steps], *args: Any) -> Any:
        """Returns the result of a flow, with the retry policy of the client."""

        def begin(flow: Flow) -> Steps:
            flow.retry = retry_of(self._client)
            return (yield from steps(flow, *args))

        return hold.engine.run(undo, begin)

    def _acquiring(self, flow: Flow, hold: Hold, patience: float | None) -> Steps:
        if not (yield from acquisition.acquire(flow, hold, patience, PAUSE_S)):
            return False
        hold.acquired(hold.sent.at if hold.sent else 0.0)
        hold.outcome_unknown = False  # Whether the id still holds the lock, the server is asked.
        self._id, self._process, self._hold = hold.token.decode(), os.getpid(), hold
        if self._renews:
            hold.begin_watch()
            if self._end_renewal is not None:
                self._end_renewal.detach()
            self._end_renewal = weakref.finalize(self, hold.engine.post, hold.end_watch)
            self._end_renewal.atexit = False
        return True

    def _give_back(self, hold: Hold) -> None:
        if self._hold is hold:
            self._hold = None
            hold.drop()
        elif hold.outcome_unknown:
            acquisition.begin_withdrawal(hold.engine.scheduler, hold)

    def _patience(self, timeout: float | str | None) -> float | None:
        seconds = int(timeout) if timeout else 0
        if seconds < 0:
            raise InvalidTimeout(f"Timeout ({seconds}) cannot be less than or equal to 0")
        if self._expire and not self._renews and seconds > self._expire:
            raise TimeoutTooLarge(f"Timeout ({seconds}) cannot be greater than expire ({self._expire})")
        return seconds or None

    def _new_hold(self, id: str) -> Hold:
        lease_ms = self._expire * 1000 if self._expire else None
        key, list_key = self._name.encode(), ("lock-signal:" + self._name.removeprefix("lock:")).encode()
        # In a cluster python-redis-lock works only where both are in one slot.
        has_list = not hasattr(self._client, "nodes_manager") or hash_tag(key) == hash_tag(list_key)
        signal: Words = [list_key, self._signal_expire] if has_list else []
        engine = engine_of(source_of(self._client))
        return _Hold(Kind(key, renew=self._renews), id.encode(), lease_ms, engine=engine, signal=signal)

    def _held(self) -> Hold:
        """Returns what this object holds, or a hold of its id."""
        hold = self._hold if self._process == os.getpid() else None  # After a fork it is the parent's.
        if hold is None:
            hold = self._new_hold(self._id)
            hold.state = Held(hold.lease_ms, math.inf)  # Or else the server replies with an error.
        return hold

    def extend(self, expire: float | str | None = None) -> None:
        """Sets the expiry time, by default to that of the lock, in whole seconds."""
        seconds = _whole_seconds(expire) or self._expire
        if seconds is None:
            raise TypeError("To extend a lock 'expire' must be given to extend() or to the lock.")
        try:
            hold = self._held()
            self._run(hold, nothing, holding.extend, hold, seconds * 1000, False)
        except ServerError as error:
            if error.code in NOT_HELD:
                raise NotAcquired(f"Lock {self._name} is not acquired or it already expired.") from error
            if error.code == "NOLEASE":
                raise NotExpirable(f"Lock {self._name} has no assigned expiration time") from error
            raise

    def release(self) -> None:
        """Releases the lock, whichever object with this id has acquired it."""
        logger.debug("Releasing Lock(%r).", self._name)
        hold = self._held()
        self._hold = None
        try:
            left = self._run(hold, hold.drop, holding.release, hold)
        except ServerError as error:
            if error.code in NOT_HELD:
                raise NotAcquired(f"Lock({self._name}) is not acquired or it already expired.") from error
            raise
        if left is None:
            raise NotAcquired(f"Lock({self._name}) is not acquired, but waited for with this id.")

    def reset(self) -> None:
        """Deletes the lock, whichever client holds it. The next waiter gets it."""
        _delete(self._client, self._name, self._signal_expire)

    def __enter__(self) -> Lock:
        """Acquires the lock. Raises NotAcquired if it does not wait and another client holds it."""
        if self.acquire(blocking=self.blocking):
            return self
        raise NotAcquired(f"Lock({self._name}) is not acquired or it already expired.")

    def __exit__(self, *_: object) -> None:
        """Releases the lock."""
        self.release()


def reset_all(redis_client: Any) -> None:
    """Deletes all locks of this kind, whichever clients hold them."""
    for key in redis_client.scan_iter("lock:*", 1000):
        _delete(redis_client, key.decode() if isinstance(key, bytes) else key, 1000)


def _delete(client: Any, name: str, signal_expire: int) -> None:
    signal = "lock-signal:" + name.removeprefix("lock:")
    with client.pipeline() as transaction:
        transaction.delete(signal).lpush(signal, 1).pexpire(signal, signal_expire).delete(name).execute()


def _whole_seconds(expire: float | str | None) -> int | None:
    seconds = int(expire) if expire else None
    if seconds is not None and seconds < 1:
        raise ValueError("An expire of less than a second is not acceptable.")
    return seconds


def _new_id() -> str:
    return b64encode(os.urandom(18)).decode("ascii")


def _readable(id: str | bytes) -> str:
    if isinstance(id, str):
        return id
    if not isinstance(id, bytes):
        raise TypeError(f"Incorrect type for `id`. Must be bytes/str not {type(id)}.")
    return id.decode("ascii") if id.isascii() else b64encode(id).decode("ascii")
