"""Handlers of signals that are about locks, right between two steps of what they interrupt."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Server, Threads, looked_at, wait_until, waiters

from redis_lock_client import Lock
from redis_lock_client._sync import keeper
from redis_lock_client._sync.client import Client


class Handler:
    """Is called by a signal, once."""

    def __init__(self) -> None:
        self.handle: Callable[[], object] | None = None

    def come_in_between(self) -> None:
        if self.handle is not None and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)

    def __call__(self, *_: object) -> None:
        handle, self.handle = self.handle, None
        if handle is not None:
            handle()


@pytest.fixture
def handler() -> Iterator[Handler]:
    one = Handler()
    before = signal.signal(signal.SIGUSR1, one)
    yield one
    signal.signal(signal.SIGUSR1, before)
    assert one.handle is None, "it has not come in between"


def interrupted_dict(handler: Handler) -> dict[Any, Any]:
    """A dictionary in which a handler comes right after ``setdefault``."""

    class Interrupted(dict):  # type: ignore[type-arg]
        def setdefault(self, key: Any, default: Any = None) -> Any:
            found = super().setdefault(key, default)
            handler.come_in_between()
            return found

    return Interrupted()


def test_it_waits_in_the_same_local_queue(server: Server, client: Any, handler: Handler) -> None:
    """With its own turn it takes away the empty queue, and who was interrupted is not left in that one."""
    client.set("door", "somebody else")
    own = server.client()
    assert Lock(own, "door").locked()
    Client.of(own).lines._lines = interrupted_dict(handler)
    handler.handle = lambda: Lock(own, "door", timeout=30).acquire(blocking_timeout=0.05)

    with Threads() as pool:

        def come_second() -> bool:
            wait_until(lambda: waiters(client))
            taken = pool.submit(Lock(own, "door", timeout=30, thread_local=False).acquire, blocking_timeout=2)
            time.sleep(0.5)  # In which it would come into line.
            in_line.append(len(waiters(client)))
            client.delete("door")
            return taken.result(10)

        in_line: list[int] = []
        second = pool.submit(come_second)
        assert Lock(own, "door", timeout=30).acquire(blocking_timeout=10)
        assert second.result(10) is False and in_line == [1]


def take_a_permit_and_give_it_back(client: Any) -> None:
    lock = Lock(client, "door", timeout=60, limit=10, on_lost=lambda: None)
    assert lock.acquire(blocking=False)
    lock.release()


def test_it_has_a_permit_while_one_begins_to_be_watched(server: Server, client: Any, handler: Handler) -> None:
    own = server.client()
    lock = Lock(own, "door", timeout=60, limit=10)
    assert not lock.locked()
    (node,) = Client.of(own)._nodes.values()
    node.keeper._watched = interrupted_dict(handler)
    handler.handle = lambda: take_a_permit_and_give_it_back(own)
    assert not lock.lost.is_set() and lock.acquire()
    held = lock.local.held
    wait_until(lambda: held is not None and looked_at(held))
    client.delete("door")
    assert lock.lost.wait(5)


def test_it_has_a_permit_while_one_is_not_watched_any_more(
    server: Server, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(weakref.WeakValueDictionary):  # type: ignore[type-arg]
        def pop(self, key: Any, *default: Any) -> Any:
            found = super().pop(key, *default)
            handler.come_in_between()
            return found

    monkeypatch.setattr(keeper.weakref, "WeakValueDictionary", Interrupted)
    own = server.client()
    lock = Lock(own, "door", timeout=60, limit=10, on_lost=lambda: None)
    lock.acquire()
    handler.handle = lambda: take_a_permit_and_give_it_back(own)
    lock.release()
    assert not own.exists("door")
