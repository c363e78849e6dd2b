"""What is said to the server: requests, the messages that end a wait, and what errors mean. Pure, without I/O.

The commands are described in the module's documentation, ``docs/commands``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Word = str | bytes | int

#: Errors of a server that cannot tell now who holds the lock, or may not grant it: the same is asked again.
PASSING = ("LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "MISCONF", "BUSY")
#: Errors of a server that does not serve the key any more.
ELSEWHERE = ("MOVED", "ASK")
#: Errors that tell a holder that it holds no longer.
GONE = ("NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM", "HOLDMISMATCH")

# Client libraries make classes of some errors, and then cut the code off their text.
_CLASSES = {
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "NoPermissionError": "NOPERM",
    "NoScriptError": "NOSCRIPT",
}
#: How servers before Redis 7 put what a command of a script was answered.
_IN_SCRIPT = re.compile(r"^Error running script .*: -([A-Z]+) ")


def code(error: BaseException) -> str:
    """The code of an error that the server answered: ``NOTHELD``, ``MOVED``; ``UNKNOWN`` for an unknown command."""
    for kind in type(error).__mro__:
        if kind.__name__ in _CLASSES:
            return _CLASSES[kind.__name__]
    text = str(error)
    if "unknown command" in text[:20].lower():
        return "UNKNOWN"
    if in_script := _IN_SCRIPT.search(text):
        return in_script[1]
    return text.split(" ", 1)[0]


def place(error: BaseException) -> tuple[str, int]:
    """The host and port that an ASK names; the host is empty if it is that of who answers."""
    host, port = str(error).rsplit(" ", 1)[-1].rsplit(":", 1)
    return host, int(port)


@dataclass(frozen=True, eq=False)
class Request:
    """One acquisition: which lock, for whom, in which form, and for how long."""

    key: bytes
    token: bytes
    lease_ms: int | None = None
    reentrant: bool = False
    shared: bool = False
    limit: int | None = None
    session: bool = False
    #: The caller has chosen the token. Others may have the same one: the server would tell all that the lock is theirs.
    given: bool = False
    #: The list at which python-redis-lock's waiters wait, and for how many milliseconds it stays. Without the module
    #: alone: with it, that is up to the server.
    signal: tuple[bytes, int] | None = None

    @property
    def needs_module(self) -> bool:
        """Whether this cannot be had from a server without the module."""
        return self.session or self.shared

    @property
    def may_notify(self) -> bool:
        """Whether it can wait by NOTIFY, which needs a lease and a token without spaces."""
        return self.lease_ms is not None and b" " not in self.token

    def take(self, hold: int = 1, block_ms: int | None = None, channel: bytes | None = None) -> list[Word]:
        """The command that asks for the lock: at once, or to wait for ``block_ms``, with news on ``channel``."""
        name = "LOCK.REENTER" if self.reentrant else "LOCK.SHARE" if self.shared else "LOCK.ACQUIRE"
        words: list[Word] = [name, self.key, self.token, *self._lease()]
        if self.reentrant:
            words += ["HOLD", hold]
        if self.limit is not None:
            words += ["LIMIT", self.limit]
        if block_ms is not None:
            words += ["BLOCK", block_ms]
        if self.session:
            words += ["SESSION"]
        if channel is not None:
            words += ["NOTIFY", channel]
        return words

    def release(self, hold: int | None = None) -> list[Word]:
        """The command that gives up the lock, or the place in line; with ``hold`` the n-th hold alone."""
        words: list[Word] = ["LOCK.RELEASE", self.key, self.token]
        return words if hold is None else [*words, "HOLD", hold]

    def extend(self, lease_ms: int, add: bool = False) -> list[Word]:
        """The command that sets the lease, or adds to it."""
        words: list[Word] = ["LOCK.EXTEND", self.key, self.token, "PX", lease_ms]
        return [*words, "ADD"] if add else words

    def look(self) -> list[Word]:
        """The command that tells of the holder: LOCK.INFO does not name those who hold a share."""
        return self.look_at_share() if self.shared else ["LOCK.INFO", self.key]

    def look_at_share(self) -> list[Word]:
        """The command that tells when the lease of a share ends."""
        return ["ZSCORE", self.key, self.token]

    def fence(self, counter: bytes) -> list[Word]:
        """The command that draws a fencing token."""
        return ["LOCK.FENCE", self.key, self.token, counter]

    def _lease(self) -> list[Word]:
        return [] if self.lease_ms is None else ["PX", self.lease_ms]


@dataclass(frozen=True)
class News:
    """What a message says of a wait: ``granted``, ``timeout``, ``withdrawn`` or ``lost``."""

    event: str
    token: bytes
    key: bytes

    @classmethod
    def read(cls, message: bytes) -> News:
        """Reads ``<event> <lease end> <db> <token> <key>``."""
        event, _, _, token, key = message.split(b" ", 4)
        return cls(event.decode(), token, key)


def is_for_session(words: list[Word]) -> bool:
    """Whether a command begins a session, or goes on with one."""
    return any(word == "SESSION" for word in words if isinstance(word, str))


def hash_tag(key: bytes) -> bytes | None:
    """What to put in braces so that a name has the hash slot of ``key``; None if no braces can."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start)
        if end > start + 1:
            return key[start + 1 : end]
    return None if b"}" in key or not key else key


def info(reply: object) -> dict[bytes, object]:
    """The answer to LOCK.INFO as a dictionary, as it comes in RESP2 or RESP3."""
    if isinstance(reply, dict):
        return reply
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))
