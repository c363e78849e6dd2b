"""Waits of twenty seconds, of clients of every kind, beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from clusters import OPTIONS, Cluster
from conftest import CLIENT, Server

#: How long clients wait for an answer: each kind's default, without an end, and shorter than any wait.
PATIENCE: list[dict[str, Any]] = [{}, {"socket_timeout": None}, {"socket_timeout": 0.5}, {"protocol": 3}]
#: A wait: the kind of the client, the lease, and whether False or an exception tells that the time is up.
Wait = tuple[str, "float | None", str]


class Outlasting:
    """Locks that somebody else holds: at a server, in a cluster, and where there is no module."""

    def __init__(self, server: Server, new_server: Any) -> None:
        self._server = server
        self._cluster = Cluster([new_server(True, *OPTIONS)])
        self._bare = new_server(False)
        self._nodes = [server.client(), self._cluster.nodes[0], self._bare.client()]
        self._keys = [f"door:{number}" for number in range(100)]
        self._free = iter(self._keys)
        for node, key in itertools.product(self._nodes, self._keys):
            node.set(key, "somebody else")

    def clients(self, library: Any, client: Callable[..., Any], of_cluster: Callable[[Cluster], Any]) -> dict[str, Any]:
        """Clients of a library for threads or for tasks, and who makes them."""
        pool = library.BlockingConnectionPool(port=self._server.port)
        pool.get_connection = None  # It is left alone: it may be exhausted, which takes 20 seconds to be told.
        return {
            **{f"with {options}": client(self._server, **options) for options in PATIENCE},
            "of a pool that blocks": getattr(library, CLIENT)(connection_pool=pool),
            "of a cluster": of_cluster(self._cluster),
            "without the module": client(self._bare),
            "without the module, with a short time-out": client(self._bare, socket_timeout=0.5),
        }

    @staticmethod
    def waits(clients: dict[str, Any]) -> list[Wait]:
        """All waits that there are."""
        return list(itertools.product(clients, (30, None), ("False", "LockError")))

    def key(self) -> str:
        """A lock of its own for each wait."""
        return next(self._free)

    def assert_on_time(self, took: dict[Wait, float], late: float) -> None:
        """That all have ended in time, beside how late a busy machine is, and that nobody is left in line."""
        assert all(20 <= one < 20.5 + late for one in took.values()), (took, late)
        for node in self._nodes:
            node.flushall()
        for node, key in itertools.product(self._nodes[:2], self._keys):
            assert node.execute_command("LOCK.ACQUIRE", key, "somebody") == 1, "nobody is left in line"
        assert not self._nodes[2].exists(*self._keys)
