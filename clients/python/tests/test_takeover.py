"""Masters that are replaced: by Sentinel, and behind an address that leads to another server."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import granted
from proxies import Proxy
from servers import OUTAGE, SERVER, Server, begin_wait, free_port, library, waiters
from waits import Threads, wait_until

from redis_lock_client import LockLost

SENTINEL = """port {port}
bind 127.0.0.1
sentinel monitor locks 127.0.0.1 {master} 1
sentinel down-after-milliseconds locks 2000
sentinel failover-timeout locks 3000
"""


@contextlib.contextmanager
def sentinel(folder: Path, master: Server) -> Iterator[Any]:
    """Starts a sentinel for a master with a replica, and ends it after the block."""
    port, file = free_port(), folder / "sentinel.conf"
    file.write_text(SENTINEL.format(port=port, master=master.port))
    with subprocess.Popen([SERVER, str(file), "--sentinel"], cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: "known-replica" in file.read_text(), 30)
            yield port
        finally:
            process.kill()


def replicate(old: Any, new: Any) -> None:
    new.client().replicaof("127.0.0.1", old.port)
    wait_until(lambda: new.client().info("replication")["master_link_status"] == "up", 20)


def is_deleted(client: Any, key: str) -> bool:
    """Deletes a key as soon as its server is a master."""
    # It is read only before; and Sentinel cuts all connections to a server that it promotes.
    with contextlib.suppress(library.ConnectionError, library.exceptions.ReadOnlyError):
        return bool(client.delete(key))
    return False


def test_sentinel_replaces_master(new_server: Any, engine: Any, tmp_path: Path) -> None:
    """Waits and holds go on at the new master, if the lock was copied to it; else the loss is reported."""
    servers = [new_server(), new_server()]
    old, new = (server.client() for server in servers)
    replicate(*servers)
    with sentinel(tmp_path, servers[0]) as port:
        client = engine.library.sentinel.Sentinel([("127.0.0.1", port)]).master_for("locks")
        old.set("door", "another client", px=120_000)
        renewed, kept, gone = locks = [
            engine.lock(client, name, timeout=120, watch=True, renew=name == "window")
            for name in ("window", "gate", "hatch")
        ]
        for lock in locks:
            lock.acquire()
        wait_until(lambda: new.dbsize() == 4, 20)
        with begin_wait(engine.lock(client, "door", timeout=60, blocking_timeout=100), old) as taken:
            servers[0].stop()
            wait_until(lambda: is_deleted(new, "hatch"), 60)  # As if it had not been copied in time.
            assert gone.lost.wait(30)
            with pytest.raises(LockLost):
                gone.release()
            wait_until(lambda: taken.done() or waiters(new), 60)
            new.delete("door")
            assert taken.result(20)
        for lock in (renewed, kept):
            assert not lock.lost.is_set() and lock.owned()
            new.delete(lock.name)
            assert lock.lost.wait(5)


def test_address_leads_to_another_master(new_server: Any, engine: Any) -> None:
    """As names and load balancers do: connections stay with the former one, which has become a replica."""
    servers = [new_server(), new_server(True, "--repl-diskless-sync-delay", "0")]
    old, new = (server.client() for server in servers)
    replicate(*servers)
    with Proxy(servers[0].port) as way:
        own = engine.client(servers[1], port=way.port)
        renewed = engine.lock(own, "door", timeout=6, renew=True, watch=True)
        renewed.acquire()
        old.set("window", "another client", px=90_000)
        with begin_wait(engine.lock(own, "window", timeout=30), old, blocking_timeout=60) as taken:
            wait_until(lambda: new.exists("door", "window") == 2)
            way.server = servers[1].port
            new.replicaof("NO", "ONE")
            old.replicaof("127.0.0.1", servers[1].port)
            wait_until(lambda: waiters(new, "window"), 20)
            new.delete("window")
            assert taken.result(20)
        assert not renewed.lost.wait(7) and renewed.owned()
        with granted(engine.lock(own, "hatch", timeout=30), new, blocking_timeout=60):
            assert waiters(new, "hatch")[0][b"channel"], "later waiters do not poll"


def test_replica_is_waited_for(new_server: Any, engine: Any) -> None:
    """Until it is a master again, over few connections; out of time is an error, for no server has said it is held."""
    server = new_server()
    client, own = server.client(), engine.client(server)
    names = [f"door:{number}" for number in range(20)]
    client.mset(dict.fromkeys(names, "another client"))
    with Threads(20) as pool:
        taken = [pool.submit(engine.lock(own, name, timeout=30).acquire, blocking_timeout=60) for name in names]
        wait_until(lambda: all(waiters(client, name) for name in names))
        client.replicaof("127.0.0.1", free_port())
        before = client.info("stats")["total_connections_received"]
        time.sleep(2)
        assert client.info("stats")["total_connections_received"] - before < 30
        client.replicaof("NO", "ONE")
        client.delete(*names)
        assert all(one.result(30) for one in taken)
    client.replicaof("127.0.0.1", free_port())
    with pytest.raises((*OUTAGE, library.ResponseError)):
        engine.lock(own, "gate", timeout=30).acquire(blocking_timeout=1)


@pytest.mark.parametrize("step", ["extend", "release"])
def test_holder_goes_on_after_replica_is_master_again(new_server: Any, engine: Any, step: str) -> None:
    """A call meets the former master before the client has the new one: by the retry policy of the client."""
    server = new_server()
    client = server.client()
    policy = engine.library.retry.Retry(library.backoff.ConstantBackoff(0.1), 100)
    lock = engine.lock(engine.client(server, retry=policy), "door", timeout=60)
    lock.acquire()
    client.replicaof("127.0.0.1", free_port())
    with Threads() as pool:
        master = pool.submit(lambda: (time.sleep(0.5), client.replicaof("NO", "ONE")))
        lock.extend(90) if step == "extend" else lock.release()
        master.result(30)
    assert client.exists("door") == (step == "extend")
