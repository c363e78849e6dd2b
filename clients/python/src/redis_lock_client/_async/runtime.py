"""What tasks do in one way and threads in another; ``_sync/runtime.py`` has the same for threads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")

Event = asyncio.Event
Lock = asyncio.Lock
sleep = asyncio.sleep
now = time.monotonic

logger = logging.getLogger("redis_lock_client")
#: What a callback may raise without an effect on others. ``sys.exit`` ends the loop.
FAILED = Exception
#: The loop is at its end, or somebody has cancelled all of its tasks: nothing else cancels what is done beside callers.
Ended = asyncio.CancelledError
#: How soon a job is done once more that was cancelled, in seconds.
AGAIN_S = 0.1
#: How long tasks may take to end when they are cancelled at the end of the loop, in seconds.
END_S = 1.0
#: How long to wait at the end of the loop for generators that others have, in seconds.
GENERATORS_S = 30.0

# The loop itself keeps only weak references to its tasks. With what each of them is to await, if it has not begun.
_tasks: dict[asyncio.Task[Any], Coroutine[Any, Any, Any] | None] = {}
# Jobs that were begun in the background, and those that were cancelled, by the timers that do them once more.
_jobs: set[asyncio.Task[Any]] = set()
_again: dict[asyncio.TimerHandle, tuple[asyncio.AbstractEventLoop, Callable[[], object]]] = {}
#: Loops in which nothing is begun any more.
_ending: set[asyncio.AbstractEventLoop] = set()
# For each loop what belongs to it: connections are of no use in another one.
_loops: dict[int, _Loop] = {}

Close = Callable[[], Coroutine[Any, Any, None]]


class _Loop:
    """A loop in which locks are used, and what is to be closed at its end."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.clients: dict[int, Any] = {}
        self.commons: dict[object, Any] = {}
        self._to_close: set[Close] = set()
        # A loop closes generators that have begun, after it has cancelled its tasks, and these have ended: until then
        # they hold their locks. And no task is left that never ends, for which somebody may wait.
        self._end = self._at_end()
        with contextlib.suppress(StopIteration):
            self._end.__anext__().send(None)

    async def _at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await _wait_for_generators()
            await _finish_jobs()
            for close in list(self._to_close):
                await close()
            await _end_tasks()

    def when_collected(self, close: Close) -> Callable[[], None]:
        """Closes what is open at the end, or when what this returns is called, maybe in another thread."""
        self._to_close.add(close)

        def at_once() -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(spawn, self._close, close)

        return at_once

    async def _close(self, close: Close) -> None:
        await close()
        self._to_close.discard(close)


def _this_loop() -> _Loop:
    loop = asyncio.get_running_loop()
    known = _loops.get(id(loop))
    if known is None or known.loop is not loop:
        _leave_loops()
        known = _loops[id(loop)] = _Loop()
    return known


def _leave_loops() -> None:
    """Lets go of what belongs to loops that were closed, also of the tasks of those without an end to their tasks."""
    # Copied in one step: loops of other threads, and their tasks, come and go, and see to the same.
    for number, other in list(_loops.items()):
        if other.loop.is_closed() and _loops.pop(number, None) is not None:
            # Copied, because a garbage collection during the iteration removes clients.
            for client in list(other.clients.values()):
                client.leave()
    for timer in [timer for timer, (loop, _) in list(_again.items()) if loop.is_closed()]:
        _again.pop(timer, None)
    for task in [task for task in list(_tasks) if task.get_loop().is_closed()]:
        _jobs.discard(task)
        for work in (task.get_coro(), _tasks.pop(task, None)):
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()  # It would say that nobody has awaited it.


def clients() -> dict[int, Any]:
    """The clients of the loop that runs."""
    return _this_loop().clients


def commons() -> dict[object, Any]:
    """What clients in the loop that runs have in common."""
    return _this_loop().commons


def at_end(close: Close) -> Callable[[], None]:
    """Closes what is open at the end of the loop, or when what this returns is called."""
    return _this_loop().when_collected(close)


async def _wait_for_generators() -> None:
    """Waits until others' generators have ended, which the loop closes side by side: they may hold locks, too."""
    # Where tasks begin at once (``asyncio.eager_task_factory``), those of the others begin after this one.
    await asyncio.sleep(0)
    this = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not this and _closes_generator(task)]
    if others:
        await asyncio.wait(others, timeout=GENERATORS_S)


def _closes_generator(task: asyncio.Task[Any]) -> bool:
    return type(task.get_coro()).__name__ == "async_generator_athrow"


async def _finish_jobs() -> None:
    """Gives up what callers have given up just before: the loop has cancelled that, too."""
    loop = asyncio.get_running_loop()
    for timer, (other, do) in list(_again.items()):
        if other is loop:
            timer.cancel()
            _again.pop(timer, None)
            do()
    jobs = [job for job in list(_jobs) if job.get_loop() is loop]
    if jobs:
        await asyncio.wait(jobs, timeout=END_S)


async def _end_tasks() -> None:
    """Ends what is done in the background of a loop that comes to its end, so that its connections are closed."""
    loop = asyncio.get_running_loop()
    _ending.add(loop)
    try:
        tasks = [task for task in list(_tasks) if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_S)
    finally:
        _ending.discard(loop)


def here() -> asyncio.AbstractEventLoop | None:
    """Where an event can be waited for, and a timer set: the loop that runs."""
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def loop_runs() -> bool:
    """Whether somebody can be told something here."""
    return here() is not None


def user() -> object:
    """Who asks: a task."""
    return asyncio.current_task()


def tell(callback: Callable[[], object]) -> None:
    """Calls a callback; what it returns is begun, if that is a coroutine."""
    told = callback()
    if inspect.iscoroutine(told):
        spawn(_tell, told)


async def _tell(told: Coroutine[Any, Any, object]) -> None:
    try:
        await told
    except FAILED:
        logger.exception("on_lost has failed")


def can_use(redis: Any) -> bool:
    """Whether this is a client for tasks."""
    return inspect.iscoroutinefunction(getattr(redis, "execute_command", None))


async def ready(cluster: Any) -> None:
    """Sees to it that a cluster's client knows its nodes."""
    await cluster.initialize()


def pool(cluster: Any, node: Any) -> Any:
    """What has the arguments of the connections to a node."""
    return node


def spawn(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> asyncio.Task[None]:
    """Begins to work beside the caller, until the work ends or the loop does."""
    return _keep(asyncio.get_running_loop().create_task(work(*args)))


def _keep(task: asyncio.Task[T], work: Coroutine[Any, Any, Any] | None = None) -> asyncio.Task[T]:
    _tasks[task] = work
    # If the loop is closed without an end to its tasks, nobody would know what to do about it.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    task.add_done_callback(_forget)
    return task


def _forget(task: asyncio.Task[Any]) -> None:
    work = _tasks.pop(task, None)
    if work is not None:
        work.close()  # It may have been cancelled before it began.
    if not task.cancelled():
        task.exception()  # Whoever waited for it has been told; else nobody is left to tell.


async def wait(event: asyncio.Event, timeout: float | None) -> bool:
    """Waits for an event. Unlike ``asyncio.wait_for``, it swallows no cancellation (before Python 3.12)."""
    if event.is_set() or timeout is None:
        return await event.wait()
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(event.wait())
    try:
        await asyncio.wait([waiting], timeout=max(timeout, 0))
    finally:
        waiting.cancel()
    return event.is_set()


class Exchanges:
    """The exchanges of one acquisition that are under way. They go on when the caller is cancelled."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()

    async def run(self, exchange: Coroutine[Any, Any, T]) -> T:
        """Lets an exchange come to its end, in any case, so that its connection can be used again."""
        task = _keep(asyncio.get_running_loop().create_task(_outcome(exchange)), exchange)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        answer, error = await asyncio.shield(task)
        if error is not None:
            raise error
        return cast(T, answer)

    @property
    def under_way(self) -> bool:
        """Whether one is under way."""
        return bool(self._under_way)

    async def settle(self) -> None:
        """Waits until none is under way."""
        if self._under_way:
            await asyncio.wait(list(self._under_way))


async def _outcome(exchange: Coroutine[Any, Any, T]) -> tuple[T | None, Exception | None]:
    """What an exchange comes to. ``asyncio.run`` prints exceptions of tasks that it has cancelled."""
    try:
        return await exchange, None
    except Exception as error:
        return None, error


class Worker:
    """Does jobs in the background: each is a task of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def do(self, job: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> asyncio.Event:
        """Does a job; the event says when it is done, or left to a later time."""
        done = asyncio.Event()
        if self._loop in _ending:
            done.set()
            return done

        timer: asyncio.TimerHandle | None = None

        def do_again() -> None:
            if timer is not None:
                _again.pop(timer, None)
            self.do(job, *args)

        def ended(task: asyncio.Task[None]) -> None:
            nonlocal timer
            done.set()
            _jobs.discard(task)
            if task.cancelled() and self._loop not in _ending:
                # Somebody has cancelled all tasks of the loop, which goes on, or comes to its end.
                timer = self._loop.call_later(AGAIN_S, do_again)
                _again[timer] = self._loop, do_again

        task = _keep(self._loop.create_task(job(*args)))
        _jobs.add(task)
        task.add_done_callback(ended)
        return done

    def do_threadsafe(self, job: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Does a job for whoever may be in another thread, or is collected as garbage."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.do, job, *args)


Handle = asyncio.TimerHandle


def call_later(delay: float, function: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
    """Calls a function that does not wait."""
    return asyncio.get_running_loop().call_later(max(delay, 0), function, *args)


async def receive(connection: Any, timeout: float) -> Any:
    """The next answer or message, or None when nothing has come in time."""
    return await connection.read_response(disable_decoding=True, timeout=timeout, disconnect_on_error=False)


def is_open(connection: Any) -> bool:
    """Whether something may have been sent on a connection, and is still answered there."""
    return bool(connection.is_connected)


def unless_locked(guard: asyncio.Lock, look: Callable[[], bool]) -> bool:
    """What a function finds, or False if somebody has the lock."""
    return not guard.locked() and look()


def has_ended(connection: Any) -> bool:
    """Whether the server has closed a connection on which nothing is under way."""
    reader = getattr(connection, "_reader", None)
    return reader is None or reader.exception() is not None or bool(reader.at_eof())


async def drain(connection: Any, timeout: float) -> bool:
    """Closes a connection once the server has done what was asked there; whether it is known that it has.

    TimeoutError if it may yet do it.
    """
    reader, writer = getattr(connection, "_reader", None), getattr(connection, "_writer", None)
    if reader is None or writer is None:
        return False
    if not writer.can_write_eof():
        await close(connection)
        raise TimeoutError("TLS cannot be closed for writing alone")
    reading = _keep(asyncio.get_running_loop().create_task(_read_to_the_end(reader, writer)))
    try:
        if not (await asyncio.wait([reading], timeout=timeout))[0]:
            raise TimeoutError
        error = None if reading.cancelled() else reading.exception()
        if isinstance(error, RuntimeError):
            raise TimeoutError("the answer is still being read by who has asked") from error
        return not reading.cancelled() and error is None
    finally:
        reading.cancel()
        await close(connection)


async def _read_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # The server closes its side after the last request.
    writer.write_eof()
    while await reader.read(4096):
        pass


async def close(connection: Any) -> None:
    """Closes a connection at once, whatever state it is in."""
    try:
        await connection.disconnect(nowait=True)
    except Exception:
        pass
