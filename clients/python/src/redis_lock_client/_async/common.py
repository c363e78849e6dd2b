"""What clients of one database have in common: the local queues for its locks, and the tokens that callers give."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from ..source import addresses
from . import runtime
from .given import Given


class Lines:
    """Local queues, in order of arrival: only the first of each stands in line at the server."""

    def __init__(self) -> None:
        # What is guarded takes no time, but a signal handler may come in between and want the same.
        self._guard = threading.RLock()
        self._lines: dict[object, deque[runtime.Event]] = {}

    def join(self, key: object, turn: runtime.Event) -> None:
        """Takes the last place; the event says when it is the first."""
        with self._guard:
            line: deque[runtime.Event] | None = None
            while line is None or self._lines.get(key) is not line:
                # Again if a signal handler has come in between: with its own turn it has taken away what was empty.
                line = self._lines.setdefault(key, deque())
                line.append(turn)
            if line[0] is turn:
                turn.set()

    def leave(self, key: object, turn: runtime.Event) -> None:
        """Gives up the place; the next is the first. It can be done twice, should the first time be interrupted."""
        with self._guard:
            line = self._lines.get(key, deque())
            if turn in line:
                line.remove(turn)
            if line:
                line[0].set()
            else:
                self._lines.pop(key, None)


class Common:
    """What belongs to a database, in a process or a loop, however many clients there are for it."""

    def __init__(self) -> None:
        self.given = Given()
        self.lines = Lines()

    @classmethod
    def of(cls, anchor: Any) -> Common:
        """What a client, or rather its pool, has in common with others of the same database."""
        # Kept for good: programs know few databases, and make clients for them again and again.
        commons, names = runtime.commons(), addresses(anchor)
        known = next((commons[name] for name in names if name in commons), None) or cls()
        common: Common = commons.setdefault(names[0], known)
        for name in names[1:]:
            commons.setdefault(name, common)
        return common
