"""Locks in a cluster: several servers, slots that move, and masters that are replaced."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from conftest import Threads, connections_of, library, until, wait_until, waiters

from redis_lock_client import Lock, LockLost
from redis_lock_client import asyncio as for_tasks

NAME = "redis-lock-client"
OUTAGE = (library.ConnectionError, library.TimeoutError)


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


def keys_of(cluster: Cluster, count: int) -> list[str]:
    """Returns keys of each server, as many of one as of the other."""
    names = [f"key:{number}" for number in range(20 * count)]
    return [one for owner in (0, 1) for one in [key for key in names if cluster.owner(key) == owner][: count // 2]]


def test_threads_lock_on_several_servers(cluster: Cluster) -> None:
    """Over one connection to each, also with several clients."""
    clients = [cluster.client() for _ in range(3)]

    def work(client: Any) -> None:
        for key in keys_of(cluster, 20):
            with Lock(client, key, timeout=30, blocking_timeout=60) as lock:
                assert lock.owned() and lock.fence()

    with Threads(3) as pool:
        list(pool.map(work, clients))
    assert [connections_of(node, NAME) for node in cluster.nodes] == [1, 1]


async def test_tasks_lock_on_several_servers(cluster: Cluster) -> None:
    clients = [cluster.client_asyncio() for _ in range(3)]
    await clients[0].ping()  # A client that was used before knows more servers than one that was not.

    async def work(client: Any) -> None:
        for key in keys_of(cluster, 20):
            async with for_tasks.Lock(client, key, timeout=30, blocking_timeout=60) as lock:
                assert await lock.owned()

    await asyncio.gather(*(work(client) for client in clients for _ in range(5)))
    assert [connections_of(node, NAME) for node in cluster.nodes] == [1, 1]
    for client in clients:
        await client.aclose()


async def test_clients_of_cluster_wait_once(cluster: Cluster) -> None:
    node = cluster.nodes[cluster.owner("door")]
    node.set("door", "another client", px=60_000)
    clients = [cluster.client_asyncio() for _ in range(2)]
    await clients[0].ping()
    locks = [for_tasks.Lock(client, "door", timeout=30) for client in clients]
    tasks = [asyncio.create_task(lock.acquire()) for lock in locks]
    await until(lambda: waiters(node))
    await asyncio.sleep(0.1)
    assert len(waiters(node)) == 1
    for number in (1, 2):
        node.delete("door")
        await until(lambda number=number: sum(task.done() for task in tasks) == number)
    for client in clients:
        await client.aclose()


@pytest.mark.parametrize("key", ["door", "{house}:door", "odd}key"])
def test_slot_moves_while_thread_waits(cluster: Cluster, key: str) -> None:
    source, target = cluster.nodes[cluster.owner(key)], cluster.nodes[1 - cluster.owner(key)]
    source.set(key, "another client", px=60_000)
    lock = Lock(cluster.client(), key, timeout=30, blocking_timeout=30, thread_local=False)
    with Threads() as pool:
        taken = pool.submit(lock.acquire)
        wait_until(lambda: waiters(source, key))
        assert (waiters(source, key)[0][b"channel"] is None) == (key == "odd}key")
        cluster.move(key)
        wait_until(lambda: waiters(target, key))
        target.delete(key)
        assert taken.result(10)
    assert target.get(key) == lock.local.token
    lock.release()


def test_slot_moves_while_lock_is_held(cluster: Cluster) -> None:
    target = cluster.nodes[1 - cluster.owner("door")]
    lock = Lock(cluster.client(), "door", timeout=30, watch=True)
    renewed = Lock(cluster.client(), "{door}:1", timeout=6, renew=True)
    session = Lock(cluster.client(), "{door}:2", timeout=6, session=True)
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


def test_slot_half_way_serves_threads(cluster: Cluster) -> None:
    """A key that was moved before its slot is asked for where it is."""
    client = cluster.client()
    _, target = cluster.begin_to_move("door")
    lock = Lock(client, "door", timeout=6, renew=True, thread_local=False)
    assert lock.acquire(blocking=False) and cluster.keys_ahead("door") == 1
    assert lock.owned() and lock.extend(6, replace_ttl=True)
    assert not lock.lost.wait(7)
    with Threads() as pool:
        for lease in (30, None):
            waiter = Lock(client, "door", timeout=lease, blocking_timeout=20, thread_local=False)
            assert not waiter.acquire(blocking_timeout=0.5)
            taken = pool.submit(waiter.acquire)
            time.sleep(0.5)
            before = target.info("stats")["total_commands_processed"]
            time.sleep(0.5)
            assert target.info("stats")["total_commands_processed"] - before < 200
            released = time.monotonic()
            lock.release()
            assert taken.result(10) and time.monotonic() - released < 4
            waiter.release()
            assert cluster.keys_ahead("door") == 0
            assert lock.acquire()
    wait_until(lambda: target.execute_command("ASKING") and target.delete("door"))
    assert lock.lost.wait(1)


def test_lock_moves_before_its_slot(cluster: Cluster) -> None:
    lock = Lock(cluster.client(), "door", timeout=30, reentrant=True, watch=True)
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


def test_fence_of_half_moved_slot_is_refused(cluster: Cluster) -> None:
    """The lock and the counter are two keys, and the server cannot tell whether both have been moved."""
    lock = Lock(cluster.client(), "door", timeout=30)
    with lock:
        first = lock.fence()
        cluster.begin_to_move("door")
        second = lock.fence()
        assert second > first
        lock.release()
        lock.acquire()
        with pytest.raises(library.ResponseError, match="TRYAGAIN"):
            lock.fence()
        cluster.move_keys("door")
        assert lock.fence() > second


async def test_moving_slot_serves_tasks(cluster: Cluster) -> None:
    client = cluster.client_asyncio()
    source, target = cluster.nodes[cluster.owner("door")], cluster.nodes[1 - cluster.owner("door")]
    source.set("door", "another client", px=60_000)
    held = for_tasks.Lock(client, "{door}:1", timeout=6, renew=True)
    await held.acquire()
    lock = for_tasks.Lock(client, "door", timeout=30, blocking_timeout=30, thread_local=False)
    taken = asyncio.create_task(lock.acquire())
    await until(lambda: waiters(source))
    await asyncio.to_thread(cluster.move, "door")
    await until(lambda: waiters(target))
    target.delete("door")
    assert await asyncio.wait_for(taken, 10)
    assert target.get("door") == lock.local.token
    await lock.release()
    await asyncio.sleep(7)
    assert not held.lost.is_set() and await held.owned()
    await held.release()
    assert not target.exists("{door}:1")
    await client.aclose()


async def test_slot_half_way_serves_tasks(cluster: Cluster) -> None:
    client = cluster.client_asyncio()
    cluster.begin_to_move("door")
    holder, waiter = (for_tasks.Lock(client, "door", timeout=30, blocking_timeout=20) for _ in range(2))
    async with holder:
        taken = asyncio.create_task(waiter.acquire())
        await asyncio.sleep(0.3)
        assert cluster.keys_ahead("door") == 1 and not taken.done()
    assert await asyncio.wait_for(taken, 10)
    await waiter.release()
    assert cluster.keys_ahead("door") == 0
    taken = asyncio.create_task(waiter.acquire())
    await asyncio.sleep(0)
    taken.cancel()
    await until(lambda: taken.done() and cluster.keys_ahead("door") == 0)
    await client.aclose()


async def test_dead_master_is_asked_for_seldom(cluster: Cluster) -> None:
    """A hundred tasks wait for locks of a server that is gone."""
    client = cluster.client_asyncio()
    owner = cluster.owner("door")
    node, other = cluster.nodes[owner], cluster.nodes[1 - owner]
    keys = [key for key in map(str, range(400)) if cluster.owner(key) == owner][:100]
    for key in keys:
        node.set(key, "another client", px=60_000)
    waiting = [asyncio.create_task(for_tasks.Lock(client, key, timeout=30).acquire()) for key in keys]
    await until(lambda: all(waiters(node, key) for key in keys))
    before = other.info("stats")["total_connections_received"]
    cluster.servers[owner].stop()
    await asyncio.sleep(2)
    assert other.info("stats")["total_connections_received"] - before < 20
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    with pytest.raises(OUTAGE):
        await for_tasks.Lock(cluster.client_asyncio(), "door", timeout=30).acquire(blocking_timeout=1)
    await client.aclose()


def take_over(cluster: Cluster, how: str) -> None:
    """Makes the replica the master."""
    if how == "killed":
        cluster.servers[cluster.owner("door")].stop(signal.SIGKILL)
    else:
        cluster.nodes[-1].execute_command("CLUSTER", "FAILOVER")
    wait_until(lambda: cluster.nodes[-1].info("replication")["role"] == "master", 40)


def copied(cluster: Cluster) -> int:
    """Returns how many keys of the door's slot the replica has."""
    return int(cluster.nodes[-1].execute_command("CLUSTER", "COUNTKEYSINSLOT", cluster.slot("door")))


@pytest.mark.parametrize("how", ["killed", "planned"])
def test_replica_takes_over_from_threads_master(replicated: Cluster, how: str) -> None:
    client = replicated.client()
    old, new = replicated.nodes[replicated.owner("door")], replicated.nodes[-1]
    old.set("{door}:1", "another client", px=90_000)
    waiter = Lock(client, "{door}:1", timeout=30, blocking_timeout=60, thread_local=False)
    renewed, kept = Lock(client, "door", timeout=20, renew=True), Lock(client, "{door}:2", timeout=60, watch=True)
    gone = Lock(client, "{door}:3", timeout=60, watch=True)
    for lock in (renewed, kept, gone):
        lock.acquire()
    wait_until(lambda: copied(replicated) == 4)
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(old, "{door}:1"))
        take_over(replicated, how)
        new.delete("{door}:3")  # As if it had not been copied in time.
        assert gone.lost.wait(25)
        with pytest.raises(LockLost):
            gone.release()
        wait_until(lambda: taken.done() or waiters(new, "{door}:1"), 40)
        new.delete("{door}:1")
        assert taken.result(10)
    before = new.pexpiretime("door")
    wait_until(lambda: new.pexpiretime("door") > before, 10)
    for lock in (renewed, kept, waiter):
        assert not lock.lost.is_set() and lock.owned()
        lock.release()
    assert copied(replicated) == 0


@pytest.mark.parametrize("how", ["killed", "planned"])
async def test_replica_takes_over_from_tasks_master(replicated: Cluster, how: str) -> None:
    client = replicated.client_asyncio()
    old, new = replicated.nodes[replicated.owner("door")], replicated.nodes[-1]
    old.set("door", "another client", px=90_000)
    held = for_tasks.Lock(client, "{door}:1", timeout=20, renew=True)
    await held.acquire()
    await until(lambda: copied(replicated) == 2)
    taken = asyncio.create_task(for_tasks.Lock(client, "door", timeout=30, blocking_timeout=60).acquire())
    await until(lambda: waiters(old))
    await asyncio.to_thread(take_over, replicated, how)
    await until(lambda: taken.done() or waiters(new), 40)
    new.delete("door")
    assert await asyncio.wait_for(taken, 10)
    before = new.pexpiretime("{door}:1")
    await until(lambda: new.pexpiretime("{door}:1") > before)
    assert not held.lost.is_set() and await held.owned()
    new.delete("{door}:1")
    await asyncio.wait_for(held.lost.wait(), 10)
    await client.aclose()


def test_failed_release_reaches_new_master(replicated: Cluster) -> None:
    lock = Lock(replicated.client(), "door", timeout=60)
    lock.acquire()
    wait_until(lambda: copied(replicated) == 1)
    replicated.servers[replicated.owner("door")].stop(signal.SIGKILL)
    with pytest.raises((*OUTAGE, library.ResponseError)):
        lock.release()
    wait_until(lambda: replicated.nodes[-1].info("replication")["role"] == "master" and copied(replicated) == 0, 40)
