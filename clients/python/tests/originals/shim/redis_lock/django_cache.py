"""What python-redis-lock's tests for Django import in its place."""

from redis_lock_client.compat.django_cache import RedisCache

__all__ = ["RedisCache"]
