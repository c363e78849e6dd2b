"""Clusters for the tests."""

from collections.abc import Iterator
from functools import partialmethod
from importlib import import_module
from typing import Any

from servers import CLIENT, LIBRARY, Server
from waits import wait_until

SLOTS = 16384
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")


class Cluster:
    """Masters with the same number of slots each."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers, self.nodes = servers, [server.client() for server in servers]
        for number, node in enumerate(self.nodes):
            first, end = (-(-SLOTS * n // len(servers)) for n in (number, number + 1))
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        self._meet(servers[1:])

    def _meet(self, servers: list[Server]) -> None:
        for server in servers:
            self.nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        self._wait("INFO", "cluster_state:ok")
        self._wait("INFO", f"cluster_known_nodes:{len(self.nodes)}")

    def _wait(self, command: str, word: str) -> None:
        """Waits until a word is in the replies of all nodes to a command."""
        wait_until(lambda: all(word in str(node.execute_command("CLUSTER", command)) for node in self.nodes), 30)

    def add_replica(self, server: Server, key: str) -> None:
        """One more server, a replica of the master that has a key."""
        master = self.nodes[self.owner(key)]
        self.nodes.append(server.client())
        self._meet([server])
        self.nodes[-1].execute_command("CLUSTER", "REPLICATE", master.execute_command("CLUSTER", "MYID"))
        wait_until(lambda: master.info("replication").get("slave0", {}).get("state") == "online", 30)
        self._wait("NODES", "slave")  # The others would not vote for it before.

    def client(self, module: str = "cluster") -> Any:
        kind = getattr(import_module(f"{LIBRARY}.{module}"), f"{CLIENT}Cluster")
        return kind(host="127.0.0.1", port=self.servers[0].port)

    client_asyncio = partialmethod(client, "asyncio.cluster")

    def owner(self, key: str) -> int:
        return self._slot(key) * len(self.servers) // SLOTS

    def _slot(self, key: str) -> int:
        return int(self.nodes[0].execute_command("CLUSTER", "KEYSLOT", key))

    def keys_in(self, node: Any, key: str) -> int:
        """Returns how many keys of the slot of a key a node has."""
        return int(node.execute_command("CLUSTER", "COUNTKEYSINSLOT", self._slot(key)))

    def sides(self, key: str) -> tuple[Any, Any]:
        """Returns the node of two that has a key at first, and the other one, to which its slot moves."""
        return self.nodes[self.owner(key)], self.nodes[1 - self.owner(key)]

    def steps_of_move(self, key: str) -> Iterator[None]:
        """Moves the slot of a key: first for missing keys, then its keys, then the slot."""
        (source, target), slot = self.sides(key), self._slot(key)
        ids = {node: node.execute_command("CLUSTER", "MYID") for node in (source, target)}
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        yield
        keys, port = (
            source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100),
            self.servers[1 - self.owner(key)].port,
        )
        source.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)
        yield
        for node in (target, source):
            node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        yield

    def move(self, key: str) -> None:
        list(self.steps_of_move(key))
