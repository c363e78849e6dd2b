"""Where the package's own connections come from: made like those of the client, but never taken from its pool."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

#: In seconds, for clients without time-outs: a server that is gone must be noticed.
TIMEOUT_S = 5.0

# What belongs to the client's way of using connections: it sends again, keeps alive, and caches. None of it is wanted
# here: what may be sent again is decided by the package, and answers must be bytes.
_DROPPED = {
    "retry",
    "retry_on_timeout",
    "retry_on_error",
    "health_check_interval",
    "cache",
    "cache_config",
    "legacy_responses",
    "max_connections",
    "response_callbacks",
    "orig_host_address",
    "orig_socket_timeout",
    "orig_socket_connect_timeout",
}

#: All that were made in this process.
_connections: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True)
class Source:
    """Makes connections to one server."""

    connection_class: Any
    kwargs: dict[str, Any]
    in_cluster: bool
    process: int = field(default_factory=os.getpid)

    @classmethod
    def like(cls, pool: Any, in_cluster: bool = False) -> Source:
        """A source of connections like those of a pool, or of a node of a cluster."""
        kept = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if name not in _DROPPED and not name.startswith(("maint", "oss_cluster"))
        }
        if in_cluster:
            # The cluster's own: it makes connections to replicas read-only, and keeps the client alive.
            kept.pop("redis_connect_func", None)
            kept.pop("valkey_connect_func", None)
        kept["socket_timeout"] = kept.get("socket_timeout") or TIMEOUT_S
        kept["socket_connect_timeout"] = kept.get("socket_connect_timeout") or kept["socket_timeout"]
        # Messages and answers come on connections of their own: the older protocol will do, which all read alike.
        return cls(pool.connection_class, {**kept, "protocol": 2, "decode_responses": False}, in_cluster)

    def at(self, host: str, port: int) -> Source:
        """The same for another server of the cluster."""
        return replace(self, kwargs={**self.kwargs, "host": host, "port": port})

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer, in seconds."""
        return float(self.kwargs["socket_timeout"])

    def connection(self) -> Any:
        """A new connection, which is not open yet."""
        if os.getpid() != self.process:
            # Only greenlets are copied by a fork, and go on in the child.
            raise ConnectionAbortedError("the connections are the parent's")
        connection = self.connection_class(**self.kwargs)
        _connections.add(connection)
        return connection


def addresses(anchor: Any) -> list[object]:
    """Of pools or clients of a cluster: one at least is the same if they lead to the same database in the same way."""
    if hasattr(anchor, "get_node_from_key"):
        # Those that the client was given, or has found since; it may have dropped all of them.
        return [("cluster", name) for name in sorted(anchor.nodes_manager.startup_nodes)] or [id(anchor)]
    return [_address(anchor)]


def _address(anchor: Any) -> object:
    kwargs = anchor.connection_kwargs
    database = str(kwargs.get("db") or 0)
    if hasattr(anchor, "sentinel_manager"):
        sentinels = [one.connection_pool.connection_kwargs for one in anchor.sentinel_manager.sentinels]
        return frozenset((one.get("host"), one.get("port")) for one in sentinels), anchor.service_name, database
    where = kwargs.get("path") or (kwargs.get("host", "localhost"), kwargs.get("port", 6379))
    return anchor.connection_class, where, database


def _leave_to_parent() -> None:
    """Closes the child's copies of the parent's connections, which stay open for the parent.

    The server would otherwise take them for open when the parent has ended, with its sessions and places in line.
    """
    for connection in list(_connections):
        try:
            _socket(connection).close()
        except Exception:
            pass  # It was not open.
    _connections.clear()


def _socket(connection: Any) -> Any:
    sock = getattr(connection, "_sock", None)
    if sock is None:
        # asyncio hides what is behind its own.
        sock = connection._writer.get_extra_info("socket")._sock
    return sock


os.register_at_fork(after_in_child=_leave_to_parent)
