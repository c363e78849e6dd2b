"""Tokens and ids that callers choose: one of them may be for several locks, and used again and again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Server, Threads, library, looked_at, until, wait_until, waiters, watched
from interrupts import handled_by
from proxies import proxy

from redis_lock_client import Lock, LockNotOwnedError, compat
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._sync.client import Client
from redis_lock_client._sync.common import Lines
from redis_lock_client._sync.given import Given
from redis_lock_client.protocol import Request, info


def test_one_token_waits_for_two_locks(server: Server, client: Any) -> None:
    """News of one are not for who waits for the other."""
    client.mset({"door": "somebody else", "window": "somebody else"})
    own = server.client()
    with Threads() as pool:
        door, window = (
            pool.submit(Lock(own, key, timeout=30, blocking_timeout=20).acquire, token="worker")
            for key in ("door", "window")
        )
        wait_until(lambda: waiters(client, "door") and waiters(client, "window"))
        client.delete("door")
        assert door.result(5)
        assert client.mget("door", "window") == [b"worker", b"somebody else"] and not window.done()
        client.delete("window")
        assert window.result(5)


def test_one_token_in_two_clients(server: Server, client: Any) -> None:
    """Clients of one server know of each other, so both are not told that the lock is theirs."""
    client.set("door", "somebody else")
    ones = [Lock(server.client(), "door", timeout=30, blocking_timeout=1.5, thread_local=False) for _ in range(2)]
    with Threads() as pool:
        taken = [pool.submit(one.acquire, token="worker") for one in ones]
        wait_until(lambda: waiters(client))
        client.delete("door")
        assert sorted(one.result(10) for one in taken) == [False, True]
    assert client.get("door") == b"worker"


async def test_one_token_of_tasks_waits_for_two_locks(aclient: Any, client: Any) -> None:
    client.mset({"door": "somebody else", "window": "somebody else"})
    door, window = (
        asyncio.create_task(for_tasks.Lock(aclient, key, timeout=30).acquire(token="worker"))
        for key in ("door", "window")
    )
    await until(lambda: waiters(client, "door") and waiters(client, "window"))
    client.delete("door")
    assert await asyncio.wait_for(door, 5)
    assert client.mget("door", "window") == [b"worker", b"somebody else"] and not window.done()
    client.delete("window")
    assert await asyncio.wait_for(window, 5)


def by_lock(client: Any) -> Callable[[float], bool]:
    lock = Lock(client, "lock:door", timeout=30, thread_local=False)
    return lambda patience: lock.acquire(token="worker", blocking_timeout=patience)


def by_compat(client: Any) -> Callable[[float], bool]:
    lock = compat.Lock(client, "door", expire=30, id="worker")
    return lambda patience: lock.acquire(timeout=patience)


@pytest.mark.parametrize("attempts_of", [by_lock, by_compat])
def test_news_of_an_attempt_that_was_given_up(server: Server, client: Any, attempts_of: Any) -> None:
    """It was granted the lock as it gave up, and hears of that when the next one waits: for another holder by now."""
    key = "lock:door"
    client.set(key, "first")
    with proxy(server.port) as way, Threads() as pool:
        attempt = attempts_of(server.client(port=way.port))
        way.late = b"granted"
        given_up = pool.submit(attempt, 1)
        wait_until(lambda: waiters(client, key))
        client.delete(key)
        assert given_up.result(10) is False
        wait_until(lambda: client.set(key, "another", px=60_000, nx=True))
        next_one = pool.submit(attempt, 3)
        wait_until(lambda: waiters(client, key))
        way.deliver.set()
        assert next_one.result(10) is False
        assert client.get(key) == b"another"


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("asked", [b"LOCK.INFO", b"LOCK.ACQUIRE"])
async def test_an_attempt_is_cancelled(server: Server, client: Any, asked: bytes, blocking: bool) -> None:
    """Also while it sees that nobody has the lock by this token: then it does not go on to take it."""
    with proxy(server.port) as way:
        aclient = server.client_asyncio(port=way.port)
        way.late = asked
        asking = asyncio.create_task(
            for_tasks.Lock(aclient, "door", timeout=60).acquire(blocking=blocking, token="worker")
        )
        await until(lambda: way.late is None)
        asking.cancel()
        await asyncio.wait([asking])
        way.deliver.set()
        # Whoever takes it has asked after all that was under way.
        assert await for_tasks.Lock(aclient, "door", timeout=60, blocking_timeout=5).acquire(token="worker")
        assert client.get("door") == b"worker"
        assert asking.cancelled()
        await aclient.aclose()


async def test_no_patience_while_the_same_token_is_given_up(server: Server, client: Any) -> None:
    """The server answers, so it is not said to stand still."""
    client.set("door", "somebody else")
    with proxy(server.port) as way:
        aclient = server.client_asyncio(port=way.port)
        asking = asyncio.create_task(for_tasks.Lock(aclient, "door", timeout=60).acquire(token="worker"))
        await until(lambda: waiters(client))
        way.slow = (b"LOCK.RELEASE", 1)
        asking.cancel()
        await asyncio.wait([asking])
        assert await for_tasks.Lock(aclient, "door", timeout=60).acquire(token="worker", blocking_timeout=0.1) is False
        await aclient.aclose()


def test_who_gives_up_takes_no_news_from_the_next(server: Server, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has left the local queue, in which the next one with its token begins to wait before it has withdrawn."""
    client.set("door", "somebody else")
    own = server.client()
    leave, waits = Lines.leave, threading.Event()

    def leave_early(lines: Lines, line: object, turn: Any) -> None:
        leave(lines, line, turn)
        if threading.current_thread() is first and line != b"door":
            assert waits.wait(10)

    monkeypatch.setattr(Lines, "leave", leave_early)
    with Threads() as pool:
        lock = Lock(own, "door", timeout=60, thread_local=False)
        first = threading.Thread(target=lambda: lock.acquire(token="worker", blocking_timeout=0.5))
        first.start()
        wait_until(lambda: waiters(client))
        (node,) = Client.of(own)._nodes.values()
        (before,) = node.listener._waits.values()
        next_one = pool.submit(Lock(own, "door", timeout=60, blocking_timeout=20).acquire, token="worker")
        wait_until(lambda: any(wait is not before for wait in list(node.listener._waits.values())))
        waits.set()
        first.join()
        wait_until(lambda: waiters(client))
        client.delete("door")
        assert next_one.result(4)


def test_a_lock_whose_lease_has_ended_is_anothers(server: Server, client: Any) -> None:
    """By the same token, so that the server does not tell them apart."""
    own = server.client()
    former, latter = Lock(own, "door", timeout=0.3), Lock(own, "door", timeout=30)
    assert former.acquire(token="worker")
    wait_until(lambda: not client.exists("door"))
    assert latter.acquire(token="worker")
    assert not former.owned() and latter.owned()
    for use in (former.reacquire, former.release):
        with pytest.raises(LockNotOwnedError):
            use()
    assert client.pttl("door") > 10_000 and latter.owned()
    latter.release()
    assert not client.exists("door")


def test_holds_of_a_lock_that_is_anothers(server: Server, client: Any) -> None:
    own = server.client()
    former, latter = (Lock(own, "door", timeout=timeout, reentrant=True) for timeout in (0.3, 30))
    assert former.acquire(token="worker") and former.acquire()
    wait_until(lambda: not client.exists("door"))
    assert latter.acquire(token="worker") and latter.acquire()
    for use in (former.acquire, former.release, former.release):
        with pytest.raises(LockNotOwnedError):
            use()
    assert client.hgetall("door") == {b"worker": b"2"}
    latter.release()
    latter.release()
    assert not client.exists("door")


def test_a_release_that_is_under_way_keeps_nobody_waiting(client: Any) -> None:
    """Neither a try by the same token, which a signal handler may make, nor whoever has another one and comes later."""
    given = Client.of(client).given
    former = Request(key=b"door", token=b"worker", lease_ms=60_000, given=True)
    waiter, other = (Lock(client, "door", timeout=60, blocking_timeout=20, thread_local=False) for _ in range(2))
    with Threads() as pool:
        with given.giving_up(former):
            began = time.monotonic()
            assert waiter.acquire(blocking=False, token="worker") is False
            assert time.monotonic() - began < 1
            waiting = pool.submit(waiter.acquire, token="worker")
            time.sleep(0.3)
            assert other.acquire(blocking_timeout=2)
            other.release()
            assert not waiting.done()
        assert waiting.result(5)


@pytest.mark.parametrize("taken", [True, False])
async def test_a_request_that_is_late_beyond_the_next_holder(server: Server, client: Any, taken: bool) -> None:
    """Whoever has sent it was cancelled, and the next one by the same token has released the lock, or given up."""
    with proxy(server.port) as way:
        aclient = server.client_asyncio(port=way.port)
        way.late = b"LOCK.ACQUIRE"
        asking = asyncio.create_task(
            for_tasks.Lock(aclient, "door", timeout=3600).acquire(blocking=False, token="worker")
        )
        await until(lambda: way.late is None)
        asking.cancel()
        await asyncio.wait([asking])
        if not taken:
            client.set("door", "somebody else")
        next_one = for_tasks.Lock(aclient, "door", timeout=3600)
        assert await next_one.acquire(token="worker", blocking_timeout=0.5) is taken
        if taken:
            await next_one.release()
        client.delete("door")
        asked = calls(client, "lock.acquire")
        way.deliver.set()
        await until(lambda: calls(client, "lock.acquire") > asked)
        await until(lambda: not client.exists("door"))
        await aclient.aclose()


FORMS: list[dict[str, Any]] = [{}, {"shared": True}, {"reentrant": True}]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    ("first", "second"), [(one, another) for one in FORMS for another in FORMS if one is not another], ids=str
)
def test_one_token_in_two_forms(client: Any, first: dict[str, Any], second: dict[str, Any], blocking: bool) -> None:
    """Whoever fails to take the lock by it takes nothing from the holder."""
    holder, other = (Lock(client, "door", timeout=60, **form) for form in (first, second))
    assert holder.acquire(token="worker")
    assert not other.acquire(token="worker", blocking=blocking, blocking_timeout=0.3)
    assert holder.owned() and holder.extend(10)
    holder.release()
    assert not client.exists("door")


@pytest.mark.parametrize("options", [{}, {"renew": True}, {"session": True}], ids=["plain", "renewed", "session"])
def test_a_lost_lock_is_anothers_before_that_is_seen(client: Any, options: dict[str, Any]) -> None:
    """The server says by which token it is held, which may be another one's by now: that is not renewed."""
    lock = Lock(client, "door", timeout=60, **options)
    lost = lock.lost
    lock.acquire(token="worker")
    watched(client)
    # A server that has lost its keys, and granted the lock anew before it was asked about it, is in the same state.
    next_one = Request(key=b"door", token=b"worker", lease_ms=60_000, given=True)
    assert Client.of(client).given.begin(next_one)
    client.pexpire("door", 50_000)
    assert lost.wait(5)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert client.get("door") == b"worker"


def asks_for_it(heir: Lock) -> None:
    assert heir.owned()


def extends_it(heir: Lock) -> None:
    assert heir.extend(0.5, replace_ttl=True)


def draws_a_number(heir: Lock) -> None:
    assert heir.fence()


@pytest.mark.parametrize("learns", [asks_for_it, extends_it, draws_a_number])
@pytest.mark.parametrize("taken_by", ["one", "one that is gone", "another process"])
def test_a_lock_that_was_handed_over_is_anothers(client: Any, learns: Callable[[Lock], None], taken_by: str) -> None:
    """Its lease has ended, and another one has taken it since by the same token."""
    heir, next_one = (Lock(client, "door", timeout=timeout) for timeout in (0.5, 60))
    if taken_by == "another process":
        client.set("door", "worker", px=500)
    else:
        one = Lock(client, "door", timeout=0.5)
        assert one.acquire(token="worker")
        if taken_by == "one that is gone":
            del one
    heir.local.token = b"worker"
    learns(heir)
    wait_until(lambda: not client.exists("door"))
    assert next_one.acquire(token="worker")
    assert not heir.owned()
    for use in (lambda: heir.extend(10, replace_ttl=True), heir.fence, heir.release):
        with pytest.raises(LockNotOwnedError):
            use()
    assert client.pttl("door") > 50_000 and next_one.owned()


@pytest.mark.parametrize("look", ["owned", "reacquire"])
async def test_whoever_looks_by_a_token_changes_nothing_for_who_waits(aclient: Any, client: Any, look: str) -> None:
    """It gives up its place as ever."""
    client.set("door", "somebody else")
    waiter, other = (for_tasks.Lock(aclient, "door", timeout=60) for _ in range(2))
    waiting = asyncio.create_task(waiter.acquire(token="worker"))
    await until(lambda: waiters(client))
    other.local.token = b"worker"
    with contextlib.suppress(LockNotOwnedError):
        assert not await getattr(other, look)()
    waiting.cancel()
    await asyncio.wait([waiting])
    await until(lambda: not waiters(client))


@pytest.mark.parametrize("session", [True, False])
def test_whoever_looks_by_the_token_of_a_session_changes_nothing(client: Any, session: bool) -> None:
    """Neither is it released when that one is collected, nor kept when its holder is."""
    holder = Lock(client, "door", timeout=2, session=True)
    assert holder.acquire()
    other = Lock(client, "door", timeout=2, session=session)
    other.local.token = holder.local.token
    assert other.owned()
    del other
    gc.collect()
    time.sleep(0.5)
    assert holder.owned()
    del holder
    gc.collect()
    wait_until(lambda: not client.exists("door"))


@pytest.mark.parametrize("former_goes_first", [True, False])
def test_a_session_that_was_handed_over_is_released_once(new_server: Any, former_goes_first: bool) -> None:
    """Whoever has taken it does not release it when it is collected, neither before its heir has nor afterwards."""
    client = new_server().client()
    holders = [Lock(client, "door", timeout=2, session=True) for _ in range(2)]
    assert holders[0].acquire()
    holders[1].local.token = holders[0].local.token
    assert holders[1].owned()
    if former_goes_first:
        del holders[0]
        gc.collect()
        time.sleep(0.5)
    holders.pop().release()
    holders.clear()
    gc.collect()
    time.sleep(0.5)
    assert calls(client, "lock.release") == 1


def test_a_session_that_is_handed_on(new_server: Any) -> None:
    """Whoever has taken it is gone just before, and the next one has not used it yet."""
    client = new_server().client()
    for _ in range(50):
        first, second, third = (Lock(client, "door", timeout=30, session=True) for _ in range(3))
        assert first.acquire(blocking=False)
        second.local.token = first.local.token
        assert second.owned()
        del first
        third.local.token, second.local.token = second.local.token, None
        time.sleep(0.01)
        assert third.owned()
        third.release()


def test_a_session_of_whoever_inherits_a_lock_without_one(new_server: Any) -> None:
    """It has begun one, so the lock is released when it is collected."""
    client = new_server().client()
    former, heir = Lock(client, "door", timeout=2, renew=True), Lock(client, "door", timeout=2, session=True)
    assert former.acquire()
    heir.local.token = former.local.token
    assert heir.owned()
    wait_until(lambda: info(client.execute_command("LOCK.INFO", "door"))[b"session"])
    del former, heir
    gc.collect()
    wait_until(lambda: not client.exists("door"), 1)


@pytest.mark.parametrize("lasting", [0, 1])
def test_a_session_that_was_handed_over_is_lost(new_server: Any, lasting: int) -> None:
    """The server stood still, and goes on to renew it; so whoever has lost it last has it released."""
    server = new_server()
    client, own = server.client(), server.client()
    holders = [Lock(own, "door", timeout=0.6, session=True) for _ in range(2)]
    assert holders[0].acquire()
    holders[1].local.token = holders[0].local.token
    assert holders[1].owned()
    lost = [lock.lost for lock in holders]
    wait_until(lambda: all(looked_at(lock.local.held) for lock in holders))
    with server.standing_still():
        assert all(event.wait(10) for event in lost)
    holders.pop(lasting)
    # At first it is free, as its lease has ended. A second later the server has seen to its sessions.
    time.sleep(2)
    assert not client.exists("door") and not holders[0].owned()


def test_a_session_of_a_thread_that_has_ended_is_handed_on(new_server: Any) -> None:
    """Its lock object is there, but whoever has the token in another thread has the lock."""
    client = new_server().client()
    for _ in range(50):
        shared, third = (Lock(client, "door", timeout=30, session=True) for _ in range(2))
        tokens = queue.SimpleQueue[Any]()
        used = threading.Event()

        def take(shared: Lock = shared, tokens: Any = tokens, used: threading.Event = used) -> None:
            assert shared.acquire(blocking=False)
            tokens.put(shared.local.token)
            assert used.wait(5)

        thread = threading.Thread(target=take)
        thread.start()
        shared.local.token = tokens.get(timeout=5)
        assert shared.owned()
        used.set()
        thread.join()
        third.local.token, shared.local.token = shared.local.token, None
        time.sleep(0.01)
        assert third.owned()
        third.release()


def test_a_release_that_is_late_takes_nothing_from_the_next(server: Server, client: Any) -> None:
    """The lease ends meanwhile, so that the lock is free; and whoever comes by the same token waits."""
    with proxy(server.port) as way, Threads() as pool:
        own = server.client(port=way.port)
        former, latter = (Lock(own, "door", timeout=timeout, thread_local=False) for timeout in (0.5, 60))
        assert former.acquire(token="worker")
        way.late = b"LOCK.RELEASE"
        releasing = pool.submit(former.release)
        wait_until(lambda: not client.exists("door"))
        assert not latter.acquire(token="worker", blocking_timeout=0.5)
        way.deliver.set()
        with pytest.raises(LockNotOwnedError):
            releasing.result(5)
        assert latter.acquire(token="worker", blocking_timeout=5)
        assert latter.owned()


async def test_a_release_that_was_cancelled_takes_nothing_from_the_next(server: Server, client: Any) -> None:
    """It goes on, and another one has overtaken it, which frees the lock."""
    with proxy(server.port) as way:
        aclient = server.client_asyncio(port=way.port)
        former, latter = (for_tasks.Lock(aclient, "door", timeout=60) for _ in range(2))
        assert await former.acquire(token="worker")
        way.late = b"LOCK.RELEASE"
        releasing = asyncio.create_task(former.release())
        await until(lambda: way.late is None)
        releasing.cancel()
        await asyncio.wait([releasing])
        await until(lambda: not client.exists("door"))
        assert not await latter.acquire(token="worker", blocking_timeout=0.5)
        way.deliver.set()
        assert await latter.acquire(token="worker", blocking_timeout=5)
        await asyncio.sleep(0.3)
        assert await latter.owned()
        await aclient.aclose()


def test_an_id_by_which_another_process_holds(server: Server, client: Any) -> None:
    """An attempt by it has failed here, and is still being given up."""
    with proxy(server.port) as way:
        own = server.client(port=way.port, socket_timeout=1)
        way.late = b"LOCK.ACQUIRE"
        with pytest.raises(library.TimeoutError):
            compat.Lock(own, "door", id="worker").acquire(blocking=False)
        client.set("lock:door", "worker")
        compat.Lock(own, "door", id="worker").release()
        assert not client.exists("lock:door")


def test_a_release_of_nothing_takes_nothing_from_who_waits(server: Server, client: Any) -> None:
    """Nor does it bring back an attempt before that, which was given up and may still come to the server."""
    with proxy(server.port) as way, Threads() as pool:
        own = server.client(port=way.port, socket_timeout=1)
        way.late = b"LOCK.ACQUIRE"
        with pytest.raises(library.TimeoutError):
            compat.Lock(own, "door", id="worker").acquire(blocking=False)
        client.set("lock:door", "somebody else")
        waiting = pool.submit(compat.Lock(own, "door", id="worker").acquire)
        wait_until(lambda: waiters(client, "lock:door"))
        with pytest.raises(compat.NotAcquired):
            compat.Lock(own, "door", id="worker").release()
        assert waiters(client, "lock:door")
        client.delete("lock:door")
        assert waiting.result(5)
        time.sleep(2)
        assert client.get("lock:door") == b"worker"


def test_who_waits_for_a_token_is_in_nobodys_way(client: Any) -> None:
    """Another one holds a permit by it; there are others."""
    holder, waiter, other = (Lock(client, "door", timeout=60, limit=3, thread_local=False) for _ in range(3))
    assert holder.acquire(token="worker")
    with Threads() as pool:
        waiting = pool.submit(waiter.acquire, token="worker", blocking_timeout=20)
        wait_until(lambda: (b"door", b"worker") in Client.of(client).lines._lines)
        time.sleep(0.2)
        assert other.acquire(blocking_timeout=2)
        assert not waiting.done()
        holder.release()
        assert waiting.result(5)


def test_a_holder_outlasts_a_try_that_nobody_could_foresee(server: Server, client: Any) -> None:
    """Whoever tries to take it by the same token in another form may not look, so it is the server that refuses."""
    client.execute_command(
        "ACL", "SETUSER", "worker", "reset", "on", ">secret", "~door", "+lock.share", "+lock.release"
    )
    own = server.client(username="worker", password="secret")
    holder, other = Lock(client, "door", timeout=60), Lock(own, "door", timeout=60, shared=True)
    assert holder.acquire(token="worker")
    with pytest.raises(library.ResponseError, match="OTHERFORM"):
        other.acquire(token="worker", blocking=False)
    assert holder.owned()
    holder.release()
    assert not client.exists("door")


def test_a_sessions_lock_that_was_lost_is_anothers(new_server: Any) -> None:
    """It is given up in the background, and still to be released by its holder."""
    server = new_server()
    own = server.client()
    former = Lock(own, "door", timeout=1, session=True)
    lost = former.lost
    assert former.acquire(token="worker")
    with server.standing_still():
        assert lost.wait(10)
    latter = Lock(own, "door", timeout=60)
    assert latter.acquire(token="worker", blocking_timeout=10)
    with pytest.raises(LockNotOwnedError):
        former.release()
    assert latter.owned() and server.client().pttl("door") > 50_000


def test_a_try_that_is_refused_brings_nobody_back(server: Server, client: Any) -> None:
    """Whoever was replaced before stays so, and the holder holds."""
    client.execute_command(
        "ACL", "SETUSER", "worker", "reset", "on", ">secret", "~door", "+lock.share", "+lock.release"
    )
    own = server.client(username="worker", password="secret")
    former, latter = (Lock(client, "door", timeout=timeout) for timeout in (0.3, 60))
    assert former.acquire(token="worker")
    wait_until(lambda: not client.exists("door"))
    assert latter.acquire(token="worker")
    with pytest.raises(library.ResponseError, match="OTHERFORM"):
        Lock(own, "door", timeout=60, shared=True).acquire(token="worker", blocking=False)
    assert latter.owned() and not former.owned()
    with pytest.raises(LockNotOwnedError):
        former.release()
    latter.release()
    assert not client.exists("door")


def test_a_token_before_the_lock_is_granted_to_who_waits_by_it(one_server: Server) -> None:
    client = one_server.client()
    client.set("door", "somebody else")
    heir = Lock(client, "door", timeout=60)
    with Threads() as pool:
        waiter = Lock(client, "door", timeout=60, thread_local=False)
        waiting = pool.submit(waiter.acquire, token="worker", blocking_timeout=20)
        wait_until(lambda: (b"door", b"worker") in Client.of(client).lines._lines)
        time.sleep(0.5)
        heir.local.token = b"worker"
        assert not heir.owned()
        time.sleep(0.5)
        client.delete("door")
        assert waiting.result(10)
    assert heir.owned()
    heir.release()
    assert not client.exists("door")


def test_a_token_before_the_lock_is_taken_by_it(client: Any) -> None:
    """An object that has the token is not replaced: it has never taken the lock."""
    one, another = Lock(client, "door", timeout=60), Lock(client, "door", timeout=60)
    another.local.token = b"worker"
    assert not another.owned()
    assert one.acquire(token="worker")
    assert another.owned() and another.extend(10)
    another.release()
    assert not client.exists("door")


def test_tries_by_tokens_of_their_own(server: Server) -> None:
    """Each has a permit, and none is refused because others are trying."""
    refused = 0

    def work(number: int) -> None:
        nonlocal refused
        own = server.client()
        for _ in range(50):
            permit = Lock(own, "door", timeout=60, limit=10)
            if permit.acquire(blocking=False, token=f"worker {number}"):
                permit.release()
            else:
                refused += 1

    with Threads() as pool:
        for one in [pool.submit(work, number) for number in range(4)]:
            one.result(30)
    assert refused == 0


def test_many_requests_by_tokens_while_a_handler_comes(client: Any) -> None:
    """What was asked by tokens is looked through while a signal handler asks by others."""
    given = Given()
    some = [Request(key=b"door", token=b"worker", given=True) for _ in range(300)]
    handled: list[Request] = []

    def handler() -> None:
        handled.extend(Request(key=b"door", token=b"worker", given=True) for _ in range(3))
        for request in handled[-3:]:
            given.begin(request)
        del handled[:-50]

    with handled_by(handler, 0.001):
        for _ in range(30):
            for request in some:
                given.begin(request)
                given.is_over(request)
    assert handled


def calls(client: Any, command: str) -> int:
    """How often the server was given a command."""
    return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])
