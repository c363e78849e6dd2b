"""One client of a contest: takes one lock again and again, as bench/src/sections/packages/worker.rs asks it to."""

import sys
import time
from importlib.metadata import version


def run(package, connect):
    """`connect(port)` gives a function that takes the lock of a key and returns what releases it, or None: it gave up."""
    port, key, hold_us = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    acquire = connect(port)
    # Connects, and makes the server know the scripts.
    acquire(f"{key}:warm-up:{time.monotonic_ns()}")()
    print("ready", version(package), flush=True)

    until = int(sys.stdin.readline())
    attempts = []
    while (begun := time.monotonic_ns()) < until:
        release = acquire(key)
        granted = time.monotonic_ns()
        if release is None:
            attempts.append(f"gave-up {begun}")
            continue
        time.sleep(hold_us / 1e6)
        attempts.append(f"held {begun} {granted} {time.monotonic_ns()}")
        release()

    print(*attempts, "done", sep="\n", flush=True)
    # The connection stays open while the server's counters are read.
    sys.stdin.read()
