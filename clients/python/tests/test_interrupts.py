"""Threads that are interrupted at any moment, as by Ctrl-C: nothing is left held, locked or running."""

from __future__ import annotations

import contextlib
import ctypes
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Server, Threads, wait_until, waiters

from redis_lock_client import Lock
from redis_lock_client._sync import listener, runtime
from redis_lock_client._sync.client import Client

KEYS = ("door", "window")


class Interrupted(BaseException):
    """What interrupts."""


class Interrupter:
    """Interrupts a thread once in each block, at a moment that nobody knows, if the block lasts that long."""

    def __init__(self, interrupt: Callable[[], object], seed: int) -> None:
        self.hits = 0
        self._interrupt = interrupt
        self._chance = random.Random(seed)
        self._open = False
        self._guard = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            time.sleep(self._chance.choice((0.0002, 0.001, 0.003)) * self._chance.random())
            with self._guard:
                if self._open:
                    self._open = False
                    self._interrupt()

    def call(self, work: Callable[[], object]) -> None:
        """Does some work; what interrupts it comes no later than at its end."""
        try:
            try:
                self._open = True
                work()
            finally:
                self._close()
        except Interrupted:
            self.hits += 1
            self._close()

    def _close(self) -> None:
        with self._guard:
            self._open = False
        for _ in range(3):
            time.sleep(0)  # What is under way comes here.

    def end(self) -> None:
        self._ended = True
        self._thread.join()


@contextlib.contextmanager
def interrupted_by_signals(seed: int) -> Iterator[Interrupter]:
    """Interrupts the main thread, as Ctrl-C does: also where it waits."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None
    interrupter = Interrupter(lambda: signal.pthread_kill(main, signal.SIGUSR1), seed)
    try:
        yield interrupter
    finally:
        interrupter.end()
        signal.signal(signal.SIGUSR1, before)


#: Locked while a thread begins. For a moment it has the number of who began it, and would be interrupted in its place.
BEGINNING = threading.Lock()


class Beginning(threading.Thread):
    """A thread that is not interrupted in the place of another one."""

    def start(self) -> None:
        with BEGINNING:
            super().start()


@contextlib.contextmanager
def interrupted_by_exceptions(seed: int) -> Iterator[Interrupter]:
    """Interrupts this thread, as debuggers and pools do: where it comes back from a wait, or works."""
    ident = threading.get_ident()

    def interrupt() -> None:
        with BEGINNING:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Interrupted))

    interrupter = Interrupter(interrupt, seed)
    try:
        yield interrupter
    finally:
        interrupter.end()


def take_and_release(client: Any, chance: random.Random, interrupter: Interrupter) -> None:
    """One attempt. What was interrupted after the lock was taken is known to the lock, which can be released then."""
    lock = Lock(client, chance.choice(KEYS), timeout=60, reentrant=chance.random() < 0.3)
    way = chance.choice((in_blocks, by_calls, without_waiting))
    interrupter.call(lambda: way(lock))
    while lock.local.token is not None:
        lock.release()


def in_blocks(lock: Lock) -> None:
    with lock, lock if lock.reentrant else contextlib.nullcontext():
        time.sleep(0)


def by_calls(lock: Lock) -> None:
    if lock.acquire(blocking_timeout=0.002):
        lock.release()


def without_waiting(lock: Lock) -> None:
    if lock.acquire(blocking=False):
        lock.release()


@pytest.fixture
def nothing_is_left(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of which nothing is left afterwards."""
    threads = own_threads()
    monkeypatch.setattr(runtime, "IDLE_S", 0.2)
    monkeypatch.setattr(listener, "IDLE_S", 0.2)
    monkeypatch.setattr(listener, "SILENCE_S", 0.5)
    one = server.client()
    yield one
    wait_until(lambda: not client.exists(*KEYS), 5, lambda: [(key, client.type(key)) for key in KEYS])
    assert not any(waiters(client, key) for key in KEYS)
    # Nothing that was interrupted is in the way of who comes next.
    with Threads() as pool:
        for key in KEYS * 10:
            assert pool.submit(Lock(one, key, timeout=30, blocking_timeout=1, thread_local=False).acquire).result(5)
            client.delete(key)
    state = Client.of(one)
    (node,) = state._nodes.values()
    assert not state.lines._lines and not node.listener._waits
    assert not any(place.guard.locked() for place in node.connections._places)
    wait_until(lambda: own_threads() <= threads, 15, own_threads)


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "redis-lock-client"}


def test_signals_at_any_moment(nothing_is_left: Any) -> None:
    """The main thread is interrupted, while another one goes for the same locks."""
    ended = threading.Event()

    def contend() -> int:
        count = 0
        while not ended.is_set():
            with Lock(nothing_is_left, random.choice(KEYS), timeout=60, reentrant=True, blocking_timeout=30):
                count += 1
        return count

    chance = random.Random(1)
    with Threads() as pool, interrupted_by_signals(2) as interrupter:
        other = pool.submit(contend)
        try:
            while interrupter.hits < 1500:
                take_and_release(nothing_is_left, chance, interrupter)
        finally:
            ended.set()
        assert other.result(30) > 100


def test_exceptions_in_threads_at_any_moment(nothing_is_left: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.threading, "Thread", Beginning)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with interrupted_by_exceptions(seed) as interrupter:
            while interrupter.hits < 1000:
                take_and_release(nothing_is_left, chance, interrupter)

    with Threads() as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result(100)


def test_a_block_that_an_interrupt_ends(client: Any) -> None:
    """Where the interrupt comes in the block, the block is left as by any exception."""
    with pytest.raises(KeyboardInterrupt), Lock(client, "door", timeout=30):
        raise KeyboardInterrupt
    assert not client.exists("door")
