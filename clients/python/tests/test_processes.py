"""Forks, the end of the interpreter, and threads that are interrupted at any moment: nothing is left behind."""

import contextlib
import gc
import importlib.util
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from engines import KINDS, granted
from servers import CLIENT, LIBRARY, Server, run_program, running_program, waiters
from waits import Threads, wait_until

from redis_lock_client import Lock, LockError


@pytest.mark.parametrize("kind", KINDS)
def test_child_has_no_locks_or_waits_of_its_parent(server: Server, client: Any, kind: str) -> None:
    """It cannot release them, its copies release nothing, and it waits behind no copy of a waiter."""
    own = server.client()
    lock, waiter = Lock(own, "door", timeout=30, **KINDS[kind]), Lock(own, "window", timeout=30, thread_local=False)
    lock.acquire()

    def use() -> None:
        nonlocal lock
        assert not lock.owned() and lock.local.token is None
        with pytest.raises(LockError):
            lock.release()
        assert kind == "shared" or not lock.acquire(blocking_timeout=0.2)
        del lock
        gc.collect()
        assert not waiter.acquire(blocking_timeout=1)
        with Lock(own, "gate", timeout=30) as gate:
            assert gate.owned()

    with granted(waiter, client):
        child = multiprocessing.get_context("fork").Process(target=use, daemon=True)
        child.start()
        wait_until(lambda: len(waiters(client, "window")) == 2)
        child.join(20)
        assert child.exitcode == 0
    waiter.release()
    assert lock.owned() and not lock.lost.is_set()
    lock.release()


FORKS = """
lock, waiter = Lock(client, "door", timeout=120, session=True), Lock(client, "window", timeout=120)
async def main():
    {}
    await asyncio.to_thread(sys.stdin.readline)
    if child := os.fork(): print(child)
    time.sleep(60)
asyncio.run(main())
"""
IN_THREADS = FORKS.format("lock.acquire(); threading.Thread(target=waiter.acquire, daemon=True).start()")
IN_TASKS = FORKS.format("await lock.acquire(); waits = asyncio.create_task(waiter.acquire())")


@pytest.mark.parametrize("kind", ["threading", "asyncio", "uvloop"])
def test_child_of_a_killed_process_keeps_nothing(server: Server, client: Any, kind: str) -> None:
    pytest.importorskip(kind)
    client.set("window", "another holder")
    text, tasks = (IN_THREADS, False) if kind == "threading" else (IN_TASKS, True)
    before = "import uvloop; uvloop.install()" if kind == "uvloop" else ""
    with running_program(text, server, "-W", "ignore", tasks=tasks, before=before) as process:
        wait_until(lambda: client.exists("door") and waiters(client, "window"))
        print(file=process.stdin, flush=True)
        child = int(process.stdout.readline())
        process.kill()
        wait_until(lambda: not client.exists("door") and not waiters(client, "window"))
        os.kill(child, signal.SIGKILL)  # It lives until now.


ENDS = {
    "unreleased": "lock.acquire()",
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
    "in a thread": """
def work():
    with lock: time.sleep(60)
threading.Thread(target=work, daemon=True).start()
while not client.exists("door"): time.sleep(0.01)
""",
    "atexit": """
lock.acquire()
def at_exit():
    lock.release()
    with lock: assert lock.locked()
atexit.register(at_exit)
""",
}
ENDS["unreleased, without fork"] = ENDS["unreleased"]
ENDS["in a circle"] = ENDS["__del__"] + "owner.itself = owner; del owner"
ENDS["without its server"] = ENDS["generator"] + 'os.kill(client.info()["process_id"], signal.SIGKILL)'


@pytest.mark.parametrize("options", ["session=True", "renew=True", "", "reentrant=True"])
@pytest.mark.parametrize("way", ENDS)
def test_process_ends_with_a_held_lock(new_server: Any, way: str, options: str) -> None:
    """Within seconds; the lock of a session is free then, and so is one that was released at exit."""
    server, text = new_server(), f'lock = Lock(client, "door", timeout=30, {options})\n{ENDS[way]}\nprint("ends")'
    before = "import os; del os.register_at_fork, os.fork" if "without fork" in way else ""  # As on Windows.
    done = run_program(text, server, before=before)
    assert done.stdout == "ends\n" and done.returncode == 0, done.stderr
    if way == "atexit" or ("session" in options and way != "without its server"):
        wait_until(lambda: not server.client().exists("door"), 3)


IN_INTERPRETERS = """
import importlib
from concurrent.futures import ThreadPoolExecutor
interpreters = importlib.import_module({module!r})
text = '''
import asyncio, threading
import redis_lock_client
from redis_lock_client.asyncio import Lock
from redis_lock_client import threads
{head}
lock = redis_lock_client.Lock(client, "door", timeout=30, session=True, blocking_timeout=30, on_lost=print)
held = redis_lock_client.Lock(client, {key!r}, timeout=30, session=True)
for _ in range(5):
    with lock: assert lock.owned() and not lock.lost.is_set()
async def main():
    async with Lock(aclient, "door", timeout=30, session=True, blocking_timeout=30) as lock: assert await lock.owned()
asyncio.run(main())
held.acquire()
'''
def work(number):
    one = interpreters.create()
    failed = interpreters.run_string(one, text.replace("KEY", f"held{{number}}"))
    interpreters.destroy(one)
    return failed
print(list(ThreadPoolExecutor(4).map(work, range(4))))
"""


def test_locks_work_in_subinterpreters(server: Server, client: Any) -> None:
    """Also several at a time, as in a pool of them. A session ends with its interpreter."""
    modules = [name for name in ("_interpreters", "_xxsubinterpreters") if importlib.util.find_spec(name)]
    if not modules or sys.version_info < (3, 13):
        pytest.skip(
            "this Python has no interpreters with a GIL of their own, or a part of its library does not allow it"
        )
    head = f"import {LIBRARY}, {LIBRARY}.asyncio; client = {LIBRARY}.{CLIENT}(port={server.port}); "
    head += f"aclient = {LIBRARY}.asyncio.{CLIENT}(port={server.port})"
    done = run_program(IN_INTERPRETERS.format(module=modules[0], head=head, key="KEY"), server, "-W", "ignore")
    assert done.stdout == "[None, None, None, None]\n", done.stdout + done.stderr
    wait_until(lambda: not client.keys("*"))


def interrupted(work: Callable[[Lock], object], lock: Lock, seconds: float) -> bool:
    """Does some work, and interrupts it by a signal. Returns whether it had not ended before."""
    try:
        try:
            Alarm.is_set = True
            signal.setitimer(signal.ITIMER_REAL, seconds)
            work(lock)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0)  # A signal that was sent arrives here, if no other thread of the process has it.
            Alarm.is_set = False
    except (KeyboardInterrupt, Alarm):
        return True
    return False


class Alarm(TimeoutError):
    """What a handler of a signal raises."""

    is_set = False


def in_blocks(lock: Lock) -> None:
    with lock, lock if lock._kind.reentrant else contextlib.nullcontext():
        time.sleep(0)


WAYS: list[Callable[[Lock], object]] = [
    in_blocks,
    lambda lock: lock.acquire(blocking_timeout=0.002) and lock.release(),
    lambda lock: lock.acquire(blocking=False) and lock.release(),
]


@pytest.mark.timeout(120, method="thread")  # The alarm is the test's own.
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "contended"])
def test_signals_at_any_moment_leave_nothing(one_server: Server, alone: bool) -> None:
    """A lock that is acquired when the interruption comes is known to its object, with the number of its holds."""
    client, ended, chance, keys, hits = one_server.client(), threading.Event(), random.Random(1), ("door", "window"), 0
    kinds: list[dict[str, Any]] = [{}, {"reentrant": True}, {"renew": True}]
    nothing = contextlib.nullcontext()

    def handler(number: int, frame: object) -> None:
        if Alarm.is_set:
            raise chance.choice((KeyboardInterrupt, Alarm))

    signal.signal(signal.SIGALRM, handler)

    def contend() -> int:
        count = 0
        while not ended.is_set():
            with Lock(client, random.choice(keys), timeout=60, reentrant=True, blocking_timeout=60):
                count += 1
        return count

    def take_and_release(lock: Lock) -> bool:
        if is_held := lock._kind.reentrant and chance.random() < 0.5:
            lock.acquire()
        is_hit = interrupted(chance.choice(WAYS), lock, chance.choice((0.0002, 0.001, 0.003)) * chance.random())
        while lock.local.token is not None:
            assert not is_held or lock.owned()
            with contextlib.nullcontext() if is_held else contextlib.suppress(LockError):
                lock.release()
        return is_hit

    with Threads() as pool:
        other = None if alone else pool.submit(contend)
        try:
            for number in range(1, 51):
                own = one_server.client(socket_timeout=10 + number)  # Its first request opens a connection of its own.
                with Lock(own, "gate", timeout=1, renew=True, blocking_timeout=5) if number % 2 else nothing:
                    while hits < 20 * number:
                        hits += take_and_release(Lock(own, chance.choice(keys), timeout=60, **chance.choice(kinds)))
                for key in keys:
                    with Lock(own, key, timeout=60, blocking_timeout=5) as lock:
                        assert lock.owned()
        finally:
            ended.set()
        assert other is None or other.result(60) > 50
    wait_until(lambda: not client.exists(*keys))
