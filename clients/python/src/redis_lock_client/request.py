"""A request for a lock, and the commands that send it, each with the script in its place. No I/O."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import scripts
from .arguments import check

Words = list[str | bytes | int]

#: The server cannot decide at the moment; the same command may be sent again.
TRY_AGAIN = {"LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF"}
TRY_AGAIN |= {"BUSY", "REPLACED"}
#: The token does not hold the lock.
NOT_HELD = {"NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM"}
#: The longest wait that the server is asked for, in milliseconds: a process that is gone without notice keeps its queue
#: entry for no longer.
MAX_BLOCK_MS = 15_000
#: The longest grace period of a session in milliseconds: for so long its lock is kept when the connection is lost.
MAX_GRACE_MS = 1000


class Kind(NamedTuple):
    """The properties of an acquisition: the lock, its form, and how it is kept."""

    key: bytes
    reentrant: bool = False
    limit: int | None = None
    shared: bool = False
    session: bool = False
    max_waiters: int | None = None
    renew: bool = False
    on_lost: Callable[[], object] | None = None


@dataclass(eq=False)
class Sent:
    """When and where a request was sent, by the local clock."""

    #: The number of the connection on which it was sent first.
    on: int
    #: The time before it was sent last. The lease counts from there.
    at: float


@dataclass(eq=False)
class Request:
    """One acquisition of a lock.

    Two requests are never equal, even with the same token.
    """

    kind: Kind
    token: bytes
    lease_ms: int | None = None
    sent: Sent | None = None
    #: The server may hold a queue entry or the lock for it.
    outcome_unknown: bool = False
    #: The flow that releases it.
    withdrawal: Any = None

    @property
    def key(self) -> bytes:
        """The key of the lock."""
        return self.kind.key

    @property
    def grace_ms(self) -> int:
        """The grace period of the session, in milliseconds."""
        return min(self.lease_ms or MAX_GRACE_MS, MAX_GRACE_MS)

    def precedes(self, number: int) -> bool:
        """Returns whether it reaches the server before later commands on the connection with this number."""
        return self.sent is None or self.sent.on == number

    def acquire(self, wait_ms: int | None = None, channel: bytes | None = None, lease_ms: int | None = None) -> Words:
        """Returns the command that asks for the lock, with BLOCK and NOTIFY if these are given.

        It counts once, however often it is sent.
        """
        kind = self.kind
        name = "LOCK.REENTER" if kind.reentrant else "LOCK.SHARE" if kind.shared else "LOCK.ACQUIRE"
        words: Words = [name, self.key, self.token]
        block_ms = None if wait_ms is None else min(max(wait_ms, 1), MAX_BLOCK_MS)
        most = None if wait_ms is None else kind.max_waiters
        values = (self.lease_ms or lease_ms, 1 if kind.reentrant else None, kind.limit, block_ms, channel, most)
        for option, value in zip(("PX", "HOLD", "LIMIT", "BLOCK", "NOTIFY", "MAXWAITERS"), values, strict=True):
            if value is not None:
                words += [option, value]
        return [*words, "SESSION", "GRACE", self.grace_ms] if kind.session else words

    def take(self) -> tuple[Words, Words | None]:
        """Returns the command that asks for the lock without waiting."""
        script = self.script(scripts.TAKE, self.lease_ms or "", "hash" if self.kind.reentrant else "string")
        return self.acquire(), None if self.kind.session or self.kind.shared else script

    def release(self) -> tuple[Words, Words | None]:
        """Returns the command that releases the lock."""
        return ["LOCK.RELEASE", self.key, self.token], None if self.kind.shared else self.script(scripts.RELEASE)

    def extend(self, lease_ms: int, add: bool = False) -> tuple[Words, Words | None]:
        """Returns the command that sets the lease, or adds to it."""
        words: Words = ["LOCK.EXTEND", self.key, self.token, "PX", lease_ms]
        script = None if self.kind.shared else self.script(scripts.EXTEND, lease_ms, int(add))
        return [*words, "ADD"] if add else words, script

    def fence(self, in_cluster: bool, counter: bytes | None = None) -> Words:
        """Returns the command for the next fencing token of a counter, by default the one that belongs to the lock."""
        counter = counter or counter_of(self.key, in_cluster)
        check(counter, "no name of a counter is in the slot of this name: give a counter")
        return ["LOCK.FENCE", self.key, self.token, counter or b""]

    def script(self, text: str, *arguments: str | int) -> Words:
        """Returns the command that runs a script."""
        return ["EVAL", text, 1, self.key, self.token, *arguments]


def info(key: bytes) -> tuple[Words, Words]:
    """Returns the command that reads the state of a lock."""
    return ["LOCK.INFO", key], ["EVAL", scripts.INFO, 1, key]


def hash_tag(key: bytes) -> bytes | None:
    """Returns the text between braces that puts another name into the slot of ``key``, None if there is none."""
    found = re.match(rb"[^{]*\{([^}]+)\}", key, re.DOTALL)
    return found[1] if found else None if b"}" in key or not key else key


def channel_of(key: bytes | None, end: str) -> bytes | None:
    """Returns the name of a channel, in the slot of a key if one is given; None if no name is."""
    tag = None if key is None else hash_tag(key)
    if tag is None:
        return None if key is not None else b"redis-lock:" + end.encode()
    return b"redis-lock:{%b}:%b" % (tag, end.encode())


def counter_of(key: bytes, in_cluster: bool) -> bytes | None:
    """Returns the counter of a lock's fencing tokens; None if in a cluster no name is in the slot of the lock."""
    if b"{" not in key and b"}" not in key:
        return b"{%b}:fence" % key
    return key + b":fence" if hash_tag(key) not in (None, key) or not in_cluster else None


def message_of(text: bytes) -> tuple[str, bytes]:
    """Returns the event of a message, ``<event> <lease end> <db> <token> <key>``, and its token with its key."""
    event, _, _, tag = text.split(b" ", 3)
    return event.decode(), tag


def label_of(token: object) -> str:
    """Returns the label of a token: the text before its last colon, else the token."""
    if not isinstance(token, bytes):
        return "several holders"
    label, colon, _ = token.rpartition(b":")
    return (label if colon else token).decode(errors="replace")


def pairs(reply: Any) -> dict[bytes, Any]:
    """Returns the map in a reply of either version of the protocol."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
