"""A cluster: one connection to each of its servers, and which server has which slot."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .connection import Connection
from .flow import Scheduler
from .source import Servers, Source

Address = tuple[str, int]

#: The clusters that clients have named, by how their connections are opened: the servers of each.
_clusters: dict[Any, list[set[Address]]] = {}


class ClusterSource(Source):
    """How connections to the servers of a cluster are opened."""

    def __init__(self, client: Any) -> None:
        manager = client.nodes_manager
        nodes = [*{**manager.nodes_cache, **manager.startup_nodes}.values()]
        # A node of asyncio's cluster opens connections itself, one of the other cluster has a client that does.
        opens: Any = nodes[0]
        if not hasattr(opens, "connection_class"):
            client_of = getattr(client, "get_redis_connection", None) or client.get_valkey_connection
            opens = client_of(opens).connection_pool
        own = ("host", "port", "redis_connect_func", "valkey_connect_func")
        kwargs = {name: value for name, value in opens.connection_kwargs.items() if name not in own}
        super().__init__(opens.connection_class, kwargs)
        #: The servers that the client knows.
        self.seeds: list[Address] = [(node.host, int(node.port)) for node in nodes]
        self.remap = getattr(manager, "address_remap", None)
        self.is_shared = self.is_shared and self.remap is None
        self.key_slot = import_module(f"{type(nodes[0]).__module__.partition('.')[0]}.crc").key_slot
        self.name = (*self.name, "cluster", self._number() if self.is_shared else id(client))
        self.title = f"cluster of {self.seeds[0][0]}:{self.seeds[0][1]}"

    def _number(self) -> int:
        """Returns a number for the cluster: that of clients which know one of its servers, too."""
        clusters = _clusters.setdefault(self.name, [])
        for number, servers in enumerate(clusters):
            if servers.intersection(self.seeds):
                servers.update(self.seeds)
                return number
        clusters.append(set(self.seeds))
        return len(clusters) - 1

    def connection(self, address: Any) -> Any:
        """Returns a connection to one of the servers that is not open yet."""
        host, port = address
        return self.connection_class(**{**self.kwargs, "host": host, "port": port})

    def servers(self, scheduler: Scheduler) -> Servers:
        """Returns the connections of a scheduler."""
        return Cluster(scheduler, self)


class Cluster(Servers):
    """The servers of a cluster, as redirections and failures have shown it."""

    def __init__(self, scheduler: Scheduler, source: ClusterSource) -> None:
        self.scheduler, self.source = scheduler, source
        self._connections: dict[Address, Connection] = {}
        self._slots: dict[int, Address] = {}
        self._known = [*source.seeds]

    def locate(self, key: bytes) -> Connection:
        """Returns the connection to the server that probably has a key."""
        return self._at(self._slots.get(self.source.key_slot(key), self._known[0]))

    def at(self, address: Any) -> Connection:
        """Returns the connection to the server that a redirection names."""
        return self._at(self._own(address))

    def _own(self, address: Address) -> Address:
        host, port = address
        # Without a host it is that of the server that was asked.
        address = (host if host not in ("", "?") else self._known[0][0], port)
        return self.source.remap(address) if self.source.remap else address

    def _at(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(
                self.scheduler, address, self.source.timeout_s, in_cluster=True, polls=False
            )
            if address not in self._known:
                self._known.append(address)
        return self._connections[address]

    def moved(self, key: bytes, address: Any) -> Connection:
        """Notes where a key is now."""
        self._slots[self.source.key_slot(key)] = self._own(address)
        return self.at(address)

    def forget(self, key: bytes) -> None:
        """Asks another server for a key, which names the one that has it."""
        address = self._slots.pop(self.source.key_slot(key), self._known[0])
        if address in self._known:
            self._known.remove(address)
            self._known.append(address)
