"""A cluster: one connection to each of its servers, and which server has which slot."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .connection import Connection
from .flow import Scheduler
from .source import Servers, Source

Address = tuple[str, int]


class ClusterSource(Source):
    """How connections to the servers of a cluster are opened."""

    def __init__(self, client: Any) -> None:
        manager = client.nodes_manager
        kwargs = dict(getattr(manager, "connection_kwargs", None) or client.connection_kwargs)
        nodes = [*manager.startup_nodes.values()]
        library = type(client).__mro__[-2].__module__.partition(".")[0]
        is_async = "asyncio" in type(nodes[0]).__module__ if nodes else False
        for name in (
            "host",
            "port",
            "redis_connect_func",
            "valkey_connect_func",
            "path",
            "connection_pool",
            "connection_class",
        ):
            kwargs.pop(name, None)
        super().__init__(_connection_class(client, nodes, kwargs, is_async), kwargs)
        #: Servers that the client knows, by host and port.
        self.seeds: list[Address] = [(node.host, int(node.port)) for node in nodes]
        self.key_slot = import_module(f"{library}.crc").key_slot
        self.name = (*self.name, "cluster", *sorted(self.seeds))
        self.title = "cluster of " + ", ".join(f"{host}:{port}" for host, port in sorted(self.seeds)[:1])

    def connection(self, address: Any) -> Any:
        """Returns a connection to one of the servers that is not open yet."""
        host, port = address
        return self.connection_class(**{**self.kwargs, "host": host, "port": port})

    def servers(self, scheduler: Scheduler) -> Servers:
        """Returns the connections of a scheduler."""
        return Cluster(scheduler, self)


def _connection_class(client: Any, nodes: list[Any], kwargs: dict[str, Any], is_async: bool) -> Any:
    if is_async:
        return nodes[0].connection_class
    module = import_module(f"{type(nodes[0]).__module__.partition('.')[0]}.connection")
    is_tls = kwargs.pop("ssl", False) or any(name.startswith("ssl_") for name in kwargs)
    return module.SSLConnection if is_tls else module.Connection


class Cluster(Servers):
    """The servers of a cluster, as redirections and failures have shown it."""

    def __init__(self, scheduler: Scheduler, source: ClusterSource) -> None:
        self.scheduler, self.source = scheduler, source
        self._connections: dict[Address, Connection] = {}
        self._slots: dict[int, Address] = {}
        self._known = [*source.seeds]

    def locate(self, key: bytes) -> Connection:
        """Returns the connection to the server that has a key, as far as it is known."""
        return self.at(self._slots.get(self.source.key_slot(key), self._known[0]))

    def at(self, address: Any) -> Connection:
        """Returns the connection to the server at an address."""
        if address not in self._connections:
            self._connections[address] = Connection(
                self.scheduler, address, self.source.timeout_s, in_cluster=True, polls=False
            )
            if address not in self._known:
                self._known.append(address)
        return self._connections[address]

    def moved(self, key: bytes, address: Any) -> Connection:
        """Notes where a key is now."""
        self._slots[self.source.key_slot(key)] = address
        return self.at(address)

    def forget(self, key: bytes) -> None:
        """Asks another server for a key, which names the one that has it."""
        address = self._slots.pop(self.source.key_slot(key), self._known[0])
        if address in self._known:
            self._known.remove(address)
            self._known.append(address)
