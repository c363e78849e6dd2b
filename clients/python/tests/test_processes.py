"""Forks, the end of the interpreter, and threads that are interrupted at any moment: nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from losses import KINDS
from servers import Server, run_program, running_program, waiters
from waits import Threads, wait_until

from redis_lock_client import Lock, LockError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def in_a_child(work: Callable[[], object]) -> None:
    """Does some work in a child of this process, and waits for its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(20)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@needs_fork
@pytest.mark.parametrize("kind", KINDS)
def test_child_holds_none_of_its_parents_locks(server: Server, kind: str) -> None:
    """It cannot release them, and they are not released when its copies are collected."""
    lock = Lock(server.client(), "door", timeout=30, **KINDS[kind])
    lock.acquire()

    def use() -> None:
        nonlocal lock
        assert not lock.owned() and lock.local.token is None
        with pytest.raises(LockError):
            lock.release()
        if kind != "share":
            assert not lock.acquire(blocking_timeout=0.2)
        del lock
        gc.collect()
        with Lock(server.client(), "window", timeout=30) as own:
            assert own.owned()
            time.sleep(0.3)  # What must not happen would happen in this time.

    in_a_child(use)
    assert lock.owned() and not lock.lost.is_set()
    lock.release()


@needs_fork
def test_child_does_not_wait_behind_its_parents_threads(server: Server, client: Any) -> None:
    """They are in its copy of the local queue, which they would never leave."""
    client.set("door", "another holder")
    own = server.client()

    def take() -> bool:
        with Lock(own, "door", timeout=30, blocking_timeout=5):
            return True

    def take_in_child() -> None:
        own.delete("door")
        assert take()

    with Threads() as pool:
        taken = pool.submit(take)
        wait_until(lambda: waiters(client))
        in_a_child(take_in_child)
        assert taken.result(5)


FORKS = """
import multiprocessing, warnings
warnings.simplefilter("ignore")
{begin}
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
child.start()
print(child.pid)
time.sleep(60)
"""
HOLDS = 'lock = Lock(client, "door", timeout=2, session=True); lock.acquire()'
WAITS = """
threading.Thread(target=Lock(client, "door", timeout=30).acquire, daemon=True).start()
while not client.execute_command("LOCK.WAITERS", "door"): time.sleep(0.01)
"""


@needs_fork
@pytest.mark.parametrize("begin", [HOLDS, WAITS], ids=["a session", "a queue entry"])
def test_child_of_a_killed_process_keeps_nothing(server: Server, client: Any, begin: str) -> None:
    waits = begin is WAITS
    if waits:
        client.set("door", "another holder")
    with running_program(FORKS.format(begin=begin), server) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            process.kill()
            process.wait()
            wait_until(lambda: not (waiters(client) if waits else client.exists("door")), 5)
        finally:
            os.kill(child, signal.SIGKILL)


def test_processes_are_served_in_order(server: Server, client: Any) -> None:
    client.set("door", "another holder")
    with contextlib.ExitStack() as stack:
        processes = []
        for number in range(5):
            text = f'with Lock(client, "door", timeout=30): client.rpush("order", {number})'
            processes.append(stack.enter_context(running_program(text, server)))
            wait_until(lambda: len(waiters(client)) == len(processes), 60)
        client.delete("door")
        for process in processes:
            assert process.wait(60) == 0
    assert client.lrange("order", 0, -1) == [b"0", b"1", b"2", b"3", b"4"]


def test_package_works_without_fork(server: Server, client: Any) -> None:
    """As on Windows: the functions of os that concern forks are removed before the import."""
    text = """
with Lock(client, "door", timeout=30, session=True) as lock: print(lock.owned())
"""
    before = "import os; del os.register_at_fork, os.fork; "
    done = run_program(text, server, before=before)
    assert (done.stdout, done.stderr) == ("True\n", "")


# ---- the end of the interpreter --------------------------------------------------------------------------------------

ENDS = {
    "generator": """
def work():
    with lock: yield
suspended = work()
next(suspended)
""",
    "__del__": """
class Owner:
    def __init__(self): lock.acquire()
    def __del__(self): lock.release()
owner = Owner()
""",
    "ExitStack": """
import contextlib
stack = contextlib.ExitStack()
stack.enter_context(lock)
""",
    "unreleased": "lock.acquire()\n",
    "in a thread": """
def work():
    with lock: time.sleep(60)
threading.Thread(target=work, daemon=True).start()
while not client.exists("door"): time.sleep(0.01)
""",
    "in a circle": """
class Owner:
    def __init__(self): self.me, self.lock = self, lock; lock.acquire()
    def __del__(self): self.lock.release()
owner = Owner(); del owner
""",
    "atexit": """
import atexit
lock.acquire()
def at_exit():
    lock.release()
    with lock: assert lock.locked()
atexit.register(at_exit)
""",
}


@pytest.mark.parametrize("options", ["session=True", "renew=True", "", "reentrant=True"])
@pytest.mark.parametrize("way", ENDS)
def test_process_ends_with_a_held_lock(server: Server, client: Any, way: str, options: str) -> None:
    """Within seconds; the lock of a session is free then, and so is one that was released at exit."""
    text = f'lock = Lock(client, "door", timeout=30, {options})\n{ENDS[way]}\nprint("ends")'
    done = run_program(text, server)
    assert done.stdout == "ends\n" and done.returncode == 0, done.stderr
    if "session" in options or way == "atexit":
        wait_until(lambda: not client.exists("door"), 3)


def test_process_ends_while_its_server_is_dead(new_server: Any) -> None:
    server = new_server()
    text = 'lock = Lock(client, "door", timeout=30, session=True)\n' + ENDS["generator"]
    text += 'print("held"); sys.stdin.readline()'
    with running_program(text, server) as process:
        assert process.stdout is not None and process.stdin is not None and process.stdout.readline() == "held\n"
        server.stop()
        process.stdin.close()
        assert process.wait(60) in (0, 120)


# ---- interruptions ---------------------------------------------------------------------------------------------------


def test_ctrl_c_leaves_the_queue(server: Server, client: Any) -> None:
    client.set("door", "another holder")
    text = """
try: Lock(client, "door", timeout=30).acquire()
except KeyboardInterrupt: print("interrupted"); time.sleep(60)
"""
    with running_program(text, server) as process:
        wait_until(lambda: waiters(client))
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None and process.stdout.readline() == "interrupted\n"
        wait_until(lambda: not waiters(client), 2)


class Interrupted(BaseException):
    """What interrupts."""


class Interrupter:
    """Interrupts the main thread as Ctrl-C does, once in each block, at a random moment."""

    def __init__(self, seed: int) -> None:
        self.hits, self._chance, self._is_open, self._has_ended = 0, random.Random(seed), False, False
        self._guard, self._thread = threading.Lock(), threading.Thread(target=self._run)
        self._handler = signal.signal(signal.SIGUSR1, self._interrupt)

    @staticmethod
    def _interrupt(*_: object) -> None:
        raise Interrupted

    def __enter__(self) -> Interrupter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._handler)

    def _run(self) -> None:
        while not self._has_ended:
            time.sleep(self._chance.choice((0.0002, 0.001, 0.003)) * self._chance.random())
            with self._guard:
                if self._is_open:
                    self._is_open = False
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def call(self, work: Callable[[], object]) -> None:
        """Does some work. What interrupts it comes no later than at its end."""
        try:
            try:
                self._is_open = True
                work()
            finally:
                self._close()
        except Interrupted:
            self.hits += 1
            self._close()

    def _close(self) -> None:
        with self._guard:
            self._is_open = False
        for _ in range(3):
            time.sleep(0)  # A signal that was sent arrives here.


def in_blocks(lock: Lock) -> None:
    with lock, lock if lock.reentrant else contextlib.nullcontext():
        time.sleep(0)


def by_calls(lock: Lock) -> None:
    if lock.acquire(blocking_timeout=0.002):
        lock.release()


def without_waiting(lock: Lock) -> None:
    if lock.acquire(blocking=False):
        lock.release()


def contend(client: Any, ended: threading.Event) -> int:
    count = 0
    while not ended.is_set():
        with Lock(client, random.choice(("door", "window")), timeout=60, reentrant=True, blocking_timeout=60):
            count += 1
    return count


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "contended"])
def test_signals_at_any_moment_leave_nothing(each_client: Any, alone: bool) -> None:
    """A lock that is acquired when the interruption comes is known to its object."""
    client, ended, chance = each_client, threading.Event(), random.Random(1)
    kinds: list[dict[str, Any]] = [{}, {"reentrant": True}, {"renew": True}]
    with Threads() as pool, Interrupter(2) as interrupter:
        other = None if alone else pool.submit(contend, client, ended)
        try:
            while interrupter.hits < 1000:
                lock = Lock(client, chance.choice(("door", "window")), timeout=60, **chance.choice(kinds))
                way = chance.choice((in_blocks, by_calls, without_waiting))
                interrupter.call(lambda way=way, lock=lock: way(lock))
                while lock.local.token is not None:
                    with contextlib.suppress(LockError):
                        lock.release()
        finally:
            ended.set()
        assert other is None or other.result(60) > 50
    wait_until(lambda: not client.exists("door", "window"))
    for key in ("door", "window"):
        with Lock(client, key, timeout=30, blocking_timeout=5):
            assert client.exists(key)


def test_interrupted_inner_hold_keeps_the_count(client: Any) -> None:
    """The object and the server agree on the number of holds, so that each release releases one."""
    chance, lock = random.Random(5), Lock(client, "door", timeout=60, reentrant=True)
    with Interrupter(6) as interrupter:
        while interrupter.hits < 300:
            lock.acquire()
            interrupter.call(lambda: in_blocks(lock) if chance.random() < 0.5 else by_calls(lock))
            while lock.local.token is not None:
                assert lock.owned()
                lock.release()
            assert not client.exists("door")


def test_interrupted_connect_can_be_repeated(server: Server, client: Any) -> None:
    """The first request opens the connection: of a new user each time."""
    with Interrupter(7) as interrupter:
        for number in range(60):
            client.execute_command("ACL", "SETUSER", f"user{number}", "on", "nopass", "~*", "&*", "+@all")
            own = server.client(username=f"user{number}", password="any")
            interrupter.call(lambda own=own: by_calls(Lock(own, "door", timeout=60)))
            with Lock(own, "door", timeout=60, blocking_timeout=5) as lock:
                assert lock.owned()
