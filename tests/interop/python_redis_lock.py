"""python-redis-lock, whose key is `lock:` and the name, and raw LOCK.* commands on that key."""

import redis_lock
from redis.exceptions import ResponseError

from harness import Blocked, connect, lock, refused, run

KEY = "lock:door"


def theirs_with(**options):
    return redis_lock.Lock(connect(), "door", **options)


def check_python_redis_lock_keeps_raw_commands_out():
    client = connect()
    theirs = theirs_with(expire=60)
    assert theirs.acquire(blocking=False)
    assert lock(client, "ACQUIRE", KEY, "raw") is None
    assert lock(client, "REENTER", KEY, "raw") is None
    refused("NOTOWNER", client, "RELEASE", KEY, "raw")
    theirs.release()
    assert lock(client, "ACQUIRE", KEY, "raw") == 1


def check_raw_commands_keep_python_redis_lock_out():
    client = connect()
    theirs = theirs_with(expire=60)
    assert lock(client, "ACQUIRE", KEY, "raw", "PX", 60000) == 1
    assert not theirs.acquire(blocking=False)
    assert lock(client, "RELEASE", KEY, "raw") == 0
    assert theirs.acquire(blocking=False)
    theirs.release()


def check_a_reentrant_lock_keeps_python_redis_lock_out():
    client = connect()
    assert lock(client, "REENTER", KEY, "raw") == 1
    try:
        taken = theirs_with(expire=60).acquire(blocking=False)
    except ResponseError as error:
        # It reads the key as a String first.
        assert str(error).startswith("WRONGTYPE"), error
    else:
        assert not taken
    assert client.hgetall(KEY) == {b"raw": b"1"}


def check_a_blocked_acquire_is_granted_when_python_redis_lock_releases():
    theirs = theirs_with(expire=60)
    assert theirs.acquire(blocking=False)
    waiting = Blocked("ACQUIRE", KEY, "raw", "BLOCK", 5000)
    theirs.release()
    assert waiting.result() == 1


def check_the_token_is_its_id():
    client = connect()
    theirs = theirs_with(expire=60)
    assert theirs.acquire(blocking=False)
    assert lock(client, "EXTEND", KEY, theirs.id, "EX", 90) == 90000
    assert lock(client, "RELEASE", KEY, theirs.id) == 0
    assert theirs_with(expire=60).acquire(blocking=False)


run(globals())
