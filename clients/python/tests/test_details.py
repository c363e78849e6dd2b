"""Rules that nobody sees until they are broken: what is sent, how often, and with which token."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import (
    CLIENT,
    LIBRARY,
    Server,
    Threads,
    Wire,
    connections_of,
    each_hold_counts_once,
    kill_connections,
    library,
    looked_at,
    wait_until,
    waiters,
)

from redis_lock_client import Lock, LockNotOwnedError, protocol
from redis_lock_client import asyncio as for_tasks
from redis_lock_client._sync import connections, runtime
from redis_lock_client._sync.client import Client
from redis_lock_client._sync.held import Held
from redis_lock_client._sync.keeper import Keeper
from redis_lock_client.source import addresses

PACKAGE = Path(__file__).parents[1]


def test_what_is_sent_again_counts_once(client: Any, wire: Wire) -> None:
    """Each answer is lost once: what the server has done then counts once, and the caller sees no difference."""
    each_hold_counts_once(client, wire, take="LOCK.REENTER", release="LOCK.RELEASE")
    with Lock(client, "door", timeout=10) as mutex:
        wire.lose = {"LOCK.EXTEND"}
        assert mutex.extend(20, replace_ttl=True) and 19_000 < client.pttl("door") <= 20_000
        wire.lose = {"LOCK.FENCE"}
        assert mutex.fence()


def test_an_extension_that_adds_is_sent_once(client: Any, wire: Wire) -> None:
    with Lock(client, "door", timeout=10) as lock:
        wire.lose = {"LOCK.EXTEND"}
        with pytest.raises(library.ConnectionError):
            lock.extend(10)
        assert wire.times("LOCK.EXTEND") == 1 and 19_000 < client.pttl("door") <= 20_000


def test_what_clients_of_one_database_have_in_common() -> None:
    """By that their local queues are found, so it must be another one for another database."""

    kind = getattr(library, CLIENT)

    def of(**kwargs: Any) -> object:
        return addresses(kind(**kwargs).connection_pool)[0]

    def behind(*ports: int, name: str = "locks", **kwargs: Any) -> object:
        sentinel = library.sentinel.Sentinel([("127.0.0.1", port) for port in ports])
        return addresses(sentinel.master_for(name, **kwargs).connection_pool)[0]

    assert of() == of(host="localhost", port=6379, db=0, socket_timeout=1)
    assert of() == addresses(kind.from_url(f"{LIBRARY}://").connection_pool)[0]
    assert behind(1, 2) == behind(2, 1, db=0)
    others = [
        of(),
        of(host="127.0.0.1"),
        of(port=6380),
        of(db=1),
        of(unix_socket_path="one"),
        of(unix_socket_path="another"),
        of(ssl=True),
        behind(1),
        behind(1, 2),
        behind(1, name="others"),
        behind(1, db=1),
    ]
    assert len(set(others)) == len(others)


def test_a_release_that_was_not_needed_is_told(client: Any, wire: Wire) -> None:
    """Only what was sent again may find nothing."""
    lock = Lock(client, "door", timeout=10)
    lock.acquire()
    client.delete("door")
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert wire.times("LOCK.RELEASE") == 1


def test_every_acquisition_has_a_token_of_its_own(client: Any, wire: Wire) -> None:
    lock = Lock(client, "door", timeout=30)
    for _ in range(3):
        with lock:
            pass
    client.set("door", "somebody else")
    for _ in range(3):
        lock.acquire(blocking=False)
    tokens = [words[2] for words in wire.sent if words[0] == "LOCK.ACQUIRE"]
    assert len(set(tokens)) == len(tokens) == 6


def test_a_grant_that_is_heard_too_late(client: Any, wire: Wire) -> None:
    """A lease is shorter than the wait for it: whether it still runs is asked, and the lease is whole again."""
    client.set("door", "somebody else")
    lock = Lock(client, "door", timeout=0.3)
    with Threads() as pool:
        taken = pool.submit(lambda: (lock.acquire(), client.pttl("door")))
        wait_until(lambda: waiters(client))
        time.sleep(0.5)
        before = wire.times("LOCK.ACQUIRE")
        client.delete("door")
        held, left_ms = taken.result(5)
    assert held and left_ms > 100 and wire.times("LOCK.ACQUIRE") > before


def test_a_connection_that_the_server_has_closed(client: Any, server: Server) -> None:
    """What is sent only once is not sent where it cannot be heard."""
    lock = Lock(server.client(), "door", timeout=30)
    lock.acquire()
    kill_connections(client)
    assert lock.extend(10)
    assert client.pttl("door") > 35_000
    lock.release()


def test_other_data_is_nobodys_lock(client: Any) -> None:
    lock = Lock(client, "door", timeout=30)
    lock.acquire()
    client.delete("door")
    client.rpush("door", "something else")
    with pytest.raises(library.ResponseError, match="WRONGTYPE"):
        Lock(client, "door").locked()
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()


async def test_a_subclass_with_an_acquire_of_its_own(client: Any, aclient: Any) -> None:
    """It is what `with` calls, as with redis-py's."""
    taken: list[str] = []

    class Mine(Lock):
        def acquire(self, *args: Any, **kwargs: Any) -> bool:
            taken.append("by a thread")
            return super().acquire(*args, **kwargs)

    class OfTasks(for_tasks.Lock):
        async def acquire(self, *args: Any, **kwargs: Any) -> bool:
            taken.append("by a task")
            return await super().acquire(*args, **kwargs)

    with Mine(client, "door", timeout=30):
        pass
    async with OfTasks(aclient, "door", timeout=30):
        pass
    assert taken == ["by a thread", "by a task"]


def test_attempts_at_a_server_that_is_away_leave_nothing_to_do(new_server: Any) -> None:
    """What was not sent need not be withdrawn."""
    server = new_server()
    own = server.client()
    Lock(own, "door", timeout=3600).locked()
    server.stop()
    for _ in range(20):
        with pytest.raises(library.ConnectionError):
            Lock(own, "door", timeout=3600).acquire(blocking=False)
    timers = runtime._timers
    assert timers is None or sum("withdraw" in str(handle._call) for _, _, handle in timers._due) <= 4


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NOTHELD Nobody holds this lock", "NOTHELD"),
        ("unknown command 'LOCK.ACQUIRE', with args beginning with: ", "UNKNOWN"),
        (
            "Error running script (call to f_12ab): @user_script:3: @user_script: 3: -READONLY You can't write against "
            "a read only replica.",
            "READONLY",
        ),
    ],
)
def test_the_code_of_an_error(text: str, code: str) -> None:
    """Servers before Redis 7 put what a command of a script was answered into a text of their own."""
    assert protocol.code(library.ResponseError(text)) == code


def test_what_an_error_says(client: Any) -> None:
    with pytest.raises(LockNotOwnedError) as raised, Lock(client, "door", timeout=30):
        client.delete("door")
    assert repr(raised.value).startswith("LockNotOwnedError('")


def test_the_first_look_at_a_lease_that_has_ended(client: Any) -> None:
    lock = Lock(client, "door", timeout=0.2)
    lock.acquire()
    time.sleep(0.4)
    assert lock.lost.is_set()


@pytest.mark.parametrize("options", [{"renew": True}, {"session": True}])
def test_a_user_without_the_right_to_look(server: Server, client: Any, options: dict[str, Any]) -> None:
    client.execute_command("ACL", "SETUSER", "blind", "on", ">blind", "~*", "&*", "+@all", "-lock.info", "-acl|log")
    client.execute_command("ACL", "LOG", "RESET")
    own = server.client(username="blind", password="blind")
    with Lock(own, "door", timeout=0.9, raise_on_release_error="session" not in options, **options) as lock:
        assert not lock.lost.wait(3)
        assert client.exists("door")
        refused = sum(int(entry["count"]) for entry in client.acl_log())
        assert refused <= 15, "it does not ask more often than it would otherwise"
        if "session" in options:
            kill_connections(client)
            assert lock.lost.wait(2)
    wait_until(lambda: not client.exists("door"))


def test_a_user_without_the_right_to_the_channel(server: Server, client: Any) -> None:
    client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "resetchannels")
    own = server.client(username="worker", password="secret")
    client.set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(own, "door", timeout=30).acquire)
        wait_until(lambda: waiters(client) and waiters(client)[0][b"channel"] is None)
        client.delete("door")
        assert taken.result(5)


def test_a_key_that_a_user_may_not_touch(server: Server, client: Any) -> None:
    """An error for that key alone: others are waited for by NOTIFY as before."""
    client.execute_command("ACL", "SETUSER", "doorman", "on", ">secret", "~door", "&*", "+@all")
    own = server.client(username="doorman", password="secret")
    client.set("door", "somebody else")
    with Threads() as pool:
        for _ in range(2):
            taken = pool.submit(Lock(own, "door", timeout=30).acquire)
            wait_until(lambda: waiters(client) and waiters(client)[0][b"channel"] is not None)
            with pytest.raises(library.ResponseError, match=r"(?i)no ?perm"):
                Lock(own, "window", timeout=30).acquire(blocking_timeout=5)
            client.delete("door")
            assert taken.result(5)
            client.set("door", "somebody else")


def test_a_lock_knows_the_server_also_after_an_attempt_that_did_not_come_to_its_turn(client: Any) -> None:
    first, lock = (Lock(client, "door", timeout=30, thread_local=False) for _ in range(2))
    assert lock.native is None and lock.locked() is False and lock.native is True
    client.set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(first.acquire, blocking_timeout=5)
        wait_until(lambda: waiters(client))
        assert not lock.acquire(blocking_timeout=0.05)
        assert lock.native is True
        client.delete("door")
        assert taken.result(5)


def test_a_token_with_a_space(client: Any) -> None:
    client.set("door", "somebody else")
    lock = Lock(client, "door", timeout=30)
    with Threads() as pool:
        taken = pool.submit(lock.acquire, token="two words")
        wait_until(lambda: waiters(client))
        client.delete("door")
        assert taken.result(5)
    assert client.get("door") == b"two words"


def test_a_server_that_stands_still(new_server: Any) -> None:
    """The caller is answered on time, and what it asked for is given up when the server goes on."""
    server = new_server()
    client = server.client()
    client.set("door", "somebody else")
    began = time.monotonic()
    with Threads() as pool:
        taken = pool.submit(Lock(server.client(socket_timeout=2), "door", timeout=30).acquire, blocking_timeout=1)
        wait_until(lambda: waiters(client))
        stopped = time.monotonic()
        with server.standing_still():
            assert taken.result(10) is False
            assert time.monotonic() - began < 2, time.monotonic() - stopped
    wait_until(lambda: not waiters(client))
    client.delete("door")
    time.sleep(0.5)
    assert not client.exists("door")


@pytest.mark.parametrize("session", [False, True])
def test_many_ask_a_server_that_stands_still(new_server: Any, session: bool) -> None:
    """Their requests go over few connections, but none waits for the time-outs of all others."""
    server = new_server()
    own = server.client(socket_timeout=1)
    Lock(own, "door", timeout=30).locked()
    took: list[float] = []

    def ask(number: int) -> None:
        began = time.monotonic()
        with pytest.raises((library.TimeoutError, library.ConnectionError)):
            Lock(own, f"door:{number}", timeout=30, session=session).acquire(blocking_timeout=2)
        took.append(time.monotonic() - began)

    with server.standing_still(), Threads(40) as pool:
        list(pool.map(ask, range(40)))
    assert len(took) == 40 and max(took) < 4, took


def test_a_connection_that_is_cut_is_no_standstill(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long others have waited for it."""
    exchange, cuts = connections.exchange, ["one"]

    def slow(connection: Any, words: list[Any]) -> Any:
        time.sleep(0.4)
        if cuts:
            cuts.pop()
            raise library.ConnectionError("cut")
        return exchange(connection, words)

    def ask(number: int) -> bool | Exception:
        try:
            return Lock(own, f"door:{number}", timeout=30, session=True).acquire(blocking=False)
        except library.exceptions.ConnectionError as error:
            return error

    monkeypatch.setattr(connections, "exchange", slow)
    own = server.client(socket_timeout=0.5)
    with Threads(3) as pool:
        answers = list(pool.map(ask, range(3)))
    assert sorted(type(answer).__name__ for answer in answers) == ["ConnectionError", "bool", "bool"]


async def test_many_tasks_ask_a_server_that_stands_still(new_server: Any) -> None:
    server = new_server()
    own = server.client_asyncio(socket_timeout=1)
    await for_tasks.Lock(own, "door", timeout=30).locked()
    took: list[float] = []

    async def ask(number: int) -> None:
        began = time.monotonic()
        with pytest.raises((library.TimeoutError, library.ConnectionError)):
            await for_tasks.Lock(own, f"door:{number}", timeout=30).acquire(blocking_timeout=2)
        took.append(time.monotonic() - began)

    with server.standing_still():
        await asyncio.gather(*(ask(number) for number in range(40)))
    assert len(took) == 40 and max(took) < 4, took
    await own.aclose()


def test_a_client_that_is_gone_takes_its_connections_along(server: Server, client: Any) -> None:
    own = server.client(client_name="gone-soon")
    client.set("door", "somebody else")
    assert not Lock(own, "door", timeout=30, blocking_timeout=0.1).acquire()
    assert connections_of(client, "gone-soon") >= 2
    own.close()
    del own
    gc.collect()  # The pools of some libraries refer to themselves, so that they are not gone before.
    wait_until(lambda: connections_of(client, "gone-soon") == 0, 30)


def test_the_modules_for_threads_are_up_to_date() -> None:
    pytest.importorskip("unasync")
    checked = subprocess.run([sys.executable, "generate.py", "--check"], cwd=PACKAGE, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout.decode()


def test_the_guide_names_tests_that_there_are() -> None:
    guide = (PACKAGE.parents[1] / "docs" / "guides" / "client-protocol.md").read_text()
    there = set(re.findall(r"def (test_\w+)", "".join(path.read_text() for path in PACKAGE.glob("tests/test_*.py"))))
    named = set(re.findall(r"`(test_\w+)`", guide))
    assert named and named <= there, named - there


HANGS = """
import threading
from conftest import Threads

def who_hangs(): threading.Event().wait(30)

def test_that_hangs():
    with Threads() as pool: pool.submit(who_hangs).result()

def test_that_comes_after(): pass
"""


def test_a_test_that_hangs_ends_with_its_stacks(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    options = ["-p", "no:cacheprovider", "--numprocesses", "1", "--timeout", "1"]
    command = [sys.executable, "-m", "pytest", "--config-file", str(PACKAGE / "pyproject.toml"), *options]
    paths = os.pathsep.join([str(PACKAGE / "tests"), *sys.path])
    done = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert "1 failed, 1 passed" in done.stdout and "who_hangs" in done.stdout, done.stdout + done.stderr
    assert float(pytestconfig.getini("timeout")) > 0, "none is given all the time there is"


EXAMPLES = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_what_the_readme_shows(server: Server, number: int) -> None:
    if LIBRARY != "redis":
        pytest.skip("the examples are for redis-py")
    example = EXAMPLES[number].replace("Redis()", f"Redis(port={server.port})")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0 and done.stdout and "stop" not in done.stdout, done.stderr


def test_the_wheel_in_a_fresh_environment(server: Server, tmp_path: Path) -> None:
    """From pip install to a held lock: what the README shows."""
    pytest.importorskip("build")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(PACKAGE))
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[{library.__name__}]")
    assert EXAMPLES[0].count("\n") <= 5
    said = run(python, "-c", EXAMPLES[0].replace(f"{CLIENT}()", f"{CLIENT}(port={server.port})"))
    assert said == "the door is ours\n"


def run(*command: str) -> str:
    # Without what this environment adds to the path: the wheel must do alone.
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_loss_that_is_being_told_is_not_of_the_next_hold(
    server: Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = server.client()
    lock = Lock(own, "door", timeout=30)
    lost = lock.lost
    lock.acquire()
    first, drop = lock.local.held, Keeper.drop

    def drop_later(keeper: Keeper, held: Held) -> None:
        drop(keeper, held)
        if held is first:
            assert taken_again.wait(10)

    taken_again = threading.Event()
    monkeypatch.setattr(Keeper, "drop", drop_later)
    client.delete("door")
    assert first is not None
    wait_until(lambda: first.over)
    assert lock.acquire()
    taken_again.set()
    assert not lost.wait(0.5) and lock.owned()


@pytest.mark.parametrize("error", [OSError, RuntimeError])
def test_credentials_that_cannot_be_had_for_a_moment(server: Server, client: Any, error: type[Exception]) -> None:
    """Whatever the provider raises: renewal goes on, and what is given up is given up later."""
    client.execute_command("ACL", "SETUSER", "bob", "on", ">x", "~*", "&*", "+@all")
    refused = threading.Event()

    class Provider(library.credentials.CredentialProvider):  # type: ignore[misc, name-defined]
        def get_credentials(self) -> tuple[str, str]:
            if time.monotonic() < until:
                refused.set()
                raise error("away")
            return "bob", "x"

    until = 0.0
    lock = Lock(server.client(credential_provider=Provider()), "door", timeout=3, renew=True)
    lock.acquire()
    until = time.monotonic() + 0.3
    client.execute_command("CLIENT", "KILL", "USER", "bob")
    assert refused.wait(5)
    assert not lock.lost.wait(4) and lock.owned()
    until = time.monotonic() + 0.3
    client.execute_command("CLIENT", "KILL", "USER", "bob")
    with pytest.raises((library.ConnectionError, OSError)):
        lock.release()
    wait_until(lambda: not client.exists("door"), 2)


class Aborted(BaseException):
    """As gevent's time-outs are."""


def test_a_callback_that_raises_ends_nothing_but_itself(new_server: Any, caplog: pytest.LogCaptureFixture) -> None:
    """All clients have one thread of timers."""

    def fail() -> None:
        raise Aborted

    other = Lock(new_server(False).client(), "window", timeout=3, renew=True)
    one = Lock(new_server(False).client(), "door", timeout=0.3, on_lost=fail)
    assert other.acquire() and one.acquire()
    wait_until(lambda: "Aborted" in caplog.text)
    assert not other.lost.wait(4) and other.owned()


def test_a_look_counts_from_when_the_server_was_asked(server: Server) -> None:
    """Not from before others were waited for."""
    own = server.client()
    lock = Lock(own, "door", timeout=30)
    assert not lock.lost.is_set() and lock.acquire()
    (node,) = Client.of(own)._nodes.values()
    held = lock.local.held
    assert held is not None
    wait_until(lambda: looked_at(held))
    before, looked = held.ends_at, held.looked
    with node.keeper._reader.guard:
        node.keeper.look_at(held)
        wait_until(lambda: held.looked > looked)
        time.sleep(1)
    wait_until(lambda: looked_at(held))
    assert before is not None and held.ends_at is not None
    assert abs(held.ends_at - before) < 0.5
