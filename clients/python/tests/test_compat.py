"""python-redis-lock's interface where its own suite does not look: servers that are away, and clusters."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from conftest import Threads, Wire, library, wait_until, waiters
from interrupts import interrupted_by_signals, without_waiting

from redis_lock_client._sync.acquisition import Acquisition
from redis_lock_client._sync.client import Client
from redis_lock_client.compat import Lock, NotAcquired


def test_a_release_that_finds_no_server_is_made_up_for(new_server: Any) -> None:
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    lock = Lock(server.client(), "door", expire=60)
    lock.acquire()
    server.stop()
    with pytest.raises((library.ConnectionError, library.TimeoutError)):
        lock.release()
    server.start()
    wait_until(lambda: not server.client().exists("lock:door"))
    assert lock.acquire(blocking=False)
    lock.release()


def test_an_object_of_several_threads(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds the lock by it is not disturbed by who waits by it, or fails to."""
    lock, before = Lock(client, "door", expire=60), Lock(client, "door", expire=60)
    before.acquire()

    def fail(*_: object) -> bool:
        raise library.ConnectionError("away")

    with Threads() as pool:
        taken = [pool.submit(lock.acquire) for _ in range(2)]
        line = Client.of(client).lines._lines
        wait_until(lambda: waiters(client, "lock:door") and len(line[b"lock:door"]) == 2)
        # One stands in line already; the other one will fail when it is at the head of those who wait here.
        monkeypatch.setattr(Acquisition, "_at_the_head", fail)
        before.release()
        with pytest.raises(library.ConnectionError):
            for one in taken:
                assert one.result(5)
    lock.extend()
    assert lock.id == lock.get_owner_id()
    lock.release()
    assert not client.exists("lock:door")


def test_an_id_that_was_given_is_not_released_later_on(new_server: Any) -> None:
    """It may be in use again by then."""
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    lock = Lock(server.client(), "door", expire=60, id="me")
    lock.acquire()
    server.stop()
    with pytest.raises((library.ConnectionError, library.TimeoutError)):
        lock.release()
    server.start()
    lock.release()
    with pytest.raises(NotAcquired):
        lock.release()


def test_an_answer_that_is_lost(client: Any, wire: Wire) -> None:
    with Lock(client, "window", expire=60):
        pass  # So that there is a connection that may have been lost before.
    lock = Lock(client, "door", expire=60)
    for name, step in (("ACQUIRE", lock.acquire), ("EXTEND", lock.extend), ("RELEASE", lock.release)):
        wire.lose = {f"LOCK.{name}"}
        step()
        assert not wire.lose
    assert not client.exists("lock:door")


@pytest.mark.parametrize("name", ["door", "{house}:door"])
@pytest.mark.parametrize("module", [True, False], ids=["module", "scripts"])
def test_in_a_cluster(new_server: Any, module: bool, name: str) -> None:
    """Also where the list of those who wait has a slot of its own; and after the slot has moved."""
    cluster = Cluster([new_server(module, *OPTIONS) for _ in range(2)])
    client = cluster.client()
    with Lock(client, name, expire=60) as lock:
        lock.extend()
    assert not client.exists(f"lock:{name}")
    with lock:
        cluster.move(f"lock:{name}")
        lock.extend()
    assert not cluster.client().exists(f"lock:{name}")


def in_a_block(lock: Lock) -> None:
    with lock:
        time.sleep(0)


def test_signals_at_any_moment(nothing_is_left: Any, client: Any) -> None:
    """What is interrupted after the lock was taken can be released; and what is interrupted in that is done."""
    chance = random.Random(1)
    with interrupted_by_signals(2) as interrupter:
        while interrupter.hits < 500:
            lock = Lock(nothing_is_left, "door", expire=60, auto_renewal=chance.random() < 0.3)
            way = chance.choice((in_a_block, without_waiting))
            interrupter.call(lambda way=way, lock=lock: way(lock))  # type: ignore[misc]
            if lock._held_now is not None:
                with contextlib.suppress(NotAcquired):
                    lock.release()
    wait_until(lambda: not client.exists("lock:door"))


def test_an_expire_of_less_than_a_second(client: Any) -> None:
    """It is not taken for none, with which the lock would be held without an end."""
    with pytest.raises(ValueError, match="less than a second"):
        Lock(client, "door", expire=0.5).acquire()  # type: ignore[arg-type]
    assert not client.exists("lock:door")
