"""Locks with the Python packages of today, as it is told line by line.

A line is `PACKAGE acquire NAME LEASE_S PATIENCE_S` or `PACKAGE release`. Each package obeys in a thread of its
own, and answers by `PACKAGE ANSWER` when it is done: `held VERSION`, `gave up`, `released`, or what the
package says when it cannot release.
"""

import os
import queue
import sys
import threading
from importlib.metadata import version

import redis
import redis_lock
import redis_semaphore
from pottery import Redlock as PotteryRedlock
from redlock import Redlock

PORT = int(sys.argv[1])
CLIENT = redis.Redis(host="127.0.0.1", port=PORT)


class RedisPy:
    distribution = "redis"

    def acquire(self, name, lease_s, patience_s):
        self.lock = CLIENT.lock(name, timeout=lease_s)
        return self.lock.acquire(blocking_timeout=patience_s)

    def release(self):
        self.lock.release()


class PythonRedisLock:
    distribution = "python-redis-lock"

    def acquire(self, name, lease_s, patience_s):
        self.lock = redis_lock.Lock(CLIENT, name, expire=lease_s)
        # It takes no longer patience than its lease, and as much without being told.
        return self.lock.acquire(timeout=patience_s if patience_s < lease_s else None)

    def release(self):
        self.lock.release()


class RedlockPy:
    distribution = "redlock-py"
    manager = None

    def acquire(self, name, lease_s, patience_s):
        self.manager = Redlock([{"host": "127.0.0.1", "port": PORT}])
        self.lock = self.manager.lock(name, lease_s * 1000)
        return self.lock

    def release(self):
        self.manager.unlock(self.lock)


class Pottery:
    distribution = "pottery"

    def acquire(self, name, lease_s, patience_s):
        self.lock = PotteryRedlock(key=name, masters={CLIENT}, auto_release_time=lease_s)
        return self.lock.acquire(timeout=patience_s)

    def release(self):
        self.lock.release()


class RedisSemaphore:
    """One permit of two."""

    distribution = "Redis-Semaphore"

    def acquire(self, name, lease_s, patience_s):
        self.semaphore = redis_semaphore.Semaphore(CLIENT, 2, namespace=name)
        try:
            return self.semaphore.acquire(timeout=patience_s)
        except redis_semaphore.NotAvailable:
            return None

    def release(self):
        self.semaphore.release()


PACKAGES = {
    "redis-py": RedisPy(),
    "python-redis-lock": PythonRedisLock(),
    "redlock-py": RedlockPy(),
    "pottery": Pottery(),
    "Redis-Semaphore": RedisSemaphore(),
}


def obey(name, orders):
    package = PACKAGES[name]
    while True:
        order, *words = orders.get()
        try:
            if order == "release":
                package.release()
                said = "released"
            else:
                key, lease_s, patience_s = words
                held = package.acquire(key, int(lease_s), int(patience_s))
                said = f"held {version(package.distribution)}" if held else "gave up"
        except Exception as error:
            said = type(error).__name__
        # In one write, which is not mixed up with that of another thread.
        os.write(1, f"{name} {said}\n".encode())


QUEUES = {name: queue.SimpleQueue() for name in PACKAGES}
for item in QUEUES.items():
    threading.Thread(target=obey, args=item, daemon=True).start()
CLIENT.ping()
for line in sys.stdin:
    package, *order = line.split()
    QUEUES[package].put(order)
