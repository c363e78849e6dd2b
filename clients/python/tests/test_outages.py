"""Servers that cannot be reached: an error, never False. Requests in progress are finished, or undone later."""

import socket
import time
from typing import Any

import pytest
from engines import granted
from proxies import Proxy
from servers import DURABLE, OUTAGE, Server, free_port, library, waiters
from waits import Threads, wait_until

from redis_lock_client import LockError, LockNotOwnedError

server = pytest.fixture(lambda new_server: new_server(True, *DURABLE))


def test_server_that_cannot_be_reached_is_an_error(one_server: Server, engine: Any) -> None:
    """For waiters, holders and others, soon; the lock of the holder is lost when its lease ends."""
    one_server.client().set("door", "another holder")
    waiter, held = engine.lock(one_server, "door", timeout=30), engine.lock(one_server, "window", timeout=8, watch=True)
    held.acquire()
    with Threads() as pool:
        waiting = pool.submit(waiter.acquire, blocking_timeout=1.5)
        time.sleep(0.3)
        one_server.stop()
        with pytest.raises(OUTAGE):
            waiting.result(20)
    for method in (held.owned, held.reacquire):
        with pytest.raises(OUTAGE):
            method()
    assert held.lost.wait(15)
    with pytest.raises((*OUTAGE, LockError)):
        held.release()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port in (one_server.port, free_port(), silent.getsockname()[1]):
            client, began = engine.client(one_server, port=port, socket_timeout=0.5), time.monotonic()
            for arguments in ({"blocking": False}, {"blocking_timeout": 0}, {"blocking_timeout": 20}, {}):
                with pytest.raises(OUTAGE) as raised:
                    engine.lock(client, "door", timeout=30).acquire(**arguments)
                assert not isinstance(raised.value, LockError)
            with pytest.raises(OUTAGE):
                engine.lock(client, "door").locked()
            with pytest.raises(OUTAGE), engine.lock(client, "door", timeout=30, blocking_timeout=0.2):
                pass
            assert time.monotonic() - began < 15


@pytest.mark.parametrize("step", ["wait", "try", "extend", "reacquire", "owned", "release"])
def test_call_in_an_outage_of_a_second_succeeds(server: Server, engine: Any, step: str) -> None:
    """As with the library's own Lock, by the retry policy of the client."""
    policy = engine.library.retry.Retry(library.backoff.ConstantBackoff(0.2), 50)
    client = engine.client(server, retry=policy)
    held, other = engine.lock(client, "door", timeout=60), engine.lock(client, "window", timeout=60)
    held.acquire()
    calls: dict[str, Any] = {
        "wait": lambda: other.acquire(blocking_timeout=30),
        "try": lambda: other.acquire(blocking=False),
        "extend": lambda: held.extend(10),
        "release": lambda: held.release() is None,
    }
    with Threads() as pool:
        server.stop()
        restart = pool.submit(lambda: (time.sleep(1), server.start()))
        assert (calls.get(step) or getattr(held, step))()
        restart.result(60)


STEPS = {
    "try": lambda held, other: other.acquire(blocking=False),
    "wait": lambda held, other: other.acquire(blocking_timeout=1),
    "extend": lambda held, other: held.reacquire(),
    "release": lambda held, other: held.release() is None,
    "locked": lambda held, other: held.locked(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("seconds, options", [(5.5, {}), (1.5, {"socket_timeout": 1})], ids=["default", "short"])
def test_forgotten_connection_is_replaced(
    server: Server, client: Any, engine: Any, step: str, seconds: float, options: Any
) -> None:
    """A NAT drops all bytes, and reports it to no side: the call takes as long as a server may be silent."""
    with Proxy(server.port) as proxy:
        own = engine.client(server, port=proxy.port, **options)
        held, other = (engine.lock(own, name, timeout=60) for name in ("door", "window"))
        held.acquire()
        if step == "wait":  # It has subscribed.
            assert not engine.lock(own, "door", timeout=60).acquire(blocking_timeout=0.2)
        proxy.forget_connections()
        began_at = time.monotonic()
        assert STEPS[step](held, other)
        assert time.monotonic() - began_at < seconds
        assert client.exists("door", "window") == 1 + (other.local.token is not None) - (step == "release")


@pytest.mark.parametrize("arguments", [{"blocking": False}, {"blocking_timeout": 1}, {}], ids=str)
def test_wrong_password_is_authentication_error(server: Server, engine: Any, arguments: Any) -> None:
    lock = engine.lock(engine.client(server, username="nobody", password="wrong"), "door", timeout=30)
    with pytest.raises(library.AuthenticationError):
        lock.acquire(**arguments)


def test_restart_keeps_waiters_and_holders(server: Server, client: Any, engine: Any) -> None:
    """But no lock that the server has forgotten. A release that failed is made up for."""
    locks = {key: engine.lock(server, key, timeout=60, watch=True) for key in ("window", "gate", "hatch", "cellar")}
    for lock in locks.values():
        lock.acquire()
    waiter = engine.lock(server, "door", timeout=30, sleep=30, thread_local=False)
    with granted(waiter, client, blocking_timeout=60):
        with server.stopped():
            with pytest.raises(OUTAGE):
                locks["hatch"].release()
            server.forget("window")
        assert locks["window"].lost.wait(10)
        client.delete("gate")
        assert locks["gate"].lost.wait(10)
        wait_until(lambda: waiters(client) and not client.exists("hatch"))
        with server.stopped():
            time.sleep(0.5)
        wait_until(lambda: waiters(client))
    waiter.release()
    assert client.exists("cellar") and not locks["cellar"].lost.wait(0.5)
    locks["cellar"].release()
    for key in ("window", "gate"):
        with pytest.raises(LockNotOwnedError):
            locks[key].release()
    assert not client.exists(*locks)


@pytest.mark.parametrize("options", [{}, {"session": True}, {"reentrant": True}], ids=str)
@pytest.mark.parametrize("blocking", [False, True])
def test_stalled_server_keeps_nothing(server: Server, client: Any, engine: Any, options: Any, blocking: bool) -> None:
    """The caller gets the time-out error, and what it asked for is undone when the server goes on."""
    lock = engine.lock(engine.client(server, socket_timeout=0.5), "door", timeout=60, **options)
    lock.locked()
    with server.stalled(), pytest.raises(library.TimeoutError):
        lock.acquire(blocking=blocking, blocking_timeout=0.5)
    wait_until(lambda: not client.exists("door") and not waiters(client))
    with engine.lock(server, "door", timeout=30, blocking_timeout=5) as other:
        assert other.owned()
    lock.acquire()
    with server.stalled(), pytest.raises(library.TimeoutError):
        lock.release()
    wait_until(lambda: not client.exists("door"))


@pytest.mark.parametrize("blocking", [False, True])
def test_server_that_never_replies_is_a_time_out(one_server: Server, engine: Any, blocking: bool) -> None:
    """Whether it is noticed as the connection opens, or as the request waits for that."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lock = engine.lock(
            engine.client(one_server, port=silent.getsockname()[1], socket_timeout=0.3), "door", timeout=5
        )
        for _ in range(2):
            with pytest.raises(library.TimeoutError):
                lock.acquire(blocking=blocking, blocking_timeout=0.3 if blocking else None)


def test_connection_is_opened_again(server: Server, client: Any, engine: Any) -> None:
    """After it was closed while idle, also for a command that is not sent twice, and when credentials have failed."""
    credentials = [("worker", "secret")]

    class Provider(library.credentials.CredentialProvider):  # type: ignore[misc, name-defined]
        def get_credentials(self) -> tuple[str, str]:
            return credentials[0]  # An error when there are none.

    client.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all")
    own = engine.client(server, credential_provider=Provider())
    lock = engine.lock(own, "door", timeout=30)
    lock.acquire()
    for method in (lambda: lock.extend(1), lock.owned, lock.fence, lock.release, lock.acquire):
        time.sleep(0.3)
        client.execute_command("CLIENT", "KILL", "USER", "worker")
        time.sleep(0.1)
        assert method() is not False
    lock.release()
    with engine.lock(own, "door", timeout=3, renew=True) as renewed:
        credentials.clear()
        client.execute_command("CLIENT", "KILL", "USER", "worker")
        with pytest.raises(library.ConnectionError):
            renewed.owned()
        time.sleep(0.5)
        credentials.append(("worker", "secret"))
        assert not renewed.lost.wait(4) and renewed.owned()
