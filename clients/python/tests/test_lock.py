"""The lock, for threads and for tasks: its arguments, methods, errors and events."""

from __future__ import annotations

import gc
import logging
import threading
import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from engines import EACH_LOOP
from losses import KINDS, Pulse, assert_reported_at_once, losses, take_away
from servers import Server, begin_wait, info, library, waiters, watched
from waits import Threads, own_threads, take_turns, wait_until

import redis_lock_client
from redis_lock_client import Lock, LockError, LockLost, LockNotOwnedError, LockTimeout


@EACH_LOOP
def test_lock_is_acquired_and_released(one_server: Server, engine: Any) -> None:
    client = one_server.client()
    lock, other = (engine.lock(one_server, "door", timeout=30) for _ in range(2))
    tokens = set[bytes]()
    for _ in range(3):
        assert lock.acquire()
        tokens.add(lock.local.token)
        assert client.get("door") == lock.local.token and 29_000 < client.pttl("door") <= 30_000
        assert lock.native is one_server.module and lock.owned() and lock.locked()
        assert not other.acquire(blocking=False)
        assert lock.extend(10) and 39_000 < client.pttl("door") <= 40_000
        assert lock.extend(5, replace_ttl=True) and 4_000 < client.pttl("door") <= 5_000
        assert lock.reacquire() and 29_000 < client.pttl("door") <= 30_000
        lock.release()
        assert not client.exists("door") and not lock.owned() and not lock.locked() and lock.local.token is None
    assert len(tokens) == 3
    for method in (partial(lock.extend, 1), lock.reacquire, lock.release):
        with pytest.raises(LockError):
            method()
    assert lock.acquire()
    client.set("door", "another holder")
    for method in (partial(lock.extend, 1), lock.reacquire, lock.release):
        with pytest.raises(LockNotOwnedError):
            method()
    assert client.get("door") == b"another holder"


def test_times_may_be_timedeltas(client: Any, make: Any) -> None:
    with make("door", timeout=timedelta(seconds=30), blocking_timeout=timedelta(milliseconds=50)) as lock:
        assert 29_000 < client.pttl("door") <= 30_000
        assert lock.extend(timedelta(seconds=60), replace_ttl=True) and client.pttl("door") > 50_000
        assert not make("door", timeout=30).acquire(blocking_timeout=timedelta(milliseconds=20))


WRONG: list[dict[str, Any]] = [
    *({"session": True}, {"renew": True}, {"limit": 0}, {"shared": True, "reentrant": True}, {"timeout": -1}),
    *({"timeout": 0.0001}, {"label": ""}, {"label": "a b"}, {"label": "x" * 65}),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_argument_is_a_value_error(client: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Lock(client, "door", **wrong)


def test_client_of_other_kind_is_a_type_error(server: Server, client: Any) -> None:
    with pytest.raises(TypeError, match=r"redis_lock_client\.asyncio\.Lock"):
        Lock(server.client_asyncio(), "door")
    with pytest.raises(TypeError, match=r"redis_lock_client\.Lock"):
        redis_lock_client.asyncio.Lock(client, "door")


def test_lock_from_url_uses_its_database(server: Server) -> None:
    with Lock.from_url(f"{library.__name__}://localhost:{server.port}/3", "door", timeout=30):
        assert server.client(db=3).exists("door")
        assert not server.client().exists("door")


def test_decorated_function_runs_with_the_lock(client: Any) -> None:
    @client.lock("door", timeout=30, blocking_timeout=0.05, lock_class=Lock)
    def state(name: str) -> Any:
        """Returns a state."""
        return info(client)[name.encode()]

    assert state("state") == b"mutex" and state.__doc__ == "Returns a state."
    client.set("door", "another holder")
    with pytest.raises(LockTimeout):
        state("state")


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_the_library(client: Any, make: Any) -> None:
    with pytest.raises(library.exceptions.LockError, match="door") as raised:
        make("door").release()
    assert raised.value.lock_name == "door"
    lock = make("door", timeout=30)
    lock.acquire()
    client.delete("door")
    with pytest.raises(library.exceptions.LockNotOwnedError, match="door"):
        lock.release()
    assert LockLost is LockNotOwnedError and issubclass(LockTimeout, LockError)
    theirs, ours = library.exceptions.LockError("message", "door"), LockTimeout("message", "door")
    for name in ("error_type", "status_code"):
        assert getattr(ours, name, None) == getattr(theirs, name, None)


def test_failing_block_raises_the_right_error(client: Any, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LockNotOwnedError), make("door", timeout=30):
        client.delete("door")
    with make("door", timeout=30, raise_on_release_error=False):
        client.delete("door")
    assert "lost before it was released" in caplog.text
    with pytest.raises(ZeroDivisionError), make("door", timeout=30):
        client.delete("door")
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), make("door", timeout=30):
        raise KeyboardInterrupt
    assert not client.exists("door")
    client.set("door", "another holder")
    with pytest.raises(LockTimeout, match="door"), make("door", timeout=30, blocking_timeout=0.1):
        pass
    wait_until(lambda: not waiters(client))


def test_other_data_is_no_lock(each_client: Any) -> None:
    client = each_client
    client.rpush("door", "an item")
    for options in ({}, {"reentrant": True}):
        for blocking in (False, True):
            with pytest.raises(library.ResponseError, match="WRONGTYPE"):
                Lock(client, "door", timeout=30, **options).acquire(blocking=blocking)
    assert client.lrange("door", 0, -1) == [b"an item"]


# ---- waiting ---------------------------------------------------------------------------------------------------------


@EACH_LOOP
def test_waiter_is_granted_on_release(client: Any, make: Any, pulse: Pulse) -> None:
    holder, waiter = make("door", timeout=30), make("door", timeout=30, thread_local=False)

    def wait() -> float:
        waiter.acquire()
        return time.monotonic()

    late = []
    for _ in range(5):
        holder.acquire()
        with Threads() as pool:
            waiting = pool.submit(wait)
            wait_until(lambda: waiters(client))
            assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
            began = time.monotonic()
            holder.release()
            late.append(waiting.result(20) - began - pulse.late_since(began))
        waiter.release()
    assert min(late) < 0.05, late


def test_attempt_without_waiting_does_not_wait(client: Any, make: Any) -> None:
    client.set("door", "another holder")
    for arguments in ({"blocking": False}, {"blocking_timeout": 0}):
        assert make("door", timeout=30).acquire(**arguments) is False
        assert not waiters(client)
    assert not make("door", timeout=30, blocking=False).acquire()


def test_lock_without_lease_waits_and_has_none(client: Any, make: Any) -> None:
    holder, waiter = make("door"), make("door", thread_local=False)
    holder.acquire()
    with begin_wait(waiter, client, blocking_timeout=1e18) as taken:
        holder.release()
        assert taken.result(10)
    assert client.ttl("door") == -1
    with pytest.raises(LockError, match="timeout"):
        waiter.extend(1)
    waiter.release()


def test_waiters_are_granted_in_order(client: Any, make: Any) -> None:
    """The threads or tasks of a process have one queue entry."""
    holder, order, started = make("door", timeout=1e9, renew=True), list[int](), list[int]()
    holder.acquire()

    def take(number: int) -> None:
        lock = make("door", timeout=30)
        started.append(number)
        with lock:
            order.append(number)

    with Threads(20) as pool:
        for number in range(20):
            pool.submit(take, number)
            wait_until(lambda number=number: len(started) == number + 1)
            time.sleep(0.05)  # It sends its request.
        wait_until(lambda: waiters(client))
        assert len(waiters(client)) == 1
        holder.release()
    assert order == list(range(20))


def test_wait_ends_on_time_and_not_before(new_server: Any, engine: Any) -> None:
    """Whatever the time-outs of the client, and that of the server for idle clients; with and without the module."""
    servers = [new_server(True, "--timeout", "3"), new_server(False)]
    kinds: list[dict[str, Any]] = [{}, {"socket_timeout": None}, {"socket_timeout": 2}, {"protocol": 3}]

    def wait(own: Any, lease: float | None, seconds: float) -> float:
        began = time.monotonic()
        assert engine.lock(own, "door", timeout=lease).acquire(blocking_timeout=seconds) is False
        return time.monotonic() - began

    pulse, began = Pulse(servers[0]), time.monotonic()
    for server in servers:
        server.client().set("door", "another holder")
    clients = [engine.client(server, **kind) for server in servers for kind in kinds]
    with Threads(32) as pool:
        cases = [(own, lease, seconds) for own in clients for lease in (30, None) for seconds in (1, 17)]
        took = [*pool.map(lambda case: wait(*case), cases)]
    late = pulse.late_since(began)
    pulse.stop()
    for (*_, seconds), one in zip(cases, took, strict=True):
        assert seconds - 0.1 < one < seconds + 1.5 + late, (seconds, one, late)
    wait_until(lambda: not waiters(servers[0].client()))


# ---- holding --------------------------------------------------------------------------------------------------------


def test_fencing_tokens_rise(client: Any, make: Any) -> None:
    drawn = []
    for _ in range(3):
        with make("door", timeout=30) as lock:
            drawn.append(lock.fence())
    assert drawn == sorted(set(drawn)) and client.exists("{door}:fence")
    with make("door", timeout=30) as lock:
        assert lock.fence("{door}:own") and client.exists("{door}:own")


def test_readers_exclude_a_writer(make: Any) -> None:
    one, other, writer = (make("door", timeout=30, shared=shared) for shared in (True, True, False))
    with one, other:
        assert one.owned() and other.owned()
        assert not writer.acquire(blocking=False)
    with writer:
        assert not one.acquire(blocking=False)


def test_reentrant_lock_counts_its_holds(one_server: Server, engine: Any) -> None:
    """Also when it was lost: then each release is an error, and inside of its block it is not acquired again."""
    client = one_server.client()
    lock, other = (engine.lock(one_server, "door", timeout=30, reentrant=True) for _ in range(2))
    with lock:
        with lock:
            assert client.hgetall("door") == {lock.local.token: b"2"}
            assert not other.acquire(blocking=False)
        assert client.hgetall("door") == {lock.local.token: b"1"}
    assert not client.exists("door")
    with pytest.raises(LockError):
        lock.release()
    with pytest.raises(LockNotOwnedError), lock:
        client.delete("door")
        with lock:
            pytest.fail("it was acquired inside of a block that had lost it")
    for _ in range(3):
        lock.acquire()
    client.delete("door")
    for _ in range(3):
        with pytest.raises(LockNotOwnedError):
            lock.release()
    with lock, lock:
        assert client.hgetall("door") == {lock.local.token: b"2"}
    assert not client.exists("door")


def test_lock_object_is_shared_by_callers(one_server: Server, engine: Any) -> None:
    """Each holds for itself."""
    lock = engine.lock(one_server, "door", timeout=30, blocking_timeout=90)
    assert len(take_turns(lambda _: lock, 10, 5)) == 50 and not one_server.client().exists("door")


@pytest.mark.parametrize("options", [{"reentrant": True}, {}], ids=["re-entrant", "mutex"])
def test_other_caller_does_not_release_or_enter(make: Any, options: dict[str, Any]) -> None:
    lock = make("door", timeout=30, **options)
    with lock, Threads() as pool:
        assert pool.submit(lock.acquire, blocking=False).result() is False
        assert pool.submit(lock.owned).result() is False
        with pytest.raises(LockError):
            pool.submit(lock.release).result()
    anyones = make("door", timeout=30, thread_local=False, **options)
    anyones.acquire()
    with Threads() as pool:
        assert pool.submit(anyones.owned).result()
        pool.submit(anyones.release).result()
    assert anyones.acquire(blocking=False)


def test_semaphore_object_is_shared_by_callers(client: Any, make: Any) -> None:
    """It has as many holds as it was granted, also in one thread."""
    permits, inside, most = make("door", timeout=30, limit=3, blocking_timeout=60), set[int](), 0

    def take(number: int) -> None:
        nonlocal most
        for _ in range(5):
            with permits:
                inside.add(number)
                most = max(most, len(inside))
                time.sleep(0.002)
                inside.remove(number)

    with Threads(10) as pool:
        list(pool.map(take, range(10)))
    assert 2 <= most <= 3 and not client.exists("door")
    with permits, permits, permits:
        assert client.zcard("door") == 3
        assert not permits.acquire(blocking=False)
    assert not client.exists("door")


def test_expired_holder_takes_nothing_from_the_next(client: Any, make: Any) -> None:
    """Both by one lock object: the lease of the first caller has expired when it releases."""
    lock = make("door", timeout=3, blocking_timeout=30)
    lock.acquire()
    lock.extend(0.1, replace_ttl=True)
    with Threads() as pool:
        assert pool.submit(lock.acquire).result(10) and pool.submit(lock.extend, 60).result(10)
        with pytest.raises(LockNotOwnedError):
            lock.release()
        assert info(client)[b"state"] == b"mutex"
        assert pool.submit(lock.owned).result(10)
        pool.submit(lock.release).result(10)
    assert not client.exists("door")


def test_lost_lock_is_acquired_again_by_its_object(client: Any, make: Any) -> None:
    lock = make("door", timeout=30, watch=True)
    for _ in range(5):
        assert lock.acquire()
        client.delete("door")
        assert lock.acquire(blocking_timeout=5)
        watched(client)
        assert not lock.lost.is_set() and lock.owned()
        lock.release()


# ---- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [False, True])
def test_token_hands_a_lock_over(client: Any, make: Any, as_text: bool) -> None:
    first, other = make("door", timeout=2, renew=True), make("door", timeout=30)
    first.acquire()
    token = first.local.token
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


def test_given_token_is_used_once(client: Any, make: Any) -> None:
    lock, waiter = make("door", timeout=30), make("door", timeout=30, thread_local=False)
    assert lock.acquire(token="my token") and client.get("door") == b"my token"
    with pytest.raises(LockError, match="this token already"):
        make("door", timeout=30).acquire(token="my token")
    assert lock.owned()
    with begin_wait(waiter, client, token=b"another-token", blocking_timeout=30) as taken:
        with pytest.raises(LockError, match="this token already"):
            make("door", timeout=30).acquire(token="another-token", blocking=False)
        lock.release()
        assert taken.result(10)
    assert client.get("door") == b"another-token"
    waiter.release()
    assert waiter.acquire(token="with a space", blocking_timeout=5)  # Its waits poll.
    waiter.release()


# ---- loss ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_reported_within_50_ms(client: Any, make: Any, pulse: Pulse, kind: str) -> None:
    reported: list[float] = []
    late: dict[tuple[int, str], float] = {}
    lock = make("door", timeout=30, on_lost=lambda: reported.append(time.monotonic()), **KINDS[kind])
    for turn, way in enumerate(losses(kind)):
        assert lock.acquire(blocking=False)
        watched(client)
        known = take_away(client, way, lock.local.token)
        assert lock.lost.wait(5)
        wait_until(lambda: reported)
        late[turn, way] = reported.pop() - known - pulse.late_since(known)
        # By the local clock, which counts from before the request, a lease ends a moment earlier.
        wait_until(lambda way=way: way != "a shorter lease" or not client.exists("door"))
        with pytest.raises(LockNotOwnedError):
            lock.release()
        client.delete("door")
    assert not reported, "each is reported once"
    assert_reported_at_once(late)


@pytest.mark.parametrize("how", ["read", "watch", "unread"])
def test_end_of_lease_is_a_loss(client: Any, make: Any, how: str) -> None:
    lock = make("door", timeout=0.5, watch=how == "watch")
    lock.acquire()
    if how == "read":
        assert lock.lost.wait(10)
    wait_until(lambda: not client.exists("door"))
    if how == "unread":
        assert lock.lost.is_set(), "also if it is read for the first time afterwards"
    wait_until(lambda: lock.lost.is_set(), 5)


def test_slow_callback_delays_no_other(client: Any) -> None:
    ended, calls = threading.Event(), list[str]()

    def slow() -> None:
        calls.append("slow")
        ended.wait(60)

    first = Lock(client, "door", timeout=30, on_lost=slow)
    second = Lock(client, "window", timeout=30, on_lost=lambda: calls.append("second"))
    renewed = Lock(client, "gate", timeout=3, renew=True)
    for lock in (first, second, renewed):
        lock.acquire()
    watched(client)
    client.delete("door")
    wait_until(lambda: calls == ["slow"])
    client.delete("window")
    wait_until(lambda: calls == ["slow", "second"])
    assert not renewed.lost.wait(3.5) and renewed.owned()
    ended.set()
    renewed.release()


@pytest.mark.parametrize("error", [SystemExit, ZeroDivisionError])
def test_callback_that_raises_ends_nothing_else(client: Any, caplog: Any, error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    lock = Lock(client, "window", timeout=0.2, on_lost=fail)
    lock.acquire()
    with Lock(client, "door", timeout=2, renew=True) as renewed:
        assert lock.lost.wait(5)
        assert not renewed.lost.wait(2.5) and renewed.owned()
    assert "on_lost has failed" in caplog.text


# ---- what remains ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [*KINDS, "its thread has ended"])
def test_held_lock_that_is_collected_is_released(client: Any, way: str) -> None:
    lock = Lock(client, "door", timeout=30, **KINDS.get(way, {}))
    with pytest.warns(ResourceWarning, match="door"):
        if way in KINDS:
            lock.acquire()
            del lock
        else:
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join()
            del thread
        gc.collect()
        wait_until(lambda: not client.exists("door"))


def test_debug_log_has_label_and_position(client: Any, make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redis_lock_client")
    with make("door", timeout=30, label="first") as holder:
        assert holder.local.token.startswith(b"first:")
        with begin_wait(make("door", timeout=30, label="second"), client, blocking_timeout=1.5) as waiting:
            assert waiters(client)[0][b"token"].startswith(b"second:")
            assert waiting.result(20) is False
    assert "'second' waits for lock b'door' at position 1; held by 'first'" in caplog.text
    assert "'second' did not get lock 'door' after 1.5" in caplog.text
    assert "'first' got lock 'door' after" in caplog.text and "'first' released lock 'door'" in caplog.text


def test_thread_has_a_name_and_ends(server: Server) -> None:
    """When it has nothing to do; the connection stays."""

    def is_running() -> bool:
        return any(str(server.port) in thread.name for thread in own_threads())

    with Lock(server.client(), "door", timeout=3600, renew=True):
        wait_until(is_running)
    wait_until(lambda: not is_running())


@pytest.mark.parametrize("options", [{"decode_responses": True}, {"protocol": 3}, {"unix": True}, {"db": 2}], ids=str)
def test_clients_of_every_kind(server: Server, engine: Any, options: dict[str, Any]) -> None:
    if "unix" in options:
        options = {"unix_socket_path": str(server.folder / "s")}
    plain, own = server.client(**options), engine.client(server, **options)
    plain.set("door", "another holder")
    assert not engine.lock(own, "door", timeout=30, blocking_timeout=0.2).acquire()
    plain.delete("door")
    with engine.lock(own, "door", timeout=30) as lock:
        assert lock.owned() and not lock.lost.is_set()
