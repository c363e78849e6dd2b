"""python-redis-lock's interface where its own suite has no test: outages, clusters, interruptions, several threads."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from servers import DURABLE, OUTAGE, waiters
from waits import Threads, wait_until

from redis_lock_client.compat import AlreadyAcquired, Lock, NotAcquired


@pytest.mark.parametrize("id", [None, "me"])
def test_release_in_outage_is_made_up_for(new_server: Any, id: str | None) -> None:
    server = new_server(True, *DURABLE)
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


def test_expire_of_less_than_a_second_is_refused(client: Any) -> None:
    """It is not taken for none, with which the lock would be held without an end."""
    with pytest.raises(ValueError, match="less than a second"):
        Lock(client, "door", expire=0.5).acquire()
    assert not client.exists("lock:door")
