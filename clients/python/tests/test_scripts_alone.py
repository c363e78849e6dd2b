"""What scripts answer, beside the commands that they stand in for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from conftest import library

from redis_lock_client import scripts
from redis_lock_client.protocol import Request, Word, info

#: The same is asked of both, once by commands and once by scripts.
NATIVE, SCRIPTS = b"native", b"scripts"
Step = tuple[Callable[[Request], list[Word]], Callable[[Request], list[Word]]]


def a_request(chance: random.Random) -> Request:
    return Request(
        key=b"",
        token=chance.choice([b"alice", b"bob"]),
        lease_ms=chance.choice([None, 20_000, 40_000]),
        reentrant=chance.random() < 0.6,
    )


def a_step(chance: random.Random) -> Step:
    """What to send for a request, as a command and as a script."""
    hold, lease_ms, add = chance.choice([None, 1, 1, 2, 3]), chance.choice([10_000, 30_000]), chance.random() < 0.3
    return chance.choices(
        [
            (lambda request: request.take(hold or 1), lambda request: scripts.take(request, hold or 1)),
            (lambda request: request.release(hold), lambda request: scripts.release(request, hold)),
            (lambda request: request.extend(lease_ms, add), lambda request: scripts.extend(request, lease_ms, add)),
        ],
        [5, 3, 2],
    )[0]


def a_write_of_others(chance: random.Random) -> list[Word]:
    """Locks of others, what ends them, and what is none."""
    lock: Word = "KEY"
    return chance.choice(
        [
            ["DEL", lock],
            ["SET", lock, "alice", "PX", 30_000],
            ["HSET", lock, "bob", 2],
            ["HSET", lock, "alice", "02"],
            ["HSET", lock, "alice", "many"],
            ["RPUSH", lock, "an item"],
            ["LOCK.SHARE", lock, "carol", "PX", 30_000],
            ["LOCK.SHARE", lock, "dave"],
        ]
    )


def answer(client: Any, words: list[Word]) -> object:
    try:
        return client.execute_command(*words)
    except library.ResponseError as error:
        return str(error)


def state(client: Any, key: bytes) -> tuple[object, ...]:
    kind = client.type(key)
    read = {b"string": "GET", b"hash": "HGETALL", b"zset": "ZRANGE"}.get(kind)
    arguments = (0, -1) if read == "ZRANGE" else ()
    return kind, client.execute_command(read, key, *arguments) if read else None


@pytest.mark.parametrize("seed", range(5))
def test_scripts_answer_as_the_commands_do(client: Any, seed: int) -> None:
    """Whatever is asked for, whatever is in the lock's place; and they leave the same there."""
    chance, met = random.Random(seed), set[str]()
    for _ in range(600):
        if chance.random() < 0.15:
            write = a_write_of_others(chance)
            for key in (NATIVE, SCRIPTS):
                answer(client, [key if word == "KEY" else word for word in write])
        request, (command, script) = a_request(chance), a_step(chance)
        native = answer(client, command(replace(request, key=NATIVE)))
        alone = answer(client, script(replace(request, key=SCRIPTS)))
        if isinstance(native, int) and native > 1000:
            assert isinstance(alone, int) and abs(native - alone) < 1000
        else:
            assert alone == native, command(request)
            met.add(str(native))
        assert state(client, SCRIPTS) == state(client, NATIVE), command(request)
        assert abs(client.pttl(SCRIPTS) - client.pttl(NATIVE)) < 1000, command(request)
        assert known(client, scripts.info(SCRIPTS)) == known(client, ["LOCK.INFO", NATIVE])
    codes = {word.split(" ")[0] for word in met}
    assert codes >= {"0", "1", "2", "None", "NOTHELD", "NOTOWNER", "NOLEASE", "HOLDMISMATCH", "WRONGTYPE"}


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("lease_ms", [0, -5_000, 10**30])
def test_a_lease_that_cannot_be(client: Any, reentrant: bool, lease_ms: int) -> None:
    """It is an error before anything is written: PEXPIRE would delete the lock, and a script may stop half way."""
    request = Request(key=SCRIPTS, token=b"alice", lease_ms=lease_ms, reentrant=reentrant)
    steps = [
        scripts.take(request, 1),
        scripts.extend(request, lease_ms, False),
        scripts.extend(request, lease_ms, True),
    ]
    for held in (False, True):
        if held:
            client.execute_command(*scripts.take(replace(request, lease_ms=30_000), 1))
        for step in steps:
            with pytest.raises(library.ResponseError, match="invalid expire time"):
                client.execute_command(*step)
            assert client.exists(SCRIPTS) == held
    assert 29_000 < client.pttl(SCRIPTS) <= 30_000


def known(client: Any, words: list[Word]) -> object:
    """Who holds the lock, and of which kind it is."""
    reply = answer(client, words)
    return reply if isinstance(reply, str) else [info(reply)[name] for name in (b"state", b"owner")]


def test_a_share_can_be_given_back_by_a_script(client: Any) -> None:
    """It was granted by the module, which is gone since. The others keep theirs."""
    key = b"door"
    for token, lease in ((b"carol", ["PX", 40_000]), (b"dave", ["PX", 20_000]), (b"erin", [])):
        client.execute_command("LOCK.SHARE", key, token, *lease)
    give_back = [scripts.release(Request(key=key, token=token), None) for token in (b"erin", b"carol", b"dave")]
    assert client.pttl(key) == -1
    assert client.execute_command(*give_back[0]) == 0 and 39_000 < client.pttl(key) <= 40_000
    assert client.execute_command(*give_back[1]) == 0 and 19_000 < client.pttl(key) <= 20_000
    with pytest.raises(library.ResponseError, match="NOTOWNER"):
        client.execute_command(*give_back[1])
    assert client.execute_command(*give_back[2]) == 0 and not client.exists(key)
