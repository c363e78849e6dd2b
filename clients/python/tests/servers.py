"""Servers for the tests: SERVER is the program, MODULE the module, LIBRARY the client library (redis or valkey)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any

from waits import Threads, wait_until

SERVER = os.environ["SERVER"]
MODULE = os.environ["MODULE"]
LIBRARY = os.environ.get("LIBRARY", "redis")
library: Any = import_module(LIBRARY)
library_asyncio: Any = import_module(f"{LIBRARY}.asyncio")
CLIENT = {"redis": "Redis", "valkey": "Valkey"}[LIBRARY]
START_S = 60.0
#: Errors that say that the server cannot be reached.
OUTAGE = (library.ConnectionError, library.TimeoutError)
#: Arguments of a server that keeps all data when it restarts.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def free_port() -> int:
    """Returns a free port, below those that clients get. A cluster needs another one, 10,000 higher."""
    while True:
        port = random.randrange(15_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """A server of its own, with the module unless ``module`` is False."""

    def __init__(self, folder: Path, module: bool = True, *arguments: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.module = module
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--logfile", "log"]
        words += ["--unixsocket", "s", "--enable-module-command", "yes"]
        words += ["--loadmodule", MODULE] if self.module else []
        words += [] if "--save" in self.arguments or "--appendonly" in self.arguments else ["--save", ""]
        self.process = subprocess.Popen(
            [SERVER, *words, *self.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers, START_S, lambda: (self.folder / "log").read_text())
        return self

    def _answers(self) -> bool:
        try:
            with self.client(socket_timeout=1) as client:
                return bool(client.ping())
        except (library.ConnectionError, library.TimeoutError):
            return False

    def client(self, **kwargs: Any) -> Any:
        return getattr(library, CLIENT)(**{"port": self.port, **kwargs})

    def client_asyncio(self, **kwargs: Any) -> Any:
        return getattr(library_asyncio, CLIENT)(**{"port": self.port, **kwargs})

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Does nothing for a while, and then goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        # Commands that are sent from here on are read in one batch: the signal may come during an earlier iteration.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(START_S)
            self.process = None

    def forget(self, key: str) -> None:
        """Does not know of a key when it starts again, with its log, as if it had lost what came last."""
        assert self.process is None
        (log,) = (self.folder / "appendonlydir").glob("*.incr.aof")
        with log.open("ab") as end:
            end.write(b"*2\r\n$3\r\nDEL\r\n$%d\r\n%s\r\n" % (len(key), key.encode()))


def run_program(text: str, server: Server, seconds: float = 60, before: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program that has ``library``, ``client`` and ``Lock``."""
    words = [sys.executable, "-c", before + program_text(text, server)]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)


def program_text(text: str, server: Server) -> str:
    """Returns the text of a program that has ``library``, ``client`` and ``Lock``."""
    return (
        f"import {LIBRARY} as library, signal, sys, threading, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"from redis_lock_client import Lock\nclient = library.{CLIENT}(port={server.port})\n{text}"
    )


@contextlib.contextmanager
def running_program(text: str, server: Server) -> Iterator[subprocess.Popen[str]]:
    """Starts a program as `run_program` does, and kills it at the end of the block."""
    words = [sys.executable, "-u", "-c", program_text(text, server)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def own_connections(client: Any) -> list[dict[str, Any]]:
    """Returns the package's connections at the server of a client."""
    return [one for one in client.client_list() if one["name"] == "redis-lock-client"]


def kill_connections(client: Any) -> None:
    """Cuts all connections but this one."""
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")


def info(client: Any, key: str = "door") -> dict[bytes, Any]:
    """Returns what LOCK.INFO replies."""
    reply = client.execute_command("LOCK.INFO", key)
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def waiters(client: Any, key: str = "door") -> list[dict[bytes, Any]]:
    """Returns the waiters for a lock, in the order of the queue."""
    try:
        line = client.execute_command("LOCK.WAITERS", key)
    except library.ConnectionError:
        # Sentinel cuts all connections to a server that it promotes.
        line = client.execute_command("LOCK.WAITERS", key)
    return [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in line]


def watched(client: Any) -> None:
    """Waits until the server tracks what the keeper has read."""
    wait_until(lambda: client.info("clients").get("tracking_clients"))
    time.sleep(0.02)


@contextlib.contextmanager
def begin_wait(lock: Any, client: Any, **arguments: Any) -> Iterator[Future[bool]]:
    """Acquires a lock in a thread, which is in the server's queue when the block begins."""
    with Threads() as pool:
        taken = pool.submit(lock.acquire, **arguments)
        wait_until(lambda: waiters(client, lock.name))
        yield taken
