"""Locks over TLS, where client and server have certificates of an authority that nobody else knows."""

from __future__ import annotations

import asyncio
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trustme
from conftest import CLIENT, SERVER, Server, Threads, free_port, library, library_asyncio, wait_until, waiters

from redis_lock_client import Lock
from redis_lock_client import asyncio as for_tasks


@cache
def can_do_tls() -> bool:
    """Whether the server was built with TLS: one that was asks for a certificate."""
    started = subprocess.run([SERVER, "--port", "0", "--tls-port", "1"], capture_output=True, timeout=20, check=False)
    return b"tls-cert-file" in started.stdout


class Secured:
    """A server that listens over TLS alone, but for a port by which the test looks at it."""

    def __init__(self, folder: Path, new_server: Any) -> None:
        authority = trustme.CA()
        self.authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(self.authority)
        for name in ("server", "client"):
            issued = authority.issue_cert("127.0.0.1")
            issued.private_key_pem.write_to_path(folder / f"{name}.key")
            issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
        self.folder = folder
        self.port = free_port()
        options = ["--tls-port", self.port, "--tls-ca-cert-file", self.authority, "--tls-auth-clients", "yes"]
        options += ["--tls-cert-file", folder / "server.pem", "--tls-key-file", folder / "server.key"]
        self.plain: Server = new_server(True, *map(str, options))

    def client(self, module: Any = library) -> Any:
        """A client that trusts the authority alone, and shows its own certificate."""
        files = {"ssl_certfile": self.folder / "client.pem", "ssl_keyfile": self.folder / "client.key"}
        return getattr(module, CLIENT).from_url(
            f"{library.__name__}s://127.0.0.1:{self.port}",
            ssl_ca_certs=str(self.authority),
            ssl_check_hostname=True,
            **{name: str(path) for name, path in files.items()},
        )

    def accepted(self) -> int:
        """How many connections have come over TLS."""
        return sum(one["laddr"] == f"127.0.0.1:{self.port}" for one in self.plain.client().client_list())


@pytest.fixture
def secured(tmp_path: Path, new_server: Any) -> Secured:
    if not can_do_tls():
        pytest.skip("this server was built without TLS")
    return Secured(tmp_path, new_server)


def test_threads_over_tls(secured: Secured) -> None:
    """Waiting, being told of a loss, and renewal, each of which has connections of its own."""
    client, plain = secured.client(), secured.plain.client()
    holder, waiter = (Lock(client, "door", timeout=30, thread_local=False) for _ in range(2))
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(plain))
        assert waiters(plain)[0][b"channel"] is not None, "it waits by NOTIFY"
        assert secured.accepted() >= 2, "one asks, and one listens"
        holder.release()
        assert taken.result(5)
    assert not waiter.lost.is_set()
    wait_until(lambda: plain.info("clients").get("tracking_clients"))
    assert secured.accepted() >= 3, "one reads what is watched"
    plain.delete("door")
    assert waiter.lost.wait(5)
    with Lock(client, "door", timeout=1, renew=True) as renewed, Lock(client, "window", timeout=30, session=True):
        assert not renewed.lost.wait(1.5) and plain.exists("door", "window") == 2


def test_a_lock_without_a_lease_over_tls(secured: Secured) -> None:
    """It waits on a connection that it blocks."""
    client, plain = secured.client(), secured.plain.client()
    plain.set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(client, "door").acquire)
        wait_until(lambda: waiters(plain) and waiters(plain)[0][b"channel"] is None)
        plain.delete("door")
        assert taken.result(5)


async def test_tasks_over_tls(secured: Secured) -> None:
    client, plain = secured.client(library_asyncio), secured.plain.client()
    holder, waiter = (for_tasks.Lock(client, "door", timeout=30) for _ in range(2))
    await holder.acquire()
    taken = asyncio.create_task(waiter.acquire())
    while not waiters(plain):
        await asyncio.sleep(0.01)
    assert secured.accepted() >= 2
    await holder.release()
    assert await asyncio.wait_for(taken, 5)
    assert not waiter.lost.is_set()
    while not plain.info("clients").get("tracking_clients"):
        await asyncio.sleep(0.01)
    plain.delete("door")
    await asyncio.wait_for(waiter.lost.wait(), 5)
    await client.aclose()


def test_a_server_that_nobody_vouches_for(secured: Secured, tmp_path: Path) -> None:
    """What the client does not trust, the package does not trust."""
    client = secured.client()
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    client.connection_pool.connection_kwargs["ssl_ca_certs"] = str(other)
    with pytest.raises(library.ConnectionError, match="certificate"):
        Lock(client, "door", timeout=30, blocking_timeout=1).acquire()
