"""Fixtures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engines import engine, make
from losses import Pulse
from servers import Server

__all__ = ["engine", "make"]
#: Only the environment with the newest libraries has hypothesis.
collect_ignore = [] if find_spec("hypothesis") else ["test_core.py"]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """The server that tests have in common, empty."""
    with shared_server.client() as client:
        client.flushall()
    yield shared_server


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Any]:
    """Starts servers that a test may do anything to."""
    with contextlib.ExitStack() as stack:

        def start(module: bool = True, *arguments: str) -> Server:
            one = Server(tmp_path / str(time.monotonic_ns()), module, *arguments)
            stack.callback(one.stop)
            return one.start()

        yield start


@pytest.fixture(params=[True, False], ids=["module", "scripts"])
def one_server(request: pytest.FixtureRequest, new_server: Any) -> Server:
    """A server with the module, and one without it."""
    server: Server = new_server(request.param)
    return server


@pytest.fixture
def each_client(one_server: Server) -> Iterator[Any]:
    """A client of a server with the module, and of one without it."""
    with one_server.client() as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as one:
        yield one


@pytest_asyncio.fixture
async def aclient(server: Server) -> AsyncIterator[Any]:
    one = server.client_asyncio()
    try:
        yield one
    finally:
        await one.aclose()


@pytest.fixture
def pulse(server: Server) -> Iterator[Pulse]:
    one = Pulse(server)
    yield one
    one.stop()
