"""The same locks on a server without the module, which may come and go while the program runs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from conftest import (
    MODULE,
    Server,
    Threads,
    Wire,
    each_hold_counts_once,
    kill_connections,
    library,
    until,
    wait_until,
    waiters,
)
from proxies import proxy

from redis_lock_client import Lock, LockError, LockNotOwnedError, ModuleNeededError
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._async import node as async_node
from redis_lock_client._sync import node


@pytest.fixture
def plain(new_server: Any) -> Server:
    server: Server = new_server(False)
    return server


def test_it_excludes(plain: Server) -> None:
    client = plain.client()
    lock, other = Lock(client, "door", timeout=30), Lock(client, "door", timeout=30)
    assert lock.acquire()
    assert lock.native is False and lock.owned() and lock.locked()
    assert client.get("door") == lock.local.token and 29_000 < client.pttl("door") <= 30_000
    began = time.monotonic()
    assert not other.acquire(blocking=False)
    assert not other.acquire(blocking_timeout=0.5)
    assert 0.5 <= time.monotonic() - began < 1
    lock.release()
    assert not client.exists("door") and not lock.owned()


def test_it_extends(plain: Server) -> None:
    client = plain.client()
    with Lock(client, "door", timeout=10) as lock:
        assert lock.extend(10) and 19_000 < client.pttl("door") <= 20_000
        assert lock.extend(5, replace_ttl=True) and 4_000 < client.pttl("door") <= 5_000
        assert lock.reacquire() and 9_000 < client.pttl("door") <= 10_000
        client.persist("door")
        with pytest.raises(LockError):
            lock.extend(10)


def test_it_is_lost(plain: Server) -> None:
    client = plain.client()
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    client.set("door", "somebody else")
    for lose in (lambda: lock.extend(1), lock.reacquire, lock.release):
        with pytest.raises(LockNotOwnedError):
            lose()
    assert client.get("door") == b"somebody else"


@pytest.mark.parametrize("write", [["HSET", "door", "owner", 1], ["ZADD", "door", 1, "holder"]])
def test_locks_of_other_kinds_exclude_it(plain: Server, write: list[Any]) -> None:
    client = plain.client()
    client.execute_command(*write)
    assert not Lock(client, "door", timeout=30).acquire(blocking=False)
    assert client.exists("door")


def test_it_leaves_other_data_alone(plain: Server) -> None:
    client = plain.client()
    client.rpush("door", "an item")
    for options in ({}, {"reentrant": True}):
        with pytest.raises(library.ResponseError, match="WRONGTYPE"):
            Lock(client, "door", timeout=30, **options).acquire(blocking=False)
    assert client.lrange("door", 0, -1) == [b"an item"]


def test_a_reentrant_lock_counts(plain: Server) -> None:
    client = plain.client()
    lock, other = (Lock(client, "door", timeout=30, reentrant=True) for _ in range(2))
    with lock:
        with lock:
            assert lock.native is False and lock.owned()
            assert client.hgetall("door") == {lock.local.token: b"2"} and 29_000 < client.pttl("door") <= 30_000
            assert not other.acquire(blocking=False) and not Lock(client, "door").acquire(blocking=False)
            assert lock.extend(10) and 39_000 < client.pttl("door") <= 40_000
        assert client.hgetall("door") == {lock.local.token: b"1"}
    assert not client.exists("door")
    with other:
        client.delete("door")
        with pytest.raises(LockNotOwnedError):
            other.acquire()
        other.raise_on_release_error = False


def test_what_is_sent_again_counts_once(plain: Server, wire: Wire) -> None:
    each_hold_counts_once(plain.client(), wire, take="EVAL", release="EVAL")


def test_it_is_renewed(plain: Server) -> None:
    client = plain.client()
    with Lock(client, "door", timeout=1, renew=True) as lock:
        time.sleep(1.5)
        assert lock.owned() and not lock.lost.is_set()
        client.delete("door")
        assert lock.lost.wait(1), "the next renewal says so"
        client.set("door", lock.local.token)


def test_threads_take_turns(plain: Server) -> None:
    client, order, inside = plain.client(), list[int](), set[int]()

    def hold_it(number: int) -> None:
        with Lock(client, "door", timeout=30, blocking_timeout=30):
            assert not inside
            inside.add(number)
            order.append(number)
            inside.remove(number)

    with Threads(50) as pool:
        for held in [pool.submit(hold_it, number) for number in range(50)]:
            held.result(30)
    assert len(order) == 50


def test_what_needs_the_module_says_so(plain: Server) -> None:
    client = plain.client()
    for options in ({"session": True}, {"shared": True}, {"limit": 2}):
        for blocking in (True, False):
            with pytest.raises(ModuleNeededError, match="needs the module"):
                Lock(client, "door", timeout=30, **options).acquire(blocking=blocking, blocking_timeout=1)
    with Lock(client, "door", timeout=30) as lock, pytest.raises(ModuleNeededError, match="FENCE"):
        lock.fence()


def test_the_module_appears_and_vanishes(plain: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SCRIPTS_S", 0.2)
    client = plain.client()
    lock, waiter = Lock(client, "door", timeout=30), Lock(client, "door", timeout=30)
    lock.acquire()
    with Threads() as pool:
        taken = pool.submit(waiter.acquire)
        time.sleep(0.3)
        client.execute_command("MODULE", "LOAD", MODULE)
        wait_until(lambda: waiters(client), 5)
        lock.release()
        assert taken.result(5)
    assert waiter.native is True
    client.flushall()

    lock.acquire()
    with Threads() as pool:
        wait_until(lambda: unloaded(client), 15)
        taken = pool.submit(waiter.acquire)
        time.sleep(0.3)
        lock.release()
        assert taken.result(5)
    assert waiter.native is False


def test_a_server_that_comes_back_without_the_module(new_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits asks also when it is time to ask for the module again; whoever holds is told by looks."""
    monkeypatch.setattr(node, "SCRIPTS_S", 0.5)
    server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    held = Lock(server.client(), "window", timeout=6)
    held.acquire()
    assert not held.lost.is_set()
    server.client().set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(server.client(), "door", timeout=30).acquire, blocking_timeout=20)
        wait_until(lambda: waiters(server.client()))
        server.stop()
        server.module = False
        server.start()
        client = server.client()
        client.expire("window", 60)
        time.sleep(1)
        assert held.native is False, "looks go on by scripts"
        client.delete("door", "window")
        assert taken.result(2)
        assert held.lost.wait(3)


@pytest.mark.parametrize("module", [True, False])
def test_others_who_hear_of_the_module_meanwhile(
    new_server: Any, monkeypatch: pytest.MonkeyPatch, module: bool
) -> None:
    """What a command has done does not depend on what another thread is told just then."""
    client, ask = new_server(module).client(), node.Node.ask

    def and_others_hear_the_contrary(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = ask(self, *args, **kwargs)
        self.native, self._scripts_until = not module, 0.0
        return answer

    monkeypatch.setattr(node.Node, "ask", and_others_hear_the_contrary)
    lock = Lock(client, "door", timeout=30, reentrant=True)
    with lock:
        assert client.exists("door") and lock.extend(10) and 39_000 < client.pttl("door") <= 40_000
        with lock:
            assert client.hgetall("door") == {lock.local.token: b"2"}
        assert not Lock(client, "door").acquire(blocking=False)
        assert not Lock(client, "door", timeout=30).acquire(blocking_timeout=0.2)
    assert not client.exists("door")


def test_what_is_held_when_the_module_vanishes(client: Any, server: Server) -> None:
    """A re-entrant lock is entered and left by scripts; a share can be left, and stays until its lease ends."""
    lock = Lock(client, "door", timeout=30, reentrant=True)
    share = Lock(client, "page", timeout=1, shared=True, renew=True)
    with lock, share:
        assert not share.lost.is_set()
        use_scripts(lock)
        with lock:
            assert lock.native is False and client.hgetall("door") == {lock.local.token: b"2"}
        with pytest.raises(ModuleNeededError, match="EXTEND"):
            share.extend(1)
    assert not client.exists("door", "page")


def test_both_kinds_exclude_each_other(client: Any, server: Server) -> None:
    """The program of a server that has just lost its module meets those that still use it."""
    scripts, native = Lock(server.client(), "door", timeout=30), Lock(client, "door", timeout=30)
    with native:
        use_scripts(scripts)
        assert not scripts.acquire(blocking_timeout=0.3) and scripts.native is False
    assert scripts.acquire(blocking_timeout=0.3)
    with Threads() as pool:
        taken = pool.submit(native.acquire)
        wait_until(lambda: waiters(client))
        released = time.monotonic()
        scripts.release()
        assert taken.result(5) and time.monotonic() - released < 1
        assert not scripts.acquire(blocking=False)


def unloaded(client: Any) -> bool:
    """Whether the module could be unloaded, which it is not while a connection has sent one of its commands last."""
    kill_connections(client)
    try:
        return bool(client.execute_command("MODULE", "UNLOAD", "lock"))
    except library.ResponseError:
        return False


def use_scripts(lock: Lock) -> None:
    """Makes a client believe that its server has no module."""
    lock.locked()
    lock._node._scripts_until = float("inf")
    lock._node.native = False


def test_redis_py_and_this_exclude_each_other(plain: Server) -> None:
    client = plain.client()
    theirs, ours = client.lock("door", timeout=30), Lock(client, "door", timeout=30)
    with ours:
        assert not theirs.acquire(blocking=False)
    with theirs:
        assert not ours.acquire(blocking=False)
        assert not ours.owned()


async def test_tasks(plain: Server) -> None:
    client = plain.client_asyncio()
    inside: set[int] = set()

    async def hold_it(number: int) -> None:
        async with for_tasks.Lock(client, "door", timeout=30, blocking_timeout=30) as lock:
            assert not inside and lock.native is False
            inside.add(number)
            await asyncio.sleep(0)
            inside.remove(number)

    await asyncio.gather(*(hold_it(number) for number in range(50)))
    holder = for_tasks.Lock(client, "door", timeout=30)
    async with holder:
        waiting = asyncio.create_task(for_tasks.Lock(client, "door", timeout=30).acquire())
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert not await holder.locked()
    with pytest.raises(library.exceptions.LockError):
        await holder.release()
    await client.aclose()


def test_a_lease_that_is_set_while_the_server_is_asked(new_server: Any) -> None:
    """What it has answered before that, and is heard after it, is of the lease before."""
    server = new_server(False)
    with proxy(server.port) as way:
        told = threading.Event()
        lock = Lock(server.client(port=way.port), "door", timeout=3, on_lost=told.set)
        lock.acquire()
        way.late = b"mutex\r\n"
        wait_until(lambda: way.late is None)
        lock.extend(30, replace_ttl=True)
        way.deliver.set()
        assert not told.wait(4)
        assert server.client().pttl("door") > 20_000 and lock.owned()


async def test_a_lease_that_is_set_right_before_a_renewal(plain: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has got the renewal later, and its answer is heard first."""
    aclient, client = plain.client_asyncio(), plain.client()
    lock = for_tasks.Lock(aclient, "door", timeout=3, renew=True)
    await lock.acquire()
    renewed, extend = asyncio.Event(), async_node.Node.extend

    async def answer_late(node: Any, request: Any, lease_ms: int, add: bool = False) -> int:
        left_ms = await extend(node, request, lease_ms, add)
        if lease_ms == 30_000:
            await asyncio.wait_for(renewed.wait(), 10)
        else:
            renewed.set()
        return left_ms

    monkeypatch.setattr(async_node.Node, "extend", answer_late)
    await lock.extend(30, replace_ttl=True)
    held = lock.local.held
    assert held is not None and client.pttl("door") < 5000
    await until(lambda: held.ends_at < time.monotonic() + 5 or client.pttl("door") > 20_000, 2)
    assert await lock.owned()
    await aclient.aclose()
