"""Masters that are replaced: by Sentinel, and behind an address that leads to another server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proxies import proxy
from servers import CLIENT, OUTAGE, SERVER, Server, begin_wait, free_port, library, library_asyncio, waiters
from waits import Threads, wait_until

from redis_lock_client import LockLost


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
        (pytest.fail if "CI" in os.environ else pytest.skip)("there is no sentinel of this server")
    one = Sentinel(tmp_path / "sentinel", [new_server(), new_server()])
    try:
        yield one
    finally:
        one.stop()


def test_sentinel_replaces_master(sentinel: Sentinel, engine: Any) -> None:
    """Waits and holds go on at the new master, if the lock was copied to it; else the loss is reported."""
    old, new = (server.client() for server in sentinel.servers)
    module = library if engine.loop is None else library_asyncio
    client = module.sentinel.Sentinel([("127.0.0.1", sentinel.port)]).master_for("locks")
    old.set("door", "another client", px=120_000)
    waiter = engine.lock(client, "door", timeout=60, blocking_timeout=100)
    renewed, kept, gone = (
        engine.lock(client, name, timeout=120, watch=True, renew=name == "window")
        for name in ("window", "gate", "hatch")
    )
    for lock in (renewed, kept, gone):
        lock.acquire()
    wait_until(lambda: new.dbsize() == 4, 20)
    with begin_wait(waiter, old) as taken:
        sentinel.servers[0].stop()
        sentinel.forget("hatch")
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
    old, new = new_server(), new_server(True, "--repl-diskless-sync-delay", "0")
    new.client().replicaof("127.0.0.1", old.port)
    wait_until(lambda: new.client().info("replication")["master_link_status"] == "up")
    with proxy(old.port) as way, Threads() as pool:
        own = engine.client(new, port=way.port)
        renewed = engine.lock(own, "door", timeout=6, renew=True)
        renewed.acquire()
        lost = renewed.lost
        old.client().set("window", "another client", px=90_000)
        waiting = pool.submit(engine.lock(own, "window", timeout=30, blocking_timeout=60).acquire)
        wait_until(lambda: waiters(old.client(), "window") and new.client().exists("door", "window") == 2)
        way.server = new.port
        new.client().replicaof("NO", "ONE")
        old.client().replicaof("127.0.0.1", new.port)
        wait_until(lambda: waiters(new.client(), "window"), 20)
        new.client().delete("window")
        assert waiting.result(20)
        assert not lost.wait(7) and renewed.owned()
        # Later waiters are notified by it, and do not poll.
        new.client().set("hatch", "another client")
        waiting = pool.submit(engine.lock(own, "hatch", timeout=30, blocking_timeout=60).acquire)
        wait_until(lambda: waiters(new.client(), "hatch") and waiters(new.client(), "hatch")[0][b"channel"], 20)
        new.client().delete("hatch")
        assert waiting.result(20)


def test_replica_is_waited_for(new_server: Any, engine: Any) -> None:
    """Until it is a master again, over few connections; out of time is an error, for no server has said it is held."""
    server = new_server()
    client = server.client()
    names = [f"door:{number}" for number in range(20)]
    for name in names:
        client.set(name, "another client", px=60_000)
    own = engine.client(server)
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
