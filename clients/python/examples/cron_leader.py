"""Of many processes, one does a job at each interval. If its process ends, however it ends, the next one takes over.

python cron_leader.py web-1
"""

import os
import sys
import threading

import redis

from redis_lock_client import Lock, LockLost, observe

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))


def follow() -> None:
    """Prints the leader at each change."""
    for leader in observe(client, "cron"):
        print("the leader is", leader, flush=True)


def lead(name: str, every_s: float) -> None:
    """Does the job for as long as this process leads."""
    with Lock(client, "cron", timeout=3, session=True, label=name) as lock:
        print(name, "leads with fencing token", lock.fence(), flush=True)
        while not lock.lost.wait(every_s):
            print(name, "does the job", flush=True)


threading.Thread(target=follow, daemon=True).start()
while True:
    try:
        lead(sys.argv[1], 1)
    except LockLost:
        print(sys.argv[1], "leads no more", flush=True)
