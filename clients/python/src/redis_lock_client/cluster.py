"""How the servers of a cluster are found."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .source import Source

Address = tuple[str, int]

#: The clusters that clients have named, by how their connections are opened: the servers of each.
_clusters: dict[Any, list[set[Address]]] = {}


class ClusterSource(Source):
    """How connections to the servers of a cluster are opened."""

    in_cluster = True

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
        self.seeds = [(node.host, int(node.port)) for node in nodes]
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
