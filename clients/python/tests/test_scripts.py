"""The same locks on a server without the module, which may appear and vanish while the program runs."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from servers import DURABLE, MODULE, Server, begin_wait, kill_connections, library, waiters
from waits import Threads, take_turns, wait_until

from redis_lock_client import Lock, ModuleNeededError, scripts
from redis_lock_client.request import Request


@pytest.fixture
def plain(new_server: Any) -> Server:
    """A server without the module."""
    server: Server = new_server(False)
    return server


@pytest.mark.parametrize("write", [["HSET", "door", "owner", 1], ["ZADD", "door", 1, "holder"]], ids=["hash", "zset"])
def test_locks_of_other_kinds_exclude_it(plain: Server, write: list[Any]) -> None:
    client = plain.client()
    client.execute_command(*write)
    assert not Lock(client, "door", timeout=30).acquire(blocking=False)
    assert client.exists("door")


def test_renewal_without_module(plain: Server) -> None:
    client = plain.client()
    with Lock(client, "door", timeout=1, renew=True, raise_on_release_error=False) as lock:
        assert not lock.lost.wait(2) and lock.owned()
        client.set("door", "another holder")
        assert lock.lost.wait(2), "the next renewal finds it out, or the change is reported"
    assert client.get("door") == b"another holder"


NEEDED = [({"session": True}, "session"), ({"shared": True}, "LOCK.SHARE"), ({"limit": 2}, "LOCK.SHARE")]


@pytest.mark.parametrize("options, feature", NEEDED, ids=str)
@pytest.mark.parametrize("blocking", [True, False])
def test_error_names_what_needs_the_module(
    plain: Server, engine: Any, options: Any, feature: str, blocking: bool
) -> None:
    lock = engine.lock(plain, "door", timeout=30, **options)
    with pytest.raises(ModuleNeededError, match=f"{feature} needs the server module redis-lock.*door") as raised:
        lock.acquire(blocking=blocking, blocking_timeout=1)
    assert raised.value.lock_name == "door"
    with engine.lock(plain, "door", timeout=30) as lock, pytest.raises(ModuleNeededError, match=r"LOCK\.FENCE.*door"):
        lock.fence()


def test_fleet_with_the_librarys_lock(one_server: Server) -> None:
    """Some programs use redis-py's Lock, some this one with the module or by scripts, on the same key."""
    client = one_server.client()
    kinds: list[Any] = [partial(client.lock, sleep=0.01), partial(Lock, client)]
    assert len(take_turns(lambda number: kinds[number % 2]("door", timeout=30), 6, 5)) == 30
    assert not client.exists("door")


def unloaded(client: Any) -> bool:
    """Unloads the module. It cannot be while a connection has sent one of its commands last."""
    kill_connections(client)
    try:
        return bool(client.execute_command("MODULE", "UNLOAD", "lock"))
    except library.ResponseError:
        return False


def test_module_appears_and_vanishes_during_waits(plain: Server) -> None:
    client = plain.client()
    lock, waiter = Lock(client, "door", timeout=60), Lock(client, "door", timeout=60, thread_local=False)
    lock.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire, blocking_timeout=60)
        wait_until(lambda: waiter.native is False)
        client.execute_command("MODULE", "LOAD", MODULE)
        wait_until(lambda: waiters(client), 20)
        lock.release()
        assert taken.result(20)
    assert waiter.native is True
    waiter.release()

    lock.acquire()
    with begin_wait(waiter, client, blocking_timeout=60) as taken:
        wait_until(lambda: unloaded(client), 20)
        wait_until(lambda: waiter.native is False)
        lock.release()
        assert taken.result(10)
    waiter.release()
    assert not client.exists("door")


def test_server_comes_back_without_the_module(new_server: Any) -> None:
    server = new_server(True, *DURABLE)
    held = Lock(server.client(), "window", timeout=60, renew=True)
    again = Lock(server.client(), "cellar", timeout=60, reentrant=True)
    shares = [Lock(server.client(), "attic", timeout=60, shared=True) for _ in range(2)]
    for lock in (held, again, *shares):
        lock.acquire()
    server.client().set("door", "another holder")
    waiter = Lock(server.client(), "door", timeout=30, thread_local=False)
    with Threads() as pool:
        taken = pool.submit(waiter.acquire, blocking_timeout=60)
        wait_until(lambda: waiters(server.client()))
        server.stop()
        server.module = False
        server.start()
        client = server.client()
        client.delete("door")
        assert taken.result(20)
    assert held.owned() and held.native is False and not held.lost.is_set()
    again.acquire()
    assert client.hgetall("cellar") == {again.local.token: b"2"}
    with pytest.raises(ModuleNeededError):
        shares[0].extend(1)
    for number, lock in enumerate((*shares, again, again, held, waiter)):
        lock.release()
        assert client.zcard("attic") == (number == 0)
    assert not client.exists("door", "window", "cellar", "attic")


# ---- replies ---------------------------------------------------------------------------------------------------------

NATIVE, SCRIPTS = b"native", b"scripts"


def random_step(chance: random.Random) -> tuple[Any, Any]:
    """Returns what sends the same request as a command and as a script."""
    hold, lease_ms, add = chance.choice([None, 1, 1, 2, 3]), chance.choice([10_000, 30_000]), chance.random() < 0.3
    steps: list[tuple[Any, Any]] = [
        (lambda one: one.acquire(hold or 1), lambda one: scripts.take(one, hold or 1)),
        (lambda one: one.release(hold), lambda one: scripts.release(one, hold)),
        (lambda one: one.extend(lease_ms, add), lambda one: scripts.extend(one, lease_ms, add)),
    ]
    return chance.choices(steps, [5, 3, 2])[0]


def external_write(chance: random.Random) -> list[Any]:
    """Returns a command of another program: locks of other kinds, what ends them, and other data."""
    writes: list[list[Any]] = [
        ["DEL", "KEY"],
        ["SET", "KEY", "alice", "PX", 30_000],
        ["HSET", "KEY", "bob", 2],
        ["HSET", "KEY", "alice", "02"],
        ["HSET", "KEY", "alice", "many"],
        ["RPUSH", "KEY", "an item"],
        ["LOCK.SHARE", "KEY", "carol", "PX", 30_000],
        ["LOCK.SHARE", "KEY", "dave"],
    ]
    return chance.choice(writes)


def reply_to(client: Any, words: list[Any]) -> object:
    try:
        if words[0] == "EVALSHA":
            words = ["EVAL", scripts.TEXTS[words[1]], *words[2:]]
        return client.execute_command(*words)
    except library.ResponseError as error:
        return code_of(str(error))


def code_of(text: str) -> str:
    """Returns the code of an error, which servers before Redis 7 write into a text of their own."""
    return next((word for word in text.split() if word.isupper() and word != "ERR"), "ERR")


def state(client: Any, key: bytes) -> tuple[object, ...]:
    kind = client.type(key)
    read = {b"string": "GET", b"hash": "HGETALL", b"zset": "ZRANGE"}.get(kind)
    arguments = (0, -1) if read == "ZRANGE" else ()
    return kind, client.execute_command(read, key, *arguments) if read else None


@pytest.mark.parametrize("seed", range(3))
def test_scripts_reply_as_the_commands_do(client: Any, seed: int) -> None:
    """On the same history of requests and external writes, and with the same state afterwards."""
    chance, met = random.Random(seed), set[str]()
    for _ in range(500):
        if chance.random() < 0.15:
            write = external_write(chance)
            for key in (NATIVE, SCRIPTS):
                reply_to(client, [key if word == "KEY" else word for word in write])
        request = Request(
            b"",
            chance.choice([b"alice", b"bob"]),
            lease_ms=chance.choice([None, 20_000, 40_000]),
            reentrant=chance.random() < 0.6,
        )
        command, script = random_step(chance)
        one = reply_to(client, command(replace(request, key=NATIVE)))
        other = reply_to(client, script(replace(request, key=SCRIPTS)))
        if isinstance(one, int) and isinstance(other, int) and one > 1000:
            assert abs(one - other) < 2000
        else:
            assert one == other, (command(request), script(request))
        met.add(str(one)[:9])
        assert state(client, NATIVE) == state(client, SCRIPTS)
        assert abs(client.pttl(NATIVE) - client.pttl(SCRIPTS)) < 2000
    assert {"1", "0", "2", "NOTHELD", "NOTOWNER", "WRONGTYPE", "HOLDMISMA", "NOLEASE", "None"} <= met, met


@pytest.mark.parametrize("lease_ms", [0, -1, 2**60])
def test_impossible_lease_is_an_error(client: Any, lease_ms: int) -> None:
    """Before anything is written: PEXPIRE would delete the lock."""
    request = Request(b"door", b"alice", lease_ms=lease_ms)
    assert reply_to(client, scripts.take(request, 1)) in ("ERR", None) or not lease_ms
    client.delete("door")
    client.set("door", "alice", px=30_000)
    assert reply_to(client, scripts.extend(request, lease_ms, False)) == "ERR"
    assert client.get("door") == b"alice" and client.pttl("door") > 20_000
