# Made from _async/lock.py by generate.py.
"""The lock itself: what redis-py's Lock promises, and what the module has beyond it."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, TypeVar

from ..errors import ANSWERED, LockError, LockNotOwnedError
from ..protocol import ELSEWHERE, GONE, Request, code, hash_tag
from . import runtime
from .acquisition import Acquisition
from .client import Client
from .keeper import Held
from .node import Node

logger = logging.getLogger("redis_lock_client")
Self = TypeVar("Self", bound="BaseLock")


class _Local:
    """What one thread knows of the lock, or all of them."""

    token: bytes | None = None
    held: Held | None = None
    lost: runtime.Event | None = None
    wants_to_know = False
    process = 0


@cache
def _for_each_thread(local: type) -> type[_Local]:
    """The same for each thread. What is local is said by ``threading.local``, which gevent and eventlet replace."""
    return type("_ThreadLocal", (local, _Local), {})


class BaseLock:
    """A lock in Redis or Valkey."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        session: bool = False,
        shared: bool = False,
        limit: int | None = None,
        reentrant: bool = False,
        renew: bool = False,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        """Describes a lock; nothing is sent yet.

        The first eight arguments are those of redis-py's Lock:

        - ``timeout``: the lease in seconds, after which the lock is free by itself. None: held until it is released.
        - ``sleep``: the longest pause between two attempts, in seconds, where a server without the module is polled.
        - ``blocking``, ``blocking_timeout``: whether to wait, and for how many seconds; None: without an end.
        - ``thread_local``: each thread has a token of its own, and cannot release what another one has taken.
        - ``raise_on_release_error``: leaving ``with`` raises if the lock was lost meanwhile; else a warning is logged.

        The others are the module's:

        - ``session``: the server renews the lease, and releases the lock when this process ends.
        - ``shared``: a reader's lock. ``limit``: one of so many permits.
        - ``reentrant``: whoever holds the lock can take it again, and releases it as often.
        - ``renew``: this process renews the lease each time a third of it has passed, also without the module.
        - ``on_lost``: called once when the lock is lost, from another thread; it must not wait for anything.
        """
        if not runtime.can_use(redis):
            raise TypeError(
                "redis_lock_client.Lock is for clients of threads, redis_lock_client.asyncio.Lock for the others"
            )
        if (session or renew) and not timeout:
            raise ValueError("session and renew need a timeout, which frees the lock when nobody can renew it")
        if reentrant and (shared or limit is not None):
            raise ValueError("a lock is either shared or re-entrant")
        if limit is not None and limit < 1:
            raise ValueError("limit must be 1 or more")
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.session = session
        self.shared = shared or limit is not None
        self.limit = limit
        self.reentrant = reentrant
        self.renew = renew
        self.on_lost = on_lost
        self.local = _for_each_thread(threading.local)() if thread_local else _Local()
        self._key = self._bytes(name)
        self._node: Node | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r}>"

    def __enter__(self: Self) -> Self:
        """Takes the lock; LockError if that does not succeed in time."""
        before = self._holding()
        try:
            if self._acquire():
                return self
        except BaseException:
            # An interrupt between the grant and here: there will be nobody in the block who releases it.
            if self._holding() not in (before, None):
                self.release()
            raise
        raise LockError("Unable to acquire lock within the time specified", lock_name=self.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Releases the lock. An exception of the body comes before one of the release, which is logged then."""
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error and error is None:
                raise
            logger.warning("The lock %r was lost before it was released", self.name)
        except Exception:
            if error is None:
                raise
            logger.warning("The lock %r could not be released", self.name, exc_info=True)

    def _acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        if self.reentrant and (held := self._mine()) is not None and not held.over:
            return self._take_again(held)
        request = Request(
            key=self._key,
            token=secrets.token_hex(16).encode() if token is None else self._bytes(token),
            lease_ms=int(self.timeout * 1000) if self.timeout else None,
            reentrant=self.reentrant,
            shared=self.shared,
            limit=self.limit,
            session=self.session,
        )
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        acquisition = Acquisition(Client.of(self.redis), request, patience, self.sleep if sleep is None else sleep)
        try:
            if not acquisition.run(self.blocking if blocking is None else blocking):
                return False
            assert acquisition.node is not None
            self._keep(acquisition.node, request, acquisition.asked)
            return True
        except BaseException:
            # Above all a cancellation, or Ctrl-C: nobody will use what is granted from now on.
            self._forget(request)
            acquisition.withdraw()
            raise
        finally:
            self._node = acquisition.node

    def _keep(self, node: Node, request: Request, asked: float) -> None:
        local = self.local
        if local.lost is None:
            local.lost = runtime.Event()
        local.lost.clear()
        held = Held(request, local.lost, self.on_lost, self.renew)
        held.lease_began(asked, request.lease_ms)
        local.process = os.getpid()
        local.token, local.held = request.token, held
        node.keeper.add(held, watch=self.renew or local.wants_to_know or self.on_lost is not None)

    def _forget(self, request: Request) -> None:
        """Holds it no more, if it was noted already."""
        held = self.local.held
        if held is not None and held.request is request:
            self.local.token = self.local.held = None
            if held.keeper is not None:
                held.keeper.remove(held)

    def _holding(self) -> object:
        """What is held, and how often."""
        held = self._mine()
        return None if held is None else (held, held.holds)

    def _take_again(self, held: Held) -> bool:
        """One more hold. The number of the hold makes it count once, however often it is sent."""
        asked = runtime.now()
        held.in_doubt = True
        self._ask(lambda node: node.take(held.request, held.holds + 1), held.exchanges)
        held.holds, held.in_doubt = held.holds + 1, False
        if held.ends_at is not None and held.lease_ms is not None:
            held.lease_began(max(asked, held.ends_at - held.lease_ms / 1000), held.lease_ms)
        return True

    def release(self) -> None:
        """Gives up the lock, or one hold of a re-entrant one.

        LockNotOwnedError if it was not held any more; LockError if it has not been taken, or released before.
        """
        held = self._mine()
        if held is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)
        if held.in_doubt:
            self._give_up_a_hold(held)
        if held.holds > 1:
            held.holds, held.in_doubt = held.holds - 1, True
            self._give_up_a_hold(held)
            return
        hold = 1 if self.reentrant else None
        try:
            # Neither a loss nor a cancellation leaves the token behind: what was begun is brought to its end.
            self.local.token = self.local.held = None
            self._ask(lambda node: self._release(node, held, hold), held.exchanges)
        except LockNotOwnedError:
            raise
        except BaseException:
            # It cannot be known what the server has done, so it is told until it answers.
            if held.keeper is not None:
                held.keeper.remove(held)
            if self._node is not None:
                self._node.worker.do(self._node.withdraw, held.request, held.exchanges, runtime.now())
            raise

    def _release(self, node: Node, held: Held, hold: int | None) -> None:
        node.keeper.remove(held)
        node.release(held.request, hold)

    def _give_up_a_hold(self, held: Held) -> None:
        """Leaves as many holds as are noted. A hold that is not there any more is not given up again."""
        held.exchanges.settle()
        self._ask(lambda node: node.release(held.request, held.holds + 1), held.exchanges)
        held.in_doubt = False

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Adds seconds to the lease, or with ``replace_ttl`` sets it to so many."""
        held = self._mine()
        if held is None:
            raise LockError("Cannot extend an unlocked lock", lock_name=self.name)
        if self.timeout is None:
            raise LockError("Cannot extend a lock with no timeout", lock_name=self.name)
        return self._extend(held, int(additional_time * 1000), not replace_ttl)

    def reacquire(self) -> bool:
        """Sets the lease to ``timeout`` again."""
        held = self._mine()
        if held is None:
            raise LockError("Cannot reacquire an unlocked lock", lock_name=self.name)
        if self.timeout is None:
            raise LockError("Cannot reacquire a lock with no timeout", lock_name=self.name)
        return self._extend(held, int(self.timeout * 1000), False)

    def _extend(self, held: Held, lease_ms: int, add: bool) -> bool:
        asked = runtime.now()

        def extend(node: Node) -> None:
            left_ms = node.extend(held.request, lease_ms, add)
            held.lease_ms = left_ms
            held.lease_began(asked, left_ms)
            node.keeper.leased(held)

        self._ask(extend)
        return True

    def fence(self, counter: str | bytes | None = None) -> int:
        """Draws a fencing token, higher than all that were drawn before; the resource refuses lower ones.

        ``counter`` is the key of the counter, in a cluster in the slot of the lock. By default it is the name of the
        lock, in braces if it has none, and ``:fence``.
        """
        held = self._mine()
        if held is None:
            raise LockError("Cannot draw a fencing token for an unlocked lock", lock_name=self.name)
        key = self._bytes(counter) if counter is not None else fence_counter(self._key)
        return self._ask(lambda node: node.fence(held.request, key))  # type: ignore[no-any-return]

    def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return bool((self._info())[b"state"] != b"free")

    def owned(self) -> bool:
        """Whether this lock object holds the lock, as the server says."""
        held = self._mine()
        if held is None:
            return False
        if self.shared:
            return bool(self._ask(lambda node: node.share(held.request)))
        return bool((self._info())[b"owner"] == held.request.token)

    def _info(self) -> dict[bytes, Any]:
        return self._ask(lambda node: node.info(self._key))  # type: ignore[no-any-return]

    @property
    def native(self) -> bool | None:
        """Whether the server has the module, as it said last; None before anything was asked."""
        return None if self._node is None else self._node.native

    @property
    def lost(self) -> runtime.Event:
        """Set when the lock is lost, at once; cleared when it is taken again."""
        local = self.local
        if local.lost is None:
            local.lost = runtime.Event()
        if not local.wants_to_know:
            local.wants_to_know = True
            held = self._mine()
            if held is not None:
                held.watch()
        return local.lost

    def _mine(self) -> Held | None:
        """What is held, unless a fork has left it with the parent."""
        local = self.local
        return local.held if local.process == os.getpid() else None

    def _ask(self, ask: Callable[[Node], Any], exchanges: runtime.Exchanges | None = None) -> Any:
        """Asks the server that has the key, and another one if that has moved; its errors are exceptions of locks."""
        client = Client.of(self.redis)
        for again in (True, False):
            node = self._node = client.node(self._key)
            try:
                return (exchanges or runtime.Exchanges()).run(ask(node))
            except ANSWERED as error:
                if again and code(error) in ELSEWHERE:
                    client.refresh()
                elif code(error) in GONE:
                    raise LockNotOwnedError(f"The lock is no longer owned: {error}", lock_name=self.name) from error
                elif code(error) == "NOLEASE":
                    raise LockError("Cannot extend a lock with no timeout", lock_name=self.name) from error
                else:
                    raise
        raise AssertionError("the second attempt returns or raises")

    def _bytes(self, word: str | bytes) -> bytes:
        """Encodes a name or token as the client would."""
        if isinstance(word, bytes):
            return word
        encoder = getattr(getattr(self.redis, "connection_pool", None), "get_encoder", None)
        encoder = encoder or getattr(self.redis, "get_encoder", None)
        return bytes(encoder().encode(word)) if encoder is not None else str(word).encode()


def fence_counter(key: bytes) -> bytes:
    """The name of the counter for a lock, in the lock's hash slot."""
    tag = hash_tag(key)
    has_braces = tag is not None and tag != key
    return key + b":fence" if has_braces or tag is None else b"{" + key + b"}:fence"
