"""Threads that are interrupted at any moment, as by Ctrl-C: nothing is left held, locked or running."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections import deque
from typing import Any

import pytest
from conftest import KEYS, Threads
from interrupts import (
    Beginning,
    Interrupter,
    handled_by,
    interrupted_by_exceptions,
    interrupted_by_signals,
    without_waiting,
)

from redis_lock_client import Lock
from redis_lock_client._sync import connections, runtime
from redis_lock_client._sync.given import Given
from redis_lock_client.protocol import Request


def take_and_release(client: Any, chance: random.Random, interrupter: Interrupter) -> None:
    """One attempt. What was interrupted after the lock was taken is known to the lock, which can be released then."""
    lock = Lock(client, chance.choice(KEYS), timeout=60, reentrant=chance.random() < 0.3)
    way = chance.choice((in_blocks, by_calls, without_waiting))
    interrupter.call(lambda: way(lock))
    while lock.local.token is not None:
        lock.release()


def in_blocks(lock: Lock) -> None:
    with lock, lock if lock.reentrant else contextlib.nullcontext():
        time.sleep(0)


def by_calls(lock: Lock) -> None:
    if lock.acquire(blocking_timeout=0.002):
        lock.release()


def test_signals_at_any_moment(nothing_is_left: Any) -> None:
    """The main thread is interrupted, while another one goes for the same locks."""
    ended = threading.Event()

    def contend() -> int:
        count = 0
        while not ended.is_set():
            with Lock(nothing_is_left, random.choice(KEYS), timeout=60, reentrant=True, blocking_timeout=30):
                count += 1
        return count

    chance = random.Random(1)
    with Threads() as pool, interrupted_by_signals(2) as interrupter:
        other = pool.submit(contend)
        try:
            while interrupter.hits < 1500:
                take_and_release(nothing_is_left, chance, interrupter)
        finally:
            ended.set()
        assert other.result(30) > 100


@pytest.mark.parametrize("options", [{}, {"reentrant": True}, {"shared": True}])
def test_a_signal_handler_takes_another_lock(nothing_is_left: Any, options: dict[str, Any]) -> None:
    """At any moment of what it interrupts, which goes for a lock of the same client."""
    handled = 0

    def handle() -> None:
        nonlocal handled
        with Lock(nothing_is_left, "window", timeout=60, blocking_timeout=5, **options):
            handled += 1

    chance = random.Random(3)
    with handled_by(handle):
        while handled < 250:
            way = chance.choice((in_blocks, by_calls, without_waiting))
            way(Lock(nothing_is_left, "door", timeout=60, **options))


def test_a_signal_handler_gives_a_token_of_its_own() -> None:
    given, requests = Given(), deque[Request](maxlen=200)

    def note() -> None:
        requests.append(Request(key=b"door", token=secrets.token_bytes(), given=True))
        given.begin(requests[-1])

    ends = time.monotonic() + 2
    with handled_by(note):
        while time.monotonic() < ends:
            note()
    assert given.may_be_given_up(requests[-1])


def test_a_signal_handler_asks_for_a_session_in_the_midst_of_a_request_for_one(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sessions have one connection, so it is an error: it would wait for what it has interrupted."""
    exchange = connections.exchange

    def interrupted(connection: Any, words: list[Any]) -> Any:
        if words[:2] == ["LOCK.ACQUIRE", b"door"]:
            with pytest.raises(RuntimeError, match="interrupted"):
                Lock(client, "window", timeout=30, session=True).acquire()
            Lock(client, "window", timeout=30).acquire()
        return exchange(connection, words)

    monkeypatch.setattr(connections, "exchange", interrupted)
    for number in range(2):
        with Lock(client, "door", timeout=30, session=True):
            assert client.exists("door", "window") == 2, number
        client.delete("window")


def test_exceptions_in_threads_at_any_moment(nothing_is_left: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime.threading, "Thread", Beginning)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        with interrupted_by_exceptions(seed) as interrupter:
            while interrupter.hits < 1000:
                take_and_release(nothing_is_left, chance, interrupter)

    with Threads() as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result(100)


def test_a_block_that_an_interrupt_ends(client: Any) -> None:
    """Where the interrupt comes in the block, the block is left as by any exception."""
    with pytest.raises(KeyboardInterrupt), Lock(client, "door", timeout=30):
        raise KeyboardInterrupt
    assert not client.exists("door")
