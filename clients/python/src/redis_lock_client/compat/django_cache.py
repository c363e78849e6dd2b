"""The cache of python-redis-lock for Django: django-redis' cache, with locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import Lock, reset_all

if TYPE_CHECKING:
    DEFAULT_TIMEOUT: Any = object()

    class Cache:
        """The used parts of django-redis' cache."""

        client: Any

        def get(self, key: str, *, version: int | None) -> Any: ...
        def set(self, key: str, value: Any, *, timeout: Any, version: int | None) -> Any: ...
else:
    from django.core.cache.backends.base import DEFAULT_TIMEOUT
    from django_redis.cache import RedisCache as Cache


class RedisCache(Cache):
    """A cache whose ``lock`` is that of ``redis_lock_client.compat``."""

    @property
    def _redis(self) -> Any:
        try:
            return self.client.get_client()
        except Exception as error:
            raise NotImplementedError("The cache needs a CLIENT_CLASS with a client, such as DefaultClient.") from error

    def lock(
        self, key: str, expire: float | None = None, id: str | bytes | None = None, auto_renewal: bool = False
    ) -> Lock:
        """A lock of that name."""
        return Lock(self._redis, key, expire=expire, id=id, auto_renewal=auto_renewal)

    def locked_get_or_set(
        self,
        key: str,
        value_creator: Callable[[], Any],
        version: int | None = None,
        expire: float | None = None,
        id: str | bytes | None = None,
        lock_key: str | None = None,
        timeout: Any = DEFAULT_TIMEOUT,
    ) -> Any:
        """The value of a key. If it has none, one process creates it, under a lock, while the others wait for it."""
        value = self.get(key, version=version)
        if value is not None:
            return value
        with self.lock(lock_key or "get_or_set:" + key, expire=expire, id=id):
            value = self.get(key, version=version)
            if value is None:
                value = value_creator()
                if value is None:
                    raise ValueError("`value_creator` must return a value")
                self.set(key, value, timeout=timeout, version=version)
            return value

    def reset_all(self) -> None:
        """Deletes all locks of this kind, whichever clients hold them."""
        reset_all(self._redis)
