"""A script that must not run twice at a time, started by cron on several machines."""

import os
import sys

import redis

from redis_lock_client import Lock, LockTimeout

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))

try:
    # The lock is free as soon as this process ends, however it ends.
    with Lock(client, "nightly-report", timeout=10, session=True, blocking_timeout=5, label="report") as lock:
        print("writing the report with fencing token", lock.fence())
except LockTimeout:
    sys.exit("another machine writes the report")
