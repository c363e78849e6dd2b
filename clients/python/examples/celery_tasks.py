"""Celery: a task of which one runs at a time, and whose lock does not outlast the worker."""

import os

import redis
from celery import Celery

from redis_lock_client import Lock, LockTimeout

url = os.environ.get("REDIS_URL", "redis://localhost:6379")
app = Celery("tasks", broker=url)
client = redis.Redis.from_url(url)


@app.task(bind=True, max_retries=3)
def synchronize(self, account: str) -> str:
    try:
        with Lock(client, f"synchronize:{account}", timeout=30, session=True, blocking_timeout=1):
            return f"{account} is synchronized"
    except LockTimeout as error:
        raise self.retry(exc=error, countdown=10) from error
