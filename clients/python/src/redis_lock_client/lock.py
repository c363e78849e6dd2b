"""What locks for threads and for tasks have in common: arguments, and the holds of each caller."""

from __future__ import annotations

import logging
import os
import secrets
import weakref
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from . import acquisition, holding
from .arguments import Seconds, check_label, check_limit, key_of, seconds, token_of
from .errors import LIBRARIES, LockError
from .flow import Flow, Steps
from .holding import Hold, with_lock_errors
from .request import Request, hash_tag, label_of
from .source import source_of
from .taken import Local, Taken, drop, tell

logger = logging.getLogger("redis_lock_client")
L = TypeVar("L", bound="BaseLock")


class _Everybody:
    """Stands for the holder of a lock object whose holds all threads share."""


_EVERYBODY = _Everybody()


class BaseLock:
    """The arguments of a lock, which are the same for threads and for tasks."""

    _event: Callable[[], Any]
    _registry: Callable[[], Any]
    _engine_of: Callable[[Any], Any]
    _caller: Callable[[], Any]
    _client_module: str
    _has_loop: bool

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
            watch: The lock is watched from the acquisition on, so that ``lost`` is set at once. Without it, it is
                watched from the first time on that ``lost`` is read; ``session``, ``renew`` and ``on_lost`` watch it,
                too.
            label: A name for the holder, 1 to 64 printable characters, that LOCK.INFO shows before the random token.

        Raises:
            ValueError: An argument is out of range, or two do not go together.
        """
        lease = seconds(timeout or None, "timeout", 0.001)
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
        self._check_client(redis)
        self._source = source_of(redis)
        self._is_watched = watch or session or renew or on_lost is not None
        self._lease_ms = int(lease * 1000) if lease else None
        #: What each thread or task holds by this object.
        self._holds: Any = self._registry()
        self._events: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @classmethod
    def from_url(cls: type[L], url: str, name: str | bytes, **arguments: Any) -> L:
        """Returns a lock with a client of its own for a URL such as ``redis://localhost:6379/0``."""
        for library in LIBRARIES:
            try:
                module = import_module(f"{library}{cls._client_module}")
            except ModuleNotFoundError:
                continue
            return cls(module.from_url(url), name, **arguments)
        raise ImportError("redis-lock-client needs a client library: install redis or valkey")

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
        self._find()
        holds = self._holds.get(self._holder()) or self._inherited()
        for taken in holds:
            if taken.engine.now() >= taken.hold.request.ends_at and not (self.renew or self.session):
                taken.lost.set()
            taken.engine.post(self._watch, taken)
        return holds[-1].lost if holds else self._event_of(self._holder())

    # ---- what the caller holds ---------------------------------------------------------------------------------------

    def _check_client(self, redis: Any) -> None:
        is_async = "asyncio" in type(redis).__module__ or "aio" in type(redis).__module__.lower()
        if is_async != self._has_loop and type(redis).__module__.partition(".")[0] in LIBRARIES:
            kind = "redis_lock_client.asyncio.Lock" if is_async else "redis_lock_client.Lock"
            raise TypeError(f"this client needs {kind}")

    def _engine(self) -> Any:
        return type(self)._engine_of(self._source)

    def _holder(self) -> Any:
        return type(self)._caller() or _EVERYBODY if self.thread_local else _EVERYBODY

    def _event_of(self, holder: Any) -> Any:
        event = self._events.get(holder)
        if event is None:
            event = self._events[holder] = type(self)._event()
        return event

    def _find(self, holder: Any = None) -> Taken | None:
        """Returns the latest hold of the caller."""
        holds = self._holds.get(holder or self._holder()) or self._inherited()
        if holds and holds[-1].process != os.getpid():
            self._holds.clear()  # After a fork they are the parent's.
            return None
        return holds[-1] if holds else None

    def _inherited(self) -> list[Taken]:
        """Returns the holds of a task that has ended, as that of the set-up of a test has."""
        return []

    def _mine(self, message: str, holder: Any) -> Taken:
        taken = self._find(holder)
        if taken is None:
            raise LockError(message, self.name)
        return taken

    def _request(self, token: str | bytes) -> Request:
        return Request(
            self._key, token_of(token), self._lease_ms, self.reentrant, self.shared, self.limit, self.session
        )

    def _note(self, engine: Any, holder: Any, request: Request) -> Taken:
        """Notes that a lock is held."""
        lost = self._event_of(holder)
        if lost.is_set():
            lost = self._events[holder] = type(self)._event()
        hold = Hold(request, self.renew, partial(self._on_loss(), engine, lost, self.on_lost))
        hold.set_lease(request.sent_at, request.lease_ms)
        taken = Taken(engine, hold, lost)
        holds = self._holds.setdefault(holder, [])
        if not self.shared:
            for earlier in holds:  # They are lost, or this one could not have been acquired.
                earlier.detach()
                if earlier.hold.watcher is not None:
                    engine.scheduler.cancel(earlier.hold.watcher)
            holds.clear()
        holds.append(taken)
        return taken

    def _on_loss(self) -> Callable[..., None]:
        return tell

    def _watch(self, taken: Taken) -> None:
        if taken.hold.watcher is None and taken.hold.count:
            taken.hold.watcher = taken.engine.scheduler.start(holding.watch, taken.hold)

    def _remove(self, taken: Taken) -> None:
        for holder, holds in [*self._holds.items()]:
            if taken in holds:
                holds.remove(taken)
                if not holds:
                    del self._holds[holder]

    # ---- for an engine to run: (engine, what undoes it, the flow) ----------------------------------------------------

    def _acquire(
        self,
        blocking: bool | None,
        patience: Seconds | None,
        token: str | bytes | None,
        holder: Any = None,
        sleep: float | None = None,
    ) -> tuple[Any, ...]:
        holder, engine = holder or self._holder(), self._engine()
        if self.reentrant and self._holds.get(holder) and (taken := self._find(holder)) is not None:
            undo = partial(self._release_anyway, taken, taken.hold.count + 1)
            return engine, undo, partial(self._enter_again, taken.hold)
        if not (self.blocking if blocking is None else blocking):
            limit: float | None = 0.0
        else:
            limit = self.blocking_timeout if patience is None else seconds(patience, "blocking_timeout")
        pause, is_given = self.sleep if sleep is None else seconds(sleep, "sleep", 0), token is not None
        if token is None:
            token = secrets.token_hex(16) if self.label is None else f"{self.label}:{secrets.token_hex(16)}"
        request = self._request(token)
        steps = partial(self._acquiring, engine, holder, request, limit, pause or 0.001, is_given)
        return engine, partial(self._give_back, engine, request), steps

    def _acquiring(
        self,
        engine: Any,
        holder: Any,
        request: Request,
        patience: float | None,
        sleep: float,
        is_given: bool,
        flow: Flow,
    ) -> Steps:
        if is_given:
            earlier = engine.tokens.get((request.key, request.token))
            if earlier is not None and earlier.outcome_unknown and engine.now() < earlier.ends_at:
                raise LockError("this process acquires or holds the lock with this token already", self.name)
            engine.tokens[request.key, request.token] = request
        began_at = engine.now()
        if not (yield from acquisition.acquire(flow, request, patience, sleep)):
            logger.debug(
                "%r did not get lock %r in %.3f s", label_of(request.token), self.name, engine.now() - began_at
            )
            return False
        logger.debug("%r got lock %r after %.3f s", label_of(request.token), self.name, engine.now() - began_at)
        # It is noted before the caller hears of it: should the caller be interrupted, the object knows.
        taken = self._note(engine, holder, request)
        if self._is_watched:
            self._watch(taken)
        return True

    def _give_back(self, engine: Any, request: Request) -> None:
        for taken in [taken for holds in [*self._holds.values()] for taken in holds]:
            if taken.hold.request is request:
                self._remove(taken)
                if taken.detach():
                    drop(engine.scheduler, taken.hold)
                return
        if request.outcome_unknown:
            engine.scheduler.start(acquisition.withdraw, request)

    def _enter_again(self, hold: Hold, flow: Flow) -> Steps:
        return (yield from with_lock_errors(self.name, holding.enter_again(flow, hold)))

    def _release(self, holder: Any = None) -> tuple[Any, ...]:
        taken = self._mine("Cannot release a lock that's not owned or is already unlocked.", holder)
        undo = partial(self._release_anyway, taken, taken.hold.count)
        return self._engine(), undo, partial(self._releasing, taken)

    def _releasing(self, taken: Taken, flow: Flow) -> Steps:
        if taken.hold.count == 1:
            # Not before this runs: should the caller be interrupted, the object knows that it holds the lock.
            taken.detach()
            self._remove(taken)
        yield from with_lock_errors(self.name, holding.release(flow, taken.hold))
        logger.debug("%r released lock %r", label_of(taken.hold.request.token), self.name)

    def _release_anyway(self, taken: Taken, number: int) -> None:
        """Releases the hold with this number, because the caller was interrupted while it took or released it."""
        if number > 1:
            taken.hold.count = number - 1  # The next release releases it, too.
        else:
            taken.detach()
            self._remove(taken)
            drop(taken.engine.scheduler, taken.hold)

    def _extend(self, additional: Seconds | None, add: bool, holder: Any = None) -> tuple[Any, ...]:
        taken = self._mine("Cannot extend an unlocked lock", holder)
        if additional is None or not self.timeout:
            raise LockError("Cannot extend a lock with no timeout", self.name)
        lease_ms = int((seconds(additional, "additional_time", 0.001) or 0) * 1000)
        return self._engine(), _nothing, partial(self._as_holder, holding.extend, taken.hold, lease_ms, add)

    def _fence(self, counter: str | bytes | None, holder: Any = None) -> tuple[Any, ...]:
        taken = self._mine("Cannot get a fencing token for an unlocked lock", holder)
        if counter is None:
            tag = hash_tag(self._key)
            counter = self._key + b":fence" if tag != self._key else b"{" + self._key + b"}:fence"
        key = counter if isinstance(counter, bytes) else counter.encode()
        return self._engine(), _nothing, partial(self._as_holder, holding.fence, taken.hold, key)

    def _as_holder(self, steps: Callable[..., Steps], *args: Any) -> Steps:
        *rest, flow = args
        return (yield from with_lock_errors(self.name, steps(flow, *rest)))

    def _locked(self) -> tuple[Any, ...]:
        return self._engine(), _nothing, lambda flow: holding.info(flow, self._key)

    def _owned(self, holder: Any = None) -> tuple[Any, ...] | None:
        taken = self._find(holder)
        return (
            None if taken is None else (self._engine(), _nothing, partial(self._as_holder, holding.owned, taken.hold))
        )

    def _leave(self, failure: Exception, error: BaseException | None) -> None:
        """Raises the error of a release at the end of a block, unless the block has raised one itself."""
        if error is None and (self.raise_on_release_error or not isinstance(failure, LockError)):
            raise failure
        what = "was lost before it was released" if isinstance(failure, LockError) else "could not be released"
        logger.warning("lock %r %s: %s", self.name, what, failure)


def _nothing() -> None:
    pass
