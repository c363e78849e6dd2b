"""A cluster whose replica takes over: who waits goes on waiting there, and who holds hears whether it still does."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from conftest import Threads, free_port, is_answered, until, wait_until, waiters
from proxies import proxy

from redis_lock_client import Lock, LockNotOwnedError
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._async import client as tasks_client
from redis_lock_client._sync.client import Client
from redis_lock_client.errors import UNREACHABLE


@pytest.fixture
def cluster(new_server: Any) -> Cluster:
    """Three masters, as many as can vote when one is gone, and a replica of that which has the door."""
    options = (*OPTIONS[:-1], "2000", "--repl-diskless-sync-delay", "0")
    one = Cluster([new_server(True, *options) for _ in range(3)])
    one.add_replica(new_server(True, *options), "door")
    return one


def take_over(cluster: Cluster, how: str) -> None:
    """Makes the replica the master."""
    if how == "killed":
        cluster.servers[cluster.owner("door")].stop(signal.SIGKILL)
    else:
        cluster.nodes[-1].execute_command("CLUSTER", "FAILOVER")
    wait_until(lambda: cluster.nodes[-1].info("replication")["role"] == "master", 40)


def copied(cluster: Cluster) -> int:
    """How many keys the replica has of the door's slot."""
    return int(cluster.nodes[-1].execute_command("CLUSTER", "COUNTKEYSINSLOT", cluster.slot("door")))


@pytest.mark.parametrize("how", ["killed", "planned"])
def test_a_replica_that_takes_over(cluster: Cluster, how: str) -> None:
    client = cluster.client()
    old, new = cluster.nodes[cluster.owner("door")], cluster.nodes[-1]
    old.set("{door}:1", "somebody else", px=60_000)
    waiter = Lock(client, "{door}:1", timeout=30, blocking_timeout=60, thread_local=False)
    renewed, kept = Lock(client, "door", timeout=20, renew=True), Lock(client, "{door}:2", timeout=60)
    gone = Lock(client, "{door}:3", timeout=60)
    for lock in (renewed, kept, gone):
        lock.acquire()
        assert not lock.lost.is_set()
    wait_until(lambda: copied(cluster) == 4)
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(old, "{door}:1") and is_answered(Client.of(client)))
        take_over(cluster, how)
        # What the new master does not have is lost, and what it has is not.
        new.delete("{door}:3")
        assert gone.lost.wait(25)
        with pytest.raises(LockNotOwnedError):
            gone.release()
        wait_until(lambda: taken.done() or waiters(new, "{door}:1"), 40)
        new.delete("{door}:1")
        assert taken.result(10)
    before = new.pexpiretime("door")
    wait_until(lambda: new.pexpiretime("door") > before, 10)
    for lock in (renewed, kept, waiter):
        assert not lock.lost.is_set() and lock.owned()
        lock.release()
    assert copied(cluster) == 0


def test_a_release_that_the_old_master_did_not_hear(cluster: Cluster) -> None:
    """It is told to the new one in the background."""
    lock = Lock(cluster.client(), "door", timeout=60)
    lock.acquire()
    wait_until(lambda: copied(cluster) == 1)
    cluster.servers[cluster.owner("door")].stop(signal.SIGKILL)
    with pytest.raises(UNREACHABLE):
        lock.release()
    wait_until(lambda: cluster.nodes[-1].info("replication")["role"] == "master" and copied(cluster) == 0, 40)


@pytest.mark.parametrize("how", ["killed", "planned"])
async def test_tasks_and_a_replica_that_takes_over(cluster: Cluster, how: str) -> None:
    client = cluster.client_asyncio()
    old, new = cluster.nodes[cluster.owner("door")], cluster.nodes[-1]
    old.set("door", "somebody else", px=60_000)
    held = for_tasks.Lock(client, "{door}:1", timeout=20, renew=True)
    await held.acquire()
    await until(lambda: copied(cluster) == 2)
    taken = asyncio.create_task(for_tasks.Lock(client, "door", timeout=30, blocking_timeout=60).acquire())
    await until(lambda: waiters(old) and is_answered(tasks_client.Client.of(client)))
    await asyncio.to_thread(take_over, cluster, how)
    await until(lambda: taken.done() or waiters(new), 40)
    new.delete("door")
    assert await asyncio.wait_for(taken, 10)
    before = new.pexpiretime("{door}:1")
    await until(lambda: new.pexpiretime("{door}:1") > before)
    assert not held.lost.is_set() and await held.owned()
    new.delete("{door}:1")
    await asyncio.wait_for(held.lost.wait(), 10)
    await client.aclose()


def test_an_address_that_leads_to_another_master(new_server: Any) -> None:
    """As names and balancers of load do: connections stay with the former one, which has become a replica."""
    old, new = new_server(), new_server(True, "--repl-diskless-sync-delay", "0")
    new.client().replicaof("127.0.0.1", old.port)
    wait_until(lambda: new.client().info("replication")["master_link_status"] == "up")
    with proxy(old.port) as way, Threads() as pool:
        own = new.client(port=way.port)
        renewed = Lock(own, "door", timeout=3, renew=True)
        renewed.acquire()
        lost = renewed.lost
        old.client().set("window", "somebody else", px=60_000)
        waiting = pool.submit(Lock(own, "window", timeout=30, blocking_timeout=20).acquire)
        wait_until(lambda: waiters(old.client(), "window") and new.client().exists("door", "window") == 2)
        way.server = new.port
        new.client().replicaof("NO", "ONE")
        old.client().replicaof("127.0.0.1", new.port)
        wait_until(lambda: waiters(new.client(), "window"), 20)
        new.client().delete("window")
        assert waiting.result(20)
        assert not lost.wait(4) and renewed.owned()
        # Whoever waits from now on is told.
        new.client().set("hatch", "somebody else")
        waiting = pool.submit(Lock(own, "hatch", timeout=30, blocking_timeout=30).acquire)
        wait_until(lambda: waiters(new.client(), "hatch") and waiters(new.client(), "hatch")[0][b"channel"], 20)
        new.client().delete("hatch")
        assert waiting.result(2)


def test_a_replica_that_stays_one(new_server: Any) -> None:
    """Many wait for it to be a master, over few connections."""
    server = new_server()
    client = server.client()
    for number in range(20):
        client.set(f"door:{number}", "somebody else", px=60_000)
    own = server.client(client_name="patient")
    with Threads(20) as pool:
        taken = [
            pool.submit(Lock(own, f"door:{number}", timeout=30).acquire, blocking_timeout=5) for number in range(20)
        ]
        wait_until(lambda: all(waiters(client, f"door:{number}") for number in range(20)))
        client.replicaof("127.0.0.1", free_port())
        before = client.info("stats")["total_connections_received"]
        time.sleep(2)
        assert client.info("stats")["total_connections_received"] - before < 30
        client.replicaof("NO", "ONE")
        for number in range(20):
            client.delete(f"door:{number}")
        assert all(one.result(10) for one in taken)
