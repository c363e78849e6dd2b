"""What a fork copies is the parent's all the same."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from conftest import Server, Threads, wait_until, waiters

from redis_lock_client import Lock, compat


def in_a_child(work: Callable[[], None]) -> None:
    """Does some work in a child of this process, and waits for its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_gives_up_its_copy_of_a_sessions_lock(server: Server) -> None:
    """A session's lock that is collected as garbage is released, but not by who has only a copy of it."""
    lock = Lock(server.client(), "door", timeout=30, session=True)
    lock.acquire()

    def drop() -> None:
        assert not lock.acquire(blocking=False)
        lock.local.held = None
        gc.collect()
        time.sleep(0.5)  # What must not be done would be done in this time.

    in_a_child(drop)
    assert lock.owned()
    lock.release()


def test_a_child_does_not_wait_behind_its_parents_threads(server: Server, client: Any) -> None:
    """They are in its copy of the local queue, which nobody would leave."""
    client.set("door", "somebody else")
    own = server.client()

    def take(client: Any) -> bool:
        with Lock(client, "door", timeout=30, blocking_timeout=5):
            return True

    def take_in_child() -> None:
        other = server.client()
        other.delete("door")
        assert take(own) and take(other)

    with Threads() as pool:
        taken = pool.submit(take, own)
        wait_until(lambda: waiters(client))
        in_a_child(take_in_child)
        assert taken.result(5)


def test_a_child_gives_up_its_copy_of_a_client(server: Server) -> None:
    lock = Lock(server.client(), "door", timeout=30, session=True)
    lock.acquire()

    def drop() -> None:
        nonlocal lock
        del lock
        gc.collect()
        time.sleep(0.5)

    in_a_child(drop)
    assert lock.owned()
    lock.release()


def test_a_child_gives_up_by_an_id_what_the_parent_sees_to(server: Server, client: Any) -> None:
    """python-redis-lock's interface lets it. What another thread of the parent has locked stays locked in the child."""
    lock = compat.Lock(server.client(), "door", expire=30, auto_renewal=True)
    lock.acquire()
    held = lock._held_now
    assert held is not None and held.keeper is not None
    inside, forked = threading.Event(), threading.Event()

    def be_inside() -> None:
        with held.keeper._guard:
            inside.set()
            forked.wait(10)

    thread = threading.Thread(target=be_inside)
    thread.start()
    assert inside.wait(10)

    def release() -> None:
        signal.alarm(5)
        lock.release()

    in_a_child(release)
    forked.set()
    thread.join()
    assert not client.exists("lock:door")
