# Made from _async/given.py by generate.py.
"""Requests by tokens that callers have given: others may have the same one, and it may be given again."""

from __future__ import annotations

import threading
import weakref

from ..protocol import Request
from . import runtime


class _Requests:
    """Some requests, each as long as somebody else has it."""

    def __init__(self) -> None:
        self._by_number: weakref.WeakValueDictionary[int, Request] = weakref.WeakValueDictionary()

    def __contains__(self, request: Request) -> bool:
        return self._by_number.get(id(request)) is request

    def add(self, request: Request) -> None:
        self._by_number[id(request)] = request

    def discard(self, request: Request) -> None:
        self._by_number.pop(id(request), None)

    def same_as(self, request: Request) -> list[Request]:
        """Others that the server takes for this one."""
        # Copied in one step: a signal handler may add another one.
        some = [reference() for reference in self._by_number.valuerefs()]
        return [one for one in some if one is not None and one is not request and one.is_same(request)]


class Given:
    """Which request by a token is the latest, so that what belongs to it is not taken for an earlier one's."""

    def __init__(self) -> None:
        # What is guarded takes no time, but a signal handler may come in between and want the same.
        self._guard = threading.RLock()
        #: Those that were sent, and those of them that have held the lock.
        self._known, self._holders = _Requests(), _Requests()
        #: Those after which the same was asked for by the same token.
        self._superseded = _Requests()
        #: Holders after which another one has begun to take the lock, so that it was free.
        self._replaced = _Requests()
        #: What each has changed for others.
        self._changes: weakref.WeakKeyDictionary[Request, list[tuple[_Requests, weakref.ref[Request]]]]
        self._changes = weakref.WeakKeyDictionary()
        #: What is being given up, and what says when that is done.
        self._being_given_up: list[tuple[Request, runtime.Event]] = []

    def note(self, request: Request, takes: bool = False) -> None:
        """Notes a request when it is about to be sent; with ``takes`` it takes a lock that nobody has by its token."""
        if request.given:
            with self._guard:
                others = self._known.same_as(request)
                changes = self._changes.setdefault(request, [])
                if not takes and any(other in self._holders and other not in self._replaced for other in others):
                    self._holders.add(request)  # It was handed over.
                for other in others:
                    _add(other, self._superseded, changes)
                    if takes and other in self._holders:
                        _add(other, self._replaced, changes)
                self._superseded.discard(request)
                self._known.add(request)

    def has_held(self, request: Request) -> None:
        """The server has said that it holds the lock, so whoever takes that later by its token replaces it."""
        if request.given:
            with self._guard:
                self._holders.add(request)

    def took_nothing(self, request: Request) -> None:
        """It was refused because another one has the lock, by the same token in another form."""
        with self._guard:
            for some, reference in self._changes.pop(request, []):
                if (other := reference()) is not None:
                    some.discard(other)

    def was_released(self, request: Request) -> None:
        """Its holder has released it: whoever takes the lock later replaces nobody."""
        if request.given:
            with self._guard:
                self._holders.discard(request)
                self.is_over(request)

    def is_latest(self, request: Request) -> bool:
        """Whether it was sent, and nobody has asked for the same lock by the same token since."""
        return not request.given or (request in self._known and request not in self._superseded)

    def is_replaced(self, request: Request) -> bool:
        """Whether the lock is another one's by now, by the same token, so that the server does not tell them apart."""
        return request in self._replaced

    def is_over(self, request: Request) -> None:
        """It holds nothing and waits no more: what was sent before it, and is still on its way, is to be given up."""
        if request.given:
            with self._guard:
                if self.is_latest(request):
                    for other in self._superseded.same_as(request):
                        self._superseded.discard(other)

    def note_unless_given_up(self, request: Request) -> runtime.Event | None:
        """Notes a request; not while the same is being given up: then it is for another attempt, after this event."""
        if request.given:
            with self._guard:
                for other, done in self._being_given_up:
                    if other.is_same(request):
                        return done
                self.note(request, takes=True)
        return None

    def begin_to_give_up(self, request: Request, done: runtime.Event) -> None:
        """From now on nobody else asks by the same token."""
        if request.given:
            with self._guard:
                self._being_given_up.append((request, done))

    def end(self, request: Request, done: runtime.Event) -> None:
        """It was given up, or could not be; can be said twice."""
        with self._guard:
            if (request, done) in self._being_given_up:
                self._being_given_up.remove((request, done))
        done.set()


def _add(request: Request, some: _Requests, changes: list[tuple[_Requests, weakref.ref[Request]]]) -> None:
    if request not in some:
        some.add(request)
        changes.append((some, weakref.ref(request)))
