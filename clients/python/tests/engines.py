"""One test for threads and for tasks: locks for tasks with the methods of those for threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from redis_lock_client import Lock
from redis_lock_client import asyncio as for_tasks


class Loop:
    """An event loop in a thread. Each thread that calls it has a task there, which makes its calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self._local = loop, threading.local()
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()

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
            del done, function, result

    def close(self) -> None:
        for end in (self._cancel_all, self.loop.shutdown_asyncgens):
            asyncio.run_coroutine_threadsafe(end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks or [asyncio.ensure_future(asyncio.sleep(0))])


class Remote:
    """An object of an event loop: its attributes are read, written and called there."""

    def __init__(self, loop: Loop, target: Any) -> None:
        self.__dict__.update(_loop=loop, _target=target)

    def __getattr__(self, name: str) -> Any:
        value = self._loop.call(getattr, self._target, name)
        if callable(value):
            return partial(self._loop.call, value)
        return Remote(self._loop, value) if name in ("lost", "local") else value

    def __setattr__(self, name: str, value: Any) -> None:
        self._loop.call(setattr, self._target, name, value)

    def wait(self, seconds: float) -> bool:
        """Waits for an event, as threading.Event does."""
        try:
            return bool(self._loop.call(lambda: asyncio.wait_for(self._target.wait(), seconds)))
        except asyncio.TimeoutError:
            return False

    def __enter__(self) -> Remote:
        self._loop.call(self._target.__aenter__)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._loop.call(self._target.__aexit__, *failure)


class Engine:
    """Makes clients, and locks for threads (without a loop) or for tasks (with one)."""

    def __init__(self, loop: Loop | None) -> None:
        self.loop = loop

    def client(self, server: Any, **options: Any) -> Any:
        return server.client(**options) if self.loop is None else server.client_asyncio(**options)

    def lock(self, client: Any, name: str, **options: Any) -> Any:
        """Returns a lock of a client, or of a new client of a server or cluster."""
        client = self.client(client) if hasattr(client, "client_asyncio") else client
        return Lock(client, name, **options) if self.loop is None else self._in_loop(client, name, options)

    def _in_loop(self, client: Any, name: str, options: dict[str, Any]) -> Remote:
        assert self.loop is not None
        return Remote(self.loop, self.loop.call(for_tasks.Lock, client, name, **options))


@pytest.fixture(params=["threads", "tasks"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Runs a test for threads, for tasks, and, where it asks for it, for tasks of uvloop."""
    if request.param == "threads":
        yield Engine(None)
        return
    new_loop = asyncio.new_event_loop if request.param == "tasks" else pytest.importorskip("uvloop").new_event_loop
    loop = Loop(new_loop())
    yield Engine(loop)
    loop.close()


@pytest.fixture
def make(engine: Engine, server: Any) -> Callable[..., Any]:
    """Makes locks of a client of the server that tests have in common."""
    return partial(engine.lock, engine.client(server))


#: For tests that run with uvloop, too.
EACH_LOOP = pytest.mark.parametrize("engine", ["threads", "tasks", "uvloop"], indirect=True)
