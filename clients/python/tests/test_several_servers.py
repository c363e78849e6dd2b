"""Locks in a cluster, whose slots move, and under Sentinel, which replaces masters."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from conftest import (
    CLIENT,
    SERVER,
    Server,
    Threads,
    free_port,
    is_answered,
    library,
    library_asyncio,
    until,
    wait_until,
    waiters,
)

from redis_lock_client import Lock, LockNotOwnedError
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._async import client as tasks_client
from redis_lock_client._sync.client import Client
from redis_lock_client.protocol import code


@pytest.fixture
def cluster(new_server: Any) -> Cluster:
    return Cluster([new_server(True, *OPTIONS) for _ in range(2)])


async def test_clients_of_a_cluster_have_one_place_in_line(cluster: Cluster) -> None:
    node = cluster.nodes[cluster.owner("door")]
    node.set("door", "somebody else", px=60_000)
    clients = [cluster.client_asyncio() for _ in range(2)]
    # One that was used before knows more of the cluster than one that was not.
    await clients[0].ping()
    line = tasks_client.Client.of(clients[0]).lines._lines
    tasks = [asyncio.create_task(for_tasks.Lock(client, "door", timeout=30).acquire()) for client in clients]
    await until(lambda: waiters(node) and len(line[b"door"]) == 2)
    assert len(waiters(node)) == 1
    for number in (1, 2):
        node.delete("door")
        await until(lambda number=number: sum(task.done() for task in tasks) == number)
    assert all(task.result() for task in tasks)
    for client in clients:
        await client.aclose()


@pytest.mark.parametrize("key", ["door", "{house}:door", "odd}key"])
def test_a_slot_that_moves_while_somebody_waits(cluster: Cluster, key: str) -> None:
    client = cluster.client()
    source, target = cluster.nodes[cluster.owner(key)], cluster.nodes[1 - cluster.owner(key)]
    source.set(key, "somebody else", px=60_000)
    lock = Lock(client, key, timeout=30, blocking_timeout=30, thread_local=False)
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


def test_a_server_whose_slot_has_moved_is_left_alone(cluster: Cluster) -> None:
    """Who has listened there for its news does not go on to try it."""
    source = cluster.nodes[cluster.owner("door")]
    source.set("door", "somebody else", px=60_000)
    assert not Lock(cluster.client(), "door", timeout=30).acquire(blocking_timeout=0.2)
    cluster.move("door")

    def connections() -> int:
        return int(source.info("stats")["total_connections_received"])

    wait_until(lambda: not source.execute_command("CLIENT", "LIST", "TYPE", "pubsub"))
    before = connections()
    time.sleep(1)  # In which there were forty.
    assert connections() - before < 3


def test_a_slot_that_moves_while_a_lock_is_held(cluster: Cluster) -> None:
    lock = Lock(cluster.client(), "door", timeout=30)
    lock.acquire()
    assert lock.fence()
    cluster.move("door")
    assert lock.extend(10) and lock.owned()
    lock.release()
    assert not cluster.nodes[1 - cluster.owner("door")].exists("door")


def test_who_sees_to_locks_of_a_client_that_was_collected_stays_where_it_is(cluster: Cluster) -> None:
    client = cluster.client()
    with Lock(client, "door", timeout=30):
        own = Client.of(client)
        node = own.node(b"door")
        other = next(name for name in (b"a", b"b", b"c", b"d") if own.node(name) is not node)
        assert own.successor(node, other) is own.node(other)
    del client
    # A job in the background may still have it.
    wait_until(lambda: gc.collect() >= 0 and own._anchor() is None)
    assert own.successor(node, other) is node


def test_a_slot_that_stays_half_way(cluster: Cluster) -> None:
    """What has gone ahead of its slot is asked for where it is, also by who waits, and by who sees to what is held."""
    client = cluster.client()
    cluster.begin_to_move("door")
    lock = Lock(client, "door", timeout=1, renew=True)
    assert lock.acquire(blocking=False) and cluster.keys_ahead("door") == 1
    assert lock.owned() and lock.extend(1, replace_ttl=True)
    assert not lock.lost.wait(2)
    with Threads() as pool:
        for lease in (30, None):
            waiter = Lock(client, "door", timeout=lease, blocking_timeout=10, thread_local=False)
            assert not waiter.acquire(blocking_timeout=0.5)
            taken = pool.submit(waiter.acquire)
            time.sleep(0.3)
            released = time.monotonic()
            lock.release()
            assert taken.result(10) and time.monotonic() - released < 2
            waiter.release()
            assert cluster.keys_ahead("door") == 0
            assert lock.acquire()
    lock.release()


def test_a_lock_that_goes_ahead_of_its_slot(cluster: Cluster) -> None:
    lock = Lock(cluster.client(), "door", timeout=30, reentrant=True)
    lock.acquire()
    cluster.begin_to_move("door")
    assert lock.acquire() and not lock.lost.is_set()
    cluster.move_keys("door")
    assert lock.acquire() and lock.owned() and lock.local.held.holds == 3
    for _ in range(3):
        lock.release()
    assert cluster.keys_ahead("door") == 0


def test_a_fencing_token_of_a_slot_on_its_way(cluster: Cluster) -> None:
    """The lock and the counter are two keys, and the server cannot tell whether both have come: it says so."""
    lock = Lock(cluster.client(), "door", timeout=30)
    with lock:
        first = lock.fence()
        cluster.begin_to_move("door")
        second = lock.fence()
        assert second > first, "both are still there"
        lock.release()
        lock.acquire()
        with pytest.raises(library.ResponseError) as refused:
            lock.fence()
        assert code(refused.value) == "TRYAGAIN"
        cluster.move_keys("door")
        assert lock.fence() > second, "both have come"


async def test_tasks_and_a_slot_that_stays_half_way(cluster: Cluster) -> None:
    client = cluster.client_asyncio()
    cluster.begin_to_move("door")
    holder, waiter = (for_tasks.Lock(client, "door", timeout=30, blocking_timeout=10) for _ in range(2))
    async with holder:
        taken = asyncio.create_task(waiter.acquire())
        await asyncio.sleep(0.3)
        assert cluster.keys_ahead("door") == 1 and not taken.done()
    assert await asyncio.wait_for(taken, 10)
    await waiter.release()
    assert cluster.keys_ahead("door") == 0
    await client.aclose()


async def test_tasks_in_a_cluster(cluster: Cluster) -> None:
    client = cluster.client_asyncio()
    lock = for_tasks.Lock(client, "door", timeout=30, blocking_timeout=30)
    source, target = cluster.nodes[cluster.owner("door")], cluster.nodes[1 - cluster.owner("door")]
    source.set("door", "somebody else", px=60_000)
    held = for_tasks.Lock(client, "{door}:1", timeout=3, renew=True)
    await held.acquire()
    taken = asyncio.create_task(lock.acquire())
    await until(lambda: waiters(source))
    await asyncio.to_thread(cluster.move, "door")
    await until(lambda: waiters(target))
    target.delete("door")
    assert await asyncio.wait_for(taken, 10)
    assert target.get("door") == lock.local.token
    await lock.release()
    await asyncio.sleep(4)
    assert not held.lost.is_set() and await held.owned()
    await held.release()
    assert not target.exists("{door}:1")
    await client.aclose()


class Sentinel:
    """A master, a replica, and one sentinel that replaces the one by the other."""

    def __init__(self, folder: Path, servers: list[Server]) -> None:
        self.servers = servers
        servers[1].client().execute_command("REPLICAOF", "127.0.0.1", servers[0].port)
        self.port = free_port()
        folder.mkdir()
        (folder / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\nlogfile log\n"
            f"sentinel monitor locks 127.0.0.1 {servers[0].port} 1\n"
            "sentinel down-after-milliseconds locks 2000\nsentinel failover-timeout locks 3000\n"
        )
        self.process = subprocess.Popen(
            [SERVER.replace("-server", "-sentinel"), str(folder / "sentinel.conf")], stdout=subprocess.DEVNULL
        )
        wait_until(lambda: servers[0].client().info("replication").get("slave0", {}).get("state") == "online", 20)
        wait_until(self._knows_the_replica, 30)

    def _knows_the_replica(self) -> bool:
        try:
            with library.__dict__[CLIENT](port=self.port, decode_responses=True) as client:
                return len(client.execute_command("SENTINEL", "REPLICAS", "locks")) == 1
        except (library.ConnectionError, library.ResponseError):
            return False

    def forget(self, key: str) -> None:
        """Deletes a key of the new master as soon as that is one: as if the key had not been copied in time."""
        new = self.servers[1].client()

        def deleted() -> bool:
            # It is read only before; and Sentinel cuts all connections to a server that it promotes.
            with contextlib.suppress(library.ConnectionError, library.exceptions.ReadOnlyError):
                return bool(new.delete(key))
            return False

        wait_until(deleted, 60)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def sentinel(new_server: Any, tmp_path: Path) -> Iterator[Sentinel]:
    if not os.path.exists(SERVER.replace("-server", "-sentinel")):
        (pytest.fail if "CI" in os.environ else pytest.skip)("there is no sentinel beside this server")
    one = Sentinel(tmp_path / "sentinel", [new_server(), new_server()])
    try:
        yield one
    finally:
        one.stop()


def test_a_master_that_is_replaced(sentinel: Sentinel) -> None:
    """Who waits goes on at the new master; who holds does so, too, if that knows of the lock; else he is told."""
    old, new = (server.client() for server in sentinel.servers)
    client = library.sentinel.Sentinel([("127.0.0.1", sentinel.port)]).master_for("locks")
    old.set("door", "somebody else", px=60_000)
    waiter = Lock(client, "door", timeout=30, blocking_timeout=60)
    renewed, kept = Lock(client, "window", timeout=30, renew=True), Lock(client, "gate", timeout=120)
    gone = Lock(client, "hatch", timeout=120)
    for lock in (renewed, kept, gone):
        lock.acquire()
        assert not lock.lost.is_set()
    wait_until(lambda: new.dbsize() == 4, 20)
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(old) and is_answered(Client.of(client)))
        sentinel.servers[0].stop()
        sentinel.forget("hatch")
        assert gone.lost.wait(30)
        with pytest.raises(LockNotOwnedError):
            gone.release()
        wait_until(lambda: taken.done() or waiters(new), 60)
        new.delete("door")
        assert taken.result(10)
    for lock in (renewed, kept):
        assert not lock.lost.is_set() and lock.owned()
        # It is watched there, too.
        new.delete(lock.name)
        assert lock.lost.wait(5)


async def test_a_master_that_is_replaced_under_tasks(sentinel: Sentinel) -> None:
    old, new = (server.client() for server in sentinel.servers)
    client = library_asyncio.sentinel.Sentinel([("127.0.0.1", sentinel.port)]).master_for("locks")
    old.set("door", "somebody else", px=60_000)
    renewed, kept = (for_tasks.Lock(client, name, timeout=120, renew=name == "window") for name in ("window", "gate"))
    gone = for_tasks.Lock(client, "hatch", timeout=120)
    for lock in (renewed, kept, gone):
        await lock.acquire()
        assert not lock.lost.is_set()
    await until(lambda: new.dbsize() == 4, 20)
    taken = asyncio.create_task(for_tasks.Lock(client, "door", timeout=30, blocking_timeout=60).acquire())
    await until(lambda: waiters(old) and is_answered(tasks_client.Client.of(client)))
    await asyncio.to_thread(sentinel.servers[0].stop)
    await asyncio.to_thread(sentinel.forget, "hatch")
    await asyncio.wait_for(gone.lost.wait(), 30)
    with pytest.raises(LockNotOwnedError):
        await gone.release()
    await until(lambda: taken.done() or waiters(new), 60)
    new.delete("door")
    assert await asyncio.wait_for(taken, 10)
    for lock in (renewed, kept):
        assert not lock.lost.is_set() and await lock.owned()
        # It is watched there, too.
        new.delete(lock.name)
        await asyncio.wait_for(lock.lost.wait(), 5)
    await client.aclose()


async def test_many_wait_for_a_server_that_is_gone(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They find out together which server has the keys by now, not each for itself."""
    cluster = Cluster([new_server(True, *OPTIONS) for _ in range(2)])
    client = cluster.client_asyncio()
    keys = [key for key in map(str, range(400)) if cluster.owner(key) == cluster.owner("door")][:100]
    node = cluster.nodes[cluster.owner("door")]
    for key in keys:
        node.set(key, "somebody else", px=60_000)
    waiting = [asyncio.create_task(for_tasks.Lock(client, key, timeout=30).acquire()) for key in keys]
    await until(lambda: all(waiters(node, key) for key in keys))
    refreshed: list[float] = []
    kind = type(client.nodes_manager)
    initialize = kind.initialize

    async def counted(*args: Any, **kwargs: Any) -> None:
        refreshed.append(time.monotonic())
        await initialize(*args, **kwargs)

    monkeypatch.setattr(kind, "initialize", counted)
    cluster.servers[cluster.owner("door")].stop()
    await asyncio.sleep(2)
    assert 1 <= len(refreshed) <= 20
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await client.aclose()
