"""The locks of redis-py and python-redis-lock and LOCK commands on the same keys, at a server with `lock.wake-foreign yes`.

Runs every function whose name begins with `check_`, each on an empty server. The argument is the server's port.
"""

import sys
import threading
import time

import redis
import redis_lock

PATIENCE_S = 10
LEASE_S = 60


def connect():
    return redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))


def redis_py(**options):
    return connect().lock("door", **options)


def python_redis_lock(**options):
    return redis_lock.Lock(connect(), "door", expire=options.get("timeout"))


# Each library with the key of its lock, and its error for a lock that was lost.
LIBRARIES = [
    (redis_py, "door", redis.exceptions.LockNotOwnedError),
    (python_redis_lock, "lock:door", redis_lock.NotAcquired),
]


def lock(client, command, *args):
    """Returns the reply to a LOCK command, or the code of its error."""
    try:
        return client.execute_command(f"LOCK.{command}", *args)
    except redis.ResponseError as error:
        return str(error).split()[0]


def wait_until(what, condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


class Thread:
    """A call that blocks, in a thread of its own."""

    def __init__(self, function, *args):
        blocked = connect().info("clients")["blocked_clients"]
        self.result = None
        self.thread = threading.Thread(target=self.run, args=(function, *args), daemon=True)
        self.thread.start()
        wait_until("a client is blocked", lambda: connect().info("clients")["blocked_clients"] > blocked)

    def run(self, function, *args):
        self.result = function(*args)

    def ends_within(self, seconds):
        self.thread.join(seconds)
        return not self.thread.is_alive()


def check_each_keeps_the_other_out():
    for library, key, _ in LIBRARIES:
        client, theirs = connect(), library(timeout=LEASE_S)
        assert theirs.acquire(blocking=False)
        for take in ("ACQUIRE", "REENTER", "SHARE"):
            assert lock(client, take, key, "raw", "PX", 9000) is None
        assert lock(client, "RELEASE", key, "raw") == lock(client, "EXTEND", key, "raw", "PX", 9000) == "NOTOWNER"
        waiting = Thread(lock, connect(), "ACQUIRE", key, "raw", "PX", 60000, "BLOCK", 0)
        theirs.release()
        assert waiting.ends_within(PATIENCE_S) and waiting.result == 1
        assert not theirs.acquire(blocking=False)
        assert lock(client, "RELEASE", key, "raw") == 0
        assert theirs.acquire(blocking=False)
        theirs.release()


def check_value_of_the_key_is_the_token():
    for library, key, lost in LIBRARIES:
        client, theirs = connect(), library(timeout=LEASE_S)
        assert theirs.acquire(blocking=False)
        token = client.get(key)
        info = lock(client, "INFO", key)
        assert token in (info.values() if isinstance(info, dict) else info)
        assert lock(client, "FENCE", key, token, "fence") > 0
        assert lock(client, "EXTEND", key, token, "PX", 90000) == 90000
        assert lock(client, "RELEASE", key, token) == 0
        try:
            theirs.release()
        except lost:
            continue
        raise AssertionError("the library released a lock that it had lost")


def check_python_redis_lock_is_woken():
    """Without `expire` it waits for a signal only, for ever."""
    client, theirs = connect(), python_redis_lock()
    assert lock(client, "ACQUIRE", "lock:door", "raw") == 1
    waiting = Thread(theirs.acquire)
    client.config_set("lock.wake-foreign", "no")
    assert lock(client, "RELEASE", "lock:door", "raw") == 0
    assert not waiting.ends_within(0.5), "without the setting there is no signal"
    client.config_set("lock.wake-foreign", "yes")
    assert lock(client, "ACQUIRE", "lock:door", "raw") == 1
    assert lock(client, "RELEASE", "lock:door", "raw") == 0
    assert waiting.ends_within(PATIENCE_S)
    assert lock(client, "ACQUIRE", "lock:door", "raw") is None
    theirs.release()


def check_no_waiter_of_either_is_lost():
    inside, failed = [], []

    def work(take, release):
        try:
            for _ in range(20):
                take()
                inside.append(1)
                assert len(inside) == 1, "two hold the lock"
                inside.pop()
                release()
        except BaseException as error:
            failed.append(error)
            raise

    def raw(token):
        client = connect()
        return (
            lambda: lock(client, "ACQUIRE", "lock:door", token, "BLOCK", 0),
            lambda: lock(client, "RELEASE", "lock:door", token),
        )

    def theirs():
        mine = python_redis_lock()
        return mine.acquire, mine.release

    workers = [raw(f"raw-{number}") for number in range(3)] + [theirs() for _ in range(3)]
    threads = [threading.Thread(target=work, args=worker, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 3 * PATIENCE_S
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        assert not thread.is_alive(), "a client still waits"
    assert not failed, failed
    assert connect().exists("lock:door") == 0


for name, check in list(globals().items()):
    if name.startswith("check_"):
        connect().flushall()
        print(name, flush=True)
        check()
