"""Clusters for the tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from servers import CLIENT, LIBRARY, Server
from waits import wait_until

SLOTS = 16384
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000")


class Cluster:
    """Masters with the same number of slots each."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self.nodes = [server.client() for server in servers]
        for number, node in enumerate(self.nodes):
            first, end = (-(-SLOTS * n // len(servers)) for n in (number, number + 1))
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            node.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in servers[1:]:
            self.nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        self._wait_until_all_know(len(servers))

    def _wait_until_all_know(self, count: int) -> None:
        for word in ("cluster_state:ok", f"cluster_known_nodes:{count}"):
            wait_until(lambda word=word: all(word in self._info(node) for node in self.nodes), 30)

    def add_replica(self, server: Server, key: str) -> None:
        """One more server, a replica of the master that has a key."""
        master = self.nodes[self.owner(key)]
        self.nodes.append(server.client())
        self.nodes[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        self._wait_until_all_know(len(self.nodes))
        self.nodes[-1].execute_command("CLUSTER", "REPLICATE", master.execute_command("CLUSTER", "MYID"))
        wait_until(lambda: master.info("replication").get("slave0", {}).get("state") == "online", 30)
        # The others hear of it later, and would not vote for it before.
        wait_until(lambda: all("slave" in str(node.execute_command("CLUSTER NODES")) for node in self.nodes), 30)

    @staticmethod
    def _info(node: Any) -> str:
        info = node.execute_command("CLUSTER INFO")
        return "\n".join(f"{k}:{v}" for k, v in info.items()) if isinstance(info, dict) else str(info)

    def client(self, module: str = "cluster") -> Any:
        kind = getattr(import_module(f"{LIBRARY}.{module}"), f"{CLIENT}Cluster")
        return kind(host="127.0.0.1", port=self.servers[0].port)

    def client_asyncio(self) -> Any:
        return self.client("asyncio.cluster")

    def owner(self, key: str) -> int:
        return self.slot(key) * len(self.servers) // SLOTS

    def slot(self, key: str) -> int:
        return int(self.nodes[0].execute_command("CLUSTER", "KEYSLOT", key))

    def begin_to_move(self, key: str) -> tuple[Any, Any]:
        """Begins to move the slot of a key to the other node: missing keys are asked for at the target."""
        source, target = self.nodes[self.owner(key)], self.nodes[1 - self.owner(key)]
        slot = self.slot(key)
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", source.execute_command("CLUSTER", "MYID"))
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", target.execute_command("CLUSTER", "MYID"))
        return source, target

    def move(self, key: str) -> None:
        """Moves the slot of a key, with its keys, to the other node."""
        self.begin_to_move(key)
        self.move_keys(key)
        self.end_move(key)

    def end_move(self, key: str) -> None:
        """From now on the other node has the slot."""
        source, target = self.nodes[self.owner(key)], self.nodes[1 - self.owner(key)]
        for node in (target, source):
            node.execute_command(
                "CLUSTER", "SETSLOT", self.slot(key), "NODE", target.execute_command("CLUSTER", "MYID")
            )

    def move_keys(self, key: str) -> None:
        """Moves the keys of the slot ahead of it."""
        source, slot = self.nodes[self.owner(key)], self.slot(key)
        port = self.servers[1 - self.owner(key)].port
        keys = source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        source.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys)

    def keys_ahead(self, key: str) -> int:
        """How many keys of the slot are at the other node."""
        return int(self.nodes[1 - self.owner(key)].execute_command("CLUSTER", "COUNTKEYSINSLOT", self.slot(key)))
