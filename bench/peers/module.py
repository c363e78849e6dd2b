"""The module by raw commands of redis-py, as the README says."""

import secrets

import redis
from worker import run


def connect(port):
    client = redis.Redis(host="127.0.0.1", port=port, socket_timeout=None)

    def acquire(key):
        token = secrets.token_hex(16)
        if client.execute_command("LOCK.ACQUIRE", key, token, "PX", 30000, "BLOCK", 20000):
            return lambda: client.execute_command("LOCK.RELEASE", key, token)
        return None

    return acquire


run("redis", connect)
