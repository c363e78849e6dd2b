"""What locks for threads and for tasks have in common: arguments, and the holds of each caller."""

from __future__ import annotations

import logging
import os
import secrets
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from . import acquisition, holding
from .arguments import LEASES, Seconds, check_client, check_label, check_limit, key_of, seconds, token_of
from .errors import LockError, library_classes
from .flow import Flow, Steps
from .holding import Hold, with_lock_errors
from .request import Request, hash_tag, label_of
from .source import source_of
from .taken import Local, Taken, drop, tell

logger = logging.getLogger("redis_lock_client")
L = TypeVar("L", bound="BaseLock")


class BaseLock:
    """The arguments of a lock, which are the same for threads and for tasks."""

    _event: Callable[[], Any]
    _registry: Callable[[], Any]
    _engine_of: Callable[[Any], Any]
    _caller: Callable[[], Any]
    _report: Callable[..., None] = staticmethod(tell)
    _client_module: str

    def __init__(
        self,
        redis: Any,
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
            session: The server renews the lease for as long as the connection of this process is open. Needs
                ``timeout``.
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

        Raises:
            ValueError: An argument is out of range, or two do not go together.
        """
        lease = seconds(timeout or None, "timeout", *LEASES)
        if (session or renew) and not lease:
            raise ValueError("session and renew need a timeout")
        if reentrant and (shared or limit is not None):
            raise ValueError("a lock is either shared or re-entrant")
        if on_lost is not None and not callable(on_lost):
            raise TypeError("on_lost must be a function")
        check_limit(limit)
        check_label(label)
        self._key = key_of(name)
        self.redis, self.name, self.timeout, self.sleep = redis, name, lease, seconds(sleep, "sleep", 0)
        self.blocking, self.thread_local = blocking, thread_local
        self.blocking_timeout = seconds(blocking_timeout, "blocking_timeout")
        self.raise_on_release_error = raise_on_release_error
        self.session, self.shared, self.limit = session, shared or limit is not None, limit
        self.reentrant, self.renew, self.on_lost, self.label = reentrant, renew, on_lost, label
        check_client(redis, has_loop=bool(self._client_module))
        self._source = source_of(redis)
        self._is_watched = watch or session or renew or on_lost is not None
        self._lease_ms = int(lease * 1000) if lease else None
        #: What each thread or task holds by this object.
        self._holds: Any = self._registry()
        self._process = os.getpid()
        self._events: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @classmethod
    def from_url(cls: type[L], url: str, name: str | bytes, **arguments: Any) -> L:
        """Returns a lock with a client of its own for a URL such as ``redis://localhost:6379/0``."""
        return cls(library_classes("from_url", cls._client_module)[0](url), name, **arguments)

    @property
    def native(self) -> bool | None:
        """Whether the server has the module redis-lock, by its latest reply; None if it was not asked yet."""
        native: bool | None = self._engine().scheduler.servers.locate(self._key).native
        return native

    @property
    def local(self) -> Local:
        """The token of the caller's hold: ``lock.local.token``, as redis-py has it."""
        return Local(self)

    @property
    def lost(self) -> Any:
        """An event that is set when the lock that the caller holds is lost.

        The lock is watched from the first time on that this is read, or from the acquisition on with ``watch=True``.
        """
        self._is_watched = True
        holds = self._held(holder := self._holder())
        for taken in holds:
            if taken.engine.now() >= taken.hold.request.ends_at and not (self.renew or self.session):
                taken.lost.set()
            taken.engine.post(self._watch, taken)
        return holds[-1].lost if holds else self._event_of(holder)

    # ---- what the caller holds ---------------------------------------------------------------------------------------

    def _engine(self) -> Any:
        return type(self)._engine_of(self._source)

    def _holder(self) -> Any:
        """Returns the thread or task that holds what this one acquires. A class stands for all of them."""
        return type(self)._caller() or BaseLock if self.thread_local else BaseLock

    def _event_of(self, holder: Any) -> Any:
        event = self._events.get(holder)
        if event is None:
            event = self._events[holder] = type(self)._event()
        return event

    def _held(self, holder: Any) -> list[Taken]:
        """Returns the holds of a caller, the latest one last."""
        if self._process != os.getpid():
            self._holds.clear()  # After a fork they are the parent's.
            self._process = os.getpid()
        return self._holds.get(holder) or self._inherited()

    def _inherited(self) -> list[Taken]:
        """Returns the holds of a task that has ended, as that of the set-up of a test has."""
        return []

    def _mine(self, holder: Any, message: str) -> Taken:
        holds = self._held(holder)
        if not holds:
            raise LockError(message, self.name)
        return holds[-1]

    def _request(self, token: str | bytes) -> Request:
        return Request(
            self._key, token_of(token), self._lease_ms, self.reentrant, self.shared, self.limit, self.session
        )

    def _note(self, engine: Any, holder: Any, request: Request) -> Taken:
        """Notes that a lock is held."""
        lost = self._event_of(holder)
        if lost.is_set():
            lost = self._events[holder] = type(self)._event()
        hold = Hold(request, self.renew, partial(type(self)._report, engine, lost, self.on_lost))
        hold.set_lease(request.sent_at, request.lease_ms)
        taken = Taken(engine, hold, lost, holder)
        holds = self._holds.setdefault(holder, [])
        if not self.shared:
            for earlier in holds:  # They are lost, or this one could not have been acquired.
                earlier.detach()
                holding.end_watch(engine.scheduler, earlier.hold)
            holds.clear()
        holds.append(taken)
        return taken

    def _watch(self, taken: Taken) -> None:
        if taken.hold.watcher is None and taken.hold.count:
            taken.hold.watcher = taken.engine.scheduler.start(holding.watch, taken.hold)

    def _remove(self, taken: Taken) -> None:
        holder = taken.holder()
        holds = self._holds.get(holder, [])
        if taken in holds:
            holds.remove(taken)
            if not holds:
                self._holds.pop(holder, None)

    # ---- what an engine runs: what undoes it, the flow, its arguments ------------------------------------------------

    def _acquire(
        self, holder: Any, blocking: bool | None, patience: Seconds | None, token: Any, sleep: float | None = None
    ) -> tuple[Any, ...]:
        holds = self._held(holder)
        if self.reentrant and holds and holder in self._holds:
            undo = partial(self._release_anyway, holds[-1], holds[-1].hold.count + 1)
            return undo, self._as_holder, holding.enter_again, holds[-1].hold
        patience = self.blocking_timeout if patience is None else seconds(patience, "blocking_timeout")
        if not (self.blocking if blocking is None else blocking):
            patience = 0.0
        pause = self.sleep if sleep is None else seconds(sleep, "sleep", 0)
        if token is None:
            token = secrets.token_hex(16) if self.label is None else f"{self.label}:{secrets.token_hex(16)}"
        request = self._request(token)
        return partial(self._give_back, holder, request), self._acquiring, holder, request, patience, pause or 0.001

    def _acquiring(self, flow: Flow, holder: Any, request: Request, patience: float | None, sleep: float) -> Steps:
        engine, began_at = flow.scheduler.engine, flow.scheduler.now()
        is_held = yield from acquisition.acquire(flow, request, patience, sleep)
        result, took = "got" if is_held else "did not get", engine.now() - began_at
        logger.debug("%r %s lock %r after %.3f s", label_of(request.token), result, self.name, took)
        if is_held:
            # It is noted before the caller hears of it: should the caller be interrupted, the object knows.
            taken = self._note(engine, holder, request)
            if self._is_watched:
                self._watch(taken)
        return is_held

    def _give_back(self, holder: Any, request: Request) -> None:
        for taken in [*self._holds.get(holder, [])]:
            if taken.hold.request is request:
                return self._release_anyway(taken, 1)
        if request.outcome_unknown:
            self._engine().scheduler.start(acquisition.withdraw, request)

    def _release(self, holder: Any) -> tuple[Any, ...]:
        taken = self._mine(holder, "Cannot release a lock that's not owned or is already unlocked.")
        return partial(self._release_anyway, taken, taken.hold.count), self._releasing, taken

    def _releasing(self, flow: Flow, taken: Taken) -> Steps:
        if taken.hold.count == 1:
            # Not before this runs: should the caller be interrupted, the object knows that it holds the lock.
            taken.detach()
            self._remove(taken)
        yield from self._as_holder(flow, holding.release, taken.hold)
        logger.debug("%r released lock %r", label_of(taken.hold.request.token), self.name)

    def _release_anyway(self, taken: Taken, number: int) -> None:
        """Releases the hold with this number, because the caller was interrupted while it took or released it."""
        if number > 1:
            taken.hold.count = number - 1  # The next release releases it, too.
        else:
            taken.detach()
            self._remove(taken)
            drop(taken.engine.scheduler, taken.hold)

    def _extend(self, holder: Any, additional: Seconds | None, add: bool) -> tuple[Any, ...]:
        taken = self._mine(holder, "Cannot extend an unlocked lock")
        if additional is None or not self.timeout:
            raise LockError("Cannot extend a lock with no timeout", self.name)
        lease_ms = int((seconds(additional, "additional_time", *LEASES) or 0) * 1000)
        return _nothing, self._as_holder, holding.extend, taken.hold, lease_ms, add

    def _fence(self, holder: Any, counter: str | bytes | None) -> tuple[Any, ...]:
        taken = self._mine(holder, "Cannot get a fencing token for an unlocked lock")
        if counter is None:
            tag = hash_tag(self._key)
            counter = self._key + b":fence" if tag != self._key else b"{" + self._key + b"}:fence"
        key = key_of(counter)
        return _nothing, self._as_holder, holding.fence, taken.hold, key

    def _locked(self, holder: Any) -> tuple[Any, ...]:
        return _nothing, holding.locked, self._key

    def _owned(self, holder: Any) -> tuple[Any, ...]:
        holds = self._held(holder)
        return _nothing, self._as_holder, holding.owned, holds[-1].hold if holds else None

    def _as_holder(self, flow: Flow, steps: Callable[..., Steps], *args: Any) -> Steps:
        return (yield from with_lock_errors(self.name, steps(flow, *args)))

    def _leave(self, failure: Exception, error: BaseException | None) -> None:
        """Raises the error of a release at the end of a block, unless the block has raised one itself."""
        if error is None and (self.raise_on_release_error or not isinstance(failure, LockError)):
            raise failure
        what = "was lost before it was released" if isinstance(failure, LockError) else "could not be released"
        logger.warning("lock %r %s: %s", self.name, what, failure)


def _nothing() -> None:
    pass
