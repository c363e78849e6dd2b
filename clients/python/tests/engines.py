"""One test for threads and for tasks: locks for tasks with the methods of those for threads."""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from servers import begin_wait, library, library_asyncio

from redis_lock_client import Lock
from redis_lock_client import asyncio as for_tasks

KINDS = {"plain": {}} | {kind: {kind: True} for kind in ("session", "shared", "reentrant", "renew")}


class Loop:
    """An event loop in a thread. Each thread that calls it has a task there, which makes its calls."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._local, self._begun, self._end = threading.local(), Future[asyncio.AbstractEventLoop](), asyncio.Event()
        self._thread = threading.Thread(target=lambda: run(self._main()), daemon=True)
        self._thread.start()
        self.loop = self._begun.result(10)

    async def _main(self) -> None:
        self._begun.set_result(asyncio.get_running_loop())
        await self._end.wait()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not hasattr(self._local, "calls"):
            self._local.calls = asyncio.Queue[Any]()
            asyncio.run_coroutine_threadsafe(self._serve(self._local.calls), self.loop)
        done = Future[Any]()
        self.loop.call_soon_threadsafe(self._local.calls.put_nowait, (done, partial(function, *args, **kwargs)))
        return done.result(110)

    @staticmethod
    async def _serve(calls: asyncio.Queue[Any]) -> None:
        while True:
            done, function = await calls.get()
            try:
                result = function()
                done.set_result(await result if inspect.isawaitable(result) else result)
            except Exception as error:
                done.set_exception(error)
            done = function = result = None  # They may be what keeps a lock object alive.


class Remote:
    """An object of an event loop: its attributes are read, written and called there."""

    def __init__(self, loop: Loop, target: Any) -> None:
        self.__dict__.update(_loop=loop, _target=target)

    def __getattr__(self, name: str) -> Any:
        value = self._loop.call(getattr, self._target, name)
        if inspect.ismethod(value):
            return partial(self._loop.call, value)
        return Remote(self._loop, value) if name in ("lost", "local") else value

    def __setattr__(self, name: str, value: Any) -> None:
        self._loop.call(setattr, self._target, name, value)

    def wait(self, seconds: float) -> bool:
        """Waits for an event, as threading.Event does."""
        with contextlib.suppress(asyncio.TimeoutError):
            return bool(self._loop.call(lambda: asyncio.wait_for(self._target.wait(), seconds)))
        return False

    def __enter__(self) -> Any:
        self._loop.call(self._target.__aenter__)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._loop.call(self._target.__aexit__, *failure)


class Engine:
    """Makes clients, and locks for threads (without a loop) or for tasks (with one)."""

    def __init__(self, loop: Loop | None) -> None:
        self.loop = loop
        self.library, self._kind = (library, Lock) if loop is None else (library_asyncio, for_tasks.Lock)

    def client(self, server: Any, **options: Any) -> Any:
        return server.client(**options) if self.loop is None else server.client_asyncio(**options)

    def lock(self, client: Any, name: str, kind: Any = None, **options: Any) -> Any:
        """Returns a lock of a client, or of a new client of a server or cluster."""
        client = self.client(client) if hasattr(client, "client_asyncio") else client
        make = partial(kind or self._kind, client, name, **options)
        return make() if self.loop is None else Remote(self.loop, self.loop.call(make))


@pytest.fixture(params=["threads", "tasks"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Runs a test for threads, for tasks, and, where it asks for it, for tasks of uvloop."""
    if request.param == "threads":
        yield Engine(None)
        return
    with contextlib.closing(Loop((asyncio if request.param == "tasks" else pytest.importorskip("uvloop")).run)) as loop:
        yield Engine(loop)


@pytest.fixture
def make(engine: Engine, server: Any) -> Callable[..., Any]:
    """Makes locks of a client of the server that tests have in common."""
    return partial(engine.lock, engine.client(server))


#: For tests that run with uvloop, too.
EACH_LOOP = pytest.mark.parametrize("engine", ["threads", "tasks", "uvloop"], indirect=True)


@contextlib.contextmanager
def granted(lock: Any, client: Any, **arguments: Any) -> Iterator[None]:
    """Waits in the server's queue for a lock that another client holds during the block, and gets it at its end."""
    client.set(lock.name, "another holder")
    with begin_wait(lock, client, **arguments) as taken:
        yield
        client.delete(lock.name)
        assert taken.result(20)
