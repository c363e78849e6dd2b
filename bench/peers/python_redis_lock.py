"""python-redis-lock with its defaults: it waits by BLPOP, for ever, and has no lease."""

import redis
import redis_lock
from worker import run


def connect(port):
    client = redis.StrictRedis(host="127.0.0.1", port=port)

    def acquire(key):
        lock = redis_lock.Lock(client, key)
        return lock.release if lock.acquire() else None

    return acquire


run("python-redis-lock", connect)
