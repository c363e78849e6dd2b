"""Many requests, many threads, and ways to run them: one thread and one connection of the package for each server."""

import gc
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from engines import granted
from servers import SERVER, Server, free_port, library, own_connections, run_program, waiters
from waits import Threads, own_threads, wait_until

from redis_lock_client import Lock, source

#: Without the threads and connections of earlier tests.
server = pytest.fixture(lambda new_server: new_server())


def threads_of(server: Server) -> int:
    return len([thread for thread in own_threads() if str(server.port) in thread.name])


def test_process_has_one_thread_and_connection(server: Server, client: Any) -> None:
    """500 requests for one lock, 150 at a time, each with a client of its own. Nothing remains of these."""
    seen, before = list[tuple[int, int, int, int]](), len(client.client_list())

    def work(_: int) -> None:
        with server.client(max_connections=2) as own, Lock(own, "door", timeout=30, blocking_timeout=100) as lock:
            seen.append((lock.fence(), threads_of(server), len(own_connections(client)), len(waiters(client))))

    with Threads(150) as pool:
        list(pool.map(work, range(500)))
    tokens, threads, connections, entries = zip(*seen, strict=True)
    assert len(tokens) == 500 and list(tokens) == sorted(tokens)
    # A thread that opens the connection, and one that ends, may be there for a moment.
    assert sorted(threads)[-20] <= 1 and max(threads) <= 3, threads
    assert max(connections) <= 1 and max(entries) <= 1
    wait_until(lambda: not client.exists("door") and len(client.client_list()) <= before + 2)
    # And for 100 locks that are waited for, and then held, renewed, and watched.
    names = [f"door:{number}" for number in range(100)]
    client.mset(dict.fromkeys(names, "another holder"))
    ways: list[dict[str, Any]] = [{"renew": True}, {"session": True}] * 50
    locks = [Lock(client, names[n], timeout=30, thread_local=False, on_lost=print, **way) for n, way in enumerate(ways)]
    with Threads(100) as pool:
        waits = [pool.submit(lock.acquire, blocking_timeout=60) for lock in locks]
        wait_until(lambda: all(waiters(client, name) for name in names), 30)
        client.delete(*names)
        assert all(one.result(60) for one in waits)
    assert threads_of(server) <= 1 and len(own_connections(client)) == 1
    for lock in locks:
        lock.release()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "kind", [None, library.credentials.UsernamePasswordCredentialProvider], ids=["own", "provider"]
)
def test_connections_of_collected_clients_are_closed(server: Server, client: Any, engine: Any, kind: Any) -> None:
    """20 users, whose passwords change. What they hold by a lost lock object is released."""

    def hold(number: int) -> None:
        user, password = f"user{number % 20}", f"password{number}"
        client.execute_command("ACL", "SETUSER", user, "reset", "on", f">{password}", "~*", "&*", "+@all")
        words = {"credential_provider": kind(user, password)} if kind else {"username": user, "password": password}
        lock = engine.lock(engine.client(server, **words), f"door:{number}", timeout=30)
        assert lock.acquire() and (number % 2 or lock.release() is None)

    before = open_files()
    for number in range(40):
        hold(number)
    wait_until(lambda: gc.collect() < 0 or not own_connections(client))
    wait_until(lambda: open_files() <= before + 3, explain=open_files)
    assert not client.keys("door:*")


def test_idle_connection_is_closed(server: Server, client: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "IDLE_S", 0.6)
    own = engine.client(server)
    lock, watched = engine.lock(own, "door", timeout=30), engine.lock(own, "window", timeout=30, session=True)
    watched.acquire()
    time.sleep(2)
    assert len(own_connections(client)) == 1 and watched.owned()
    watched.release()
    wait_until(lambda: not own_connections(client) and not threads_of(server))
    assert lock.acquire(blocking=False)
    lock.release()


GREENLETS = """
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
with Lock(client, "door", timeout=1, session=True) as session, Lock(client, "window", timeout=1, renew=True) as renewed:
    time.sleep(1.5)
    print(session.owned(), renewed.owned())
    client.set("gate", "another holder")
    print(Lock(client, "gate", timeout=30).acquire(blocking_timeout=0.1))
"""


@pytest.mark.parametrize(
    "module, patch, early",
    [("gevent.monkey", "patch_all", False), ("gevent.monkey", "patch_all", True), ("eventlet", "monkey_patch", True)],
)
def test_greenlets_take_turns(server: Server, module: str, patch: str, early: bool) -> None:
    pytest.importorskip(module)
    patching = f"import {module}; {module}.{patch}()"
    done = run_program(f"{patching}\n{GREENLETS}", server, "-W", "ignore", before=patching if early else "")
    assert done.stdout == "True\nTrue True\nFalse\n", done.stderr


def test_locks_over_tls(tmp_path: Path, new_server: Any) -> None:
    trustme = pytest.importorskip("trustme")
    started = subprocess.run([SERVER, "--port", "0", "--tls-port", "1"], capture_output=True, timeout=60, check=False)
    if b"tls-cert-file" not in started.stdout:
        pytest.skip("this server was built without TLS")
    authority, port = trustme.CA(), free_port()
    for name, one in (("ours", authority), ("other", trustme.CA())):
        one.cert_pem.write_to_path(tmp_path / f"{name}.ca")
    for name in ("server", "client"):
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / f"{name}.pem")
    words = ["--tls-port", str(port), "--tls-auth-clients", "yes", "--tls-ca-cert-file", str(tmp_path / "ours.ca")]
    words += ["--tls-cert-file", str(tmp_path / "server.pem"), "--tls-key-file", str(tmp_path / "server.pem")]

    def client_of(authority: str) -> Any:
        files = {"ssl_ca_certs": f"{authority}.ca", "ssl_certfile": "client.pem", "ssl_keyfile": "client.pem"}
        paths = {name: str(tmp_path / file) for name, file in files.items()}
        return server.client(port=port, ssl=True, host="127.0.0.1", ssl_check_hostname=True, **paths)

    server = new_server(True, *words)
    client, plain = client_of("ours"), server.client()
    with pytest.raises(library.ConnectionError, match="certificate"):
        Lock(client_of("other"), "door", timeout=30, blocking_timeout=1).acquire()
    lock = Lock(client, "door", timeout=30, thread_local=False)
    with granted(lock, plain):
        assert waiters(plain)[0][b"channel"] is not None, "it waits by NOTIFY"
        assert [one["laddr"].rpartition(":")[2] for one in own_connections(plain)] == [str(port)]
    lock.release()
    with Lock(client, "window", timeout=2, renew=True) as renewed, Lock(client, "gate", timeout=30, session=True):
        assert not renewed.lost.wait(2.5) and plain.exists("window", "gate") == 2
