"""Many requests, many threads, and ways to run them: one thread and one connection of the package for each server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import (
    CLIENT,
    SERVER,
    Server,
    Threads,
    begin_wait,
    free_port,
    library,
    own_connections,
    own_threads,
    program_text,
    wait_until,
    waiters,
    watched,
)

from redis_lock_client import Lock


@pytest.fixture
def server(new_server: Any) -> Server:
    """One without the threads and connections of earlier tests."""
    server: Server = new_server()
    return server


def test_client_for_each_request_shares_a_connection(server: Server, client: Any) -> None:
    """500 requests for one lock, 150 at a time, each with a client of its own."""
    inside, threads, connections, entries = set[int](), [0], [0], [0]
    ended = threading.Event()

    def work(number: int) -> None:
        own = server.client()
        with Lock(own, "door", timeout=30, blocking_timeout=100):
            assert not inside
            inside.add(number)
            inside.remove(number)
        own.close()

    def count() -> None:
        while not ended.wait(0.02):
            threads.append(len([one for one in own_threads() if str(server.port) in one.name]))
            connections.append(len(own_connections(client)))
            entries.append(len(waiters(client)))

    watcher = threading.Thread(target=count)
    watcher.start()
    try:
        with Threads(150) as pool:
            for one in [pool.submit(work, number) for number in range(500)]:
                one.result(100)
    finally:
        ended.set()
        watcher.join()
    # A thread that opens the connection, and one that ends, may be there for a moment.
    assert sorted(threads)[-3] <= 1 and max(threads) <= 3, threads
    assert max(connections) <= 1 and max(entries) <= 1
    assert not client.exists("door")


def test_many_threads_over_a_pool_of_two(server: Server) -> None:
    own = server.client(max_connections=2)
    inside, tokens = set[int](), list[int]()

    def work(number: int) -> None:
        with Lock(own, "door", timeout=30, blocking_timeout=100) as lock:
            assert not inside
            inside.add(number)
            tokens.append(lock.fence())
            inside.remove(number)

    with Threads(200) as pool:
        for one in [pool.submit(work, number) for number in range(200)]:
            one.result(100)
    assert len(tokens) == 200 and tokens == sorted(tokens)


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


def test_clients_that_come_and_go_leave_nothing(server: Server, client: Any) -> None:
    before, connections = threading.active_count(), len(client.client_list())
    for _ in range(100):
        with server.client() as own, Lock(own, "door", timeout=30):
            pass
    assert threading.active_count() - before < 5
    wait_until(lambda: len(client.client_list()) <= connections + 2)


def test_contended_lock_goes_around_fairly(server: Server) -> None:
    """Threads that always want the lock have it in turn."""
    counts, end = dict.fromkeys(range(8), 0), time.monotonic() + 3
    lock = Lock(server.client(), "door", timeout=30)

    def work(number: int) -> None:
        while time.monotonic() < end:
            with lock:
                counts[number] += 1

    with Threads(8) as pool:
        for one in [pool.submit(work, number) for number in counts]:
            one.result(30)
    assert min(counts.values()) > max(counts.values()) / 2 > 5, counts


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


@cache
def has_tls() -> bool:
    """Returns whether the server was built with TLS: it asks for a certificate then."""
    started = subprocess.run([SERVER, "--port", "0", "--tls-port", "1"], capture_output=True, timeout=60, check=False)
    return b"tls-cert-file" in started.stdout


@pytest.fixture
def secured(tmp_path: Path, new_server: Any) -> tuple[Any, Any, Path]:
    """A client over TLS, one without, and the folder with the certificates."""
    trustme = pytest.importorskip("trustme")
    if not has_tls():
        pytest.skip("this server was built without TLS")
    authority, port = trustme.CA(), free_port()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    options = ["--tls-port", port, "--tls-ca-cert-file", tmp_path / "authority.pem", "--tls-auth-clients", "yes"]
    options += ["--tls-cert-file", tmp_path / "server.pem", "--tls-key-file", tmp_path / "server.key"]
    server = new_server(True, *map(str, options))
    client = getattr(library, CLIENT).from_url(
        f"{library.__name__}s://127.0.0.1:{port}",
        ssl_ca_certs=str(tmp_path / "authority.pem"),
        ssl_certfile=str(tmp_path / "client.pem"),
        ssl_keyfile=str(tmp_path / "client.key"),
        ssl_check_hostname=True,
    )
    return client, server.client(), tmp_path


def test_locks_over_tls(secured: tuple[Any, Any, Path]) -> None:
    client, plain, _ = secured
    holder, waiter = Lock(client, "door", timeout=30), Lock(client, "door", timeout=30, thread_local=False)
    holder.acquire()
    with begin_wait(waiter, plain) as taken:
        assert waiters(plain)[0][b"channel"] is not None, "it waits by NOTIFY"
        assert [one["laddr"].rpartition(":")[2] for one in own_connections(plain)] == [
            str(client.connection_pool.connection_kwargs["port"])
        ]
        holder.release()
        assert taken.result(5)
    assert not waiter.lost.is_set()
    watched(plain)
    plain.delete("door")
    assert waiter.lost.wait(5)
    with Lock(client, "door", timeout=1, renew=True) as renewed, Lock(client, "window", timeout=30, session=True):
        assert not renewed.lost.wait(1.5) and plain.exists("door", "window") == 2


def test_unknown_authority_is_an_error(secured: tuple[Any, Any, Path]) -> None:
    client, _, folder = secured
    trustme = pytest.importorskip("trustme")
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    client.connection_pool.connection_kwargs["ssl_ca_certs"] = str(folder / "other.pem")
    with pytest.raises(library.ConnectionError, match="certificate"):
        Lock(client, "door", timeout=30, blocking_timeout=1).acquire()
