"""FastAPI: one order of a customer at a time. Run it with ``fastapi run fastapi_app.py``."""

import os
from contextlib import asynccontextmanager

import redis.asyncio
from fastapi import FastAPI, HTTPException

from redis_lock_client.asyncio import Lock, LockNotOwnedError, LockTimeout


@asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.redis = redis.asyncio.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379"))
    yield
    await app.state.redis.aclose()


app = FastAPI(lifespan=lifespan)
orders: dict[str, int] = {}


@app.post("/customers/{customer}/orders")
async def order(customer: str) -> dict[str, int]:
    try:
        async with Lock(app.state.redis, f"orders:{customer}", timeout=10, blocking_timeout=5, cancel_on_lost=True):
            orders[customer] = orders.get(customer, 0) + 1
            return {"orders": orders[customer]}
    except LockTimeout:
        raise HTTPException(503, "too many orders of this customer", {"Retry-After": "1"}) from None
    except LockNotOwnedError:
        raise HTTPException(500, "the lock was lost") from None
