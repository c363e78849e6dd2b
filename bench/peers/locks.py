"""The locks of the Python packages, with their defaults.

PACKAGES has for each name the package whose version is shown, and a function of the server's port. That returns a function
which acquires the lock of a key, and returns what releases it.
"""

import secrets
import sys
from pathlib import Path

import redis
import redis_lock

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python" / "src"))

import redis_lock_client  # noqa: E402


def redis_py(port):
    """It polls every 100 ms, without end, and has no lease."""
    client = redis.Redis(port=port)
    return acquired_by(lambda key: client.lock(key))


def python_redis_lock(port):
    """It waits by BLPOP, without end, and has no lease."""
    client = redis.StrictRedis(port=port)
    return acquired_by(lambda key: redis_lock.Lock(client, key))


def package(port):
    """The package of this repository, with a lease."""
    client = redis.Redis(port=port)
    return acquired_by(lambda key: redis_lock_client.Lock(client, key, timeout=30))


def acquired_by(lock_of):
    def acquire(key):
        lock = lock_of(key)
        return lock.release if lock.acquire() else None

    return acquire


def commands(port):
    """The commands of the module."""
    client = redis.Redis(port=port, socket_timeout=None)

    def acquire(key):
        token = secrets.token_hex(16)
        if client.execute_command("LOCK.ACQUIRE", key, token, "PX", 30000, "BLOCK", 20000):
            return lambda: client.execute_command("LOCK.RELEASE", key, token)
        return None

    return acquire


PACKAGES = {
    "redis-py": ("redis", redis_py),
    "python-redis-lock": ("python-redis-lock", python_redis_lock),
    "redis-lock-client": ("redis", package),
    "commands": ("redis", commands),
}
