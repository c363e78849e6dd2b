"""How connections are opened: by the client library, as the caller's client opens its own, but never of its pool."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from .connection import Connection
from .errors import Disconnected, LockError, logger
from .flow import Flow, Pause, Scheduler, Steps
from .library import WHOSE, is_executed_by_library, is_wrapped

#: The time-out in seconds for clients without one: a server that is unreachable must be noticed.
TIMEOUT_S = 5.0
#: A connection is replaced if nothing was received for this part of the time-out while a reply was due. The rest of
#: the time is that of the request on the next connection.
SILENT_PART = 0.8
#: A connection on which nothing was received for this time in seconds is closed, if nothing needs it.
IDLE_S = 60.0
#: Locks of objects that were collected together with their client are released in this time, in seconds.
END_S = 1.0
#: How arguments of a connection begin that say how the client uses it, and not how it is opened.
_DROPPED = (
    *("cache", "client_name", "health_check_interval", "legacy_responses", "maint", "max_connections", "orig_"),
    *("oss_cluster", "response_callbacks", "retry"),
)
#: Arguments that tell servers, databases and users apart.
_IDENTITY = {
    *("host", "port", "path", "db", "username", "password", "credential_provider", "connection_pool", "socket_timeout")
}


class Servers:
    """The connection to a server, or those to the servers of a cluster, as redirections and failures have shown it."""

    def __init__(self, scheduler: Scheduler, source: Source) -> None:
        self.scheduler, self.source = scheduler, source
        self._connections: dict[Any, Connection] = {}
        self._slots: dict[int, Any] = {}
        self._known = [*source.seeds]

    def locate(self, key: bytes) -> Connection:
        """Returns the connection to the server that probably has a key."""
        return self._at(self._slots.get(self.source.key_slot(key), self._known[0]))

    def _at(self, address: Any) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(self.scheduler, address)
            if address not in self._known:
                self._known.append(address)
        return self._connections[address]

    def redirected(self, key: bytes, error: Exception, asking: bool) -> Connection:
        """Returns the connection to the server that a redirection names. MOVED says where the key is from now on."""
        host, _, port = str(error).split(" ")[2].rpartition(":")
        # Without a host it is that of the server that was asked.
        address = (host if host not in ("", "?") else self._known[0][0], int(port))
        if not asking:
            self._slots[self.source.key_slot(key)] = address
        return self._at(address)

    def forget(self, key: bytes) -> None:
        """Asks another server for a key, which names the one that has it."""
        address = self._slots.pop(self.source.key_slot(key), self._known[0])
        if address in self._known:
            self._known.remove(address)
            self._known.append(address)


class Source:
    """How connections to a server are opened.

    Clients that would open the same connection share what ``name`` identifies.
    """

    in_cluster, servers = False, Servers
    timeout_s = TIMEOUT_S
    #: The servers that are known. That of the client's arguments has no address.
    seeds: Sequence[Any] = (None,)
    #: Returns the slot of a key.
    key_slot: Callable[[bytes], int] = staticmethod(lambda key: 0)

    def __init__(self, connection_class: Any, kwargs: dict[str, Any]) -> None:
        kept = {name: value for name, value in kwargs.items() if not name.startswith(_DROPPED)}
        self.timeout_s = float(kept.get("socket_timeout") or TIMEOUT_S)
        kept["socket_timeout"] = self.timeout_s
        kept["socket_connect_timeout"] = kept.get("socket_connect_timeout") or self.timeout_s
        # The connection asks for version 3 itself when it is needed, and replies are bytes.
        kept |= {"protocol": 2, "decode_responses": False}
        self.connection_class, self.kwargs = connection_class, kept
        identity = {name: _named(value) for name, value in kept.items() if name in _IDENTITY or name.startswith("ssl")}
        #: Whether clients that are given the same arguments share the connections.
        self.is_shared = not any(str(value).startswith("object ") for value in identity.values())
        #: Equal for clients that open the same connections.
        self.name: Any = (connection_class, *sorted(identity.items()))
        #: Identifies the clients that use it: the connections are closed after the last of them is collected.
        self.clients: set[int] = set()
        self.title = str(kept.get("path") or f"{kept.get('host', 'localhost')}:{kept.get('port', 6379)}")

    @property
    def silence_s(self) -> float:
        """How long in seconds a server may be silent while a reply is due."""
        return min(self.timeout_s, TIMEOUT_S) * SILENT_PART

    def connection(self, address: Any) -> Any:
        """Returns a connection of the client library that is not open yet."""
        place = {} if address is None else {"host": address[0], "port": address[1]}
        return self.connection_class(**self.kwargs, **place)


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
        self.key_slot = import_module(f"{type(nodes[0]).__module__.partition('.')[0]}.crc").key_slot
        self.name = (*self.name, "cluster", *(sorted(self.seeds) if self.is_shared else [id(client)]))
        self.title = f"cluster of {self.seeds[0][0]}:{self.seeds[0][1]}"


class BaseEngine:
    """What engines for threads and for tasks have in common: they move the bytes of the connections of one source."""

    now: Callable[[], float]
    #: Calls a function where the scheduler runs.
    post: Callable[..., None]
    _end: Callable[[], None]

    def __init__(self, of: Any) -> None:
        self.source = of
        self.scheduler = Scheduler(self, of)
        self._links: dict[Connection, Any] = {}
        engines.add(self)

    def end_soon(self) -> None:
        """Ends the engine, whose clients are gone. The garbage collector may call it."""
        self.post(self.scheduler.start, _end_later, self._end)

    def _is_idle(self) -> bool:
        """Returns whether nothing has needed the connections for long."""
        return not self.scheduler.flows and self.now() - self.scheduler.heard_at >= IDLE_S

    def _disconnect(self) -> None:
        for connection in [*self._links]:
            connection.close(Disconnected("nothing needs it", sent=True))


def _end_later(flow: Flow, close: Callable[[], None]) -> Steps:
    """Ends an engine when what its clients have left is released."""
    yield Pause(END_S)
    while len(flow.scheduler.flows) > 1:
        yield Pause(END_S)
    if not flow.scheduler.source.clients:
        close()


def _named(value: Any) -> Any:
    """Returns a value that identifies an argument: that of an object is its identity."""
    return str(value) if isinstance(value, str | bytes | int | float | bool | None) else f"object {id(value)}"


#: All engines, for threads and for tasks.
engines: weakref.WeakSet[Any] = weakref.WeakSet()


def all_engines() -> list[Any]:
    """Returns all engines at one moment: other threads add theirs."""
    while True:
        try:
            return [*engines]
        except RuntimeError:  # The set has changed in between.
            pass


_sources: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
#: The sources of clients that are given the same arguments, by their names.
_shared: dict[Any, Any] = {}


def source_of(client: Any) -> Any:
    """Returns the source of a client's connections. Raises LockError if its library does not execute its commands."""
    if (source := find_source(client)) is None:
        raise LockError(f"this needs {WHOSE}")
    return source


def find_source(client: Any) -> Any:
    """Returns the source of a client's connections, None if its library does not execute its commands."""
    if not is_executed_by_library(client):
        return None
    in_cluster = hasattr(client, "nodes_manager")
    anchor = client if in_cluster else client.connection_pool
    source: Any = _sources.get(anchor)
    if source is None:
        source = ClusterSource(client) if in_cluster else Source(anchor.connection_class, anchor.connection_kwargs)
        if source.is_shared:
            source = _shared.setdefault(source.name, source)
        source.clients.add(id(anchor))
        weakref.finalize(anchor, _leave, source, id(anchor)).atexit = False
        _sources[anchor] = source
        if is_wrapped(client):
            logger.debug("a monitoring tool wraps the commands of %s; it does not see those of locks", source.title)
    return source


def _leave(source: Source, client: int) -> None:
    """Closes the connections of a source if this was the last of its clients. Each step is one of the interpreter."""
    source.clients.discard(client)
    if not source.clients and (_shared.pop(source.name, source) is source):
        for engine in [engine for engine in all_engines() if engine.source is source]:
            engine.end_soon()
