"""Users with few rights: what they may not ask is found out in another way, or told in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Server, Threads, connections_of, library, until, wait_until, waiters, watched

from redis_lock_client import Lock, LockNotOwnedError
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._async import client as tasks_client
from redis_lock_client._async import listener as tasks_listener
from redis_lock_client._sync import acquisition, listener
from redis_lock_client._sync.client import Client

#: Those that docs/security.md gives to an application.
OWN = [f"+lock.{name}" for name in ("acquire", "reenter", "share", "release", "extend")]


#: Those that clients/python/README.md names for waits by messages, and for losses that are told at once.
MORE = (
    "&{redis-lock}:* &__redis__:invalidate +ssubscribe +subscribe +client|id +client|tracking +lock.info +zscore +time"
)


def user(client: Any, *rules: str) -> dict[str, str]:
    """A new user; by what its clients say who they are."""
    client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", *rules)
    return {"username": "worker", "password": "secret"}


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"reentrant": True}], ids=["mutex", "share", "re-entrant"])
def test_a_sessions_lock_is_lost_at_which_nobody_may_look(server: Server, client: Any, options: dict[str, Any]) -> None:
    own = server.client(**user(client, "~door", *OWN))
    lock = Lock(own, "door", timeout=1, session=True, **options)
    lock.acquire()
    assert not lock.lost.wait(1.5), "it is held"
    client.delete("door")
    assert Lock(client, "door", timeout=60).acquire(blocking=False)
    assert lock.lost.wait(2)
    with pytest.raises(LockNotOwnedError):
        lock.release()


@pytest.mark.parametrize("options", [{}, {"session": True}, {"shared": True}], ids=["mutex", "session", "share"])
def test_the_rights_for_news(server: Server, client: Any, options: dict[str, Any]) -> None:
    own = server.client(**user(client, "~door", *OWN, *MORE.split()))
    client.set("door", "somebody else")
    lock = Lock(own, "door", timeout=60, blocking_timeout=20, thread_local=False, **options)
    with Threads() as pool:
        taken = pool.submit(lock.acquire)
        wait_until(lambda: waiters(client))
        assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
        client.delete("door")
        assert taken.result(5)
    assert not lock.lost.is_set() and lock.owned()
    watched(client)
    client.delete("door")
    assert lock.lost.wait(2)


def test_a_right_that_is_given_later(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then whoever waits blocks a connection of the package's own."""
    for module in (listener, acquisition):
        monkeypatch.setattr(module, "REFUSED_S", 0.5)
    own = server.client(**user(client, "~*", "+@all", "resetchannels"))
    client.set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(own, "door", timeout=60, thread_local=False).acquire, blocking_timeout=20)
        wait_until(lambda: waiters(client))
        assert waiters(client)[0][b"channel"] is None
        client.execute_command("ACL", "SETUSER", "worker", "allchannels")
        wait_until(lambda: any(waiter[b"channel"] is not None for waiter in waiters(client)))
        client.delete("door")
        assert taken.result(5)


def test_a_right_that_is_taken_away(server: Server, client: Any) -> None:
    """The server ends the session with its connection. That others' locks are held is no sign that this one is."""
    own = server.client(**user(client, "~*", "&*", "+@all"))
    door = Lock(own, "door", timeout=1, session=True)
    window = Lock(own, "window", timeout=1, session=True)
    assert door.acquire() and window.acquire()
    lost = door.lost
    user(client, "~window", "&*", "+@all")
    client.execute_command("CLIENT", "KILL", "USER", "worker")
    assert Lock(client, "door", timeout=60).acquire(blocking_timeout=5)
    again = Lock(own, "window", timeout=1, session=True)
    assert again.acquire(blocking_timeout=5)
    assert lost.wait(5)
    assert again.owned() and not again.lost.is_set()


async def test_a_user_without_the_right_to_ping(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal is an answer, too: the listener goes on, and whoever waits is told."""
    monkeypatch.setattr(tasks_listener, "SILENCE_S", 0.1)
    aclient = server.client_asyncio(**user(client, "~*", "&*", "+@all", "-ping"))
    client.set("window", "somebody else")
    waiting = asyncio.create_task(for_tasks.Lock(aclient, "window", timeout=60).acquire())
    async with for_tasks.Lock(aclient, "door", timeout=60, raise_on_release_error=False) as lock:
        assert not lock.lost.is_set()
        await until(lambda: waiters(client, "window"))
        await asyncio.sleep(1)
        (node,) = tasks_client.Client.of(aclient)._nodes.values()
        assert node.listener.listens and not node.listener.refused
        client.delete("door", "window")
        await asyncio.wait_for(lock.lost.wait(), 2)
        assert await asyncio.wait_for(waiting, 2)
    await aclient.aclose()


def test_connections_that_cannot_be_opened_are_not_kept(server: Server, client: Any) -> None:
    own = server.client(db=1, client_name="refused", **user(client, "~*", "&*", "+@all", "-select"))
    for _ in range(5):
        with pytest.raises(library.ResponseError):
            Lock(own, "door", timeout=30).locked()
    (node,) = Client.of(own)._nodes.values()
    assert not node.connections._unanswered
    wait_until(lambda: connections_of(client, "refused") == 0)
