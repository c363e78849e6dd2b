"""The lock itself: what redis-py's Lock promises, and what the module has beyond it."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from ..errors import ANSWERED, UNREACHABLE, LockError, LockNotOwnedError
from ..protocol import GONE, Request, code, hash_tag
from . import runtime
from .acquisition import Acquisition
from .client import Client
from .held import Held
from .local import Local, for_each_thread
from .node import Node

logger = logging.getLogger("redis_lock_client")
Self = TypeVar("Self", bound="BaseLock")


class BaseLock:
    """A lock in Redis or Valkey."""

    acquire: Callable[..., Any]

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
        - ``on_lost``: called once when the lock is lost, in another thread or in the loop; it must not wait. With
          asyncio it may be a coroutine function.
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
        self.local = for_each_thread(threading.local)() if thread_local else Local()
        self._key = self._bytes(name)
        self._node: Node | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r}>"

    async def __aenter__(self: Self) -> Self:
        """Takes the lock; LockError if that does not succeed in time."""
        before = self._holding()
        try:
            if await self.acquire():
                return self
        except BaseException:
            # An interrupt between the grant and here: there will be nobody in the block who releases it.
            if self._holding() not in (before, None):
                await self.release()
            raise
        raise LockError("Unable to acquire lock within the time specified", lock_name=self.name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Releases the lock. An exception of the body comes before one of the release, which is logged then."""
        try:
            await self.release()
        except LockError:
            if self.raise_on_release_error and error is None:
                raise
            logger.warning("The lock %r was lost before it was released", self.name)
        except Exception:
            if error is None:
                raise
            logger.warning("The lock %r could not be released", self.name, exc_info=True)

    async def _acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        if self.reentrant and (held := self._mine()) is not None:
            # Also if it is known to be lost: its holders have yet to hear of it, each by its own release.
            return await self._take_again(held)
        request = self._request(secrets.token_hex(16).encode() if token is None else token, given=token is not None)
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        acquisition = Acquisition(Client.of(self.redis), request, patience, self.sleep if sleep is None else sleep)
        try:
            if not await acquisition.run(self.blocking if blocking is None else blocking):
                return False
            assert acquisition.node is not None
            self._keep(acquisition.node, request, acquisition.asked)
            return True
        except BaseException:
            # Above all a cancellation, or Ctrl-C: nobody will use what is granted from now on.
            self._forget(request)
            await acquisition.withdraw()
            raise
        finally:
            self._node = acquisition.node or self._node

    def _request(self, token: str | bytes, given: bool) -> Request:
        return Request(
            key=self._key,
            token=self._bytes(token),
            lease_ms=int(self.timeout * 1000) if self.timeout else None,
            reentrant=self.reentrant,
            shared=self.shared,
            limit=self.limit,
            session=self.session,
            given=given,
        )

    def _keep(self, node: Node, request: Request, asked: float) -> None:
        held = self._held(request)
        held.lease_began(asked, request.lease_ms)
        self.local.hold(held)
        self._see_to(held, node)

    def _held(self, request: Request) -> Held:
        local = self.local
        lost = local.lost_event()
        if local.held is not None and local.process == os.getpid():
            # Taken before, and lost since or shared: what becomes of that is not told any more.
            local.held.end()
            if local.held.request.token == request.token:
                local.held.keep()
        lost.clear()
        return Held(request, lost, self.on_lost, self.renew)

    def _see_to(self, held: Held, node: Node) -> None:
        watch = self.session or self.renew or self.local.wants_to_know or self.on_lost is not None
        node.keeper.add(held, watch)

    def _forget(self, request: Request) -> None:
        """Holds it no more, if it was noted already."""
        held = self.local.held
        if held is not None and held.request is request:
            self.local.drop()
            held.leave()

    def _holding(self) -> object:
        """What is held, and how often."""
        held = self._mine()
        return None if held is None else (held, held.holds)

    async def _take_again(self, held: Held) -> bool:
        """One more hold. The number of the hold makes it count once, however often it is sent."""
        # A server that stood still may have it yet, but nobody sees to it any more.
        self._raise_if_lost(held.over or self._is_anothers(held))
        if held.in_doubt > 1:
            await self._give_up_holds(held)
        elif held.in_doubt:
            await self._settle(held)
        asked = runtime.now()
        held.in_doubt = 1
        try:
            await self._ask(lambda node: self._enter(node, held.request, held.holds + 1), held.exchanges)
        except LockNotOwnedError:
            held.in_doubt = 0
            raise
        held.lease_was_lengthened(asked)
        # It may have been lost meanwhile, and then this hold is to be given up with the others.
        self._raise_if_lost(held.over or self._is_anothers(held))
        held.holds, held.in_doubt = held.holds + 1, 0
        return True

    async def _enter(self, node: Node, request: Request, hold: int) -> None:
        """Takes a hold, and those below it that a release has taken away which was sent twice, and came late."""
        lowest = hold
        while True:
            try:
                await node.take(request, lowest)
                break
            except ANSWERED as error:
                # Never the first one, which would take the lock anew.
                if code(error) != "HOLDMISMATCH" or lowest == 2:
                    raise
                lowest -= 1
        for number in range(lowest + 1, hold + 1):
            await node.take(request, number)

    def _raise_if_lost(self, lost: bool) -> None:
        if lost:
            raise LockNotOwnedError("The lock was lost, and is still to be released", lock_name=self.name)

    def _is_anothers(self, held: Held) -> bool:
        """Whether it was lost, and another one has it by the same token, so that the server cannot tell."""
        return Client.of(self.redis).given.is_anothers(held.request)

    def _has_held(self, held: Held) -> None:
        """Notes that the server has just said so."""
        Client.of(self.redis).given.has_held(held.request)

    def _is_lost_for_good(self, held: Held) -> bool:
        """Whether it was lost, whatever the server says."""
        return held.is_being_released or self._is_anothers(held)

    async def release(self) -> None:
        """Gives up the lock, or one hold of a re-entrant one.

        LockNotOwnedError if it was not held any more; LockError if it has not been taken, or released before.
        """
        held = self._mine()
        if held is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.", lock_name=self.name)
        if held.holds > 1:
            # Noted before anything is sent: this hold is given up, whatever comes.
            held.holds, held.in_doubt = held.holds - 1, held.in_doubt + 1
            await self._give_up_holds(held)
            return
        hold = 1 if self.reentrant else None
        try:
            # Neither a loss nor a cancellation leaves the token behind: what was begun is brought to its end.
            self.local.drop()
            if held.in_doubt:
                try:
                    await self._give_up_holds(held)
                except (LockNotOwnedError, *UNREACHABLE):
                    pass  # The last release gives up all holds, and is told until it is answered.
            await self._ask(lambda node: self._release(node, held, hold), held.exchanges)
        except LockNotOwnedError:
            raise
        except BaseException:
            # It cannot be known what the server has done, so it is told until it answers.
            held.leave()
            if self._node is not None:
                await self._node.begin_to_withdraw(held.request, held.exchanges)
            raise

    async def _release(self, node: Node, held: Held, hold: int | None) -> None:
        held.leave()
        try:
            if not await node.release_for_good(held.request, hold, held.exchanges):
                raise LockNotOwnedError("The lock is another one's by the same token", lock_name=self.name)
        except ANSWERED as error:
            if code(error) != "HOLDMISMATCH":
                raise
            # The server has come late to a request for one more hold: the last release gives up all.
            await node.give_up(held.request)

    async def _give_up_holds(self, held: Held) -> None:
        """Leaves as many holds as are noted. A hold that is not there any more is not given up again."""

        async def leave(node: Node) -> None:
            with node.client.given.giving_up(held.request):
                while held.in_doubt > 1:
                    # From the highest that there may be.
                    await self._leave(node, held.request, held.holds + held.in_doubt)
                    held.in_doubt -= 1
                hold = held.holds + 1
                if not await self._leave(node, held.request, hold):
                    # The server may have come late to a request for one more hold, asked again and given up since.
                    await node.release(held.request, hold + 1)
                    await node.release(held.request, hold)

        try:
            self._raise_if_lost(self._is_anothers(held))
            await self._settle(held)
            await self._ask(leave, held.exchanges)
        except LockNotOwnedError:
            # The holds that are noted are lost, too, but their holders have yet to hear of it, each by its own release.
            held.in_doubt = 0
            raise
        held.in_doubt = 0

    async def _leave(self, node: Node, request: Request, hold: int) -> bool:
        """Gives up a hold; whether it is, or was, the highest."""
        try:
            await node.release(request, hold)
            return True
        except ANSWERED as error:
            if code(error) != "HOLDMISMATCH":
                raise
            return False

    async def _settle(self, held: Held) -> None:
        """Waits for what is under way: the server would come to it after what is asked next."""
        await held.exchanges.settle()
        if self._node is not None:
            await self._node.connections.settle(held.request.token)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Adds seconds to the lease, or with ``replace_ttl`` sets it to so many."""
        held = self._mine()
        if held is None:
            raise LockError("Cannot extend an unlocked lock", lock_name=self.name)
        if self.timeout is None:
            raise LockError("Cannot extend a lock with no timeout", lock_name=self.name)
        return await self._extend(held, int(additional_time * 1000), not replace_ttl)

    async def reacquire(self) -> bool:
        """Sets the lease to ``timeout`` again."""
        held = self._mine()
        if held is None:
            raise LockError("Cannot reacquire an unlocked lock", lock_name=self.name)
        if self.timeout is None:
            raise LockError("Cannot reacquire a lock with no timeout", lock_name=self.name)
        return await self._extend(held, int(self.timeout * 1000), False)

    async def _extend(self, held: Held, lease_ms: int, add: bool) -> bool:
        asked, times_seen = runtime.now(), held.times_seen

        async def extend(node: Node) -> None:
            held.lease_was_set(asked, await node.extend(held.request, lease_ms, add), times_seen)
            if held.keeper is None:
                self._see_to(held, node)

        await self._ask_as_holder(held, extend)
        return True

    async def fence(self, counter: str | bytes | None = None) -> int:
        """Draws a fencing token, higher than all that were drawn before; the resource refuses lower ones.

        ``counter`` is the key of the counter, in a cluster in the slot of the lock. By default it is the name of the
        lock, in braces if it has none, and ``:fence``.
        """
        held = self._mine()
        if held is None:
            raise LockError("Cannot draw a fencing token for an unlocked lock", lock_name=self.name)
        key = self._bytes(counter) if counter is not None else fence_counter(self._key)
        return await self._ask_as_holder(held, lambda node: node.fence(held.request, key))  # type: ignore[no-any-return]

    async def locked(self) -> bool:
        """Whether anybody holds the lock."""
        return bool((await self._info())[b"state"] != b"free")

    async def owned(self) -> bool:
        """Whether this lock object holds the lock, as the server says."""
        held = self._mine()
        if held is None or self._is_lost_for_good(held):
            return False
        try:
            if self.shared:
                owned = await self._at_node(lambda node: node.share(held.request)) is not None
            else:
                owned = (await self._info())[b"owner"] == held.request.token
        except ANSWERED as error:
            if code(error) in GONE:
                return False
            raise
        if not owned or self._is_lost_for_good(held):
            return False
        self._has_held(held)
        return True

    async def _info(self) -> dict[bytes, Any]:
        return await self._at_node(lambda node: node.info(self._key))  # type: ignore[no-any-return]

    @property
    def native(self) -> bool | None:
        """Whether the server has the module, as it said last; None before anything was asked."""
        return None if self._node is None else self._node.native

    @property
    def lost(self) -> runtime.Event:
        """Set when the lock is lost, at once; cleared when it is taken again, a re-entrant one after its last release.

        The server is asked to tell from the first look on, or at once if there is a session, ``renew`` or ``on_lost``:
        take the event before the work begins. With ``thread_local`` it is the calling thread's.
        """
        local = self.local
        if runtime.loop_runs():
            held = self._mine()
            if held is not None and not held.watched:
                held.lose_if_due()
                held.watch()
        local.wants_to_know = True
        return local.lost_event()

    def _mine(self) -> Held | None:
        """What is held, unless a fork has left it with the parent."""
        local = self.local
        if local.process != os.getpid():
            return None
        if local.is_of_another_loop:
            # Connections and timers ended with that, but not the lock: as if another one had handed it over.
            local.token = local.token
        if local.held is None and local.token is not None:
            # It was handed over. How much is left of its lease is learnt when it is extended.
            request = self._request(local.token, given=True)
            former, held = Client.of(self.redis).holder(request), self._held(request)
            local.hold(held)
            if former is not None and former.keeper is not None:
                held.inherit(former)
                self._see_to(held, former.keeper.node)
        return local.held

    async def _at_node(self, ask: Callable[[Node], Any], exchanges: runtime.Exchanges | None = None) -> Any:
        """Asks the server that has the key."""

        def at(node: Node) -> Any:
            self._node = node
            return ask(node)

        return await Client.of(self.redis).ask(self._key, at, exchanges)

    async def _ask(self, ask: Callable[[Node], Any], exchanges: runtime.Exchanges | None = None) -> Any:
        """The same for what is held; errors of the server are exceptions of locks."""
        try:
            return await self._at_node(ask, exchanges)
        except ANSWERED as error:
            if code(error) in GONE:
                raise LockNotOwnedError(f"The lock is no longer owned: {error}", lock_name=self.name) from error
            if code(error) == "NOLEASE":
                raise LockError("Cannot extend a lock with no timeout", lock_name=self.name) from error
            raise

    async def _ask_as_holder(self, held: Held, ask: Callable[[Node], Any]) -> Any:
        """The same for what only the holder gets: LockNotOwnedError, too, if another one has it by its token."""

        async def asked(node: Node) -> Any:
            answer = await ask(node)
            self._has_held(held)
            return answer

        self._raise_if_lost(self._is_lost_for_good(held))
        answer = await self._ask(asked)
        # It may have been lost meanwhile.
        self._raise_if_lost(self._is_lost_for_good(held))
        return answer

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
