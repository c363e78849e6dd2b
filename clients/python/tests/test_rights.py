"""Users with few rights: the package uses another way, or reports a loss later."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from servers import Server, begin_wait, info, library, waiters, watched
from waits import Threads, wait_until

from redis_lock_client import Lock, LockNotOwnedError

#: Those that docs/security.md gives to an application.
OWN = [f"+lock.{name}" for name in ("acquire", "reenter", "share", "release", "extend")]
#: Those that README.md names for waits and losses without polling.
MORE = ["&{redis-lock}:*", "+hello", "+client|setname", "+client|tracking", "+ssubscribe"]
MORE += ["+lock.info", "+zscore", "+time"]
NUMBERS = itertools.count()
KINDS: list[dict[str, Any]] = [{}, {"shared": True}, {"reentrant": True}]


@pytest.fixture(params=KINDS, ids=["mutex", "share", "re-entrant"])
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    options: dict[str, Any] = request.param
    return options


def user(server: Server, client: Any, *rules: str) -> Any:
    """Returns a client of a new user."""
    return client_of(server, client, f"worker{next(NUMBERS)}", *rules)


def client_of(server: Server, client: Any, name: str, *rules: str) -> Any:
    client.execute_command("ACL", "SETUSER", name, "reset", "on", ">secret", *rules)
    return server.client(username=name, password="secret")


def calls(client: Any) -> int:
    """Returns how often the server was asked for a lock."""
    names = ("acquire", "share", "reenter")
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_lock.{name}", {"calls": 0})["calls"] for name in names)


def test_rights_in_the_readme_are_enough(server: Server, client: Any, kind: dict[str, Any]) -> None:
    own = user(server, client, "~door", *OWN, *MORE)
    client.set("door", "another holder")
    lock = Lock(own, "door", timeout=60, blocking_timeout=60, thread_local=False, **kind)
    with begin_wait(lock, client) as taken:
        assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
        client.delete("door")
        assert taken.result(10)
    assert not lock.lost.is_set() and lock.owned()
    watched(client)
    client.delete("door")
    assert lock.lost.wait(2)


def test_fewest_rights_still_wait(server: Server, client: Any, kind: dict[str, Any]) -> None:
    """Without the channel and without HELLO the lock is polled."""
    own = user(server, client, "~door", *OWN)
    client.set("door", "another holder")
    lock = Lock(own, "door", timeout=60, thread_local=False, **kind)
    assert not lock.acquire(blocking_timeout=0.3)
    with Threads() as pool:
        taken = pool.submit(lock.acquire, blocking_timeout=60)
        polls = calls(client)
        wait_until(lambda: calls(client) > polls + 1)
        assert not waiters(client)
        client.delete("door")
        assert taken.result(10)
    lock.release()
    assert not client.exists("door")


@pytest.mark.parametrize("how", ["session", "renew", "plain"])
def test_loss_without_right_to_look(server: Server, client: Any, kind: dict[str, Any], how: str) -> None:
    """It is found out by the next renewal, or by the end of the lease."""
    own = user(server, client, "~door", *OWN)
    lock = Lock(own, "door", timeout=1, watch=True, **kind, **({} if how == "plain" else {how: True}))
    lock.acquire()
    if how != "plain":
        assert not lock.lost.wait(1.5), "it is held"
        client.delete("door")
        assert Lock(client, "door", timeout=60).acquire(blocking=False)
    assert lock.lost.wait(3)
    # By the local clock, the lease ends a moment earlier.
    wait_until(lambda: how != "plain" or not client.exists("door"))
    with pytest.raises(LockNotOwnedError):
        lock.release()


@pytest.mark.parametrize("missing", ["-client|tracking", "-hello", "-lock.info", "-zscore", "resetchannels"])
def test_one_missing_right_is_no_error(server: Server, client: Any, kind: dict[str, Any], missing: str) -> None:
    own = user(server, client, "~*", "&*", "+@all", missing)
    client.set("door", "another holder")
    lock = Lock(own, "door", timeout=1, renew=True, thread_local=False, **kind)
    with Threads() as pool:
        polls = calls(client)
        taken = pool.submit(lock.acquire, blocking_timeout=60)
        wait_until(lambda: calls(client) > polls + 1)
        client.delete("door")
        assert taken.result(10)
    assert not lock.lost.wait(1.5)
    lock.release()


def test_forbidden_request_is_an_error(server: Server, client: Any, new_server: Any) -> None:
    """A key, scripts where there is no module, and a wrong password. Allowed keys are waited for as before."""
    own, plain = user(server, client, "~door", "&*", "+@all"), new_server(False)
    scripts = user(plain, plain.client(), "~*", "&*", "+@all", "-evalsha", "-eval")
    stranger = server.client(username=f"worker{next(NUMBERS)}", password="wrong")
    client.set("door", "another holder")
    for one in (own, scripts, stranger):
        for arguments in ({"blocking": False}, {"blocking_timeout": 1}):
            with pytest.raises((library.ResponseError, library.ConnectionError)):
                Lock(one, "window", timeout=30).acquire(**arguments)
    with begin_wait(Lock(own, "door", timeout=30, thread_local=False), client, blocking_timeout=30) as taken:
        assert waiters(client)[0][b"channel"] is not None
        client.delete("door")
        assert taken.result(10)


def test_right_that_is_taken_away_ends_a_session(server: Server, client: Any) -> None:
    """That other locks of the connection are held is no sign that this one is."""
    own = client_of(server, client, "limited", "~*", "&*", "+@all")
    door, window = (Lock(own, key, timeout=1, session=True) for key in ("door", "window"))
    assert door.acquire() and window.acquire()
    lost = door.lost
    client_of(server, client, "limited", "~window", "&*", "+@all")
    client.execute_command("CLIENT", "KILL", "USER", "limited")
    assert Lock(client, "door", timeout=60).acquire(blocking_timeout=5)
    assert lost.wait(5)
    assert not window.lost.wait(2) and info(client, "window")[b"session"]
    window.release()
