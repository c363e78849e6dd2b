"""Servers for the tests: SERVER is the program, MODULE the module, LIBRARY the client library (redis or valkey)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

SERVER = os.environ["SERVER"]
MODULE = os.environ["MODULE"]
LIBRARY = os.environ.get("LIBRARY", "redis")
library: Any = import_module(LIBRARY)
library_asyncio: Any = import_module(f"{LIBRARY}.asyncio")
CLIENT = {"redis": "Redis", "valkey": "Valkey"}[LIBRARY]
START_S = 20.0


def free_port() -> int:
    """A port that nobody listens at, below those that clients get. A cluster needs another one, 10,000 higher."""
    while True:
        port = random.randrange(15_000, 22_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port


class Server:
    """A server of its own, with the module unless told otherwise."""

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

    def stop(self, how: int = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(START_S)
            self.process = None


class Threads(ThreadPoolExecutor):
    """A pool that does not wait for its threads when the test has failed: they may be why."""

    def __exit__(self, kind: Any, *_: object) -> None:
        self.shutdown(wait=kind is None)


def wait_until(condition: Any, seconds: float = 10.0, explain: Any = lambda: "") -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s: {explain()}"
        time.sleep(0.01)


async def until(condition: Any, seconds: float = 10) -> None:
    """Waits until something is so, while the other tasks go on."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not in {seconds} s"
        await asyncio.sleep(0.01)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """The server that tests have in common, empty."""
    with shared_server.client() as client:
        client.flushall()
    yield shared_server


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Any]:
    """Starts servers that a test may do anything to."""
    with contextlib.ExitStack() as stack:

        def start(module: bool = True, *arguments: str) -> Server:
            one = Server(tmp_path / str(time.monotonic_ns()), module, *arguments)
            stack.callback(one.stop)
            return one.start()

        yield start


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as one:
        yield one


@pytest_asyncio.fixture
async def aclient(server: Server) -> AsyncIterator[Any]:
    one = server.client_asyncio()
    try:
        yield one
    finally:
        await one.aclose()


def waiters(client: Any, key: str = "door") -> list[dict[bytes, Any]]:
    """Who stands in line for a lock, in the order of the line."""
    try:
        line = client.execute_command("LOCK.WAITERS", key)
    except library.ConnectionError:
        # Sentinel cuts all connections to a server that it promotes.
        line = client.execute_command("LOCK.WAITERS", key)
    return [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in line]


def kill_connections(client: Any) -> None:
    """Cuts all connections but this one."""
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
