"""A request for a lock, and the commands that send it, each with the script in its place. No I/O."""

import math
from dataclasses import dataclass

from . import scripts
from .resp import Word

Words = list[Word]

#: The server cannot decide at the moment; the same command may be sent again.
TRY_AGAIN = {
    *("LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED", "MISCONF", "BUSY")
}
#: The token does not hold the lock.
NOT_HELD = {"NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM", "HOLDMISMATCH"}
#: The longest grace period of a session in milliseconds: for so long its lock is kept when the connection is lost.
MAX_GRACE_MS = 1000


@dataclass(eq=False)
class Request:
    """One acquisition of a lock.

    Two requests are never equal, even with the same token.
    """

    key: bytes
    token: bytes
    lease_ms: int | None = None
    reentrant: bool = False
    shared: bool = False
    limit: int | None = None
    session: bool = False
    #: The number of the connection on which it was sent first, 0 if it was not sent.
    sent_on: int = 0
    #: The time before it was sent last, by the local clock. The lease counts from there.
    sent_at: float = 0.0
    #: How many times it was sent.
    times: int = 0
    #: The end of the lease by the local clock, if it is held.
    ends_at: float = math.inf
    #: The server may hold a queue entry or the lock for it.
    outcome_unknown: bool = False

    @property
    def tag(self) -> bytes:
        """How messages about it end."""
        return self.token + b" " + self.key

    @property
    def grace_ms(self) -> int:
        """The grace period of the session, in milliseconds."""
        return min(self.lease_ms or MAX_GRACE_MS, MAX_GRACE_MS)

    def acquire(
        self, hold: int = 1, wait_ms: int | None = None, channel: bytes | None = None, lease_ms: int | None = None
    ) -> Words:
        """Returns the command that asks for the lock, with BLOCK and NOTIFY if these are given."""
        name = "LOCK.REENTER" if self.reentrant else "LOCK.SHARE" if self.shared else "LOCK.ACQUIRE"
        words: Words = [name, self.key, self.token]
        number = hold if self.reentrant else None
        values = (self.lease_ms or lease_ms, number, self.limit, wait_ms, channel)
        for option, value in zip(("PX", "HOLD", "LIMIT", "BLOCK", "NOTIFY"), values, strict=True):
            if value is not None:
                words += [option, value]
        return [*words, "SESSION", "GRACE", self.grace_ms] if self.session else words

    def take(self, hold: int = 1) -> tuple[Words, Words | None]:
        """Returns the command that asks for the lock without waiting."""
        script = self.script(scripts.TAKE, self.lease_ms or "", hold if self.reentrant else "")
        return self.acquire(hold), None if self.session or self.shared else script

    def release(self, hold: int | None = None) -> tuple[Words, Words]:
        """Returns the command that releases the lock, or the hold with this number."""
        number: Words = [] if hold is None else ["HOLD", hold]
        return ["LOCK.RELEASE", self.key, self.token, *number], self.script(scripts.RELEASE, "", hold or "")

    def extend(self, lease_ms: int, add: bool = False) -> tuple[Words, Words | None]:
        """Returns the command that sets the lease, or adds to it."""
        words: Words = ["LOCK.EXTEND", self.key, self.token, "PX", lease_ms]
        script = None if self.shared else self.script(scripts.EXTEND, lease_ms, int(add))
        return [*words, "ADD"] if add else words, script

    def script(self, text: str, *arguments: Word) -> Words:
        """Returns the command that runs a script."""
        return ["EVAL", text, 1, self.key, self.token, *arguments]


def info(key: bytes) -> tuple[Words, Words]:
    """Returns the command that reads the state of a lock."""
    return ["LOCK.INFO", key], ["EVAL", scripts.INFO, 1, key]


def hash_tag(key: bytes) -> bytes | None:
    """Returns the text between braces that puts another name into the slot of ``key``, None if there is none."""
    start = key.find(b"{")
    end = key.find(b"}", start)
    if start >= 0 and end > start + 1:
        return key[start + 1 : end]
    return None if b"}" in key or not key else key


def label_of(token: object) -> str:
    """Returns the label of a token: the text before its last colon, else the token."""
    if not isinstance(token, bytes):
        return "several holders"
    label, colon, _ = token.rpartition(b":")
    return (label if colon else token).decode(errors="replace")


def pairs(reply: object) -> dict[bytes, object]:
    """Returns the map in a reply of either version of the protocol."""
    if isinstance(reply, dict):
        return reply
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))
