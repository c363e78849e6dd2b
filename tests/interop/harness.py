"""Runs every function of a script whose name begins with `check_`, each on an empty server.

A script is started with the server's port and ends with an error if a check fails.
"""

import sys
import threading
import time

import redis

PATIENCE_S = 10


def connect():
    """A connection as redis-py makes it, with its default settings."""
    return redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))


def lock(client, command, *args):
    """Sends a raw LOCK.* command; an error reply is raised."""
    return client.execute_command(f"LOCK.{command}", *args)


def refused(code, client, command, *args):
    """The command must answer an error with this code."""
    try:
        answer = lock(client, command, *args)
    except redis.ResponseError as error:
        assert str(error).split()[0] == code, error
    else:
        raise AssertionError(f"{command} {args} answered {answer} in place of {code}")


def wait_for_waiters(key, count):
    """Returns when `count` requests wait for the lock."""
    client = connect()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        info = lock(client, "INFO", key)
        pairs = info if isinstance(info, dict) else dict(zip(info[::2], info[1::2]))
        if pairs[b"waiters"] == count:
            return
        assert time.monotonic() < deadline, f"{pairs} in place of {count} waiters"
        time.sleep(0.002)


class Blocked:
    """A raw LOCK command with BLOCK on a connection of its own, which the server has put in line."""

    def __init__(self, command, key, *args):
        self.answer = None
        self.thread = threading.Thread(target=self._run, args=(command, key, *args), daemon=True)
        self.thread.start()
        wait_for_waiters(key, 1)

    def _run(self, *args):
        self.answer = lock(connect(), *args)

    def result(self):
        """The answer, which must come."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), "the waiting client got no answer"
        return self.answer


def run(checks):
    """Runs the checks among a script's globals."""
    found = [(name, check) for name, check in checks.items() if name.startswith("check_")]
    assert found, "a script without checks"
    for name, check in found:
        connect().flushall()
        print(name, flush=True)
        check()
