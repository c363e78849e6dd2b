"""Tokens that callers have given: others may have the same one, and the server takes all of them for one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..protocol import Request


@dataclass(eq=False)
class _Token:
    """What this process has done by one token at one lock."""

    #: How many attempts have begun to take the lock, one after the other; and the last one of them that has held it.
    begun: int = 0
    held: int = 0
    #: The last one may have the lock, or get it; also if its request is not there any more.
    goes_on: bool = False
    #: What is being given up.
    being_given_up: list[object] = field(default_factory=list)


@dataclass(eq=False)
class _Place:
    """Which of the attempts a request belongs to; None as long as that is not known."""

    token: _Token
    number: int | None = None


class Given:
    """Numbers the attempts by each token, so that what belongs to one is not taken for an earlier one's."""

    def __init__(self) -> None:
        # What is guarded takes no time, but a signal handler may come in between and want the same.
        self._guard = threading.RLock()
        self._places: weakref.WeakKeyDictionary[Request, _Place] = weakref.WeakKeyDictionary()
        # Each as long as there is a request by it.
        self._tokens: weakref.WeakValueDictionary[tuple[bytes, bytes], _Token] = weakref.WeakValueDictionary()

    def _place(self, request: Request) -> _Place:
        place = self._places.get(request)
        if place is None:
            token = self._tokens.setdefault((request.key, request.token), _Token())
            place = self._places.setdefault(request, _Place(token))
        return place

    def begin(self, request: Request) -> bool:
        """Whether it may ask, now or again, for a lock that nobody else has by its token.

        If so, whoever has had it by that has lost it. It may not while something is given up by the token.
        """
        if request.given:
            with self._guard:
                place = self._place(request)
                token = place.token
                if token.being_given_up:
                    return False
                if place.number != token.begun or not token.goes_on:
                    place.number = token.begun = token.begun + 1
                    token.goes_on = True
        return True

    def has_held(self, request: Request) -> None:
        """The server has said that it holds the lock. If it has not taken that, it was handed over to it."""
        if request.given:
            with self._guard:
                token = self._place(request).token
                token.held = max(token.held, self._join(request, token.begun))

    def _join(self, request: Request, number: int) -> int:
        """Has it belong to an attempt if to none; the number of that to which it belongs."""
        place = self._place(request)
        if place.number is None:
            place.number = number
        return place.number

    def is_over(self, request: Request) -> None:
        """It holds nothing and waits no more: what was sent before it, and is still on its way, is to be given up."""
        if request.given:
            with self._guard:
                place = self._place(request)
                if place.number == place.token.begun:
                    place.token.goes_on = False

    def may_be_given_up(self, request: Request) -> bool:
        """Whether nothing is taken from another one that has asked by the same token since."""
        if not request.given:
            return True
        with self._guard:
            place = self._place(request)
            return place.number == place.token.begun or not place.token.goes_on

    def is_anothers(self, request: Request) -> bool:
        """Whether the lock is another one's by now, by the same token, so that the server does not tell them apart."""
        if not request.given:
            return False
        with self._guard:
            place = self._place(request)
            token = place.token
            return place.number is not None and place.number < (token.begun if token.goes_on else token.held)

    @contextmanager
    def giving_up(self, request: Request) -> Iterator[None]:
        """Meanwhile nobody begins to ask by the same token: the lock would be taken from them."""
        this = object()
        being_given_up: list[object] = []
        try:
            if request.given:
                with self._guard:
                    token = self._place(request).token
                    # Whoever has not taken it gives up what is held by the token, but for nobody who waits.
                    self._join(request, token.held)
                    being_given_up = token.being_given_up
                    being_given_up.append(this)
            yield
        finally:
            with self._guard:
                if this in being_given_up:
                    being_given_up.remove(this)
