"""The lock for tasks, on a server with the module."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from clusters import Cluster
from conftest import (
    KINDS,
    Pulse,
    Server,
    assert_told_at_once,
    kill_connections,
    library,
    library_asyncio,
    losses,
    take_away,
    until,
    waiters,
)
from outlasting import Outlasting

import redis_lock_client
from redis_lock_client import LockError, LockNotOwnedError
from redis_lock_client._async.acquisition import Acquisition
from redis_lock_client.asyncio import Lock
from redis_lock_client.scripts import taker

#: Ten thousand in all, by how the tasks wait.
CANCELLATIONS = {"by NOTIFY": 3_800, "in slices": 2_600, "without the module": 3_600}


async def test_it_is_taken_and_released(aclient: Any, client: Any) -> None:
    lock = aclient.lock("door", timeout=30, lock_class=Lock)
    assert await lock.acquire()
    assert client.get("door") == lock.local.token
    assert lock.native is True and await lock.owned() and await lock.locked()
    await lock.release()
    assert not await lock.owned() and not await lock.locked()
    with pytest.raises(library.exceptions.LockError):
        await lock.release()


async def test_a_waiter_is_granted_the_lock_when_it_is_released(aclient: Any, client: Any) -> None:
    holder, waiter = Lock(aclient, "door", timeout=30), Lock(aclient, "door", timeout=30)
    await holder.acquire()
    taken = asyncio.create_task(waiter.acquire())
    await until(lambda: waiters(client))
    assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
    await holder.release()
    assert await asyncio.wait_for(taken, 1)


async def test_clients_of_a_loop_have_one_place_in_line(server: Server, client: Any) -> None:
    client.set("door", "somebody else")
    order: list[int] = []
    clients = [server.client_asyncio() for _ in range(10)]

    async def hold_it(number: int) -> None:
        async with Lock(clients[number], "door", timeout=30):
            order.append(number)

    tasks = [asyncio.create_task(hold_it(number)) for number in range(10)]
    await until(lambda: waiters(client))
    assert len(waiters(client)) == 1
    client.delete("door")
    await asyncio.gather(*tasks)
    assert order == list(range(10))
    for one in clients:
        await one.aclose()


@pytest.mark.parametrize("lease", [30, None])
async def test_a_wait_ends_on_time(aclient: Any, client: Any, lease: float | None) -> None:
    client.set("door", "somebody else")
    began = time.monotonic()
    assert await Lock(aclient, "door", timeout=lease).acquire(blocking_timeout=2.5) is False
    assert 2.5 <= time.monotonic() - began < 3
    assert not waiters(client)


async def test_a_wait_outlasts_every_time_out(server: Server, new_server: Any, pulse: Pulse) -> None:
    outlasting = Outlasting(server, new_server)
    clients = outlasting.clients(library_asyncio, Server.client_asyncio, Cluster.client_asyncio)
    waits = outlasting.waits(clients)

    async def wait(kind: str, lease: float | None, how: str) -> float:
        lock = Lock(clients[kind], outlasting.key(), timeout=lease, blocking_timeout=20)
        began = time.monotonic()
        if how == "False":
            assert await lock.acquire() is False
        else:
            with pytest.raises(LockError):
                async with lock:
                    pass
        return time.monotonic() - began

    began = time.monotonic()
    took = await asyncio.gather(*(wait(*one) for one in waits))
    outlasting.assert_on_time(dict(zip(waits, took, strict=True)), pulse.late_since(began))
    for one in clients.values():
        await one.aclose()


async def test_a_thousand_tasks_over_one_client(aclient: Any, client: Any) -> None:
    inside: set[str] = set()
    fences: dict[str, list[int]] = {}
    most = 0

    async def hold_it(key: str) -> None:
        nonlocal most
        async with Lock(aclient, key, timeout=30, blocking_timeout=60) as lock:
            assert key not in inside
            inside.add(key)
            fences.setdefault(key, []).append(await lock.fence())
            most = max(most, len(waiters(client, key)))
            inside.remove(key)

    await asyncio.gather(*(hold_it(f"door:{n % 10}") for n in range(1000)))
    assert all(len(drawn) == 100 and drawn == sorted(drawn) for drawn in fences.values()) and len(fences) == 10
    assert most == 1, "a hundred tasks have one place in line"


async def test_the_order_is_kept(aclient: Any) -> None:
    order: list[int] = []

    async def hold_it(number: int) -> None:
        async with Lock(aclient, "door", timeout=30):
            order.append(number)

    async with Lock(aclient, "door", timeout=30):
        tasks = [asyncio.create_task(hold_it(number)) for number in range(50)]
        await asyncio.sleep(0.05)
    await asyncio.gather(*tasks)
    assert order == list(range(50))


@pytest.mark.parametrize("lease", [30, None])
async def test_a_task_that_is_cancelled_leaves_the_line(aclient: Any, client: Any, lease: float | None) -> None:
    client.set("door", "somebody else")
    task = asyncio.create_task(Lock(aclient, "door", timeout=lease).acquire())
    await until(lambda: waiters(client))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not waiters(client)


class Cancellations:
    """Cancels tasks at random moments, and counts those that are hit after a request of theirs was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chance: random.Random, holder: Callable[[bytes], Any]) -> None:
        self.hits = 0
        #: How often an exchange was under way, and how often the lock had been granted without the task's knowing.
        self.under_way = self.granted = 0
        self._chance = chance
        self._holder = holder
        self._asking: dict[object, tuple[Acquisition, asyncio.Task[Any]]] = {}
        self._sent: set[object] = set()
        connection = library_asyncio.connection.AbstractConnection
        self._run, self._send = Acquisition.run, connection.send_command
        monkeypatch.setattr(Acquisition, "run", lambda *words: self._watched(*words))
        monkeypatch.setattr(connection, "send_command", lambda *words, **kwargs: self._noted(*words, **kwargs))

    def later(self, cancel: Callable[[], object]) -> None:
        """After about as long as an exchange and a hold take: two milliseconds in the mean."""
        asyncio.get_running_loop().call_later(self._chance.expovariate(500), cancel)

    def _cancel(self, token: object) -> None:
        if token in self._asking:
            acquisition, task = self._asking[token]
            self.under_way += task.cancel() and acquisition._exchanges.under_way

    async def _noted(self, connection: Any, *words: Any, **kwargs: Any) -> None:
        token = taker(list(words))
        if token in self._asking and self._chance.random() < 0.1:
            asyncio.get_running_loop().call_soon(self._cancel, token)
        await self._send(connection, *words, **kwargs)
        if token in self._asking:
            self._sent.add(token)
            if self._chance.random() < 0.7:
                self.later(partial(self._cancel, token))

    async def _watched(self, acquisition: Acquisition, blocking: bool) -> bool:
        token, task = acquisition._request.token, asyncio.current_task()
        assert task is not None
        self._asking[token] = acquisition, task
        try:
            return await self._run(acquisition, blocking)
        except asyncio.CancelledError:
            if token in self._sent:
                self.hits += 1
                self.granted += self._holder(acquisition._request.key) == token
            raise
        finally:
            del self._asking[token]
            self._sent.discard(token)


@pytest.mark.parametrize(("how", "wanted"), CANCELLATIONS.items())
async def test_no_orphan_after_many_cancellations(
    new_server: Any, monkeypatch: pytest.MonkeyPatch, how: str, wanted: int
) -> None:
    """A task may be cancelled at any moment: before it asks, while it asks, and when it is granted the lock."""
    server = new_server(how != "without the module")
    client, chance = server.client(), random.Random(1)
    cancellations = Cancellations(monkeypatch, chance, client.get)
    # Only one task of each waits for a lock at the server.
    clients = [server.client_asyncio() for _ in range(4)]
    keys = [f"door:{number}" for number in range(10)]

    async def hold_it(number: int) -> None:
        lock = Lock(clients[number % 4], chance.choice(keys), timeout=None if how == "in slices" else 60)
        async with lock:
            await asyncio.sleep(chance.random() / 500)

    async def be_cancelled(number: int) -> None:
        while cancellations.hits < wanted:
            task = asyncio.create_task(hold_it(number))
            if chance.random() < 0.1:
                cancellations.later(task.cancel)
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            assert ended is None or isinstance(ended, asyncio.CancelledError), repr(ended)

    await asyncio.gather(*(be_cancelled(number) for number in range(40)))
    await until(lambda: not client.exists(*keys), 5)
    if server.module:
        await until(lambda: not any(waiters(client, key) for key in keys), 5)
    assert cancellations.hits >= wanted
    assert min(cancellations.under_way, cancellations.granted) > wanted / 20, "in the moments that matter most"
    for one in clients:
        await one.aclose()


async def test_a_release_that_is_cancelled_is_done(aclient: Any, client: Any) -> None:
    for turn in range(200):
        lock = Lock(aclient, "door", timeout=60)
        assert await lock.acquire(blocking_timeout=5), turn
        release = asyncio.create_task(lock.release())
        for _ in range(turn % 5):
            await asyncio.sleep(0)
        release.cancel()
        await asyncio.gather(release, return_exceptions=True)
        if lock.local.token is not None:
            await lock.release()
    await until(lambda: not client.exists("door"))


async def test_connections_that_are_cut_while_waiting(aclient: Any, client: Any) -> None:
    client.set("door", "somebody else")
    taken = asyncio.create_task(Lock(aclient, "door", timeout=30).acquire())
    for _ in range(5):
        await until(lambda: waiters(client))
        kill_connections(client)
    client.delete("door")
    assert await asyncio.wait_for(taken, 10)


async def test_connections_that_are_cut_while_holding(aclient: Any, client: Any) -> None:
    session, renewed = (Lock(aclient, key, timeout=30, session=key == "door", renew=True) for key in ("door", "window"))
    await session.acquire()
    await renewed.acquire()
    await until(lambda: client.info("clients").get("tracking_clients"))
    kill_connections(client)
    await asyncio.wait_for(session.lost.wait(), 2)
    assert await renewed.owned() and not renewed.lost.is_set()
    client.delete("window")
    await asyncio.wait_for(renewed.lost.wait(), 2)


async def test_a_server_that_restarts_while_tasks_wait_and_hold(new_server: Any) -> None:
    server: Server = new_server(True, "--appendonly", "yes", "--appendfsync", "always")
    client, aclient = server.client(), server.client_asyncio()
    client.set("door", "somebody else")
    held = Lock(aclient, "window", timeout=30)
    await held.acquire()
    assert not held.lost.is_set()
    taken = asyncio.create_task(Lock(aclient, "door", timeout=30, blocking_timeout=30).acquire())
    await until(lambda: waiters(client))
    await asyncio.to_thread(lambda: (server.stop(), server.start()))
    await until(lambda: waiters(client))
    client.delete("door")
    assert await asyncio.wait_for(taken, 10)
    assert not held.lost.is_set() and await held.owned()
    client.delete("window")
    await asyncio.wait_for(held.lost.wait(), 1)
    await aclient.aclose()


async def test_a_loss_is_told_to_a_coroutine(aclient: Any, client: Any) -> None:
    told = asyncio.Event()

    async def on_lost() -> None:
        await asyncio.sleep(0)
        told.set()
        raise LookupError("this is logged")

    lock = Lock(aclient, "door", timeout=30, on_lost=on_lost)
    await lock.acquire()
    client.delete("door")
    await asyncio.wait_for(told.wait(), 5)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_loss_is_told_at_once(aclient: Any, client: Any, pulse: Pulse, kind: str) -> None:
    told: list[float] = []
    late: dict[tuple[int, str], float] = {}
    lock = Lock(aclient, "door", timeout=30, on_lost=lambda: told.append(time.monotonic()), **KINDS[kind])
    for turn, way in enumerate(losses(kind)):
        assert await lock.acquire(blocking=False)
        await until(lambda: client.info("clients").get("tracking_clients"))
        await asyncio.sleep(0.02)
        known = take_away(client, way, lock.local.token)
        await asyncio.wait_for(lock.lost.wait(), 5)
        late[turn, way] = told.pop() - known - pulse.late_since(known)
        # By the own clock, which counts from before the request, a lease ends a moment earlier.
        await until(lambda way=way: way != "a shorter lease" or not client.exists("door"))
        with pytest.raises(LockNotOwnedError):
            await lock.release()
        client.delete("door")
    assert not told, "each is told once"
    assert_told_at_once(late)


@pytest.mark.parametrize("how", ["session", "renew"])
@pytest.mark.parametrize("kind", [{}, {"shared": True}])
async def test_a_lock_that_is_renewed(aclient: Any, client: Any, how: str, kind: dict[str, Any]) -> None:
    renewing: dict[str, Any] = {how: True, **kind}
    async with Lock(aclient, "door", timeout=1.5, **renewing) as lock:
        for _ in range(25):
            await asyncio.sleep(0.1)
            assert await lock.owned() and not lock.lost.is_set()
    assert not client.exists("door")


async def test_a_reentrant_lock_counts(aclient: Any, client: Any) -> None:
    lock = Lock(aclient, "door", timeout=30, reentrant=True)
    async with lock:
        async with lock:
            assert client.hgetall("door") == {lock.local.token: b"2"}
        assert client.hgetall("door") == {lock.local.token: b"1"}
    assert not client.exists("door")


async def test_a_lock_that_is_handed_over_by_its_token(aclient: Any, client: Any) -> None:
    first, other = Lock(aclient, "door", timeout=30, session=True), Lock(aclient, "door", timeout=30)
    await first.acquire()
    other.local.token, first.local.token = first.local.token, None
    assert await other.owned() and not await first.owned()
    assert await other.extend(30) and client.pttl("door") > 58_000
    await other.release()
    assert not client.exists("door")


async def test_readers_and_permits(aclient: Any) -> None:
    reader, permit = (partial(Lock, aclient, "door", timeout=30, **kind) for kind in ({"shared": True}, {"limit": 2}))
    async with reader(), reader():
        assert not await Lock(aclient, "door", timeout=30).acquire(blocking=False)
    async with permit(), permit():
        assert not await permit().acquire(blocking=False)


async def test_a_block_that_is_not_entered_in_time_raises(aclient: Any, client: Any) -> None:
    client.set("door", "somebody else")
    with pytest.raises(LockError):
        async with Lock(aclient, "door", timeout=30, blocking_timeout=0.1):
            pass


async def test_the_client_must_be_of_the_right_kind(aclient: Any, client: Any) -> None:
    with pytest.raises(TypeError):
        Lock(client, "door")
    with pytest.raises(TypeError):
        redis_lock_client.Lock(aclient, "door")
