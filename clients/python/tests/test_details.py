"""Rules that nobody sees until they are broken: what is sent, how often, and with which token."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import CLIENT, LIBRARY, Server, Threads, library, wait_until, waiters

from redis_lock_client import Lock, LockNotOwnedError
from redis_lock_client._sync import connections

PACKAGE = Path(__file__).parents[1]


class Wire:
    """Stands between the package and its connections, and can lose answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[list[Any]] = []
        self.lose: set[str] = set()
        exchange = connections.exchange

        def watched(connection: Any, words: list[Any]) -> Any:
            self.sent.append(words)
            answer = exchange(connection, words)
            if words[0] in self.lose:
                self.lose.remove(words[0])
                raise library.ConnectionError("the answer was lost")
            return answer

        monkeypatch.setattr(connections, "exchange", watched)

    def times(self, name: str) -> int:
        return sum(words[0] == name for words in self.sent)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


def test_what_is_sent_again_counts_once(client: Any, wire: Wire) -> None:
    """Each answer is lost once: what the server has done then counts once, and the caller sees no difference."""
    lock = Lock(client, "door", timeout=30, reentrant=True)
    for holds in (1, 2, 3):
        wire.lose = {"LOCK.REENTER"}
        lock.locked()  # So that there is a connection that may have been lost before.
        assert lock.acquire()
        assert client.hgetall("door") == {lock.local.token: b"%d" % holds}
    for holds in (2, 1):
        wire.lose = {"LOCK.RELEASE"}
        lock.release()
        assert client.hgetall("door") == {lock.local.token: b"%d" % holds}
    wire.lose = {"LOCK.RELEASE"}
    lock.release()
    assert not client.exists("door")
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


def test_a_user_without_the_right_to_the_channel(server: Server, client: Any) -> None:
    client.execute_command("ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "resetchannels")
    own = server.client(username="worker", password="secret")
    client.set("door", "somebody else")
    with Threads() as pool:
        taken = pool.submit(Lock(own, "door", timeout=30).acquire)
        wait_until(lambda: waiters(client) and waiters(client)[0][b"channel"] is None)
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
        server.process.send_signal(19)
        try:
            assert taken.result(10) is False
            assert time.monotonic() - began < 2, time.monotonic() - stopped
        finally:
            server.process.send_signal(18)
    wait_until(lambda: not waiters(client))
    client.delete("door")
    time.sleep(0.5)
    assert not client.exists("door")


def test_a_client_that_is_gone_takes_its_connections_along(server: Server, client: Any) -> None:
    before = client.info("clients")["connected_clients"]
    own = server.client()
    client.set("door", "somebody else")
    assert not Lock(own, "door", timeout=30, blocking_timeout=0.1).acquire()
    assert client.info("clients")["connected_clients"] > before
    own.close()
    del own
    wait_until(lambda: client.info("clients")["connected_clients"] <= before, 15)


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
