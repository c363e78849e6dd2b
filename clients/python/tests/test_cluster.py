"""Locks in a cluster: several servers, slots that move, and masters that are replaced."""

import contextlib
import time
from functools import partial
from typing import Any

import pytest
from clusters import OPTIONS, Cluster
from servers import OUTAGE, begin_wait, library, own_connections, waiters
from waits import Threads, wait_until

from redis_lock_client import LockLost

cluster = pytest.fixture(lambda new_server: Cluster([new_server(True, *OPTIONS) for _ in range(2)]))


def test_several_servers_have_a_connection_each(cluster: Cluster, engine: Any) -> None:
    """Also with several clients, which have one entry in a server's queue; and seldom one to a server that is gone."""
    clients, (node, other) = [engine.client(cluster) for _ in range(3)], cluster.sides("door")
    node.set("door", "another client", px=60_000)

    def work(client: Any) -> None:
        for key in [*map(str, range(20)), "door"]:
            with engine.lock(client, key, timeout=30, blocking_timeout=60) as lock:
                assert lock.owned() and lock.fence()

    with Threads(3) as pool:
        ended = [pool.submit(work, client) for client in clients]
        wait_until(lambda: waiters(node))
        time.sleep(0.3)
        assert len(waiters(node)) == 1
        node.delete("door")
        assert [one.result(60) for one in ended] == [None] * 3
    assert [len(own_connections(node)) for node in cluster.nodes] == [1, 1]
    keys = [key for key in map(str, range(400)) if cluster.owner(key) == cluster.owner("door")][:100]
    for key in keys:
        node.set(key, "another client", px=60_000)
    with Threads(100) as pool:
        waiting = [pool.submit(engine.lock(clients[0], key, timeout=30).acquire, blocking_timeout=5) for key in keys]
        wait_until(lambda: all(waiters(node, key) for key in keys), 30)
        before = other.info("stats")["total_connections_received"]
        cluster.servers[cluster.owner("door")].stop()
        assert all(isinstance(one.exception(60), OUTAGE) for one in waiting)
    assert other.info("stats")["total_connections_received"] - before < 50


def test_slot_moves_with_its_locks_and_waiters(cluster: Cluster, engine: Any) -> None:
    ways: list[dict[str, Any]] = [{"watch": True}, {"timeout": 6, "renew": True}, {"timeout": 6, "session": True}]
    locks = [engine.lock(cluster, f"{{door}}:{n}", **{"timeout": 30, **way}) for n, way in enumerate(ways)]
    names = ("door", "{door}:waiters", "odd}key")  # There is no name for a channel of the slot of the last one.
    waits = [engine.lock(cluster, name, timeout=30, blocking_timeout=60, thread_local=False) for name in names]
    for lock in locks:
        assert lock.acquire()
    assert locks[0].fence()
    for name in names:
        cluster.sides(name)[0].set(name, "another client", px=60_000)
    with Threads() as pool:
        taken = [pool.submit(lock.acquire) for lock in waits]
        wait_until(lambda: all(waiters(cluster.sides(name)[0], name) for name in names[:2]))
        cluster.move("door")
        cluster.move("odd}key")
        wait_until(lambda: all(waiters(cluster.sides(name)[1], name) for name in names[:2]))
        for name in names:
            cluster.sides(name)[1].delete(name)
        assert all(one.result(20) for one in taken)
    time.sleep(7)
    for lock in locks:
        assert not lock.lost.is_set() and lock.owned(), lock.name
    assert locks[0].extend(10)
    for lock in locks:
        cluster.sides("door")[1].delete(lock.name)
        assert lock.lost.wait(5), lock.name
        with pytest.raises(LockLost):
            lock.release()
    for lock in waits:
        assert cluster.sides(lock.name)[1].get(lock.name) == lock.local.token
        lock.release()


def test_half_moved_slot_is_used(cluster: Cluster, engine: Any) -> None:
    client, (_, target), move = engine.client(cluster), cluster.sides("door"), cluster.steps_of_move("door")
    moved = engine.lock(cluster, "{door}:1", timeout=60, reentrant=True, watch=True)
    moved.acquire()
    first = moved.fence()
    next(move)
    lock = engine.lock(client, "door", timeout=6, renew=True, thread_local=False)
    assert lock.acquire(blocking=False) and cluster.keys_in(target, "door") == 1
    assert lock.owned() and lock.extend(6, replace_ttl=True) and not lock.lost.wait(7)
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
            assert cluster.keys_in(target, "door") == 0 and lock.acquire()
    wait_until(lambda: target.execute_command("ASKING") and target.delete("door"))
    assert lock.lost.wait(5)
    assert moved.acquire() and not moved.lost.is_set() and moved.fence() > first
    for _ in range(2):
        with pytest.raises(library.ResponseError, match="TRYAGAIN"):
            moved.fence("{door}:counter")  # The server cannot tell whether it has been moved, too.
        next(move)
        assert moved.acquire() and moved.owned() and moved.fence() > first + 1
    for _ in range(4):
        assert not moved.lost.is_set()
        moved.release()
    assert not target.exists("{door}:1")


@pytest.mark.parametrize("how", ["killed", "planned"])
def test_replica_takes_over(new_server: Any, engine: Any, how: str) -> None:
    """Waits, holds and failed releases go on at the new master; what it does not have is lost."""
    options = (*OPTIONS[:-1], "2000", "--repl-diskless-sync-delay", "0")
    cluster = Cluster([new_server(True, *options) for _ in range(3)])  # As many as can vote when one is gone.
    cluster.add_replica(new_server(True, *options), "door")
    owner, new, client = cluster.owner("door"), cluster.nodes[-1], engine.client(cluster)
    copied = partial(cluster.keys_in, new, "door")
    cluster.nodes[owner].set("{door}:1", "another client", px=120_000)
    waiter = engine.lock(client, "{door}:1", timeout=60, blocking_timeout=100, thread_local=False)
    renewed = engine.lock(client, "door", timeout=20, renew=True)
    kept, gone, left = (engine.lock(client, f"{{door}}:{n}", timeout=90, watch=n < 4) for n in (2, 3, 4))
    for lock in (renewed, kept, gone, left):
        lock.acquire()
    wait_until(lambda: copied() == 5)
    held = [renewed, kept, waiter]
    with begin_wait(waiter, cluster.nodes[owner]) as taken:
        if how == "planned":
            new.execute_command("CLUSTER", "FAILOVER")
            held.append(left)
        else:
            cluster.servers[owner].stop()
            # The retries of the client may last until the replica has taken over.
            with contextlib.suppress(*OUTAGE, library.ResponseError):
                left.release()
        wait_until(lambda: new.info("replication")["role"] == "master", 60)
        new.delete("{door}:3")  # As if it had not been copied in time.
        assert gone.lost.wait(30)
        with pytest.raises(LockLost):
            gone.release()
        wait_until(lambda: taken.done() or waiters(new, "{door}:1"), 60)
        new.delete("{door}:1")
        assert taken.result(20)
    before = new.pexpiretime("door")
    wait_until(lambda: new.pexpiretime("door") > before, 20)
    for lock in held:
        assert not lock.lost.is_set() and lock.owned()
        lock.release()
    wait_until(lambda: copied() == 0, 60)
