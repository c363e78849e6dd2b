"""Django: a view that sells the last tickets, once each, in several threads and processes."""

import os

import redis
from django.http import HttpRequest, JsonResponse

from redis_lock_client import Lock, LockTimeout

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))
tickets = {"left": 2}


def buy(request: HttpRequest) -> JsonResponse:
    try:
        with Lock(client, "tickets", timeout=10, blocking_timeout=5):
            if not tickets["left"]:
                return JsonResponse({"error": "sold out"}, status=409)
            tickets["left"] -= 1
            return JsonResponse({"left": tickets["left"]})
    except LockTimeout:
        return JsonResponse({"error": "try again"}, status=503)
