"""redis-py's Lock with its defaults: it polls every 100 ms, for ever, and has no lease."""

import redis
from worker import run


def connect(port):
    client = redis.Redis(host="127.0.0.1", port=port)

    def acquire(key):
        lock = client.lock(key)
        return lock.release if lock.acquire() else None

    return acquire


run("redis", connect)
