"""Fixtures."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from engines import engine, make
from servers import Server

__all__ = ["engine", "make"]
#: Only the environment with the newest libraries has hypothesis.
collect_ignore = [] if find_spec("hypothesis") else ["test_core.py"]


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers, and ends them after the block."""
    with contextlib.ExitStack() as stack:

        def start(module: bool = True, *arguments: str) -> Server:
            one = Server(folder / str(time.monotonic_ns()), module, *arguments)
            stack.callback(one.stop)
            return one.start()

        yield start


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Any]:
    """Starts servers that a test may do anything to."""
    with servers(tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers(tmp_path_factory.mktemp("server")) as start:
        yield start()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The server that tests have in common, empty."""
    with shared_server.client() as client:
        client.flushall()
    return shared_server


@pytest.fixture(params=[True, False], ids=["module", "scripts"])
def one_server(request: pytest.FixtureRequest, new_server: Any) -> Any:
    """A server with the module, and one without it."""
    return new_server(request.param)


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    with server.client() as one:
        yield one


@pytest_asyncio.fixture
async def aclient(server: Server) -> AsyncIterator[Any]:
    async with server.client_asyncio() as one:
        yield one
