"""Servers for the tests: SERVER is the program, MODULE the module, LIBRARY the client library (redis or valkey)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engines import EACH_LOOP, engine, make

__all__ = ["EACH_LOOP", "engine", "make"]
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

    def client_as_elsewhere(self) -> Any:
        """A client with local queues of its own, as one of another process has them."""
        kind: Any = type("Connection", (library.Connection,), {})
        return self.client(connection_pool=library.ConnectionPool(connection_class=kind, port=self.port))

    def client_asyncio(self, **kwargs: Any) -> Any:
        return getattr(library_asyncio, CLIENT)(**{"port": self.port, **kwargs})

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
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


class Threads(ThreadPoolExecutor):
    """A pool that does not wait for its threads when the test has failed: they may be why."""

    def __exit__(self, kind: Any, *_: object) -> None:
        self.shutdown(wait=kind is None)


@contextlib.contextmanager
def begin_wait(lock: Any, client: Any, **arguments: Any) -> Iterator[Future[bool]]:
    """Acquires a lock in a thread, which is in the server's queue when the block begins."""
    with Threads() as pool:
        taken = pool.submit(lock.acquire, **arguments)
        wait_until(lambda: waiters(client, lock.name))
        yield taken


def connections_of(client: Any, name: str) -> int:
    """How many connections of clients with this name the server has: others come and go."""
    return sum(one["name"] == name for one in client.client_list())


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


@pytest.fixture(params=[True, False], ids=["module", "scripts"])
def one_server(request: pytest.FixtureRequest, new_server: Any) -> Server:
    """A server with the module, and one without it."""
    server: Server = new_server(request.param)
    return server


@pytest.fixture
def each_client(one_server: Server) -> Iterator[Any]:
    """A client of a server with the module, and of one without it."""
    with one_server.client() as one:
        yield one


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


def info(client: Any, key: str = "door") -> dict[bytes, Any]:
    """Returns what LOCK.INFO replies."""
    reply = client.execute_command("LOCK.INFO", key)
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def own_connections(client: Any) -> list[dict[str, Any]]:
    """Returns the package's connections at the server of a client."""
    return [one for one in client.client_list() if one["name"] == "redis-lock-client"]


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


def take_turns(lock_for: Callable[[int], Any], threads: int, times: int = 1) -> list[int]:
    """Acquires the locks of threads again and again. Returns the order; asserts that no two hold at one time."""
    inside, order = set[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(times):
            with lock_for(number):
                assert not inside
                inside.add(number)
                order.append(number)
                time.sleep(0)
                inside.remove(number)

    with Threads(threads) as pool:
        for one in [pool.submit(work, number) for number in range(threads)]:
            one.result(100)
    return order


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("redis-lock-client")}


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


@pytest.fixture
def pulse(server: Server) -> Iterator[Pulse]:
    one = Pulse(server)
    yield one
    one.stop()


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "session": {"session": True},
    "share": {"shared": True},
    "re-entrant": {"reentrant": True},
    "renewed": {"renew": True},
}
#: How a lock is taken away from its holder, who has a token.
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


def assert_told_at_once(told: dict[tuple[int, str], float]) -> None:
    """Asserts that each was reported 50 ms after the server has known, in seconds, at the latest.

    Two may be late, because the pulse does not feel everything that holds up a busy machine; none three times.
    """
    assert sorted(told.values())[-3] < 0.05, told


def kill_connections(client: Any) -> None:
    """Cuts all connections but this one."""
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
