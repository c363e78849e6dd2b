"""What python-redis-lock's tests import in its place."""

from redis_lock_client.compat import *  # noqa: F403
