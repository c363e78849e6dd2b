# Made from _async/given.py by generate.py.
"""Requests by tokens that callers have given: others may have the same one, and it may be given again."""

from __future__ import annotations

import threading
import weakref

from ..protocol import Request
from . import runtime


class Given:
    """Which request by a token is the latest, so that what belongs to it is not taken for an earlier one's."""

    def __init__(self) -> None:
        # What is guarded takes no time, but a signal handler may come in between and want the same.
        self._guard = threading.RLock()
        #: Requests by their number, and those of them after which the same was asked for by the same token.
        self._known: weakref.WeakValueDictionary[int, Request] = weakref.WeakValueDictionary()
        self._superseded: weakref.WeakSet[Request] = weakref.WeakSet()
        #: Those after which another one has begun to take the lock, so that it was free.
        self._replaced: weakref.WeakSet[Request] = weakref.WeakSet()
        #: What is being given up, and what says when that is done.
        self._being_given_up: list[tuple[Request, runtime.Event]] = []

    def note(self, request: Request, takes: bool = False) -> None:
        """Notes a request when it is about to be sent; with ``takes`` it takes a lock that nobody has by its token."""
        if request.given:
            with self._guard:
                # Copied in one step: a signal handler may add another one.
                known = [reference() for reference in self._known.valuerefs()]
                others = [one for one in known if one is not None and one is not request and one.is_same(request)]
                self._superseded.update(others)
                self._superseded.discard(request)
                if takes:
                    self._replaced.update(others)
                self._known[id(request)] = request

    def is_latest(self, request: Request) -> bool:
        """Whether it was sent, and nobody has asked for the same lock by the same token since."""
        return not request.given or (self._known.get(id(request)) is request and request not in self._superseded)

    def is_replaced(self, request: Request) -> bool:
        """Whether the lock is another one's by now, by the same token, so that the server does not tell them apart."""
        return request in self._replaced

    def is_over(self, request: Request) -> None:
        """It holds nothing and waits no more: what was sent before it, and is still on its way, is to be given up."""
        with self._guard:
            if request.given and self.is_latest(request):
                self._superseded.difference_update([one for one in list(self._superseded) if one.is_same(request)])

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
