"""Monitoring tools wrap the functions of the client library; locks stay what they are."""

import functools
import inspect
import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
from engines import Engine
from servers import Server, own_connections, run_program

from redis_lock_client import Lock
from redis_lock_client import asyncio as for_tasks
from redis_lock_client.library import is_wrapped


def with_attribute(function: Any) -> Any:
    """As a decorator with functools.wraps has it."""

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return traced


def by_closure(execute: Any) -> Any:
    """As Sentry has it: no attribute names the function."""

    def patched(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        return execute(self, name, *args, **kwargs)

    return patched


class Proxy:
    """As wrapt has it: an object that looks like the function and binds as it does."""

    def __init__(self, wrapped: Any) -> None:
        self.__wrapped__ = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    @property
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return Proxy(self.__wrapped__.__get__(instance, owner))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


@pytest.fixture(params=[with_attribute, by_closure, Proxy])
def wrap(request: pytest.FixtureRequest) -> Any:
    return request.param


def check(server: Server, engine: Engine, traced: Any) -> None:
    """Checks that a traced client has a lock that the server grants, with all its features."""
    with server.client() as plain:
        for option in ({"session": True}, {"shared": True}, {"limit": 2}, {"renew": True}, {"reentrant": True}):
            with engine.lock(traced, "door", timeout=30, **option) as lock:
                assert lock.owned() and own_connections(plain)
        kind = Lock if engine.loop is None else for_tasks.Lock
        assert kind in type(engine.lock(traced, "door", timeout=30)._target if engine.loop else lock).__mro__


def test_wrapped_class_keeps_the_lock(
    server: Server, engine: Engine, wrap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    traced = engine.client(server, username="default", password=wrap.__name__)
    for kind, name in ((type(traced), "execute_command"), (traced.connection_pool.connection_class, "send_command")):
        monkeypatch.setattr(kind, name, wrap(inspect.getattr_static(kind, name)))
    with caplog.at_level(logging.DEBUG, "redis_lock_client"):
        check(server, engine, traced)
    assert is_wrapped(traced)
    assert sum("monitoring" in record.message for record in caplog.records) == 1


def test_wrapped_client_keeps_the_lock(server: Server, engine: Engine) -> None:
    traced = engine.client(server)
    traced.execute_command = Proxy(traced.execute_command)
    check(server, engine, traced)


TOOLS: dict[str, str] = {
    "opentelemetry.instrumentation.redis": "RedisInstrumentor().instrument()",
    "sentry_sdk": "init(integrations=[integrations.redis.RedisIntegration()])",
    "ddtrace": "patch(redis=True)",
    "newrelic.agent": "initialize()",
    "elasticapm": "instrument()",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tool_keeps_the_lock(server: Server, tool: str) -> None:
    """Each in a process of its own, since none of them can be taken off."""
    try:
        found = find_spec(tool)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{tool} is only in the environment with monitoring tools")
    before = f"""
import importlib
if {tool!r} == "sentry_sdk": import sentry_sdk.integrations.redis
exec({TOOLS[tool]!r}, vars(importlib.import_module({tool!r})))
"""
    body = """
from redis_lock_client.library import is_wrapped
assert is_wrapped(client), type(client).execute_command
async def work(lock):
    async with lock: return await lock.owned()
def main():
    with Lock(client, "door", timeout=5, session=True) as lock: print(lock.owned())
"""
    for tasks in (False, True):
        end = 'print(asyncio.run(work(Lock(client, "door", timeout=5, session=True))))' if tasks else "main()"
        done = run_program(body + end, server, before=before, tasks=tasks)
        assert done.stdout.endswith("True\n"), done.stderr
