"""The lock for threads, on a server with the module: its arguments, methods, errors and events."""

from __future__ import annotations

import gc
import logging
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from conftest import (
    KINDS,
    Pulse,
    Server,
    Threads,
    assert_told_at_once,
    info,
    library,
    losses,
    own_connections,
    own_threads,
    take_away,
    take_turns,
    wait_until,
    waiters,
    watched,
)

from redis_lock_client import Lock, LockError, LockLost, LockNotOwnedError, LockTimeout


def test_lock_is_acquired_and_released(one_server: Server) -> None:
    client = one_server.client()
    lock, tokens = client.lock("door", timeout=30, lock_class=Lock), set[bytes]()
    for _ in range(3):
        assert lock.acquire()
        tokens.add(lock.local.token)
        assert client.get("door") == lock.local.token and 29_000 < client.pttl("door") <= 30_000
        assert lock.native is one_server.module and lock.owned() and lock.locked()
        assert not Lock(client, "door", timeout=30).acquire(blocking=False)
        lock.release()
        assert not client.exists("door") and not lock.owned() and not lock.locked() and lock.local.token is None
    assert len(tokens) == 3


def test_times_may_be_timedeltas(client: Any) -> None:
    lock = Lock(client, "door", timeout=timedelta(seconds=30), blocking_timeout=timedelta(milliseconds=50))
    with lock:
        assert 29_000 < client.pttl("door") <= 30_000
        assert lock.extend(timedelta(seconds=60), replace_ttl=True) and client.pttl("door") > 50_000
        other = Lock(client, "door", timeout=30)
        assert not other.acquire(blocking_timeout=timedelta(milliseconds=20))


@pytest.mark.parametrize(
    "wrong",
    [
        {"session": True},
        {"renew": True},
        {"limit": 0},
        {"shared": True, "reentrant": True},
        {"timeout": -1},
        {"timeout": 0.0001},
        {"label": ""},
        {"label": "a b"},
        {"label": "x" * 65},
    ],
)
def test_wrong_argument_is_a_value_error(client: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Lock(client, "door", **wrong)


def test_asyncio_client_is_a_type_error(server: Server) -> None:
    with pytest.raises(TypeError, match="asyncio"):
        Lock(server.client_asyncio(), "door")


def test_lock_from_url_uses_its_database(server: Server) -> None:
    with Lock.from_url(f"{library.__name__}://localhost:{server.port}/3", "door", timeout=30):
        assert server.client(db=3).exists("door")
        assert not server.client().exists("door")


def test_decorated_function_runs_with_the_lock(client: Any) -> None:
    @Lock(client, "door", timeout=30, blocking_timeout=0.05)
    def state(name: str) -> Any:
        """Returns a state."""
        return info(client)[name.encode()]

    assert state("state") == b"mutex" and state.__doc__ == "Returns a state."
    client.set("door", "another holder")
    with pytest.raises(LockTimeout):
        state("state")


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_the_library(client: Any) -> None:
    with pytest.raises(library.exceptions.LockError, match="door") as raised:
        Lock(client, "door").release()
    assert raised.value.lock_name == "door"
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    client.delete("door")
    with pytest.raises(library.exceptions.LockNotOwnedError, match="door"):
        lock.release()
    assert LockLost is LockNotOwnedError and issubclass(LockTimeout, LockError)


def test_error_has_type_and_status_code(client: Any) -> None:
    plain = library.exceptions.LockError("message", "door")
    error = LockTimeout("message", "door")
    assert [getattr(error, name, None) for name in ("error_type", "status_code")] == [
        getattr(plain, name, None) for name in ("error_type", "status_code")
    ]


def test_block_not_entered_in_time_is_lock_timeout(client: Any) -> None:
    client.set("door", "another holder")
    with pytest.raises(LockTimeout, match="door"), Lock(client, "door", timeout=30, blocking_timeout=0.1):
        pass
    assert not waiters(client)


def test_block_whose_lock_was_lost_raises(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LockNotOwnedError), Lock(client, "door", timeout=30):
        client.delete("door")
    with Lock(client, "door", timeout=30, raise_on_release_error=False):
        client.delete("door")
    assert "lost before it was released" in caplog.text


def test_error_of_block_comes_before_that_of_release(client: Any) -> None:
    with pytest.raises(ZeroDivisionError), Lock(client, "door", timeout=30):
        client.delete("door")
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), Lock(client, "door", timeout=30):
        raise KeyboardInterrupt
    assert not client.exists("door")


def test_other_data_is_no_lock(each_client: Any) -> None:
    client = each_client
    client.rpush("door", "an item")
    for options in ({}, {"reentrant": True}):
        for blocking in (False, True):
            with pytest.raises(library.ResponseError, match="WRONGTYPE"):
                Lock(client, "door", timeout=30, **options).acquire(blocking=blocking)
    assert client.lrange("door", 0, -1) == [b"an item"]


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_waiter_is_granted_on_release(client: Any, pulse: Pulse) -> None:
    holder, waiter = Lock(client, "door", timeout=30), Lock(client, "door", timeout=30, thread_local=False)
    granted_at = 0.0

    def wait() -> None:
        nonlocal granted_at
        waiter.acquire()
        granted_at = time.monotonic()

    late = []
    for _ in range(5):
        holder.acquire()
        with Threads() as pool:
            waiting = pool.submit(wait)
            wait_until(lambda: waiters(client))
            assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
            began = time.monotonic()
            holder.release()
            waiting.result(5)
        late.append(granted_at - began - pulse.late_since(began))
        waiter.release()
    assert min(late) < 0.05, late


@pytest.mark.parametrize("lease", [30, None])
@pytest.mark.parametrize("timeout", ["default", None, 0.3])
def test_wait_ends_on_time(server: Server, client: Any, pulse: Pulse, lease: float | None, timeout: Any) -> None:
    own = server.client() if timeout == "default" else server.client(socket_timeout=timeout)
    client.set("door", "another holder")
    began = time.monotonic()
    assert Lock(own, "door", timeout=lease).acquire(blocking_timeout=1.5) is False
    took = time.monotonic() - began
    assert 1.49 < took < 2 + pulse.late_since(began)
    wait_until(lambda: not waiters(client))


def test_attempt_without_waiting_does_not_wait(client: Any) -> None:
    client.set("door", "another holder")
    for arguments in ({"blocking": False}, {"blocking_timeout": 0}):
        assert Lock(client, "door", timeout=30).acquire(**arguments) is False
        assert not waiters(client)
    assert not Lock(client, "door", timeout=30, blocking=False).acquire()


def test_lock_without_lease_waits_and_has_none(client: Any) -> None:
    holder, waiter = Lock(client, "door"), Lock(client, "door", thread_local=False)
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        wait_until(lambda: waiters(client))
        holder.release()
        assert taken.result(5)
    assert client.ttl("door") == -1
    with pytest.raises(LockError, match="timeout"):
        waiter.extend(1)
    waiter.release()


def test_threads_are_served_in_order(client: Any) -> None:
    holder = Lock(client, "door", timeout=30)
    holder.acquire()
    order: list[int] = []
    started: list[int] = []

    def take(number: int) -> None:
        lock = Lock(client, "door", timeout=30)
        started.append(number)
        with lock:
            order.append(number)

    with Threads(20) as pool:
        for number in range(20):
            pool.submit(take, number)
            wait_until(lambda number=number: len(started) == number + 1)
            time.sleep(0.03)  # It posts its request.
        wait_until(lambda: waiters(client))
        assert len(waiters(client)) == 1, "the threads of a process have one queue entry"
        holder.release()
    assert order == list(range(20))


def test_long_wait_keeps_its_queue_entry(server: Server, client: Any, pulse: Pulse) -> None:
    """Longer than every time-out: of the client, of a request at the server, of the server for idle clients."""
    client.set("door", "another holder")
    client.config_set("timeout", 3)
    try:
        kinds: list[dict[str, Any]] = [{}, {"socket_timeout": None}, {"socket_timeout": 0.5}, {"protocol": 3}]
        clients = [server.client(**kind) for kind in kinds]

        def wait(own: Any, lease: float | None) -> float:
            began = time.monotonic()
            assert Lock(own, "door", timeout=lease).acquire(blocking_timeout=20) is False
            return time.monotonic() - began

        began = time.monotonic()
        with Threads(16) as pool:
            waits = [pool.submit(wait, own, lease) for own in clients for lease in (30, None)]
            took = [one.result(40) for one in waits]
        assert all(19.9 < one < 20.5 + pulse.late_since(began) for one in took), took
        client.delete("door")
        wait_until(lambda: not waiters(client))
    finally:
        client.config_set("timeout", 0)


def test_wait_beyond_any_clock_is_possible(client: Any) -> None:
    holder, waiter = Lock(client, "door", timeout=1e9, renew=True), Lock(client, "door", timeout=1, thread_local=False)
    holder.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire, blocking_timeout=1e18)
        wait_until(lambda: waiters(client))
        holder.release()
        assert taken.result(5)
    waiter.release()


# ---- holding --------------------------------------------------------------------------------------------------------


def test_lease_is_extended(each_client: Any) -> None:
    client = each_client
    with Lock(client, "door", timeout=10) as lock:
        assert lock.extend(10) and 19_000 < client.pttl("door") <= 20_000
        assert lock.extend(5, replace_ttl=True) and 4_000 < client.pttl("door") <= 5_000
        assert lock.reacquire() and 9_000 < client.pttl("door") <= 10_000
    for method in (partial(lock.extend, 1), lock.reacquire, lock.release):
        with pytest.raises(LockError):
            method()


def test_lost_lock_is_not_extended(each_client: Any) -> None:
    client = each_client
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    client.set("door", "another holder")
    for method in (partial(lock.extend, 1), lock.reacquire, lock.release):
        with pytest.raises(LockNotOwnedError):
            method()
    assert client.get("door") == b"another holder"


def test_fencing_tokens_rise(client: Any) -> None:
    drawn = []
    for _ in range(3):
        with Lock(client, "door", timeout=30) as lock:
            drawn.append(lock.fence())
    assert drawn == sorted(set(drawn)) and client.exists("{door}:fence")
    with Lock(client, "door", timeout=30) as lock:
        assert lock.fence("{door}:own") and client.exists("{door}:own")


def test_readers_exclude_a_writer(client: Any) -> None:
    reader = partial(Lock, client, "door", timeout=30, shared=True)
    writer = Lock(client, "door", timeout=30)
    with reader() as one, reader() as other:
        assert one.owned() and other.owned()
        assert not writer.acquire(blocking=False)
    with writer:
        assert not reader().acquire(blocking=False)


def test_limit_is_that_of_a_semaphore(client: Any) -> None:
    permit = partial(Lock, client, "door", timeout=30, limit=2)
    with permit(), permit():
        assert not permit().acquire(blocking=False)
    assert not client.exists("door")


def test_reentrant_lock_counts_its_holds(each_client: Any) -> None:
    client = each_client
    lock = Lock(client, "door", timeout=30, reentrant=True)
    with lock:
        with lock:
            assert client.hgetall("door") == {lock.local.token: b"2"}
            assert not Lock(client, "door", timeout=30, reentrant=True).acquire(blocking=False)
        assert client.hgetall("door") == {lock.local.token: b"1"}
    assert not client.exists("door")
    with pytest.raises(LockError):
        lock.release()


def test_lost_reentrant_lock_is_not_entered_again(each_client: Any) -> None:
    client = each_client
    lock = Lock(client, "door", timeout=30, reentrant=True)
    with pytest.raises(LockNotOwnedError), lock:
        client.delete("door")
        with lock:
            pytest.fail("it was acquired inside of a block that had lost it")
    assert not client.exists("door")


def test_each_hold_of_a_lost_lock_is_released(each_client: Any) -> None:
    client = each_client
    lock = Lock(client, "door", timeout=30, reentrant=True)
    for _ in range(3):
        lock.acquire()
    client.delete("door")
    for _ in range(3):
        with pytest.raises(LockNotOwnedError):
            lock.release()
    with lock, lock:
        assert client.hgetall("door") == {lock.local.token: b"2"}
    assert not client.exists("door")


def test_lock_object_is_shared_by_threads(each_client: Any) -> None:
    """Each thread holds for itself."""
    lock = Lock(each_client, "door", timeout=30, blocking_timeout=90)
    assert len(take_turns(lambda _: lock, 10, 5)) == 50 and not each_client.exists("door")


@pytest.mark.parametrize("options", [{"reentrant": True}, {}], ids=["re-entrant", "mutex"])
def test_other_thread_does_not_release_or_enter(client: Any, options: dict[str, Any]) -> None:
    lock = Lock(client, "door", timeout=30, **options)
    with lock, Threads() as pool:
        assert pool.submit(lock.acquire, blocking=False).result() is False
        assert pool.submit(lock.owned).result() is False
        with pytest.raises(LockError):
            pool.submit(lock.release).result()


def test_any_thread_releases_without_thread_local(client: Any) -> None:
    lock = Lock(client, "door", timeout=30, thread_local=False)
    lock.acquire()
    with Threads() as pool:
        assert pool.submit(lock.owned).result()
        pool.submit(lock.release).result()
    assert not client.exists("door")


def test_semaphore_object_is_shared_by_threads(client: Any) -> None:
    """It has as many holds as it was granted, also in one thread."""
    permits = Lock(client, "door", timeout=30, limit=3, blocking_timeout=30)
    inside, most = set[int](), 0

    def take(number: int) -> None:
        nonlocal most
        for _ in range(5):
            with permits:
                inside.add(number)
                most = max(most, len(inside))
                time.sleep(0.002)
                inside.remove(number)

    with Threads(10) as pool:
        for one in [pool.submit(take, number) for number in range(10)]:
            one.result(30)
    assert 2 <= most <= 3 and not client.exists("door")
    with permits, permits, permits:
        assert client.zcard("door") == 3
        assert not permits.acquire(blocking=False)
    assert not client.exists("door")


def test_expired_holder_takes_nothing_from_the_next(client: Any) -> None:
    """Both by one lock object: the first thread's lease has expired when it releases."""
    lock = Lock(client, "door", timeout=0.2, blocking_timeout=10)
    lock.acquire()
    with Threads() as pool:
        wait_until(lambda: not client.exists("door"))
        lock.timeout, lock._lease_ms = 30, 30_000
        assert pool.submit(lock.acquire).result(5)
        with pytest.raises(LockNotOwnedError):
            lock.release()
        assert info(client)[b"state"] == b"mutex"
        assert pool.submit(lock.owned).result(5)
        pool.submit(lock.release).result(5)


def test_lost_lock_is_acquired_again_by_its_object(client: Any) -> None:
    lock = Lock(client, "door", timeout=30, watch=True)
    for _ in range(5):
        assert lock.acquire()
        client.delete("door")
        assert lock.acquire(blocking_timeout=5)
        watched(client)
        assert not lock.lost.is_set() and lock.owned()
        lock.release()


# ---- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [False, True])
def test_token_hands_a_lock_over(client: Any, server: Server, as_text: bool) -> None:
    first, other = Lock(client, "door", timeout=2, renew=True), Lock(server.client(), "door", timeout=30)
    first.acquire()
    token = first.local.token
    assert token is not None
    other.local.token = token.decode() if as_text else token
    first.local.token = None
    with pytest.raises(LockError):
        first.release()
    assert other.owned() and not first.owned()
    assert other.reacquire() and client.pttl("door") > 28_000
    client.delete("door")
    with pytest.raises(LockNotOwnedError):
        other.release()
    other.local.token = b"of no holder"
    assert not other.owned()
    with pytest.raises(LockNotOwnedError):
        other.extend(1)


def test_given_token_is_used(client: Any) -> None:
    lock, waiter = Lock(client, "door", timeout=30), Lock(client, "door", timeout=30, thread_local=False)
    assert lock.acquire(token="my token") and client.get("door") == b"my token"
    lock.release()
    client.set("door", "another holder")
    with Threads() as pool:
        taken = pool.submit(waiter.acquire, token=b"with a space", blocking_timeout=10)
        wait_until(lambda: waiters(client))
        client.delete("door")
        assert taken.result(5)
    assert client.get("door") == b"with a space"
    waiter.release()


def test_two_acquisitions_by_one_token_are_an_error(client: Any, server: Server) -> None:
    lock = Lock(client, "door", timeout=30)
    lock.acquire(token="mine")
    for own in (client, server.client()):
        with pytest.raises(LockError, match="this token already"):
            Lock(own, "door", timeout=30).acquire(token="mine")
    assert lock.owned()
    lock.release()
    with Lock(client, "door", timeout=30), Threads() as pool:
        waiting = pool.submit(Lock(client, "door", timeout=30).acquire, token="mine", blocking_timeout=1)
        wait_until(lambda: waiters(client))
        with pytest.raises(LockError, match="this token already"):
            Lock(client, "door", timeout=30).acquire(token="mine", blocking=False)
        assert waiting.result(5) is False


# ---- loss ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_reported_within_50_ms(server: Server, client: Any, pulse: Pulse, kind: str) -> None:
    reported: list[float] = []
    late: dict[tuple[int, str], float] = {}
    lock = Lock(server.client(), "door", timeout=30, on_lost=lambda: reported.append(time.monotonic()), **KINDS[kind])
    for turn, way in enumerate(losses(kind)):
        assert lock.acquire(blocking=False)
        watched(client)
        known = take_away(client, way, lock.local.token or b"")
        assert lock.lost.wait(5)
        wait_until(lambda: reported)
        late[turn, way] = reported.pop() - known - pulse.late_since(known)
        # By the local clock, which counts from before the request, a lease ends a moment earlier.
        wait_until(lambda way=way: way != "a shorter lease" or not client.exists("door"))
        with pytest.raises(LockNotOwnedError):
            lock.release()
        client.delete("door")
    assert not reported, "each is reported once"
    assert_told_at_once(late)


@pytest.mark.parametrize("how", ["read", "watch", "unread"])
def test_end_of_lease_is_a_loss(client: Any, how: str) -> None:
    lock = Lock(client, "door", timeout=0.3, watch=how == "watch")
    lock.acquire()
    if how == "read":
        assert not lock.lost.is_set() and lock.lost.wait(2)
    elif how == "unread":
        wait_until(lambda: not client.exists("door"))
        assert lock.lost.is_set(), "also if it is read for the first time afterwards"
    else:
        wait_until(lambda: not client.exists("door"))
        wait_until(lock.lost.is_set, 1)


def test_slow_callback_delays_no_other(client: Any) -> None:
    ended, calls = threading.Event(), list[str]()

    def slow() -> None:
        calls.append("slow")
        ended.wait(20)

    first = Lock(client, "door", timeout=30, on_lost=slow)
    second = Lock(client, "window", timeout=30, on_lost=lambda: calls.append("second"))
    renewed = Lock(client, "gate", timeout=1, renew=True)
    for lock in (first, second, renewed):
        lock.acquire()
    watched(client)
    client.delete("door")
    wait_until(lambda: calls == ["slow"])
    client.delete("window")
    wait_until(lambda: calls == ["slow", "second"], 2)
    assert not renewed.lost.wait(1.5) and renewed.owned()
    ended.set()
    renewed.release()


@pytest.mark.parametrize("error", [SystemExit, ZeroDivisionError])
def test_callback_that_raises_ends_nothing_else(client: Any, caplog: Any, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    lock = Lock(client, "window", timeout=0.2, on_lost=fail)
    lock.acquire()
    with Lock(client, "door", timeout=1, renew=True) as renewed:
        assert lock.lost.wait(5)
        assert not renewed.lost.wait(1.5) and renewed.owned()
    assert "on_lost has failed" in caplog.text


def test_share_is_renewed_while_others_come_and_go(server: Server, client: Any) -> None:
    """Each of them changes the key."""
    share = Lock(client, "door", timeout=1.5, limit=100)
    renewed = Lock(client, "door", timeout=1.5, limit=100, renew=True)
    renewed.acquire()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with share:
            time.sleep(0.005)
    assert not renewed.lost.is_set() and client.zcard("door") == 1
    renewed.release()


# ---- what remains ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_held_lock_that_is_collected_is_released(client: Any, kind: str) -> None:
    lock = Lock(client, "door", timeout=30, **KINDS[kind])
    lock.acquire()
    with pytest.warns(ResourceWarning, match="door"):
        del lock
        gc.collect()
        wait_until(lambda: not client.exists("door"), 5)


def test_lock_of_an_ended_thread_is_released(client: Any) -> None:
    lock = Lock(client, "door", timeout=30)
    with pytest.warns(ResourceWarning, match="door"):
        thread = threading.Thread(target=lock.acquire)
        thread.start()
        thread.join()
        del thread
        gc.collect()
        wait_until(lambda: not client.exists("door"), 5)


def test_debug_log_has_label_and_position(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redis_lock_client")
    holder = Lock(client, "door", timeout=30, label="first")
    with holder, Threads() as pool:
        assert holder.local.token is not None and holder.local.token.startswith(b"first:")
        waiting = pool.submit(Lock(client, "door", timeout=30, label="second").acquire, blocking_timeout=0.5)
        wait_until(lambda: waiters(client))
        assert waiters(client)[0][b"token"].startswith(b"second:")
        assert waiting.result(5) is False
    assert "'second' waits for lock b'door' at position 1; held by 'first'" in caplog.text
    assert "'second' did not get lock 'door' in 0.5" in caplog.text
    assert "'first' got lock 'door' after" in caplog.text and "'first' released lock 'door'" in caplog.text


def test_threads_and_connections_have_names(server: Server, client: Any) -> None:
    """The thread ends when it has nothing to do; the connection stays."""
    with Lock(client, "door", timeout=3600, renew=True):
        wait_until(lambda: any(str(server.port) in thread.name for thread in own_threads()))
        assert own_connections(client)
    wait_until(lambda: not any(str(server.port) in thread.name for thread in own_threads()))


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 3}, {"unix": True}, {"db": 2}], ids=str)
def test_clients_of_every_kind(server: Server, options: dict[str, Any]) -> None:
    if "unix" in options:
        options = {"unix_socket_path": str(server.folder / "s")}
    own = server.client(**options)
    own.set("door", "another holder")
    assert not Lock(own, "door", timeout=30, blocking_timeout=0.2).acquire()
    own.delete("door")
    with Lock(own, "door", timeout=30) as lock:
        assert lock.owned() and not lock.lost.is_set()


def test_pool_of_the_caller_is_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its connections may be in use by threads that wait for this lock."""
    own = server.client()
    monkeypatch.setattr(own.connection_pool, "get_connection", lambda *_, **__: pytest.fail("the pool was used"))
    for options in ({"session": True}, {"reentrant": True}, {"limit": 2}, {"renew": True}):
        with Lock(own, "door", timeout=30, **options) as lock:
            assert not lock.lost.is_set() and lock.owned() and lock.locked() and lock.extend(40, replace_ttl=True)
            assert not Lock(own, "door").acquire(blocking_timeout=0.1)
