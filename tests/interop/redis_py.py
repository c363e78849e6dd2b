"""redis-py's own Lock and raw LOCK.* commands on one key."""

from redis.exceptions import LockError, LockNotOwnedError

from harness import Blocked, connect, lock, refused, run

KEY = "door"


def check_redis_py_keeps_raw_commands_out():
    client = connect()
    theirs = client.lock(KEY, timeout=60)
    assert theirs.acquire(blocking=False)
    assert lock(client, "ACQUIRE", KEY, "raw") is None
    assert lock(client, "REENTER", KEY, "raw") is None
    refused("NOTOWNER", client, "RELEASE", KEY, "raw")
    refused("NOTOWNER", client, "EXTEND", KEY, "raw", "PX", 1000)
    assert theirs.owned()
    theirs.release()
    assert lock(client, "ACQUIRE", KEY, "raw") == 1
    assert theirs.locked()


def check_raw_commands_keep_redis_py_out():
    client = connect()
    theirs = client.lock(KEY, timeout=60)
    for take in ("ACQUIRE", "REENTER"):
        assert lock(client, take, KEY, "raw", "PX", 60000) == 1
        assert not theirs.acquire(blocking=False)
        assert lock(client, "RELEASE", KEY, "raw") == 0
    assert theirs.acquire(blocking=False)
    theirs.release()


def check_a_blocked_acquire_is_granted_when_redis_py_releases():
    for take in ("ACQUIRE", "REENTER"):
        theirs = connect().lock(KEY, timeout=60)
        assert theirs.acquire(blocking=False)
        waiting = Blocked(take, KEY, "raw", "BLOCK", 5000)
        theirs.release()
        assert waiting.result() == 1
        assert not theirs.acquire(blocking=False)
        assert lock(connect(), "RELEASE", KEY, "raw") == 0


def check_redis_py_waits_until_a_raw_release():
    client = connect()
    assert lock(client, "ACQUIRE", KEY, "raw", "PX", 300) == 1
    theirs = connect().lock(KEY, timeout=60, sleep=0.01)
    assert theirs.acquire(blocking_timeout=5), "at the end of the raw lease"
    assert lock(client, "ACQUIRE", KEY, "raw") is None
    theirs.release()


def check_each_can_end_and_extend_the_others_lock_with_its_token():
    client = connect()
    theirs = client.lock(KEY, timeout=60)
    assert theirs.acquire(blocking=False)
    token = theirs.local.token
    assert lock(client, "EXTEND", KEY, token, "PX", 90000) == 90000
    assert lock(client, "ACQUIRE", KEY, token) == 1
    assert lock(client, "RELEASE", KEY, token) == 0
    try:
        theirs.release()
    except LockNotOwnedError:
        pass
    else:
        raise AssertionError("redis-py did not see that its lock is gone")

    assert lock(client, "ACQUIRE", KEY, "shared", "PX", 60000) == 1
    theirs.local.token = b"shared"
    assert theirs.extend(30)
    assert 80000 < client.pttl(KEY) <= 90000
    theirs.release()
    assert client.exists(KEY) == 0


def check_redis_py_does_not_release_a_raw_lock():
    client = connect()
    theirs = client.lock(KEY, timeout=60)
    assert lock(client, "ACQUIRE", KEY, "raw") == 1
    theirs.local.token = b"not the token"
    try:
        theirs.release()
    except LockError:
        pass
    else:
        raise AssertionError("redis-py released a lock of somebody else")
    assert client.get(KEY) == b"raw"


run(globals())
