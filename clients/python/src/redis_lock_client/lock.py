"""What locks for threads and for tasks have in common: arguments, methods, and the holds of each caller."""

# What a flow returns, its engine does not know.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import logging
import os
import secrets
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Self, TypeVar

from . import acquisition, holding
from .arguments import LEASES, AnyClient, Seconds, bytes_of, check, check_client, check_options, plain, seconds
from .errors import LockError, LockNotOwnedError, LockTimeout, logger
from .flow import Flow, Operation, Steps, nothing
from .holding import Hold, Taken, for_holder
from .library import WHOSE, library_lock, retry_of
from .request import Kind, label_of
from .source import find_source

#: What methods return: None, a bool or an int, or with asyncio a coroutine that returns it.
Nothing = TypeVar("Nothing")
Bool = TypeVar("Bool")
Int = TypeVar("Int")
Event = TypeVar("Event")
Client = TypeVar("Client", bound=AnyClient)


class BaseLock(Generic[Client, Event, Nothing, Bool, Int]):
    """The arguments of a lock, which are the same for threads and for tasks."""

    _new_event: Callable[[], Event]
    _engine_of: Callable[[Any], Any]
    _caller: Callable[[], Any]
    _has_loop: bool
    _run: Callable[..., Any]
    #: Other attributes are refused: they would be ignored.
    __slots__ = (
        *("_holds", "_kind", "_library", "_name", "_process", "_redis", "_retry", "_source", "__weakref__"),
        *("timeout", "sleep", "blocking", "blocking_timeout", "thread_local", "raise_on_release_error"),
        *("cancel_on_lost", "label", "watch"),
    )

    def __init__(
        self,
        redis: Client,
        name: str | bytes,
        timeout: Seconds | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: Seconds | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        session: bool = False,
        shared: bool = False,
        limit: int | None = None,
        reentrant: bool = False,
        renew: bool = False,
        on_lost: Callable[[], object] | None = None,
        watch: bool = False,
        label: str | None = None,
        max_waiters: int | None = None,
        cancel_on_lost: bool = False,
    ) -> None:
        """Describes a lock; nothing is sent yet.

        Args:
            redis: A client of redis-py or valkey-py, of one server, a cluster, or Sentinel.
            name: The key of the lock.
            timeout: The lease, after which the lock is free by itself: seconds, at least 0.001, or a timedelta. None:
                it is held until it is released.
            sleep: The longest pause between two attempts in seconds, where the server has not loaded the module.
            blocking: Whether ``acquire`` waits.
            blocking_timeout: How long it waits at most: seconds or a timedelta. None: without limit.
            thread_local: Whether each thread holds for itself. Else any thread may release what another one has
                acquired.
            raise_on_release_error: Whether leaving a block raises LockNotOwnedError if the lock was lost in it. Else it
                is logged.
            session: The server renews the lease for as long as the connection of this process is open, and frees the
                lock a second after the process has died. Needs ``timeout``.
            shared: The lock is held together with other shared holders, and excludes all others.
            limit: The most clients that hold it together: a semaphore. At least 1.
            reentrant: Its holder can acquire it again, and releases it as often.
            renew: This process renews the lease after each third of it. Needs ``timeout``.
            on_lost: Called once when the lock is lost, in a thread of its own. With asyncio it may be a coroutine
                function.
            watch: The lock is watched from the acquisition on, so that ``lost`` is set immediately. Without it, it is
                watched from the first time on that ``lost`` is read; ``session``, ``renew`` and ``on_lost`` watch it,
                too.
            label: A name for the holder, 1 to 64 printable characters, that LOCK.INFO shows before the random token.
            max_waiters: ``acquire`` raises LockQueueFull if this number waits already, here or at the server.
            cancel_on_lost: For asyncio: a block whose lock is lost is cancelled, and ends with LockNotOwnedError.

        Raises:
            ValueError: An argument is out of range, or two do not go together.
        """
        lease, is_shared = seconds(timeout or None, "timeout", *LEASES), shared or limit is not None
        check(not (reentrant and is_shared), "a lock is either shared or re-entrant")
        check(not cancel_on_lost or self._has_loop, "cancel_on_lost is for asyncio")
        check_options(lease, session, renew, limit, max_waiters, on_lost, label)
        check_client(redis, has_loop=self._has_loop)
        key = bytes_of(name, "the name of a lock")
        self._kind = Kind(key, reentrant, limit, is_shared, session, max_waiters, renew, on_lost)
        self._redis, self._name, self.timeout, self.sleep = redis, name, lease, seconds(sleep, "sleep", 0)
        self.blocking, self.thread_local = blocking, thread_local
        self.blocking_timeout = seconds(blocking_timeout, "blocking_timeout", 0)
        self.raise_on_release_error, self.cancel_on_lost, self.label = raise_on_release_error, cancel_on_lost, label
        self.watch = watch or session or renew or cancel_on_lost or on_lost is not None
        self._process, self._source, self._retry = os.getpid(), find_source(redis), retry_of(redis)
        #: The lock of the library, for a client whose commands others than the library execute.
        self._library = None if self._source is not None else library_lock(self, redis)
        #: What each thread or task holds by this object.
        self._holds: weakref.WeakKeyDictionary[Any, list[Taken]] = weakref.WeakKeyDictionary()

    @property
    def redis(self) -> Client:
        """The client."""
        return self._redis

    @property
    def name(self) -> str | bytes:
        """The key of the lock."""
        return self._name

    @property
    def local(self) -> Self:
        """The lock itself, so that ``lock.local.token`` is its `token`, as with redis-py."""
        return self

    @property
    def token(self) -> bytes | None:
        """The token by which the caller holds the lock, None if it does not."""
        if self._library is not None:
            return self._library.local.token
        holds = self._held(self._holder())
        return holds[-1].hold.token if holds else None

    @property
    def lost(self) -> Event:
        """An event that is set when the lock that the caller holds is lost.

        The lock is watched from the first time on that this is read, or from the acquisition on with ``watch=True``.
        """
        if self._library is not None:
            self._engine()
        self.watch = True
        holds = self._held(self._holder())
        for hold in [taken.hold for taken in holds]:
            event = hold.event(type(self)._new_event)
            if hold.is_expired() and not (self._kind.renew or self._kind.session):
                event.set()
            hold.engine.post(hold.begin_watch)
        return holds[-1].hold.lost if holds else type(self)._new_event()

    def release(self) -> Nothing:
        """Releases the lock. Raises LockNotOwnedError if it is lost, LockError if the caller does not hold it."""
        return self._run("_release")

    def extend(self, additional_time: Seconds, replace_ttl: bool = False) -> Bool:
        """Adds seconds to the lease, or sets it with ``replace_ttl``.

        Returns True. Raises LockNotOwnedError, LockError.
        """
        return self._run("_extend", additional_time=additional_time, replace_ttl=replace_ttl)

    def reacquire(self) -> Bool:
        """Sets the lease to ``timeout`` again. Returns True. Raises LockNotOwnedError, LockError."""
        return self._run("_reacquire")

    def fence(self, counter: str | bytes | None = None) -> Int:
        """Returns a fencing token, greater than each one before. ``counter`` is its key. Raises ModuleNeededError."""
        return self._run("_fence", counter=counter)

    def detach(self) -> bytes:
        """Leaves the lock held, and returns the token by which `attach` takes it over, in any process.

        Raises LockError if the caller does not hold it, ValueError for a session, which belongs to its connection.
        """
        check(not self._kind.session, "a session cannot be handed over")
        taken = self._mine(holder := self._holder(), "Cannot hand over a lock that is not held")
        if taken.hold.is_lost:
            raise LockNotOwnedError("The lock is no longer owned", self.name)
        self._forget(holder, taken)
        self._engine().post(taken.hold.end_watch)
        return taken.hold.token

    def attach(self, token: str | bytes) -> Nothing:
        """Takes over a lock by its token, and sets its lease. Raises LockNotOwnedError if the token holds nothing."""
        return self._run("_attach", token=token)

    def locked(self) -> Bool:
        """Returns whether any client holds the lock."""
        return self._run("_locked")

    def owned(self) -> Bool:
        """Returns whether the caller holds the lock."""
        return self._run("_owned")

    # ---- what the caller holds ---------------------------------------------------------------------------------------

    def _engine(self) -> Any:
        if self._library is not None:
            raise LockError(f"this needs {WHOSE}", self.name)
        return type(self)._engine_of(self._source)

    def _of_library(self, method: str, arguments: dict[str, Any]) -> Any:
        """Calls a method of the library's lock."""
        if not hasattr(self._library, method[1:]):
            self._engine()
        return getattr(self._library, method[1:])(**{name: plain(value) for name, value in arguments.items()})

    def _holder(self) -> Any:
        """Returns the thread or task that holds what this one acquires. A class stands for all of them."""
        return type(self)._caller() or BaseLock if self.thread_local else BaseLock

    def _held(self, holder: Any) -> list[Taken]:
        """Returns the holds of a caller, the latest one last."""
        if self._process != os.getpid():
            self._holds.clear()  # After a fork they are the parent's.
            self._process = os.getpid()
        holds: list[Taken] = self._holds.get(holder, [])
        return holds

    def _mine(self, holder: Any, message: str) -> Taken:
        holds = self._held(holder)
        if not holds:
            raise LockError(message, self.name)
        return holds[-1]

    def _hold(self, engine: Any, token: str | bytes) -> Hold:
        data = bytes_of(token, "a token")
        check(1 <= len(data) <= 1024, "a token must have 1 to 1024 bytes")
        return Hold(self._kind, data, int(self.timeout * 1000) if self.timeout else None, engine=engine)

    def _note(self, holder: Any, hold: Hold, asked_at: float) -> None:
        """Notes that a lock is held."""
        holds = self._holds.setdefault(holder, [])
        if not self._kind.shared:
            for earlier in holds:  # They are lost, or this one could not have been acquired.
                earlier.detach()
                earlier.hold.end_watch()
                earlier.hold.lose()
            holds.clear()
        if holds and not holds[-1].hold.is_lost:
            hold.lost = holds[-1].hold.event(type(self)._new_event)  # Any permit that is lost sets it.
        hold.acquired(asked_at)
        holds.append(Taken(hold))
        if self.watch:
            hold.begin_watch()

    def _forget(self, holder: Any, taken: Taken) -> None:
        taken.detach()
        self._holds[holder] = [one for one in self._holds.get(holder, []) if one is not taken]

    # ---- what an engine runs -----------------------------------------------------------------------------------------

    def _acquire(
        self, holder: Any, blocking: bool | None, blocking_timeout: Any, token: Any, sleep: float | None = None
    ) -> Operation:
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        patience = seconds(patience, "blocking_timeout", 0)
        if not (self.blocking if blocking is None else blocking):
            patience = 0.0
        pause = self.sleep if sleep is None else seconds(sleep, "sleep", 0)
        if token is None:
            token = secrets.token_hex(16) if self.label is None else f"{self.label}:{secrets.token_hex(16)}"
        hold, holds = self._hold(self._engine(), token), self._held(holder)
        if self._kind.reentrant and holds:
            undo = partial(self._lower, holder, holds[-1], holds[-1].hold.count + 1)
            return Operation(undo, self._asking, (holding.enter_again, holds[-1].hold))
        undo = partial(self._give_back, holder, hold)
        return Operation(undo, self._acquiring, (holder, hold, patience, pause or 0.001))

    def _asking(self, flow: Flow, steps: Callable[..., Steps], *args: Any) -> Steps:
        flow.retry = self._retry
        return (yield from for_holder(flow, self.name, steps, *args))

    def _acquiring(self, flow: Flow, holder: Any, hold: Hold, patience: float | None, sleep: float) -> Steps:
        began_at = flow.scheduler.now()
        is_held = yield from self._asking(flow, acquisition.acquire, hold, patience, sleep)
        if logger.isEnabledFor(logging.DEBUG):
            result, took = "got" if is_held else "did not get", flow.scheduler.now() - began_at
            logger.debug("%r %s lock %r after %.3f s", label_of(hold.token), result, self.name, took)
        if is_held:
            # It is noted before the caller hears of it: should the caller be interrupted, the object knows.
            self._note(holder, hold, hold.sent.at if hold.sent else began_at)
        return is_held

    def _give_back(self, holder: Any, hold: Hold) -> None:
        for taken in [taken for taken in self._holds.get(holder, []) if taken.hold is hold]:
            self._forget(holder, taken)
        if hold.outcome_unknown:
            hold.drop()

    def _release(self, holder: Any) -> Operation:
        chosen: list[Any] = []
        return Operation(partial(self._undo_release, holder, chosen), self._releasing, (holder, chosen))

    def _releasing(self, flow: Flow, holder: Any, chosen: list[Any]) -> Steps:
        taken = self._mine(holder, "Cannot release a lock that's not owned or is already unlocked.")
        chosen += [taken, taken.hold.count]
        if taken.hold.count == 1:
            # Not before this runs: should the caller be interrupted, the object knows that it holds the lock.
            self._forget(holder, taken)
        yield from self._asking(flow, holding.release, taken.hold)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%r released lock %r", label_of(taken.hold.token), self.name)

    def _undo_release(self, holder: Any, chosen: list[Any]) -> None:
        if not chosen and (holds := self._held(holder)):  # The flow has not begun.
            chosen += [holds[-1], holds[-1].hold.count]
        if chosen:
            self._lower(holder, *chosen)

    def _lower(self, holder: Any, taken: Taken, number: int) -> None:
        """Undoes the acquisition with this number, because the caller was interrupted while it took or released it."""
        taken.hold.count = min(taken.hold.count, number - 1)
        if number == 1:
            self._forget(holder, taken)
            taken.hold.drop()

    def _reacquire(self, holder: Any) -> Operation:
        return self._extend(holder, self.timeout, True)

    def _extend(self, holder: Any, additional_time: Seconds | None, replace_ttl: bool) -> Operation:
        taken = self._mine(holder, "Cannot extend an unlocked lock")
        if additional_time is None or not self.timeout:
            raise LockError("Cannot extend a lock with no timeout", self.name)
        lease_ms = int((seconds(additional_time, "additional_time", *LEASES) or 0) * 1000)
        return Operation(nothing, self._asking, (holding.extend, taken.hold, lease_ms, not replace_ttl))

    def _fence(self, holder: Any, counter: str | bytes | None) -> Operation:
        taken = self._mine(holder, "Cannot get a fencing token for an unlocked lock")
        own = None if counter is None else bytes_of(counter, "a counter")
        words = taken.hold.fence(self._source.in_cluster, own)
        return Operation(nothing, self._asking, (holding.fence, taken.hold, words))

    def _attach(self, holder: Any, token: str | bytes) -> Operation:
        return Operation(nothing, self._attaching, (holder, self._hold(self._engine(), token)))

    def _attaching(self, flow: Flow, holder: Any, hold: Hold) -> Steps:
        asked_at = flow.scheduler.now()
        yield from self._asking(flow, holding.attach, hold)
        self._note(holder, hold, asked_at)

    def _report_to(self, event: Any) -> None:
        """Sets an event, too, when the lock that the caller holds is lost."""
        lost: Any = self.lost
        if lost.is_set():
            event.set()
        for taken in self._held(self._holder()):
            taken.hold.lost = event

    def _locked(self, holder: Any) -> Operation:
        return Operation(nothing, self._asking, (holding.locked, self._kind.key))

    def _owned(self, holder: Any) -> Operation:
        holds = self._held(holder)
        return Operation(nothing, self._asking, (holding.owned, holds[-1].hold if holds else None))

    def _timeout(self) -> LockTimeout:
        return LockTimeout("Unable to acquire lock within the time specified", self.name)

    def _logs(self, failure: Exception, error: BaseException | None) -> bool:
        """Logs the error of a release at the end of a block. Returns False if the block has to raise it."""
        if error is None and (self.raise_on_release_error or not isinstance(failure, LockError)):
            return False
        is_lost = isinstance(failure, LockNotOwnedError)
        what = "was lost before it was released" if is_lost else "could not be released"
        logger.warning("lock %r %s: %s", self.name, what, failure)
        return True
