"""Waiting for 20 seconds with redis-py's default settings, in front of clients that came later."""

import threading
import time

from harness import connect, lock

WAIT_S = 20
LATER = ("later-1", "later-2")


def listing(client, key):
    """The waiters of a lock as dictionaries, first in line first."""
    waiters = lock(client, "WAITERS", key)
    return [w if isinstance(w, dict) else dict(zip(w[::2], w[1::2])) for w in waiters]


class Thread:
    """Runs a function that answers something."""

    def __init__(self, function, *args):
        self.answer = None
        self.thread = threading.Thread(target=self._run, args=(function, *args), daemon=True)
        self.thread.start()

    def _run(self, function, *args):
        self.answer = function(*args)

    def result(self):
        return self.result_within(30)

    def result_within(self, patience_s):
        self.thread.join(patience_s)
        assert not self.thread.is_alive(), "it never ended"
        return self.answer


def until(what, condition, patience_s=15):
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)


def wait_later(command, key, token):
    """A client that does not time out."""
    client = connect()
    client.connection_pool.connection_kwargs["socket_timeout"] = None
    return lock(client, command, key, token, "BLOCK", 0)


def is_served_first(wait, command, least_requests):
    """`wait` gets the lock for the token `patient` after 20 s, once, and had sent at least so many requests."""
    key = f"door-{command}"
    control = connect()
    assert lock(control, command, key, "holder") == 1
    began = time.monotonic()
    patient = Thread(wait, command, key, "patient")
    until("the patient one waits", lambda: len(listing(control, key)) == 1)
    later = []
    for token in LATER:
        later.append(Thread(wait_later, command, key, token))
        until("it waits", lambda: listing(control, key)[-1][b"token"] == token.encode())

    # As long as it is present it stands in front.
    requests, present = set(), False
    while time.monotonic() < began + WAIT_S:
        line = listing(control, key)
        tokens = [waiter[b"token"].decode() for waiter in line]
        present = len(tokens) == len(LATER) + 1
        assert tokens == (["patient", *LATER] if present else [*LATER]), tokens
        if present:
            requests.add((line[0][b"client-id"], line[0][b"remaining-ms"] + round(time.monotonic() * 1000)))
        time.sleep(0.02)

    # Right after it has come back, so that the release does not find it away.
    last = listing(control, key)[0]

    def has_come_back():
        nonlocal last
        before, last = last, listing(control, key)[0]
        new = last[b"client-id"] != before[b"client-id"] or last[b"remaining-ms"] > before[b"remaining-ms"]
        return last[b"token"] == b"patient" and new

    until("it is there again", has_come_back, 25)
    assert lock(control, "RELEASE", key, "holder") == 0
    assert patient.result() == 1
    waited_s = time.monotonic() - began
    assert waited_s > WAIT_S, waited_s
    info = lock(control, "INFO", key)
    pairs = info if isinstance(info, dict) else dict(zip(info[::2], info[1::2]))
    assert (pairs[b"owner"], pairs[b"holds"]) == (b"patient", 1), pairs
    tokens = [waiter[b"token"].decode() for waiter in listing(control, key)]
    assert tokens == [*LATER], f"a copy of the request still waits: {tokens}"

    # Requests that differ in their connection, or in when they will give up by more than this loop is inexact.
    ends = sorted(end for _, end in requests)
    several = 1 + sum(1 for one, other in zip(ends, ends[1:]) if other - one > 500)
    assert several >= least_requests, f"only {several} requests: nothing was sent again"

    assert lock(control, "RELEASE", key, "patient") == 0
    for token, thread in zip(LATER, later):
        assert thread.result() == 1
        assert lock(control, "RELEASE", key, token) == 0
    assert control.exists(key) == 0
