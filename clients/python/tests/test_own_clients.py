"""Clients that execute commands in their own way are never bypassed: the lock polls by their ``execute_command``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from servers import CLIENT, Server, library, library_asyncio, own_connections
from waits import take_turns

from redis_lock_client import Lock, LockNotOwnedError, ModuleNeededError
from redis_lock_client import asyncio as for_tasks

Client: Any = getattr(library, CLIENT)


class Prefixing(Client):  # type: ignore[misc]
    """Adds a prefix to the keys of the commands that its program uses."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        name, *rest = words
        if name in ("SET", "GET", "DEL", "EXISTS", "PTTL", "ZSCORE"):
            rest[0] = self._prefixed(rest[0])
        elif name in ("EVALSHA", "EVAL"):
            count = int(rest[1])
            rest[2 : 2 + count] = [self._prefixed(key) for key in rest[2 : 2 + count]]
        elif name not in ("SCRIPT LOAD", "SCRIPT", "SCRIPT EXISTS"):
            raise AssertionError(f"no rule for {name}")
        return super().execute_command(name, *rest, **options)

    @staticmethod
    def _prefixed(key: Any) -> Any:
        return b"tenant:" + (key if isinstance(key, bytes) else key.encode())


@pytest.fixture
def prefixing(server: Server) -> Any:
    return Prefixing(port=server.port)


def test_prefixes_are_those_of_the_client(prefixing: Any, client: Any) -> None:
    lock, before = Lock(prefixing, "door", timeout=30), len(own_connections(client))
    with lock:
        assert client.keys() == [b"tenant:door"]
        assert lock.owned() and lock.locked() and lock.native is False
        assert lock.extend(10) and 39_000 < client.pttl("tenant:door") <= 40_000
        assert len(own_connections(client)) == before, "the package opens no connection"
    assert not client.keys()


def test_library_lock_is_excluded_on_the_same_client(prefixing: Any) -> None:
    theirs = library.lock.Lock(prefixing, "door", timeout=30)
    ours = Lock(prefixing, "door", timeout=30, blocking_timeout=90)
    with ours:
        assert not theirs.acquire(blocking=False)
    assert theirs.acquire(blocking=False)
    assert not ours.acquire(blocking=False) and not ours.acquire(blocking_timeout=0.2)
    theirs.release()
    assert len(take_turns(lambda number: (ours, theirs)[number % 5 == 0], 20)) == 20


def test_reentrant_and_renewed_locks_of_such_a_client(prefixing: Any, client: Any) -> None:
    again = Lock(prefixing, "door", timeout=30, reentrant=True)
    with again, again:
        assert client.hgetall("tenant:door") == {again.local.token: b"2"}
    with Lock(prefixing, "door", timeout=1, renew=True) as lock:
        assert not lock.lost.wait(2) and client.exists("tenant:door")
        client.delete("tenant:door")
        assert lock.lost.wait(2)
        lock.raise_on_release_error = False
    for options in ({"shared": True}, {"session": True}, {"limit": 1}):
        with pytest.raises(ModuleNeededError):
            Lock(prefixing, "door", timeout=30, **options).acquire()


def test_instrumented_client_sees_every_command(server: Server, client: Any) -> None:
    """As tracing libraries do: they replace the method of the object, or wrap that of the class."""
    own, seen, before = server.client(), list[str](), len(own_connections(client))
    execute = own.execute_command

    def traced(*words: Any, **options: Any) -> Any:
        seen.append(words[0])
        return execute(*words, **options)

    own.execute_command = traced
    with Lock(own, "door", timeout=30) as lock:
        assert client.get("door") == lock.local.token
    assert seen and set(seen) <= {"EVALSHA", "SCRIPT"} and len(own_connections(client)) == before


async def test_prefixes_of_an_asyncio_client(server: Server, client: Any) -> None:
    base: Any = getattr(library_asyncio, CLIENT)

    class AsyncPrefixing(base):  # type: ignore[misc]
        async def execute_command(self, *words: Any, **options: Any) -> Any:
            words = tuple(b"tenant:door" if word in (b"door", "door") else word for word in words)
            return await super().execute_command(*words, **options)

    own = AsyncPrefixing(port=server.port)
    theirs = library_asyncio.lock.Lock(own, "door", timeout=30)
    async with for_tasks.Lock(own, "door", timeout=30):
        assert client.keys() == [b"tenant:door"]
        assert not await theirs.acquire(blocking=False)
    assert await theirs.acquire(blocking=False)
    assert not await for_tasks.Lock(own, "door", timeout=30).acquire(blocking_timeout=0.1)
    await theirs.release()
    await own.aclose()


# ---- fakeredis -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fakeredis() -> Any:
    if library.__name__ != "redis":
        pytest.skip("fakeredis is for redis-py")
    return pytest.importorskip("fakeredis")


def test_fakeredis_in_threads(fakeredis: Any) -> None:
    """Two fake servers have nothing in common."""
    shared = fakeredis.FakeServer()
    client, other = fakeredis.FakeRedis(server=shared), fakeredis.FakeRedis(server=fakeredis.FakeServer())
    assert len(take_turns(lambda _: Lock(client, "door", timeout=30, blocking_timeout=90), 10)) == 10
    lock = client.lock("door", timeout=30, lock_class=Lock, raise_on_release_error=False)
    with lock, Lock(other, "door", timeout=30, blocking_timeout=0.1):
        assert client.get("door") == lock.local.token and lock.owned() and lock.reacquire()
        assert not fakeredis.FakeRedis(server=shared).lock("door", timeout=30).acquire(blocking=False)
        assert not Lock(client, "door", timeout=30).acquire(blocking_timeout=0.05)
        client.delete("door")
        with pytest.raises(LockNotOwnedError):
            lock.extend(1)
    again = Lock(client, "door", timeout=30, reentrant=True)
    with again, again:
        assert client.hgetall("door") == {again.local.token: b"2"}
    with Lock(client, "door", timeout=2, renew=True) as renewed:
        assert not renewed.lost.wait(2.5)


async def test_fakeredis_in_tasks(fakeredis: Any) -> None:
    client = fakeredis.FakeAsyncRedis()
    lock = client.lock("door", timeout=30, lock_class=for_tasks.Lock)
    async with lock:
        assert await client.get("door") == lock.local.token and await lock.owned()
        assert not await client.lock("door", timeout=30).acquire(blocking=False)
        task = asyncio.create_task(for_tasks.Lock(client, "door", timeout=30).acquire())
        await asyncio.sleep(0.05)
        task.cancel()
    assert not await client.exists("door")
    await client.aclose()
