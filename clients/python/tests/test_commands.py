"""A call for each command. The page of the command shows them: from such a comment to the next empty line."""

from typing import Any

from redis_lock_client import Lock


def test_commands_have_calls(client: Any) -> None:
    # LOCK.ACQUIRE
    lock = Lock(client, "door", timeout=30, blocking_timeout=20)
    acquired = lock.acquire()

    # LOCK.FENCE
    number = lock.fence()

    # LOCK.EXTEND
    lock.extend(60)

    # LOCK.RELEASE
    lock.release()

    # LOCK.REENTER
    nested = Lock(client, "cellar", timeout=30, reentrant=True)
    with nested, nested:
        print("this thread holds it twice")

    # LOCK.SHARE
    with Lock(client, "page", timeout=30, shared=True), Lock(client, "printers", timeout=30, limit=3):
        print("a reader of the page, one of three at the printers")

    assert acquired and number > 0
    assert not client.exists("door", "cellar", "page", "printers")
