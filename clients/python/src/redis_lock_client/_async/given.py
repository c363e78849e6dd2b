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
        #: What is being given up, and what says when that is done.
        self._being_given_up: list[tuple[Request, runtime.Event]] = []

    def note(self, request: Request) -> None:
        """Notes a request when it is about to be sent."""
        if request.given:
            with self._guard:
                # Copied in one step: a signal handler may add another one.
                known = [reference() for reference in self._known.valuerefs()]
                self._superseded.update([other for other in known if other is not None and other.is_same(request)])
                self._superseded.discard(request)
                self._known[id(request)] = request

    def is_latest(self, request: Request) -> bool:
        """Whether nobody has asked for the same lock by the same token since."""
        return request not in self._superseded

    def note_unless_given_up(self, request: Request) -> runtime.Event | None:
        """Notes a request; not while the same is being given up: then it is for another attempt, after this event."""
        if request.given:
            with self._guard:
                for other, done in self._being_given_up:
                    if other.is_same(request):
                        return done
                self.note(request)
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
