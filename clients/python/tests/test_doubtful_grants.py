"""Grants that may be over when they are heard of, and tokens that others have, too: there is one holder."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import pytest
from conftest import Server, Threads, library, until, wait_until, waiters
from proxies import proxy

from redis_lock_client import Lock, compat
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._async import acquisition as tasks_acquisition
from redis_lock_client._sync import acquisition

#: How soon a wait is asked for again here.
SILENCE_S = 1.5
#: Forms of locks of which there is one at a time for each token.
KINDS: list[dict[str, Any]] = [{}, {"reentrant": True}, {"shared": True}, {"limit": 1}]


def over_to_another(client: Any) -> None:
    """The waiter is granted the lock, of which it does not hear; when its lease is over another takes the lock."""
    client.delete("door")
    wait_until(lambda: client.exists("door"))
    wait_until(lambda: client.set("door", "another", px=60_000, nx=True))


def test_news_of_a_grant_before(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "SILENCE_S", SILENCE_S)
    client.set("door", "first")
    with proxy(server.port) as way, Threads() as pool:
        way.late = b"granted"
        taken = pool.submit(Lock(server.client(port=way.port), "door", timeout=0.5).acquire, blocking_timeout=4)
        wait_until(lambda: waiters(client))
        over_to_another(client)
        wait_until(lambda: waiters(client))
        way.deliver.set()
        assert taken.result(10) is False


async def test_news_of_a_grant_before_for_a_task(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_acquisition, "SILENCE_S", SILENCE_S)
    client.set("door", "first")
    with proxy(server.port) as way:
        way.late = b"granted"
        own = server.client_asyncio(port=way.port)
        taken = asyncio.create_task(for_tasks.Lock(own, "door", timeout=0.5).acquire(blocking_timeout=4))
        await until(lambda: waiters(client))
        await asyncio.to_thread(over_to_another, client)
        await until(lambda: waiters(client))
        way.deliver.set()
        assert await taken is False
        await own.aclose()


def test_an_answer_of_a_slice_that_comes_late(server: Server, client: Any) -> None:
    client.set("door", "first")
    with proxy(server.port) as way, Threads() as pool:
        lock = Lock(server.client(port=way.port), "door", timeout=0.5)
        taken = pool.submit(lock.acquire, blocking_timeout=4, token="two words")
        wait_until(lambda: waiters(client))
        way.late = b":1\r\n"
        over_to_another(client)
        way.deliver.set()
        assert taken.result(10) is False


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_another_has(client: Any, kind: dict[str, Any]) -> None:
    one, another = (Lock(client, "door", timeout=30, thread_local=False, **kind) for _ in range(2))
    assert one.acquire(token="worker")
    assert not another.acquire(blocking=False, token="worker")
    assert not another.acquire(blocking_timeout=0.2, token="worker")
    assert one.owned(), "who gave up has not released it"
    with Threads() as pool:
        taken = pool.submit(another.acquire, token="worker")
        time.sleep(0.3)
        assert not taken.done()
        one.release()
        assert taken.result(5)
    another.release()


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_several_threads_give(client: Any, blocking: bool, kind: dict[str, Any]) -> None:
    for number in range(20):
        locks = [Lock(client, f"door{number}", timeout=30, thread_local=False, **kind) for _ in range(4)]
        with Threads(4) as pool:
            taken = [
                pool.submit(lock.acquire, blocking=blocking and index % 2 == 0, blocking_timeout=0.2, token="worker")
                for index, lock in enumerate(locks)
            ]
            assert sum(one.result(5) for one in taken) == 1


def test_an_attempt_that_is_given_up_takes_nothing_from_the_next(server: Server, client: Any) -> None:
    """By the same token."""
    with proxy(server.port) as way:
        own = server.client(port=way.port, socket_timeout=0.3)
        lock = Lock(own, "door", timeout=30)
        assert not lock.locked()
        way.late = b"LOCK.ACQUIRE"
        with pytest.raises(library.TimeoutError):
            lock.acquire(blocking=False, token="worker")
        wait_until(lambda: lock.acquire(blocking=False, token="worker"))
        assert not Lock(own, "door", timeout=30).acquire(blocking=False, token="worker"), "nor from one before"
        time.sleep(2)
        assert client.get("door") == b"worker"
        way.deliver.set()
        time.sleep(0.5)
        assert lock.owned()


def test_what_is_given_up_holds_up_nobody_else(new_server: Any) -> None:
    """Many give up requests by tokens of their own, while the server stands still; others are answered on time."""
    server = new_server()
    client, own = server.client(), server.client(socket_timeout=1)
    client.set("door", "somebody else")

    def wait(number: int) -> None:
        with pytest.raises((library.TimeoutError, library.ConnectionError)):
            Lock(own, f"door:{number}", timeout=60, reentrant=True).acquire(token=f"worker {number}")

    def attempt(number: int) -> float:
        began = time.monotonic()
        with pytest.raises((library.TimeoutError, library.ConnectionError)):
            Lock(own, f"window:{number}", timeout=60, reentrant=True).acquire(token="worker", blocking_timeout=0.5)
        return time.monotonic() - began

    Lock(own, "door", timeout=60).locked()
    with server.standing_still(), Threads() as pool:
        waits = [pool.submit(wait, number) for number in range(10)]
        assert all(one.exception(20) is None for one in waits)
        took = [attempt(number) for number in range(3)]
    assert max(took) < 5, took
    keys = [f"{name}:{number}" for name in ("door", "window") for number in range(10)]
    wait_until(lambda: not client.exists(*keys), 15)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_in_doubt_takes_nothing_from_the_next_hold(server: Server, client: Any, kind: dict[str, Any]) -> None:
    # Other clients may have such doubts, too.
    token = secrets.token_hex()
    with proxy(server.port) as way:
        lock = Lock(server.client(port=way.port, socket_timeout=0.3), "door", timeout=30, **kind)
        assert not lock.locked()
        way.late = b"door"
        with pytest.raises(library.TimeoutError):
            lock.acquire(blocking=False, token=token)
        wait_until(lambda: lock.acquire(blocking=False, token=token))
        lock.release()
        assert lock.acquire(blocking_timeout=5, token=token)
        time.sleep(2)
        way.deliver.set()
        time.sleep(1)
        assert lock.owned() and not lock.lost.is_set()
        lock.release()


async def test_who_waits_here_leaves_the_withdrawal_to_who_has_asked(aclient: Any, client: Any) -> None:
    client.set("door", "somebody else")
    tasks = []
    for _ in range(2):
        tasks.append(asyncio.create_task(for_tasks.Lock(aclient, "door", timeout=60).acquire(token="worker")))
        await until(lambda: waiters(client))
        await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not waiters(client))


def test_an_id_that_several_threads_have(client: Any) -> None:
    inside: list[int] = []

    def work(number: int) -> None:
        lock = compat.Lock(client, "door", expire=30, id="worker")
        while True:
            try:
                lock.acquire()
                break
            except compat.AlreadyAcquired:
                time.sleep(0.01)
        inside.append(number)
        time.sleep(0.05)
        assert inside == [number]
        inside.clear()
        lock.release()

    client.set("lock:door", "somebody else")
    with Threads() as pool:
        works = [pool.submit(work, number) for number in range(5)]
        wait_until(lambda: waiters(client, "lock:door"))
        client.delete("lock:door")
        for one in works:
            one.result(10)


def test_no_patience_is_one_attempt(client: Any) -> None:
    client.set("other", "somebody else")
    for _ in range(2):
        assert not Lock(client, "other", timeout=30).acquire(blocking_timeout=0.1)
        assert not Lock(client, "other", timeout=30).acquire(blocking_timeout=0)
        lock = Lock(client, "door", timeout=30)
        assert lock.acquire(blocking_timeout=0), "while it listens, too"
        lock.release()


async def test_no_patience_is_one_attempt_for_a_task(aclient: Any, client: Any) -> None:
    client.set("other", "somebody else")
    assert not await for_tasks.Lock(aclient, "other", timeout=30).acquire(blocking_timeout=0.1)
    lock = for_tasks.Lock(aclient, "door", timeout=30)
    assert await lock.acquire(blocking_timeout=0)
    await lock.release()
