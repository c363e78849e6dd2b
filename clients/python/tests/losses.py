"""How locks are lost, and how soon that is reported."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from servers import Server

#: Measures how long each beat takes, and prints the longest since the time that it reads.
PULSE = """
import collections, select, socket, sys, time
server, beats = socket.create_connection(("127.0.0.1", int(sys.argv[1]))), collections.deque(maxlen=10_000)
while True:
    began = time.monotonic()
    server.sendall(b"PING\\r\\n")
    server.recv(100)
    time.sleep(0.001)
    ended = time.monotonic()
    beats.append((ended, ended - began))
    if select.select([sys.stdin], [], [], 0)[0]:
        since = sys.stdin.readline()
        if not since:
            break
        print(max((late for ended, late in beats if ended >= float(since)), default="inf"), flush=True)
"""


class Pulse:
    """How long a process and the server have to wait for their turn on a busy machine.

    Another process, because the tested package may hold this one up, which is no excuse.
    """

    def __init__(self, server: Server) -> None:
        words = [sys.executable, "-c", PULSE, str(server.port)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.late_since(time.monotonic())

    def late_since(self, began: float) -> float:
        """The longest that a request and a pause of a millisecond have taken since then, in seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{began}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "session": {"session": True},
    "share": {"shared": True},
    "re-entrant": {"reentrant": True},
    "renewed": {"renew": True},
}


#: How a lock is taken away from its holder, by its token.
LOSSES: dict[str, Callable[[Any, bytes], object]] = {
    "DEL": lambda client, _: client.delete("door"),
    "UNLINK": lambda client, _: client.unlink("door"),
    "SET": lambda client, _: client.set("door", "somebody else"),
    "FLUSHALL": lambda client, _: client.flushall(),
    "RENAME": lambda client, _: client.rename("door", "elsewhere"),
    "PEXPIRE into the past": lambda client, _: client.pexpire("door", -1),
    "PEXPIREAT into the past": lambda client, _: client.pexpireat("door", 1),
    "ZREM": lambda client, token: client.zrem("door", token),
    "ZREM beside another": lambda client, token: client.zrem("door", token),
    "a shorter lease": lambda client, _: client.pexpire("door", SHORTER_MS),
}


SHORTER_MS = 60


def losses(kind: str) -> list[str]:
    """The losses that a lock of a kind can meet, three times each."""
    # What belongs to a session, or is renewed, has its lease again before it ends.
    ways = [way for way in LOSSES if ("ZREM" not in way or kind == "share")]
    return [way for way in ways if way != "a shorter lease" or kind in ("plain", "re-entrant")] * 3


def take_away(client: Any, way: str, token: bytes) -> float:
    """Takes the lock away. Returns since when the server has known."""
    if way == "ZREM beside another":
        assert client.execute_command("LOCK.SHARE", "door", "another", "PX", 60_000) == 1
    asked = time.monotonic()
    LOSSES[way](client, token)
    # The time before the request, because the reply may be later than the report of the loss.
    return asked + SHORTER_MS / 1000 if way == "a shorter lease" else asked


def assert_reported_at_once(late: dict[tuple[int, str], float]) -> None:
    """Asserts that each loss was reported within 50 ms, in seconds after the server has known.

    Of three times the best one counts, because the pulse does not feel everything that holds up a busy machine.
    """
    for way in {way for _, way in late}:
        assert min(seconds for (_, one), seconds in late.items() if one == way) < 0.05, late
