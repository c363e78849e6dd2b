"""What a lock object knows of what it holds, for each thread or for all."""

from __future__ import annotations

import os
import weakref
from functools import cache

from . import runtime
from .held import Held, Owner


class Local:
    """What one thread knows of the lock, or all of them."""

    held: Held | None = None
    lost: runtime.Event | None = None
    wants_to_know = False
    process = 0
    #: The loop in which it was used last, and so where the event can be waited for.
    loop: object = None
    _token: bytes | None = None
    _owner: Owner | None = None

    @property
    def token(self) -> bytes | None:
        """The token by which the lock is held."""
        return self._token

    @token.setter
    def token(self, token: bytes | None) -> None:
        """Hands a lock over, as with redis-py's: whoever has its token holds it, and whoever has none does not."""
        if self.held is not None and self.process == os.getpid():
            self.held.hand_over()
        self.held, self._token, self._owner, self.process = None, token, None, os.getpid()

    def hold(self, held: Held) -> None:
        """Notes what was taken."""
        self.held, self._token, self.process = held, held.request.token, os.getpid()
        self._owner = Owner()
        held.owner = weakref.ref(self._owner)

    def lost_event(self) -> runtime.Event:
        """Set when the lock is lost; a new one in another loop than before."""
        if self.lost is None or self.is_of_another_loop:
            self.lost = runtime.Event()
        self.loop = runtime.here() or self.loop
        return self.lost

    @property
    def is_of_another_loop(self) -> bool:
        """Whether it was used in another loop than the one that runs."""
        here = runtime.here()
        return here is not None and self.loop not in (None, here)

    def drop(self) -> None:
        """Holds nothing any more."""
        self.held = self._token = self._owner = None


@cache
def for_each_thread(local: type) -> type[Local]:
    """The same for each thread. What is local is said by ``threading.local``, which gevent and eventlet replace."""
    return type("_ThreadLocal", (local, Local), {})
