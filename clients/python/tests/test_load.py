"""Many requests, many threads, and ways to run them: one thread and one connection of the package for each server."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from servers import (
    SERVER,
    Server,
    begin_wait,
    free_port,
    library,
    own_connections,
    program_text,
    waiters,
    watched,
)
from waits import Threads, own_threads, wait_until

from redis_lock_client import Lock


@pytest.fixture
def server(new_server: Any) -> Server:
    """One without the threads and connections of earlier tests."""
    server: Server = new_server()
    return server


def test_client_for_each_request_shares_a_connection(server: Server, client: Any) -> None:
    """500 requests for one lock, 150 at a time, each with a client of its own. Nothing remains of these."""
    threads, connections, entries, ended, tokens = [0], [0], [0], threading.Event(), list[int]()
    before = len(client.client_list())

    def work(_: int) -> None:
        with server.client(max_connections=2) as own, Lock(own, "door", timeout=30, blocking_timeout=100) as lock:
            tokens.append(lock.fence())

    def count() -> None:
        while not ended.wait(0.02):
            threads.append(len([one for one in own_threads() if str(server.port) in one.name]))
            connections.append(len(own_connections(client)))
            entries.append(len(waiters(client)))

    watcher = threading.Thread(target=count)
    watcher.start()
    try:
        with Threads(150) as pool:
            list(pool.map(work, range(500)))
    finally:
        ended.set()
        watcher.join()
    # A thread that opens the connection, and one that ends, may be there for a moment.
    assert sorted(threads)[-3] <= 1 and max(threads) <= 3, threads
    assert max(connections) <= 1 and max(entries) <= 1
    assert len(tokens) == 500 and tokens == sorted(tokens)
    wait_until(lambda: not client.exists("door") and len(client.client_list()) <= before + 2)


def test_many_locks_have_one_thread_and_connection(server: Server, client: Any) -> None:
    """Those that are waited for, and then held, renewed, and watched."""
    names = [f"door:{number}" for number in range(100)]
    client.mset(dict.fromkeys(names, "another holder"))
    ways: list[dict[str, Any]] = [{"renew": True}, {"session": True}]
    locks = [
        Lock(client, name, timeout=30, thread_local=False, on_lost=print, **ways[number % 2])
        for number, name in enumerate(names)
    ]
    with Threads(100) as pool:
        waits = [pool.submit(lock.acquire, blocking_timeout=60) for lock in locks]
        wait_until(lambda: all(waiters(client, name) for name in names), 30)
        client.delete(*names)
        assert all(one.result(60) for one in waits)
    assert len([one for one in own_threads() if str(server.port) in one.name]) <= 1
    assert len(own_connections(client)) == 1
    for lock in locks:
        lock.release()


GREENLETS = """
import {module}
{module}.{patch}()
inside, held = set(), []
lock = Lock(client, "door", timeout=30, on_lost=lambda: None)
def work(number):
    with lock:
        assert not inside
        inside.add(number); time.sleep(0.002); inside.remove(number); held.append(number)
threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
for thread in threads: thread.start()
for thread in threads: thread.join(30)
print(held == list(range(50)))
lost = threading.Event()
with Lock(client, "door", timeout=1, session=True) as session, Lock(client, "window", timeout=1, renew=True) as renewed:
    time.sleep(1.5)
    print(session.owned(), renewed.owned())
    client.set("gate", "another holder")
    print(Lock(client, "gate", timeout=30).acquire(blocking_timeout=0.1))
"""


@pytest.mark.parametrize("early", [False, True], ids=["patched late", "patched first"])
@pytest.mark.parametrize("module, patch", [("gevent.monkey", "patch_all"), ("eventlet", "monkey_patch")])
def test_greenlets_take_turns(server: Server, module: str, patch: str, early: bool) -> None:
    pytest.importorskip(module.partition(".")[0])
    text = program_text(GREENLETS.format(module=module, patch=patch), server)
    if early:
        text = f"import {module}\n{module}.{patch}()\n{text}"
    words = [sys.executable, "-W", "ignore", "-c", text]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "True\nTrue True\nFalse\n", done.stderr


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def secured(tmp_path: Path, new_server: Any) -> tuple[Any, Any]:
    """A client over TLS, and one without."""
    trustme = pytest.importorskip("trustme")
    started = subprocess.run([SERVER, "--port", "0", "--tls-port", "1"], capture_output=True, timeout=60, check=False)
    if b"tls-cert-file" not in started.stdout:
        pytest.skip("this server was built without TLS")
    authority, port = trustme.CA(), free_port()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    options = ["--tls-port", port, "--tls-ca-cert-file", tmp_path / "authority.pem", "--tls-auth-clients", "yes"]
    options += ["--tls-cert-file", tmp_path / "server.pem", "--tls-key-file", tmp_path / "server.key"]
    server = new_server(True, *map(str, options))
    files = {"ssl_ca_certs": "authority.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
    settings = {name: str(tmp_path / file) for name, file in files.items()}
    return server.client(port=port, ssl=True, host="127.0.0.1", ssl_check_hostname=True, **settings), server.client()


def test_locks_over_tls(secured: tuple[Any, Any]) -> None:
    client, plain = secured
    settings = client.connection_pool.connection_kwargs
    holder, waiter = Lock(client, "door", timeout=30), Lock(client, "door", timeout=30, thread_local=False)
    holder.acquire()
    with begin_wait(waiter, plain) as taken:
        assert waiters(plain)[0][b"channel"] is not None, "it waits by NOTIFY"
        assert [one["laddr"].rpartition(":")[2] for one in own_connections(plain)] == [str(settings["port"])]
        holder.release()
        assert taken.result(10)
    waiter.release()
    with (
        waiter,
        Lock(client, "window", timeout=2, renew=True) as renewed,
        Lock(client, "gate", timeout=30, session=True),
    ):
        assert not renewed.lost.wait(2.5) and plain.exists("window", "gate") == 2
        watched(plain)
        plain.delete("window")
        assert renewed.lost.wait(5)
        renewed.raise_on_release_error = False


def test_unknown_authority_is_an_error(secured: tuple[Any, Any]) -> None:
    client, _ = secured
    settings = client.connection_pool.connection_kwargs
    settings["ssl_ca_certs"] = settings["ssl_ca_certs"].replace("authority.pem", "other.pem")
    with pytest.raises(library.ConnectionError, match="certificate"):
        Lock(client, "door", timeout=30, blocking_timeout=1).acquire()
