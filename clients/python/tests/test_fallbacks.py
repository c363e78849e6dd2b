"""Servers without the module, and users with few rights: the package uses another way, or reports a loss later."""

import contextlib
import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from engines import KINDS, granted
from servers import DURABLE, MODULE, Server, info, kill_connections, library, waiters, watched
from waits import Threads, take_turns, wait_until

from redis_lock_client import Lock, LockNotOwnedError, ModuleNeededError

NEEDED = [("session", "session"), ("shared", "SHARE"), ("limit", "SHARE"), (None, "FENCE")]


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("option, feature", NEEDED)
def test_error_names_what_needs_the_module(
    new_server: Any, engine: Any, option: Any, feature: str, blocking: bool
) -> None:
    lock = engine.lock(new_server(False), "door", timeout=30, **({option: 1} if option else {}))
    with pytest.raises(ModuleNeededError, match=f"{feature} needs the module redis-lock.*door") as raised:
        lock.acquire(blocking=blocking, blocking_timeout=1)
        lock.fence()
    assert raised.value.lock_name == "door"


def test_renewal_without_module(new_server: Any) -> None:
    client = new_server(False).client()
    with Lock(client, "door", timeout=1, renew=True, raise_on_release_error=False) as lock:
        assert not lock.lost.wait(2) and lock.owned()
        client.set("door", "another holder")
        assert lock.lost.wait(2), "the next renewal finds it out, or the change is reported"
    assert client.get("door") == b"another holder"


def test_fleet_with_the_librarys_lock(one_server: Server) -> None:
    """Some programs use redis-py's Lock, some this one with the module or by scripts, on the same key."""
    client = one_server.client()
    kinds: list[Any] = [partial(client.lock, sleep=0.01), partial(Lock, client)]
    take_turns(lambda number: kinds[number % 2]("door", timeout=30), 6, 5)
    assert not client.exists("door")


def unloaded(client: Any) -> bool:
    """Unloads the module. It cannot be while a connection has sent one of its commands last."""
    kill_connections(client)
    try:
        return bool(client.execute_command("MODULE", "UNLOAD", "lock"))
    except library.ResponseError:
        return False


def scripts(client: Any) -> int:
    """Returns how many scripts the server has run."""
    return int(client.info("commandstats").get("cmdstat_eval", {"calls": 0})["calls"])


def test_module_appears_and_vanishes_during_waits(new_server: Any) -> None:
    client = new_server(False).client()
    client.set("door", "another holder")
    lock = Lock(client, "door", timeout=60, thread_local=False)
    with Threads() as pool:
        taken = pool.submit(lock.acquire, blocking_timeout=60)
        wait_until(lambda: scripts(client))
        client.execute_command("MODULE", "LOAD", MODULE)
        wait_until(lambda: waiters(client), 20)
        client.delete("door")
        assert taken.result(20)
    lock.release()
    with granted(lock, client, blocking_timeout=60):
        before = scripts(client)
        wait_until(lambda: unloaded(client), 20)
        wait_until(lambda: scripts(client) > before)
    lock.release()
    assert not client.exists("door")


def test_server_comes_back_without_the_module(new_server: Any) -> None:
    server = new_server(True, *DURABLE)
    client = server.client()
    held, again = Lock(client, "window", timeout=60, renew=True), Lock(client, "cellar", timeout=60, reentrant=True)
    waiter, *shares = (
        Lock(client, key, timeout=60, shared=key == "attic", thread_local=False) for key in ("door", "attic", "attic")
    )
    for lock in (held, again, *shares):
        lock.acquire()
    with granted(waiter, server.client(), blocking_timeout=60), server.stopped():
        server.module = False
    assert held.owned() and scripts(client) and not held.lost.is_set()
    again.acquire()
    assert client.hgetall("cellar") == {again.local.token: b"1"}
    for call in (partial(shares[0].extend, 1), *(lock.release for lock in shares)):
        with pytest.raises(ModuleNeededError):
            call()
    for lock in (again, again, held, waiter):
        lock.release()
    assert client.keys() == [b"attic"]


#: What other programs write: locks of other kinds, what ends them, and other data.
WRITES = ["DEL KEY", "SET KEY TOKEN PX 30000", "HSET KEY bob 2", "PERSIST KEY", "RPUSH KEY item", "ZADD KEY inf dave"]
STEPS: list[Callable[[Any, str, int], Any]] = [
    lambda lock, token, _: lock.acquire(blocking=False, token=token),
    lambda lock, *_: lock.release(),
    lambda lock, _, seconds: lock.extend(seconds, replace_ttl=seconds == 10),
    lambda lock, *_: (lock.owned(), lock.locked()),
]


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """Returns the result, or the code of an error, which servers before Redis 7 write into a text of their own."""
    try:
        return call(*args)
    except library.exceptions.LockError as error:
        return type(error).__name__
    except library.ResponseError as error:
        return next((word for word in str(error).split() if word.isupper() and word != "ERR"), "ERR")


@pytest.mark.parametrize("seed", range(3))
def test_scripts_do_as_the_commands_do(client: Any, new_server: Any, seed: int) -> None:
    """On the same history of requests and external writes, and with the same state afterwards."""
    chance, met, scripted = random.Random(seed), set[str](), new_server(False).client()
    kinds = [{"timeout": lease, "reentrant": again} for lease in (None, 20, 40) for again in (True, False)]
    pairs = [(Lock(client, "door", **kind), Lock(scripted, "door", **kind)) for kind in kinds]
    pair = pairs[0]
    for number in range(1000):
        token, seconds = f"token-{seed}-{number}", chance.choice((10, 30))
        pair = chance.choices((pair, chance.choice(pairs)), (4, 1))[0]
        if chance.random() < 0.2:
            write = chance.choice(WRITES).replace("TOKEN", (pair[0].local.token or b"alice").decode())
            for one in (client, scripted):
                outcome(one.execute_command, *write.replace("KEY", "door").split())
        (step,) = chance.choices(STEPS, [5, 3, 2, 1])
        one, other = (outcome(step, lock, token, seconds) for lock in pair)
        assert one == other
        met.add(str(one))
        for read in (["GET"], ["HGETALL"], ["ZRANGE", 0, -1], ["TYPE"]):
            one, other = (outcome(one.execute_command, read[0], "door", *read[1:]) for one in (client, scripted))
            assert one == other
        assert abs(client.pttl("door") - scripted.pttl("door")) < 2000
    assert {"True", "False", "None", "LockError", "LockNotOwnedError", "WRONGTYPE"} <= met
    for lock in itertools.chain(*pairs):
        if lock.local.token is not None:
            with contextlib.suppress(LockNotOwnedError):
                lock.detach()  # Nothing is to be released when they are collected.


#: The rights that docs/security.md gives to an application.
OWN = "~door +lock.acquire +lock.reenter +lock.share +lock.release +lock.extend"
#: Those that README.md names for waits and losses without polling.
MORE = " &redis-lock:* +hello +client|setname +client|tracking +ssubscribe +lock.info +zscore +time"
ALL = "~* &* +@all "
NUMBERS = itertools.count()
EACH_KIND = pytest.mark.parametrize("kind", ["plain", "shared", "reentrant"])


def user(server: Server, rules: str, name: str = "") -> Any:
    """Returns a client of a new user, or of one whose rights are new."""
    name = name or f"worker{next(NUMBERS)}"
    server.client().execute_command("ACL", "SETUSER", name, "reset", "on", ">secret", *rules.split())
    return server.client(username=name, password="secret")


def calls(client: Any) -> int:
    """Returns how often the server was asked for a lock."""
    stats, names = client.info("commandstats"), ("acquire", "share", "reenter")
    return sum(stats.get(f"cmdstat_lock.{name}", {"calls": 0})["calls"] for name in names)


@EACH_KIND
def test_rights_in_the_readme_are_enough(server: Server, client: Any, kind: str) -> None:
    lock = Lock(user(server, OWN + MORE), "door", timeout=60, thread_local=False, **KINDS[kind])
    with granted(lock, client):
        assert waiters(client)[0][b"channel"] is not None, "it waits by NOTIFY"
    assert not lock.lost.is_set() and lock.owned()
    watched(client)
    client.delete("door")
    assert lock.lost.wait(2)


MISSING = [f"{ALL}{right}" for right in ("-client|tracking", "-hello", "-lock.info", "-zscore", "resetchannels")]


@pytest.mark.parametrize("rules", [OWN, *MISSING])
@EACH_KIND
def test_missing_right_is_no_error(server: Server, client: Any, kind: str, rules: str) -> None:
    lock = Lock(user(server, rules), "door", timeout=1, renew=True, thread_local=False, **KINDS[kind])
    client.set("door", "another holder")
    assert not lock.acquire(blocking_timeout=0.3)
    with Threads() as pool:
        polls, taken = calls(client), pool.submit(lock.acquire, blocking_timeout=60)
        wait_until(lambda: calls(client) > polls + 1)
        assert rules != OWN or not waiters(client), "without the channel it polls"
        client.delete("door")
        assert taken.result(10)
    assert not lock.lost.wait(1.5)
    lock.release()
    assert not client.exists("door")


def test_forbidden_request_is_an_error(server: Server, client: Any, new_server: Any) -> None:
    """A key, scripts where there is no module, and a wrong password. Allowed keys are waited for as before."""
    own, scripts = user(server, "~door &* +@all"), user(new_server(False), f"{ALL} -evalsha -eval")
    for one in (own, scripts):
        for arguments in ({"blocking": False}, {"blocking_timeout": 1}):
            with pytest.raises((library.ResponseError, library.ConnectionError)):
                Lock(one, "window", timeout=30).acquire(**arguments)
    with granted(Lock(own, "door", timeout=30), client, blocking_timeout=30):
        assert waiters(client)[0][b"channel"] is not None


def test_right_that_is_taken_away_ends_a_session(server: Server, client: Any) -> None:
    """That other locks of the connection are held is no sign that this one is."""
    own = user(server, ALL, "limited")
    door, window = (Lock(own, key, timeout=1, session=True) for key in ("door", "window"))
    assert door.acquire() and window.acquire()
    lost = door.lost
    user(server, "~window &* +@all", "limited")
    client.execute_command("CLIENT", "KILL", "USER", "limited")
    assert Lock(client, "door", timeout=60).acquire(blocking_timeout=5)
    assert lost.wait(5)
    assert not window.lost.wait(2) and info(client, "window")[b"session"]
    window.release()
