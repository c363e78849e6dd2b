"""The interface of python-redis-lock, on the same keys.

What is different: a waiter is granted the lock by the server, in the order of arrival, where python-redis-lock waits
for a signal and then tries again; renewal needs no thread for each lock; the id is a new one for each acquisition,
unless one was given. The lists ``lock-signal:NAME``, for which python-redis-lock's own waiters wait, are written by
the server (``lock.wake-foreign``), or by this package where the server has no module.
"""

from __future__ import annotations

import os
from base64 import b64encode
from logging import getLogger
from types import TracebackType
from typing import Any

from ._sync import runtime
from ._sync.acquisition import Acquisition
from ._sync.client import Client
from ._sync.held import Held
from ._sync.node import Node
from .errors import ANSWERED
from .protocol import GONE, Request, code

__all__ = [
    "AlreadyAcquired",
    "AlreadyStarted",
    "InvalidTimeout",
    "Lock",
    "NotAcquired",
    "NotExpirable",
    "TimeoutNotUsable",
    "TimeoutTooLarge",
    "reset_all",
]

logger = getLogger(__name__)
#: The longest pause between two attempts without the module, in seconds.
PAUSE_S = 0.1


class AlreadyAcquired(RuntimeError):
    """The lock is held, with this very id."""


class NotAcquired(RuntimeError):
    """The lock is not held with this id."""


class AlreadyStarted(RuntimeError):
    """Never raised: there is no thread for each lock that could have been started."""


class TimeoutNotUsable(RuntimeError):
    """A timeout was given for an attempt that does not wait."""


class InvalidTimeout(RuntimeError):
    """A timeout is negative."""


class TimeoutTooLarge(RuntimeError):
    """A timeout is longer than the lock is held for."""


class NotExpirable(RuntimeError):
    """The lock has no expiry time that could be extended."""


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

        - ``expire``: after how many whole seconds the lock is free by itself. None: held until it is released.
        - ``id``: who holds it. A lock can be extended and released by every object with the holder's id. Processes must
          not have the same one: those that wait at the same time are one to the server.
        - ``auto_renewal``: renews the lock as long as this object is there.
        - ``strict``: refuses clients that cannot be clients.
        - ``signal_expire``: for how many milliseconds the list for python-redis-lock's waiters stays.
        - ``blocking``: whether ``with`` waits.
        """
        if strict and not hasattr(redis_client, "execute_command"):
            raise ValueError("redis_client must be a client. Use strict=False if you know what you're doing.")
        if auto_renewal and expire is None:
            raise ValueError("Expire may not be None when auto_renewal is set")
        self._client = redis_client
        self._expire = _positive(expire)
        self._signal_expire = signal_expire
        self._given = id is not None
        self._used = False
        self._id = _new_id() if id is None else _readable(id)
        self._name = "lock:" + name
        self._signal = "lock-signal:" + name
        self._renews = auto_renewal
        self._held_now: Held | None = None
        self._process = os.getpid()
        self.blocking = blocking

    @property
    def id(self) -> str:
        """Who holds the lock, if it is held by this object."""
        return self._id

    def get_owner_id(self) -> str | None:
        """Who holds the lock."""
        owner = self._client.get(self._name)
        return owner.decode("ascii", "replace") if isinstance(owner, bytes) else owner

    def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return bool(self._client.exists(self._name) == 1)

    def acquire(self, blocking: bool = True, timeout: float | str | None = None) -> bool:
        """Takes the lock, or waits for it, for ``timeout`` whole seconds if they are given; whether it was taken."""
        logger.debug("Acquiring Lock(%r) ...", self._name)
        if (self._given or self._used) and self.get_owner_id() == self._id:
            raise AlreadyAcquired("Already acquired from this Lock instance.")
        patience = self._patience(blocking, timeout)
        id = _new_id() if self._used and not self._given else self._id
        self._used = True
        request = self._request(id)
        acquisition = Acquisition(Client.of(self._client), request, patience, PAUSE_S)
        try:
            if not acquisition.run(blocking):
                logger.warning("Failed to acquire Lock(%r).", self._name)
                return False
            logger.info("Acquired Lock(%r).", self._name)
            assert acquisition.node is not None
            # Not before: another thread may hold it by this object, and extend or release it meanwhile.
            self._id = id
            self._held_now, self._process = Held(request, runtime.Event(), None, self._renews), os.getpid()
            self._held_now.lease_began(acquisition.asked, request.lease_ms)
            acquisition.node.keeper.add(self._held_now, watch=self._renews)
            return True
        except BaseException:
            # Above all Ctrl-C: nobody will use what is granted from now on.
            if self._held_now is not None and self._held_now.request is request:
                self._held_now = None
            acquisition.withdraw()
            raise

    def _patience(self, blocking: bool, timeout: float | str | None) -> int | None:
        if not blocking and timeout is not None:
            raise TimeoutNotUsable("Timeout cannot be used if blocking=False")
        seconds = int(timeout) if timeout else 0
        if seconds < 0:
            raise InvalidTimeout(f"Timeout ({seconds}) cannot be less than or equal to 0")
        if self._expire and not self._renews and seconds > self._expire:
            raise TimeoutTooLarge(f"Timeout ({seconds}) cannot be greater than expire ({self._expire})")
        return seconds or None

    def _request(self, id: str) -> Request:
        return Request(
            key=self._name.encode(),
            token=id.encode(),
            lease_ms=self._expire * 1000 if self._expire else None,
            given=self._given,
            signal=(self._signal.encode(), self._signal_expire),
        )

    def extend(self, expire: float | str | None = None) -> None:
        """Sets the expiry time again, by default to that of the lock."""
        seconds = _positive(expire) or self._expire
        if seconds is None:
            raise TypeError("To extend a lock 'expire' must be given to extend() or to the lock.")
        request = self._request(self._id)

        def extend(node: Node) -> None:
            asked, before = runtime.now(), self._mine()
            times_seen = before.times_seen if before is not None else 0
            left_ms = node.extend(request, seconds * 1000)
            held = self._mine()  # Another thread may release it meanwhile.
            if held is not None and held is before:
                held.lease_was_set(asked, left_ms, times_seen)

        try:
            Client.of(self._client).ask(request.key, extend)
        except ANSWERED as error:
            if code(error) in GONE:
                raise NotAcquired(f"Lock {self._name} is not acquired or it already expired.") from error
            if code(error) == "NOLEASE":
                raise NotExpirable(f"Lock {self._name} has no assigned expiration time") from error
            raise

    def release(self) -> None:
        """Gives up the lock, whichever object with this id has taken it."""
        logger.debug("Releasing Lock(%r).", self._name)
        client, request = Client.of(self._client), self._request(self._id)
        held, self._held_now = self._mine(), None
        try:
            if held is not None:
                held.leave()
            released = client.ask(request.key, lambda node: node.release_for_good(request, None, runtime.Exchanges()))
        except BaseException as error:
            if isinstance(error, ANSWERED) and code(error) in GONE:
                raise NotAcquired(f"Lock({self._name}) is not acquired or it already expired.") from error
            if held is not None and held.keeper is not None and not self._given:
                # It cannot be known what the server has done, so it is told until it answers. An id that was given
                # may be in use again by then.
                held.keeper.node.begin_to_withdraw(request, runtime.Exchanges())
            raise
        if not released:
            raise NotAcquired(f"Lock({self._name}) is not acquired, but waited for by this id.")

    def _mine(self) -> Held | None:
        """What this process sees to. After a fork the child has the id, but what was held is the parent's."""
        return self._held_now if self._process == os.getpid() else None

    def reset(self) -> None:
        """Deletes the lock, whoever holds it. The next in line gets it."""
        _delete(self._client, self._name, self._signal, self._signal_expire)

    def __enter__(self) -> Lock:
        """Takes the lock; NotAcquired if it does not wait and somebody else holds it."""
        if self.acquire(blocking=self.blocking):
            return self
        raise NotAcquired(f"Lock({self._name}) is not acquired or it already expired.")

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Releases the lock."""
        self.release()


def reset_all(redis_client: Any) -> None:
    """Deletes all locks of this kind, whoever holds them."""
    for key in redis_client.scan_iter("lock:*", 1000):
        name = key.decode() if isinstance(key, bytes) else key
        _delete(redis_client, name, "lock-signal:" + name.removeprefix("lock:"), 1000)


def _delete(client: Any, name: str, signal: str, signal_expire: int) -> None:
    with client.pipeline() as transaction:
        transaction.delete(signal).lpush(signal, 1).pexpire(signal, signal_expire).delete(name).execute()


def _positive(expire: float | str | None) -> int | None:
    seconds = int(expire) if expire else None
    if seconds is not None and seconds < 0:
        raise ValueError("A negative expire is not acceptable.")
    if seconds == 0:
        # Not the same as none, with which the lock would be held until it is released.
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
