"""The cases of clients/vectors, which all packages share: words.json, and the transcripts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from servers import library

from redis_lock_client import Lock, acquisition, arguments, connection, flow, holding, lease, request
from redis_lock_client.errors import LockQueueFull, ModuleNeededError, ServerError
from redis_lock_client.request import Kind, Request

#: In the repository or in a source distribution.
VECTORS = next(up / "vectors" for up in [*Path(__file__).parents][1:] if (up / "vectors").exists())
CASES = json.loads((VECTORS / "words.json").read_text())


CLIENT = library.from_url("redis://127.0.0.1:1")


def each(part: str) -> Any:
    return pytest.mark.parametrize("case", CASES[part], ids=lambda case: json.dumps(case)[:100])


def as_text(value: Any) -> Any:
    """Returns a reply with text for bytes."""
    match value:
        case bytes():
            return value.decode()
        case list():
            return [as_text(item) for item in value]
        case dict():
            return {as_text(name): as_text(item) for name, item in value.items()}
    return value


def sorted_options(words: list[Any]) -> list[str]:
    texts = [str(as_text(word)) for word in words]
    return [*texts[:3], *sorted(texts[3:])]


@each("commands")
def test_command_has_the_words_of_the_family(case: Any) -> None:
    lock = case["lock"]
    kind, permits, most = lock["kind"], lock.get("permits"), lock.get("max_waiters")
    form = kind == "reentrant", permits, kind == "shared", "session" in lock, most
    one = Request(Kind(b"door", *form), b"t:1", lock["lease_ms"])
    send: dict[str, Any] = {
        "acquire": lambda: one.take()[0],
        "wait": lambda: one.acquire(case["wait_ms"], case["channel"].encode()),
        "release": lambda: one.release()[0],
        "extend": lambda: one.extend(case["lease_ms"])[0],
        "fence": lambda: one.fence(in_cluster=False),
    }
    assert sorted_options(send[case["send"]]()) == sorted_options(case["words"])


@each("channels")
def test_channel_has_the_name_of_the_family(case: Any) -> None:
    channel = request.channel_of(case["name"].encode() if case["cluster"] else None, "ID")
    assert channel == (case["channel"] and case["channel"].encode())


@each("counters")
def test_counter_has_the_name_of_the_family(case: Any) -> None:
    counter = request.counter_of(case["name"].encode(), case["cluster"])
    assert counter == (case["counter"] and case["counter"].encode())


@each("arguments")
def test_argument_is_checked(case: Any) -> None:
    options = dict(case["lock"])
    name, lease, wait = options.pop("name"), options.pop("lease_ms"), options.pop("wait_ms", None)
    options |= {"limit": options.pop("permits")} if "permits" in options else {}

    def make() -> None:
        Lock(CLIENT, name, timeout=lease / 1000, blocking_timeout=wait and wait / 1000, **options)

    if case["valid"]:
        make()
    else:
        with pytest.raises(ValueError):
            make()


@each("errors")
def test_error_reply_has_its_class(case: Any) -> None:
    code = ServerError(case["text"]).code
    classes = {
        **dict.fromkeys(request.NOT_HELD, "lost"),
        **dict.fromkeys(request.TRY_AGAIN, "passing"),
        LockQueueFull.code: "full",
        ModuleNeededError.code: "no module",
        acquisition.NO_CHANNEL: "no channel",
    }
    assert classes.get(code, "server") == case["class"]


@each("messages")
def test_message_is_read(case: Any) -> None:
    tag = f"{case['token']} {case['key']}".encode()
    assert request.message_of(case["text"].encode()) == (case["event"], tag)


@each("labels")
def test_label_is_that_of_the_token(case: Any) -> None:
    assert request.label_of(case["token"].encode()) == case["label"]


@each("values")
def test_reply_is_read(case: Any) -> None:
    data = case["bytes"].encode()
    if "incomplete" in case or "invalid" in case:
        with pytest.raises(connection.Incomplete if "incomplete" in case else ValueError):
            connection.read(data)
        return
    value, size = connection.read(data + b"+next")
    assert size == len(data) and isinstance(value, connection.Push) == ("push" in case)
    if "error" in case:
        assert isinstance(value, ServerError) and str(value) == case["error"]
    else:
        assert as_text(value) == case.get("value", case.get("push"))


def test_numbers_are_those_of_the_family() -> None:
    numbers = {
        "min_lease_ms": arguments.LEASES[0] * 1000,
        "max_lease_ms": arguments.LEASES[1] * 1000,
        "min_session_lease_ms": arguments.MIN_SESSION_S * 1000,
        "max_grace_ms": request.MAX_GRACE_MS,
        "max_block_ms": request.MAX_BLOCK_MS,
        "silence_ms": acquisition.SILENCE_S * 1000,
        "outage_ms": acquisition.OUTAGE_S * 1000,
        "scripts_ms": acquisition.SCRIPTS_S * 1000,
        "max_poll_ms": Lock(CLIENT, "door").sleep * 1000,
        "release_again_ms": acquisition.AGAIN_S * 1000,
        "max_permits": arguments.MAX_COUNT,
        "shares_under_way": flow.TOGETHER,
        "late_part": holding.LATE_PART,
        "renewals": lease.RENEWALS,
    }
    # Without a lease, as in redis-py, a lock is held until it is released.
    assert {**CASES["numbers"], **numbers} == CASES["numbers"] and len(numbers) == len(CASES["numbers"]) - 1


@pytest.mark.timeout(500)
def test_transcripts_are_played() -> None:
    driver = Path(__file__).with_name("driver.py")
    command = [sys.executable, VECTORS / "player.py", "--", sys.executable, driver]
    played = subprocess.run(command, capture_output=True, text=True)
    assert played.returncode == 0, played.stdout + played.stderr
