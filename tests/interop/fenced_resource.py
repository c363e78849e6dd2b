"""A resource that checks fencing tokens, as docs/fencing.md shows it: SQLite, with the condition in the statement.

A holder in a process of its own is stopped, outlives its lease, and writes when it wakes up.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile

from harness import PATIENCE_S, connect, lock, run

KEY = "account"
COUNTER = "account:fence"

UPDATE = "UPDATE account SET balance = :balance, fence = :token WHERE id = :id AND fence <= :token"

# Draws a token, says it, and writes when it is told the balance. Says how many rows its statement changed.
HOLDER = f"""
import sqlite3, sys, redis
client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
assert client.execute_command("LOCK.ACQUIRE", "{KEY}", "stopped", "PX", sys.argv[3]) == 1
token = client.execute_command("LOCK.FENCE", "{KEY}", "stopped", "{COUNTER}")
print(token, flush=True)
balance = int(sys.stdin.readline())
with sqlite3.connect(sys.argv[2]) as resource:
    print(resource.execute({UPDATE!r}, dict(id=1, balance=balance, token=token)).rowcount, flush=True)
"""


class Resource:
    def __init__(self, path):
        self.connection = sqlite3.connect(path, timeout=PATIENCE_S)
        with self.connection as db:
            db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER)")
            db.execute("INSERT INTO account VALUES (1, 100, 0)")

    def write(self, balance, token):
        """Whether the resource took it."""
        with self.connection as db:
            return db.execute(UPDATE, dict(id=1, balance=balance, token=token)).rowcount == 1

    def balance(self):
        return self.connection.execute("SELECT balance FROM account WHERE id = 1").fetchone()[0]


class Holder:
    """The holder in a process of its own."""

    def __init__(self, path, lease_ms):
        command = [sys.executable, "-c", HOLDER, sys.argv[1], path, str(lease_ms)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.token = int(self.process.stdout.readline())

    def tell(self, balance):
        self.process.stdin.write(f"{balance}\n")
        self.process.stdin.flush()

    def changed_rows(self):
        rows = int(self.process.stdout.readline())
        self.process.communicate(timeout=PATIENCE_S)
        return rows

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self):
        os.kill(self.process.pid, signal.SIGCONT)


def check_a_holder_that_keeps_its_lock_writes():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bank.db")
        resource = Resource(path)
        holder = Holder(path, 60000)
        holder.tell(200)
        assert holder.changed_rows() == 1
        assert resource.balance() == 200


def check_a_holder_that_was_stopped_past_its_lease_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bank.db")
        resource = Resource(path)
        holder = Holder(path, 600)
        holder.stop()
        try:
            holder.tell(200)
            client = connect()
            assert lock(client, "ACQUIRE", KEY, "next", "PX", 60000, "BLOCK", 9000) == 1
            token = lock(client, "FENCE", KEY, "next", COUNTER)
            assert token > holder.token
            assert resource.write(300, token)
        finally:
            holder.wake()
        assert holder.changed_rows() == 0, "the resource took the write of a holder that was overtaken"
        assert resource.balance() == 300
        assert resource.write(400, token), "the present holder writes on"


run(globals())
