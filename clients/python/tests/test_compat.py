"""python-redis-lock's interface where its own suite has no test: outages, clusters, interruptions, several threads."""

from __future__ import annotations

import random
import signal
import time
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from conftest import Threads, library, wait_until, waiters

from redis_lock_client.compat import AlreadyAcquired, Lock, NotAcquired

OUTAGE = (library.ConnectionError, library.TimeoutError)


@pytest.mark.parametrize("id", [None, "me"])
def test_release_in_outage_is_made_up_for(new_server: Any, id: str | None) -> None:
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    lock = Lock(server.client(), "door", expire=60, id=id)
    lock.acquire()
    server.stop()
    with pytest.raises(OUTAGE):
        lock.release()
    with pytest.raises(OUTAGE):
        lock.acquire(blocking=False)
    server.start()
    wait_until(lambda: not server.client().exists("lock:door"))

    def is_acquired() -> bool:
        try:
            return lock.acquire(blocking=False)
        except AlreadyAcquired:  # Its withdrawal is still under way.
            return False

    wait_until(is_acquired)
    lock.release()


def test_waiting_thread_leaves_holder_alone(client: Any) -> None:
    """One object is shared by a thread that holds by it and by those that fail to get it."""
    lock, other = Lock(client, "door", expire=60), Lock(client, "door", expire=60)
    with Threads() as pool, other:
        assert pool.submit(lock.acquire, timeout=1).result(10) is False
        other.reset()
        lock.acquire()
        with pytest.raises(AlreadyAcquired):
            pool.submit(lock.acquire, blocking=False).result(10)
        lock.extend()
        assert lock.id == lock.get_owner_id()
        lock.release()
        other.acquire()
    assert not client.exists("lock:door")


def test_many_threads_hold_one_at_a_time(client: Any) -> None:
    """With an object each; they have one entry in the server's queue, and are granted in order."""
    order: list[int] = []

    def work(number: int) -> None:
        with Lock(client, "door", expire=60, auto_renewal=number % 2 == 0):
            order.append(number)

    with Threads(20) as pool, Lock(client, "door", expire=60):
        started = []
        for number in range(20):
            started.append(pool.submit(work, number))
            wait_until(lambda: waiters(client, "lock:door"))
            time.sleep(0.02)
        assert len(waiters(client, "lock:door")) == 1
    assert [one.result(10) for one in started] and order == [*range(20)]


def test_id_hands_lock_over(client: Any) -> None:
    """Another object with this id extends and releases the lock, also one that was granted to a waiter."""
    with Threads() as pool:
        before = Lock(client, "door", expire=60)
        before.acquire()
        taken = pool.submit(Lock(client, "door", expire=60, id="me").acquire)
        wait_until(lambda: waiters(client, "lock:door"))
        with pytest.raises(AlreadyAcquired):
            Lock(client, "door", expire=60, id="me").acquire(timeout=1)
        with pytest.raises(NotAcquired):
            Lock(client, "door", expire=60, id="me").extend()
        before.release()
        assert taken.result(10)
    other = Lock(client, "door", id="me")
    other.extend(expire=100)
    assert client.ttl("lock:door") > 60 and other.get_owner_id() == "me"
    other.release()
    with pytest.raises(NotAcquired):
        other.release()


def test_release_signals_original_waiters(new_server: Any) -> None:
    """Where the server has not loaded the module, and where it signals itself."""
    for server in (new_server(False), new_server(True, "--lock.wake-foreign", "yes")):
        client = server.client()
        with Threads() as pool, Lock(client, "door", expire=60):
            original = pool.submit(client.blpop, "lock-signal:door", 10)
            wait_until(lambda client=client: client.info("clients")["blocked_clients"])
        assert original.result(10) is not None


@pytest.mark.parametrize("name", ["door", "{house}:door"])
@pytest.mark.parametrize("module", [True, False], ids=["module", "scripts"])
def test_lock_works_in_cluster(new_server: Any, module: bool, name: str) -> None:
    """Also where the list of the original's waiters has a slot of its own; and after the slot has moved."""
    cluster = Cluster([new_server(module, *OPTIONS) for _ in range(2)])
    client = cluster.client()
    with Lock(client, name, expire=60) as lock:
        lock.extend()
    assert not client.exists(f"lock:{name}")
    with lock:
        cluster.move(f"lock:{name}")
        lock.extend()
    assert not cluster.client().exists(f"lock:{name}")


class Interrupted(Exception):
    """Raised by a signal handler at any moment."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interruptions_leave_no_lock(client: Any) -> None:
    chance, hits = random.Random(1), 0

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    lock = Lock(client, "door", expire=60)
    try:
        while hits < 300:
            lock = Lock(client, "door", expire=60, auto_renewal=chance.random() < 0.3)
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.003))
                with lock:
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                hits += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            # It may have been interrupted between the acquisition and the block.
            try:
                lock.release()
            except NotAcquired:
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
    wait_until(lambda: not client.exists("lock:door"))


def test_expire_of_less_than_a_second_is_refused(client: Any) -> None:
    """It is not taken for none, with which the lock would be held without an end."""
    with pytest.raises(ValueError, match="less than a second"):
        Lock(client, "door", expire=0.5).acquire()
    assert not client.exists("lock:door")
