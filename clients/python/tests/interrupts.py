"""What interrupts threads at moments that nobody knows."""

from __future__ import annotations

import contextlib
import ctypes
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


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


@contextlib.contextmanager
def handled_by(handle: Callable[[], object], pause_s: float = 0.002) -> Iterator[None]:
    """Calls a handler of signals in the midst of what the main thread does, each time it has worked for so long."""
    handles = False

    def once(*_: object) -> None:
        nonlocal handles
        if not handles:
            handles = True
            try:
                handle()
            finally:
                handles = False

    signal.signal(signal.SIGPROF, once)
    signal.setitimer(signal.ITIMER_PROF, pause_s, pause_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # The last one may still be on its way, through another thread.
        signal.signal(signal.SIGPROF, lambda *_: None)


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


def without_waiting(lock: Any) -> None:
    if lock.acquire(blocking=False):
        lock.release()
