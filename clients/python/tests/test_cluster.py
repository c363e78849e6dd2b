"""Locks in a cluster: several servers, slots that move, and masters that are replaced."""

from __future__ import annotations

import time
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from servers import OUTAGE, begin_wait, library, own_connections, waiters
from waits import Threads, wait_until

from redis_lock_client import LockLost


@pytest.fixture
def cluster(new_server: Any) -> Cluster:
    return Cluster([new_server(True, *OPTIONS) for _ in range(2)])


@pytest.fixture
def replicated(new_server: Any) -> Cluster:
    """Three masters, as many as can vote when one is gone, and a replica of that which has the door."""
    options = (*OPTIONS[:-1], "2000", "--repl-diskless-sync-delay", "0")
    one = Cluster([new_server(True, *options) for _ in range(3)])
    one.add_replica(new_server(True, *options), "door")
    return one


def test_several_servers_have_a_connection_each(cluster: Cluster, engine: Any) -> None:
    """Also with several clients, which have one entry in a server's queue."""
    clients = [engine.client(cluster) for _ in range(3)]
    names = [f"key:{number}" for number in range(200)]
    keys = [one for owner in (0, 1) for one in [key for key in names if cluster.owner(key) == owner][:10]]

    def work(client: Any) -> None:
        for key in keys:
            with engine.lock(client, key, timeout=30, blocking_timeout=60) as lock:
                assert lock.owned() and lock.fence()

    with Threads(3) as pool:
        list(pool.map(work, clients))
    assert [len(own_connections(node)) for node in cluster.nodes] == [1, 1]
    node = cluster.nodes[cluster.owner("door")]
    node.set("door", "another client", px=60_000)
    with Threads() as pool:
        locks = [engine.lock(client, "door", timeout=30) for client in clients]
        taken = [pool.submit(lock.acquire) for lock in locks]
        wait_until(lambda: waiters(node))
        time.sleep(0.1)
        assert len(waiters(node)) == 1
        for number in (1, 2, 3):
            node.delete("door")
            wait_until(lambda number=number: sum(one.done() for one in taken) == number)


@pytest.mark.parametrize("key", ["door", "{house}:door", "odd}key"])
def test_slot_moves_while_caller_waits(cluster: Cluster, engine: Any, key: str) -> None:
    source, target = cluster.nodes[cluster.owner(key)], cluster.nodes[1 - cluster.owner(key)]
    source.set(key, "another client", px=60_000)
    lock = engine.lock(cluster, key, timeout=30, blocking_timeout=60, thread_local=False)
    polls = key == "odd}key"  # There is no name for a channel of its slot.
    with Threads() as pool:
        taken = pool.submit(lock.acquire)
        wait_until(lambda: polls or waiters(source, key))
        cluster.move(key)
        wait_until(lambda: polls or waiters(target, key))
        target.delete(key)
        assert taken.result(20)
    assert target.get(key) == lock.local.token
    lock.release()


def test_slot_moves_while_lock_is_held(cluster: Cluster, engine: Any) -> None:
    target = cluster.nodes[1 - cluster.owner("door")]
    lock = engine.lock(cluster, "door", timeout=30, watch=True)
    renewed = engine.lock(cluster, "{door}:1", timeout=6, renew=True)
    session = engine.lock(cluster, "{door}:2", timeout=6, session=True)
    for one in (lock, renewed, session):
        assert one.acquire()
    assert lock.fence()
    cluster.move("door")
    time.sleep(7)
    for one in (lock, renewed, session):
        assert not one.lost.is_set() and one.owned(), one.name
    assert lock.extend(10)
    # The server that has it now reports changes of it.
    for one in (lock, renewed, session):
        target.delete(one.name)
        assert one.lost.wait(5), one.name
        with pytest.raises(LockLost):
            one.release()


def test_half_moved_slot_is_used(cluster: Cluster, engine: Any) -> None:
    """A key that was moved before its slot is asked for where it is."""
    client = engine.client(cluster)
    _, target = cluster.begin_to_move("door")
    lock = engine.lock(client, "door", timeout=6, renew=True, thread_local=False)
    assert lock.acquire(blocking=False) and cluster.keys_ahead("door") == 1
    assert lock.owned() and lock.extend(6, replace_ttl=True)
    assert not lock.lost.wait(7)
    with Threads() as pool:
        for lease in (30, None):
            waiter = engine.lock(client, "door", timeout=lease, blocking_timeout=60, thread_local=False)
            assert not waiter.acquire(blocking_timeout=0.5)
            taken = pool.submit(waiter.acquire)
            time.sleep(0.5)
            before = target.info("stats")["total_commands_processed"]
            time.sleep(0.5)
            assert target.info("stats")["total_commands_processed"] - before < 200
            lock.release()
            assert taken.result(10)
            waiter.release()
            assert cluster.keys_ahead("door") == 0
            assert lock.acquire()
    wait_until(lambda: target.execute_command("ASKING") and target.delete("door"))
    assert lock.lost.wait(5)


def test_lock_moves_before_its_slot(cluster: Cluster, engine: Any) -> None:
    lock = engine.lock(cluster, "door", timeout=30, reentrant=True, watch=True)
    lock.acquire()
    _, target = cluster.begin_to_move("door")
    assert lock.acquire() and not lock.lost.is_set()
    cluster.move_keys("door")
    assert lock.acquire() and lock.owned()
    cluster.end_move("door")
    for _ in range(3):
        assert not lock.lost.is_set()
        lock.release()
    assert not target.exists("door")


def test_fence_of_half_moved_slot_is_refused(cluster: Cluster, engine: Any) -> None:
    """The lock and its counter are two keys: the server cannot tell whether both have been moved."""
    with engine.lock(cluster, "door", timeout=30) as lock:
        first = lock.fence()
        cluster.begin_to_move("door")
        assert lock.fence() > first
        lock.release()
        lock.acquire()
        with pytest.raises(library.ResponseError, match="TRYAGAIN"):
            lock.fence()
        cluster.move_keys("door")
        assert lock.fence() > first + 1


def test_dead_master_is_asked_for_seldom(cluster: Cluster, engine: Any) -> None:
    """A hundred callers wait for locks of a server that is gone."""
    client, owner = engine.client(cluster), cluster.owner("door")
    node, other = cluster.nodes[owner], cluster.nodes[1 - owner]
    keys = [key for key in map(str, range(400)) if cluster.owner(key) == owner][:100]
    for key in keys:
        node.set(key, "another client", px=60_000)
    with Threads(100) as pool:
        locks = [engine.lock(client, key, timeout=30) for key in keys]
        waiting = [pool.submit(lock.acquire, blocking_timeout=5) for lock in locks]
        wait_until(lambda: all(waiters(node, key) for key in keys), 30)
        before = other.info("stats")["total_connections_received"]
        cluster.servers[owner].stop()
        assert all(isinstance(one.exception(60), OUTAGE) for one in waiting)
    assert other.info("stats")["total_connections_received"] - before < 50


def take_over(cluster: Cluster, how: str) -> None:
    """Makes the replica the master."""
    if how == "killed":
        cluster.servers[cluster.owner("door")].stop()
    else:
        cluster.nodes[-1].execute_command("CLUSTER", "FAILOVER")
    wait_until(lambda: cluster.nodes[-1].info("replication")["role"] == "master", 60)


def copied(cluster: Cluster) -> int:
    """Returns how many keys of the door's slot the replica has."""
    return int(cluster.nodes[-1].execute_command("CLUSTER", "COUNTKEYSINSLOT", cluster.slot("door")))


@pytest.mark.parametrize("how", ["killed", "planned"])
def test_replica_takes_over(replicated: Cluster, engine: Any, how: str) -> None:
    """Waits and holds go on at the new master; what it does not have is lost."""
    client = engine.client(replicated)
    old, new = replicated.nodes[replicated.owner("door")], replicated.nodes[-1]
    old.set("{door}:1", "another client", px=120_000)
    waiter = engine.lock(client, "{door}:1", timeout=60, blocking_timeout=100, thread_local=False)
    renewed = engine.lock(client, "door", timeout=20, renew=True)
    kept, gone = (engine.lock(client, f"{{door}}:{n}", timeout=90, watch=True) for n in (2, 3))
    for lock in (renewed, kept, gone):
        lock.acquire()
    wait_until(lambda: copied(replicated) == 4)
    with begin_wait(waiter, old) as taken:
        take_over(replicated, how)
        new.delete("{door}:3")  # As if it had not been copied in time.
        assert gone.lost.wait(30)
        with pytest.raises(LockLost):
            gone.release()
        wait_until(lambda: taken.done() or waiters(new, "{door}:1"), 60)
        new.delete("{door}:1")
        assert taken.result(20)
    before = new.pexpiretime("door")
    wait_until(lambda: new.pexpiretime("door") > before, 20)
    for lock in (renewed, kept, waiter):
        assert not lock.lost.is_set() and lock.owned()
        lock.release()
    assert copied(replicated) == 0


def test_failed_release_reaches_new_master(replicated: Cluster, engine: Any) -> None:
    lock = engine.lock(replicated, "door", timeout=90)
    lock.acquire()
    wait_until(lambda: copied(replicated) == 1)
    replicated.servers[replicated.owner("door")].stop()
    with pytest.raises((*OUTAGE, library.ResponseError)):
        lock.release()
    wait_until(lambda: replicated.nodes[-1].info("replication")["role"] == "master" and copied(replicated) == 0, 60)
