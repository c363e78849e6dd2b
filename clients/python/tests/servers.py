"""Servers for the tests: SERVER is the program, MODULE the module, LIBRARY the client library (redis or valkey)."""

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
from functools import partialmethod
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
#: Errors that say that the server cannot be reached.
OUTAGE = (library.ConnectionError, library.TimeoutError)
#: Arguments of a server that keeps all data when it restarts.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


_used_ports: set[int] = set()


def free_port() -> int:
    """Returns a free port, below those that clients get. A cluster needs another one, 10,000 higher."""
    while True:
        port = random.choice([*{*range(15_000, 22_000)} - _used_ports])
        _used_ports.add(port)  # The package may still know a server that had it.
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """A server of its own, with the module unless ``module`` is False."""

    def __init__(self, folder: Path, module: bool = True, *arguments: str) -> None:
        self.folder, self.port = folder, free_port()
        self.module, self.arguments = module, arguments
        self.process: Any = None

    def start(self) -> Any:
        self.folder.mkdir(parents=True, exist_ok=True)
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--logfile", "log"]
        words += ["--unixsocket", "s", "--enable-module-command", "yes", "--save", ""]
        words += ["--loadmodule", MODULE] if self.module else []
        self.process = subprocess.Popen([SERVER, *words, *self.arguments], stdout=subprocess.DEVNULL)
        wait_until(self._answers, 60, lambda: (self.folder / "log").read_text())
        return self

    def _answers(self) -> bool:
        with contextlib.suppress(*OUTAGE), self.client(socket_timeout=1) as client:
            return bool(client.ping())
        return False

    def client(self, module: Any = library, **kwargs: Any) -> Any:
        return getattr(module, CLIENT)(**{"port": self.port, **kwargs})

    client_asyncio = partialmethod(client, library_asyncio)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Does nothing during the block, and then goes on."""
        self.process.send_signal(signal.SIGSTOP)
        # Commands that are sent from here on are read in one batch: the signal may come during an earlier iteration.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Is killed, and starts again after the block."""
        self.stop()
        yield
        self.start()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def forget(self, key: str) -> None:
        """Does not know of a key when it starts again, with its log, as if it had lost what came last."""
        (log,) = (self.folder / "appendonlydir").glob("*.incr.aof")
        with log.open("ab") as end:
            end.write(b"*2\r\n$3\r\nDEL\r\n$%d\r\n%s\r\n" % (len(key), key.encode()))


def program(text: str, server: Server, *options: str, before: str = "", tasks: bool = False) -> list[str]:
    """Returns the words of a program that has ``client`` and ``Lock``, for threads or for tasks."""
    kind = ".asyncio" if tasks else ""
    head = f"""{before}
import asyncio, atexit, os, signal, sys, threading, time
import {LIBRARY}{kind} as library
from redis_lock_client{kind} import Lock
client = library.{CLIENT}(port={server.port})
"""
    return [sys.executable, "-u", *options, "-c", head + text]


def run_program(*args: Any, **named: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program(*args, **named), capture_output=True, text=True, timeout=100, check=False)


@contextlib.contextmanager
def running_program(*args: Any, **named: Any) -> Iterator[Any]:
    """Starts a `program`, and kills it at the end of the block."""
    with subprocess.Popen(program(*args, **named), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def own_connections(client: Any) -> list[dict[str, Any]]:
    return [one for one in client.client_list() if one["name"] == "redis-lock-client"]


def kill_connections(client: Any) -> None:
    """Cuts all connections but this one."""
    client.execute_command("CLIENT", "KILL", "SKIPME", "yes")


def _map(reply: Any) -> dict[bytes, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def info(client: Any, key: str = "door") -> dict[bytes, Any]:
    return _map(client.execute_command("LOCK.INFO", key))


def waiters(client: Any, key: str = "door") -> list[dict[bytes, Any]]:
    """Returns the waiters for a lock, in the order of the queue."""
    try:
        line = client.execute_command("LOCK.WAITERS", key)
    except library.ConnectionError:
        # Sentinel cuts all connections to a server that it promotes.
        line = client.execute_command("LOCK.WAITERS", key)
    return [_map(one) for one in line]


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
