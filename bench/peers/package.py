"""The Python package of this repository, with its defaults, and a lease."""

import sys
from pathlib import Path

import redis
from worker import run

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python" / "src"))

from redis_lock_client import Lock  # noqa: E402


def connect(port):
    client = redis.Redis(host="127.0.0.1", port=port)

    def acquire(key):
        lock = Lock(client, key, timeout=30)
        return lock.release if lock.acquire() else None

    return acquire


run("redis", connect)
