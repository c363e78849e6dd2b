"""One process of a contest, as bench/src/contest/worker.rs describes it: its clients acquire and release locks.

worker.py PACKAGE PORT LOCKS FIRST CLIENTS HOLD_MS [PERMITS]
"""

import sys
import threading
import time
from importlib.metadata import version

from locks import PACKAGES

STRIDE = 1543

package, port, path, *numbers = sys.argv[1:]
first, clients, hold_ms = map(int, numbers[:3])
distribution, connect = PACKAGES[package]
with open(path) as file:
    locks = file.read().split()


def attempts(number, acquire, until, lines):
    """Adds a line for each attempt of a client until that time."""
    place = number * STRIDE
    while (begun := time.monotonic_ns()) < until:
        lock = locks[place % len(locks)]
        place += 1
        release = acquire(f"lock:{lock}")
        granted = time.monotonic_ns()
        if release is None:
            lines.append(f"{number} {lock} {begun}")
            continue
        time.sleep(hold_ms / 1e3)
        lines.append(f"{number} {lock} {begun} {granted} {time.monotonic_ns()}")
        release()


acquires = [connect(int(port)) for _ in range(clients)]
for number, acquire in enumerate(acquires, first):
    # Connects, and lets the server know the scripts.
    acquire(f"warm-up:{number}")()
print("ready", version(distribution), flush=True)

until = int(sys.stdin.readline())
lines = [[] for _ in acquires]
threads = [
    threading.Thread(target=attempts, args=(first + n, acquire, until, lines[n])) for n, acquire in enumerate(acquires)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*(line for of_client in lines for line in of_client), "done", sep="\n", flush=True)
# Waits until the server's counters were read.
sys.stdin.read()
