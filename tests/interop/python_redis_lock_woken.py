"""python-redis-lock and raw LOCK.* commands for one lock: `lock.wake-foreign yes` wakes those who wait in BLPOP."""

import threading
import time

import redis_lock

from harness import PATIENCE_S, connect, lock, run

KEY = "lock:door"


class Theirs:
    """python-redis-lock without `expire`: it waits in BLPOP until it is signalled, however long that takes."""

    def __init__(self):
        self.lock = redis_lock.Lock(connect(), "door")
        self.thread = threading.Thread(target=self.lock.acquire, daemon=True)
        self.thread.start()
        wait_for_blocked(1)

    def has_it_within(self, seconds):
        self.thread.join(seconds)
        return not self.thread.is_alive()


def wait_for_blocked(count):
    client = connect()
    deadline = time.monotonic() + PATIENCE_S
    while client.info("clients")["blocked_clients"] != count:
        assert time.monotonic() < deadline, "it never waits"
        time.sleep(0.002)


def check_a_waiter_without_expire_is_woken_by_a_raw_release():
    client = connect()
    assert lock(client, "ACQUIRE", KEY, "raw") == 1
    theirs = Theirs()
    assert lock(client, "RELEASE", KEY, "raw") == 0
    assert theirs.has_it_within(PATIENCE_S)
    assert lock(client, "ACQUIRE", KEY, "raw") is None
    theirs.lock.release()


def check_without_the_setting_it_waits_on():
    client = connect()
    client.config_set("lock.wake-foreign", "no")
    assert lock(client, "ACQUIRE", KEY, "raw") == 1
    theirs = Theirs()
    assert lock(client, "RELEASE", KEY, "raw") == 0
    assert not theirs.has_it_within(0.5)
    client.config_set("lock.wake-foreign", "yes")
    assert lock(client, "ACQUIRE", KEY, "raw") == 1
    assert lock(client, "RELEASE", KEY, "raw") == 0
    assert theirs.has_it_within(PATIENCE_S)
    theirs.lock.release()


def check_a_fleet_of_both_loses_nobody():
    inside, failed = [], []

    def work(take, give_up):
        try:
            for _ in range(20):
                take()
                inside.append(1)
                assert len(inside) == 1, "two hold the lock"
                inside.pop()
                give_up()
        except BaseException as error:
            failed.append(error)
            raise

    def raw(token):
        client = connect()
        return (
            lambda: lock(client, "ACQUIRE", KEY, token, "BLOCK", 0),
            lambda: lock(client, "RELEASE", KEY, token),
        )

    def theirs():
        mine = redis_lock.Lock(connect(), "door")
        return mine.acquire, mine.release

    workers = [raw(f"raw-{number}") for number in range(3)] + [theirs() for _ in range(3)]
    threads = [threading.Thread(target=work, args=worker, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 3 * PATIENCE_S
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        assert not thread.is_alive(), "somebody still waits"
    assert not failed, failed
    assert connect().exists(KEY) == 0


run(globals())
