"""The lock for threads, on a server with the module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import pytest
from clusters import Cluster
from conftest import (
    KINDS,
    Pulse,
    Server,
    Threads,
    assert_told_at_once,
    kill_connections,
    library,
    losses,
    take_away,
    wait_until,
    waiters,
    watched,
)
from outlasting import Outlasting

from redis_lock_client import Lock, LockError, LockNotOwnedError
from redis_lock_client._sync.client import Client


def test_it_is_taken_and_released(client: Any) -> None:
    lock = client.lock("door", timeout=30, lock_class=Lock)
    assert lock.acquire()
    assert client.get("door") == lock.local.token
    assert 29_000 < client.pttl("door") <= 30_000
    assert lock.native is True and lock.owned() and lock.locked()
    lock.release()
    assert client.get("door") is None
    assert not lock.owned() and not lock.locked()


def test_its_errors_are_those_of_the_library(client: Any) -> None:
    with pytest.raises(library.exceptions.LockError) as raised:
        Lock(client, "door").release()
    assert raised.value.lock_name == "door"
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    client.delete("door")
    with pytest.raises(library.exceptions.LockNotOwnedError):
        lock.release()


def test_a_waiter_is_granted_the_lock_when_it_is_released(client: Any) -> None:
    holder, waiter = Lock(client, "door", timeout=30, thread_local=False), Lock(client, "door", timeout=30)
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(client))
        assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
        released = time.monotonic()
        holder.release()
        assert taken.result(5)
    assert time.monotonic() - released < 1


@pytest.mark.parametrize("lease", [30, None])
@pytest.mark.parametrize("timeout", ["default", None, 0.5])
def test_a_wait_ends_on_time(server: Server, client: Any, lease: float | None, timeout: Any) -> None:
    own = server.client() if timeout == "default" else server.client(socket_timeout=timeout)
    client.set("door", "somebody else")
    began = time.monotonic()
    assert Lock(own, "door", timeout=lease).acquire(blocking_timeout=2.5) is False
    assert 2.5 <= time.monotonic() - began < 3
    assert not waiters(client)


def test_a_wait_outlasts_every_time_out(server: Server, new_server: Any, pulse: Pulse) -> None:
    """Twenty seconds are four times the default time-out, and longer than places are kept for."""
    outlasting = Outlasting(server, new_server)
    clients = outlasting.clients(library, Server.client, Cluster.client)
    waits = outlasting.waits(clients)

    def wait(kind: str, lease: float | None, how: str) -> float:
        lock = Lock(clients[kind], outlasting.key(), timeout=lease, blocking_timeout=20)
        began = time.monotonic()
        if how == "False":
            assert lock.acquire() is False
        else:
            with pytest.raises(LockError), lock:
                pass
        return time.monotonic() - began

    began = time.monotonic()
    with Threads(len(waits)) as pool:
        took = {one: pool.submit(wait, *one) for one in waits}
        outlasting.assert_on_time({one: ended.result(40) for one, ended in took.items()}, pulse.late_since(began))


def test_a_lock_without_a_lease_waits_in_slices(client: Any) -> None:
    holder, waiter = Lock(client, "door", thread_local=False), Lock(client, "door")
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(client))
        assert waiters(client)[0][b"channel"] is None, "it blocks a connection"
        holder.release()
        assert taken.result(5)
    assert client.ttl("door") == -1


def test_the_order_is_kept(client: Any) -> None:
    holder = Lock(client, "door", timeout=30)
    holder.acquire()
    order: list[int] = []

    def wait_for_it(number: int) -> None:
        with Lock(client, "door", timeout=30):
            order.append(number)

    with Threads(20) as pool:
        for number in range(20):
            pool.submit(wait_for_it, number)
            wait_until(lambda number=number: len(Client.of(client).lines._lines.get(b"door", ())) == number + 1)
        wait_until(lambda: waiters(client))
        assert len(waiters(client)) == 1, "twenty threads have one place in line"
        holder.release()
    assert order == list(range(20))


def test_the_order_is_kept_between_processes(server: Server, client: Any) -> None:
    client.set("door", "somebody else")
    order: list[int] = []

    def work(number: int) -> None:
        with Lock(server.client_as_elsewhere(), "door", timeout=30):
            order.append(number)

    with Threads(10) as pool:
        works = []
        for number in range(10):
            works.append(pool.submit(work, number))
            wait_until(lambda: len(waiters(client)) == len(works))
        client.delete("door")
        for one in works:
            one.result(10)
    assert order == list(range(10))


def test_clients_of_one_server_have_one_place_in_line(server: Server, client: Any) -> None:
    """Programs often make a client for each request that they serve."""
    client.set("door", "somebody else")
    line = Client.of(client).lines._lines
    order: list[int] = []
    most = 0

    def work(number: int) -> None:
        nonlocal most
        with Lock(server.client(), "door", timeout=30):
            order.append(number)
            most = max(most, len(waiters(client)))

    with Threads(10) as pool:
        works = []
        for number in range(10):
            works.append(pool.submit(work, number))
            wait_until(lambda: len(line.get(b"door", ())) == len(works))
        wait_until(lambda: waiters(client))
        assert len(waiters(client)) == 1
        client.delete("door")
        for one in works:
            one.result(10)
    assert order == list(range(10)) and most <= 1


def test_two_hundred_threads_over_a_pool_of_two(server: Server) -> None:
    own = server.client(max_connections=2)
    inside, fences = set(), list[int]()

    def hold_it() -> None:
        with Lock(own, "door", timeout=30, blocking_timeout=60) as lock:
            assert not inside
            inside.add(lock)
            fences.append(lock.fence())
            inside.remove(lock)

    with Threads(200) as pool:
        for held in [pool.submit(hold_it) for _ in range(200)]:
            held.result(60)
    assert len(fences) == 200 and fences == sorted(fences)


def test_nothing_is_taken_from_the_callers_pool(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for a moment: it may be exhausted by those who wait for this very lock."""
    own = server.client()

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a connection of the caller's pool was asked for")

    monkeypatch.setattr(own.connection_pool, "get_connection", refuse)
    for options in ({"session": True}, {"reentrant": True}, {"limit": 2}, {"renew": True}):
        with Lock(own, "door", timeout=30, **options) as lock:
            assert not lock.lost.is_set() and lock.owned() and lock.locked() and lock.extend(40, replace_ttl=True)
    client.set("door", "somebody else")
    for lease in (30, None):  # By a message, and by a connection that blocks.
        assert not Lock(own, "door", timeout=lease).acquire(blocking_timeout=0.1)


def test_leaving_a_block_whose_lock_was_lost_raises(client: Any) -> None:
    with pytest.raises(LockNotOwnedError), Lock(client, "door", timeout=30):
        client.delete("door")
    with Lock(client, "door", timeout=30, raise_on_release_error=False):
        client.delete("door")


def test_the_exception_of_a_block_comes_first(client: Any) -> None:
    with pytest.raises(ZeroDivisionError), Lock(client, "door", timeout=30):
        client.delete("door")
        raise ZeroDivisionError


def test_a_block_that_is_not_entered_in_time_raises(client: Any) -> None:
    client.set("door", "somebody else")
    with pytest.raises(LockError), Lock(client, "door", timeout=30, blocking_timeout=0.1):
        pass
    assert not waiters(client)


def test_ctrl_c_leaves_the_line(server: Server, client: Any) -> None:
    client.set("door", "somebody else")
    # Whoever runs the tests in the background may have them ignore it.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import {library.__name__} as library; from redis_lock_client import Lock\n"
        f"client = library.{type(client).__name__}(port={server.port})\n"
        "try: Lock(client, 'door', timeout=30).acquire()\n"
        "except KeyboardInterrupt: print('interrupted', flush=True); import time; time.sleep(30)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            wait_until(lambda: waiters(client))
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None and process.stdout.readline() == b"interrupted\n"
            assert not waiters(client), "while the process goes on"
        finally:
            process.kill()


def test_connections_that_are_cut_while_waiting(client: Any) -> None:
    holder, waiter = Lock(client, "door", timeout=30, thread_local=False), Lock(client, "door", timeout=30)
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        for _ in range(5):
            wait_until(lambda: waiters(client))
            kill_connections(client)
        holder.release()
        assert taken.result(10)


def test_a_server_that_restarts_while_somebody_waits(new_server: Any) -> None:
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    client = server.client()
    client.set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(client, "door", timeout=30, blocking_timeout=30).acquire)
        wait_until(lambda: waiters(client))
        server.stop()
        server.start()
        wait_until(lambda: waiters(client))
        client.delete("door")
        assert taken.result(10)


def test_a_server_that_restarts_while_threads_hold(new_server: Any) -> None:
    """They hold on to what it still knows, and hear of what it has forgotten."""
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    client = server.client()
    lost: dict[str, Any] = {}
    holds, ends = threading.Barrier(4, timeout=30), threading.Event()

    def hold_it(key: str) -> bool:
        """Whether the lock was still held in the end."""
        lock = Lock(client, key, timeout=60)
        lock.acquire()
        lost[key] = lock.lost
        holds.wait()
        ends.wait(60)
        try:
            lock.release()
        except LockNotOwnedError:
            return False
        return True

    with Threads() as pool:
        held = {key: pool.submit(hold_it, key) for key in ("door", "window", "gate")}
        holds.wait()
        server.stop()
        server.forget("window")
        server.start()
        assert lost["window"].wait(10)
        client.delete("gate")
        assert lost["gate"].wait(10)
        assert client.exists("door") and not lost["door"].wait(1)
        ends.set()
        assert {key: one.result(10) for key, one in held.items()} == {"door": True, "window": False, "gate": False}
    assert not client.exists("door")


def test_a_server_that_is_gone_is_said_at_once() -> None:
    gone = Server.__new__(Server)
    gone.port = 1
    began = time.monotonic()
    with pytest.raises(library.ConnectionError):
        Lock(gone.client(), "door", timeout=30, blocking_timeout=20).acquire()
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_is_told_at_once(server: Server, client: Any, pulse: Pulse, kind: str) -> None:
    told: list[float] = []
    late: dict[tuple[int, str], float] = {}
    lock = Lock(server.client(), "door", timeout=30, on_lost=lambda: told.append(time.monotonic()), **KINDS[kind])
    for turn, way in enumerate(losses(kind)):
        assert lock.acquire(blocking=False)
        watched(client)
        known = take_away(client, way, lock.local.token)
        assert lock.lost.wait(5)
        wait_until(lambda: told)
        late[turn, way] = told.pop() - known - pulse.late_since(known)
        # By the own clock, which counts from before the request, a lease ends a moment earlier.
        wait_until(lambda way=way: way != "a shorter lease" or not client.exists("door"))
        with pytest.raises(LockNotOwnedError):
            lock.release()
        client.delete("door")
    assert not told, "each is told once"
    assert_told_at_once(late)


def test_the_end_of_a_lease_is_told(client: Any) -> None:
    lock = Lock(client, "door", timeout=0.3)
    lock.acquire()
    assert not lock.lost.is_set()
    assert lock.lost.wait(0.5)


def test_a_server_that_is_gone_is_a_loss_when_the_lease_ends(new_server: Any) -> None:
    server = new_server()
    lock = Lock(server.client(), "door", timeout=1)
    lock.acquire()
    lost = lock.lost
    began = time.monotonic()
    server.stop()
    assert lost.wait(5) and time.monotonic() - began < 2


def test_a_loss_is_not_told_of_the_next_hold(client: Any) -> None:
    """The object takes the lock again without a release, and gets it when somebody deletes it."""
    lock = Lock(client, "door", timeout=30)
    lost = lock.lost
    for _ in range(10):
        assert lock.acquire()
        threading.Timer(0.1, client.delete, ["door"]).start()
        assert lock.acquire(blocking_timeout=5)
        time.sleep(0.1)
        assert not lost.is_set() and lock.owned()
        lock.release()


def test_a_callback_that_wants_to_exit(client: Any) -> None:
    """It is called in a thread that others need."""
    ends = Lock(client, "window", timeout=0.3, on_lost=sys.exit)
    ends.acquire()
    with Lock(client, "door", timeout=1, renew=True) as lock:
        assert ends.lost.wait(5)
        assert not lock.lost.wait(2) and lock.owned()


def test_the_pause_between_two_polls_is_for_servers_without_the_module(new_server: Any) -> None:
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    server.client().set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(server.client(), "door", timeout=30, sleep=30).acquire)
        wait_until(lambda: waiters(server.client()))
        server.stop()
        server.start()
        wait_until(lambda: waiters(server.client()), 5)
        server.client().delete("door")
        assert taken.result(5)


@pytest.mark.parametrize("how", ["session", "renew"])
@pytest.mark.parametrize("kind", [{}, {"shared": True}, {"limit": 2}])
def test_a_lock_that_is_renewed(client: Any, how: str, kind: dict[str, Any]) -> None:
    told: list[str] = []
    renewing: dict[str, Any] = {how: True, **kind}
    with Lock(client, "door", timeout=1.5, on_lost=lambda: told.append("lost"), **renewing) as lock:
        for _ in range(25):
            time.sleep(0.1)
            assert lock.owned() and not lock.lost.is_set()
    assert not told and not client.exists("door")


def test_a_share_is_renewed_while_others_come_and_go(server: Server, client: Any) -> None:
    """Each of them changes the key, which is the occasion to read it."""
    shares = [Lock(client, "door", timeout=1.5, limit=100, renew=True) for _ in range(10)]
    for share in shares:
        share.acquire()
    until = time.monotonic() + 4
    while time.monotonic() < until:
        with Lock(server.client(), "door", timeout=30, limit=100):
            time.sleep(0.01)
    assert not any(share.lost.is_set() for share in shares)
    assert client.zcard("door") == 10


def test_a_lock_that_nobody_has_any_more_is_not_renewed(client: Any) -> None:
    lock = Lock(client, "door", timeout=0.5, renew=True)
    lock.acquire()
    del lock
    wait_until(lambda: not client.exists("door"), 2)


@pytest.mark.parametrize("how", ["dropped", "killed"])
def test_a_session_ends_with_its_holder(server: Server, client: Any, how: str) -> None:
    program = (
        f"import {library.__name__} as library, time; from redis_lock_client import Lock\n"
        f"lock = Lock(library.{type(client).__name__}(port={server.port}), 'door', timeout=30, session=True)\n"
        "lock.acquire(); print('held', flush=True); time.sleep(0.1)\n" + ("del lock\n" if how == "dropped" else "")
    )
    with subprocess.Popen([sys.executable, "-c", program + "time.sleep(30)"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            if how == "killed":
                assert client.exists("door")
                process.kill()
            wait_until(lambda: not client.exists("door"), 2)
        finally:
            process.kill()


def test_a_session_that_waited(client: Any) -> None:
    holder, waiter = Lock(client, "door", timeout=30, thread_local=False), Lock(client, "door", timeout=1, session=True)
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(client))
        holder.release()
        assert taken.result(5)
        time.sleep(1.5)
        assert pool.submit(client.exists, "door").result() == 1


def test_a_reentrant_lock_counts(client: Any) -> None:
    lock = Lock(client, "door", timeout=30, reentrant=True)
    with lock:
        with lock:
            assert client.hgetall("door") == {lock.local.token: b"2"}
            assert not Lock(client, "door", timeout=30, reentrant=True).acquire(blocking=False)
        assert client.hgetall("door") == {lock.local.token: b"1"}
    assert not client.exists("door")
    with pytest.raises(LockError):
        lock.release()


def test_a_reentrant_lock_that_was_lost_is_not_entered_again(client: Any) -> None:
    lock = Lock(client, "door", timeout=30, reentrant=True)
    lock.acquire()
    client.delete("door")
    with pytest.raises(LockNotOwnedError):
        lock.acquire()


def test_readers_and_a_writer(client: Any) -> None:
    reader = partial(Lock, client, "door", timeout=30, shared=True)
    writer = Lock(client, "door", timeout=30)
    with reader() as one, reader() as other:
        assert one.owned() and other.owned()
        assert not writer.acquire(blocking=False)
    with writer:
        assert not reader().acquire(blocking=False)


def test_a_share_that_is_taken_away(client: Any) -> None:
    lock = Lock(client, "door", timeout=30, shared=True)
    lock.acquire()
    assert not lock.lost.is_set()
    watched(client)
    client.zrem("door", lock.local.token)
    assert lock.lost.wait(1)


def test_a_share_whose_lease_has_ended_beside_another(client: Any) -> None:
    other, lock = (Lock(client, "door", timeout=timeout, shared=True) for timeout in (30, 0.2))
    other.acquire()
    lock.acquire()
    assert lock.owned()
    assert lock.lost.wait(2)
    # Here the lease counts from before the request, and at the server from a moment later.
    wait_until(lambda: not lock.owned(), 1)
    assert client.zcard("door") == 2, "it is still there"
    assert other.owned()


def test_a_limit(client: Any) -> None:
    permit = partial(Lock, client, "door", timeout=30, limit=2)
    with permit(), permit():
        assert not permit().acquire(blocking=False)


def test_fences_rise(client: Any) -> None:
    drawn = []
    for _ in range(3):
        with Lock(client, "door", timeout=30) as lock:
            drawn.append(lock.fence())
    assert drawn == sorted(set(drawn)) and client.exists("{door}:fence")


def test_a_child_does_not_have_its_parents_lock(client: Any) -> None:
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    child = os.fork()
    if not child:
        code = 1
        try:
            assert not lock.owned()
            with pytest.raises(LockError):
                lock.release()
            assert not lock.acquire(blocking_timeout=0.2)
            assert Lock(client, "window", timeout=30).acquire()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.owned()
    lock.release()


@pytest.mark.parametrize("give", [lambda token: token, lambda token: token.decode()])
def test_a_lock_that_is_handed_over_by_its_token(client: Any, server: Server, give: Any) -> None:
    """As with redis-py's, to another object, also in another process."""
    first, other = Lock(client, "door", timeout=2, renew=True), Lock(server.client(), "door", timeout=30, renew=True)
    first.acquire()
    other.local.token = give(first.local.token)
    first.local.token = None
    with pytest.raises(LockError):
        first.release()
    assert other.owned() and not first.owned()
    assert other.reacquire() and client.pttl("door") > 28_000
    client.delete("door")
    assert other.lost.wait(2) and not first.lost.is_set()
    with pytest.raises(LockNotOwnedError):
        other.release()
    other.local.token = b"of nobody"
    assert not other.owned()
    with pytest.raises(LockNotOwnedError):
        other.extend(1)
    with first:
        token = first.local.token
        other.local.token = token
        other.release()
        assert not client.exists("door")
        assert first.acquire(blocking=False)


def test_another_thread_cannot_release(client: Any) -> None:
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    with Threads() as pool, pytest.raises(LockError):
        pool.submit(lock.release).result()
    lock.release()


def test_no_thread_for_each_lock(client: Any) -> None:
    before = threading.active_count()  # Some are of earlier clients, and come and go.
    locks = [Lock(client, f"door:{n}", timeout=30, renew=True) for n in range(100)]
    for lock in locks:
        lock.acquire()
    assert threading.active_count() <= before + 10
    for lock in locks:
        lock.release()


@pytest.mark.parametrize(
    "wrong", [{"session": True}, {"renew": True}, {"limit": 0}, {"shared": True, "reentrant": True}]
)
def test_what_cannot_be_asked_for(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Lock(library.Redis() if hasattr(library, "Redis") else library.Valkey(), "door", **wrong)


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 3}, {"unix": True}])
def test_clients_of_every_kind(server: Server, options: dict[str, Any]) -> None:
    if options.pop("unix", None):
        options = {"unix_socket_path": str(server.folder / "s")}
    own = server.client(**options)
    own.set("door", "somebody else")
    assert not Lock(own, "door", timeout=30, blocking_timeout=0.2).acquire()
    own.delete("door")
    with Lock(own, "door", timeout=30) as lock:
        assert lock.owned()


@pytest.mark.parametrize("library_of_greenlets", ["gevent.monkey", "eventlet"])
def test_greenlets(server: Server, library_of_greenlets: str) -> None:
    """Threads that are none, even when they are set up after this package was imported."""
    pytest.importorskip(library_of_greenlets)
    patch = {"gevent.monkey": "patch_all", "eventlet": "monkey_patch"}[library_of_greenlets]
    program = (
        f"import {library.__name__} as library, {library_of_greenlets}, threading, time\n"
        f"from redis_lock_client import Lock\n{library_of_greenlets}.{patch}()\n"
        f"client, inside, held = library.Redis(port={server.port}), set(), []\n"
        "lock = Lock(client, 'door', timeout=30, on_lost=lambda: None)\n"
        "def hold_it(number):\n"
        "    with lock:\n"
        "        assert not inside; inside.add(number); time.sleep(0.002); inside.remove(number); held.append(number)\n"
        "threads = [threading.Thread(target=hold_it, args=(number,)) for number in range(50)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join(30)\n"
        "print(held == list(range(50)), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, timeout=60, check=False)
    assert done.stdout == b"True\n", done.stderr.decode()
