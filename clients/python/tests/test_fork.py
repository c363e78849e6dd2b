"""What a fork copies is the parent's all the same."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

from conftest import Server

from redis_lock_client import Lock


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
