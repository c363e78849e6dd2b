"""Of many processes, one does a job at each interval. If its process ends, however it ends, the next one takes over.

python cron_leader.py web-1
"""

import logging
import os
import sys
import threading

import redis

from redis_lock_client import Lock, LockLost, observe

# Each line in one piece: two threads write.
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
say = logging.info
client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))


def follow() -> None:
    """Reports the leader at each change."""
    for leader in observe(client, "cron"):
        say("the leader is %s", leader)


def lead(name: str, every_s: float) -> None:
    """Does the job for as long as this process leads."""
    with Lock(client, "cron", timeout=3, session=True, label=name) as lock:
        say("%s leads with fencing token %s", name, lock.fence())
        while not lock.lost.wait(every_s):
            say("%s does the job", name)


threading.Thread(target=follow, daemon=True).start()
while True:
    try:
        lead(sys.argv[1], 1)
    except LockLost:
        say("%s leads no more", sys.argv[1])
