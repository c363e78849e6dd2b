"""What all locks of one client have in common: its servers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import ANSWERED, UNREACHABLE
from ..protocol import ELSEWHERE, Request, code, place
from ..source import Source
from . import runtime
from .common import Common
from .held import Held
from .node import Node

#: How long what is known of a cluster is good enough for who asks again and again, in seconds.
REFRESH_S = 0.25


class Client:
    """The servers that a client of the library speaks to, each with connections of the package's own."""

    def __init__(self, anchor: Any) -> None:
        # Weak, because this lives as long as the client's pool does, and no longer.
        self._anchor = weakref.ref(anchor)
        self._nodes: dict[object, Node] = {}
        self._guard = threading.RLock()
        self._finalizers: list[weakref.finalize[..., Any]] = []
        self._refreshed = 0.0
        common = Common.of(anchor)
        self.given, self.lines = common.given, common.lines

    @classmethod
    def of(cls, redis: Any) -> Client:
        """What belongs to a client of the library, or rather to its pool: clients that share a pool share all."""
        anchor = redis if hasattr(redis, "get_node_from_key") else redis.connection_pool
        clients = runtime.clients()
        client: Client | None = clients.get(id(anchor))
        if client is None or client._anchor() is not anchor:
            client = clients.setdefault(id(anchor), cls(anchor))
            client._when_collected(anchor, clients.pop, id(anchor), None)
            client._when_collected(anchor, runtime.at_end(client.close))
        return client

    def _when_collected(self, anchor: Any, do: Callable[..., object], *args: Any) -> None:
        finalizer = weakref.finalize(anchor, do, *args)
        finalizer.atexit = False
        self._finalizers.append(finalizer)

    def leave(self) -> None:
        """Forgets all about the client of the library, because the loop has ended."""
        for finalizer in self._finalizers:
            finalizer.detach()

    def holder(self, request: Request) -> Held | None:
        """Who holds the lock by the same token, if it is watched here."""
        return next(filter(None, (node.keeper.holder(request) for node in list(self._nodes.values()))), None)

    async def node(self, key: bytes) -> Node:
        """The server that has a key."""
        anchor: Any = self._anchor()
        if not hasattr(anchor, "get_node_from_key"):
            return self._node(None, anchor, False)
        await runtime.ready(anchor)
        owner = anchor.get_node_from_key(key)
        return self._node((owner.host, owner.port), runtime.pool(anchor, owner), True)

    async def ask(self, key: bytes, ask: Callable[[Node], Any], exchanges: runtime.Exchanges | None = None) -> Any:
        """What the server that has a key answers, or another one if the key has moved there."""
        for again in (True, False):
            node = await self.node(key)
            try:
                return await (exchanges or runtime.Exchanges()).run(ask(node))
            except ANSWERED as error:
                if not again or code(error) not in ELSEWHERE:
                    raise
                await self.refresh()
        raise AssertionError("the second attempt returns or raises")

    def _node(self, name: object, pool: Any, in_cluster: bool) -> Node:
        return self._known(name, lambda: Source.like(pool, in_cluster))

    def _known(self, name: object, source: Callable[[], Source]) -> Node:
        node = self._nodes.get(name)
        if node is None:
            with self._guard:
                node = self._nodes.get(name) or self._nodes.setdefault(name, Node(source(), self))
        return node

    def ahead(self, node: Node, error: Exception) -> Node:
        """The server that an ASK of another one names: a key may go there before its slot does."""
        host, port = place(error)
        host = host or node.source.kwargs["host"]
        return self._known((host, port), lambda: node.source.at(host, port))

    async def refresh(self) -> None:
        """Learns anew which server has which keys, if there are several."""
        anchor: Any = self._anchor()
        if hasattr(anchor, "get_node_from_key"):
            self._refreshed = runtime.now()
            await anchor.nodes_manager.initialize()

    async def refresh_if_due(self) -> None:
        """The same, unless somebody has just done it."""
        if runtime.now() - self._refreshed > REFRESH_S:
            await self.refresh()

    async def successor(self, node: Node, key: bytes) -> Node:
        """The server that has a key which this one has no more; the same one as long as none is known."""
        anchor = self._anchor()
        if anchor is None:
            return node  # The client was collected: nobody knows the cluster any more.
        try:
            await self.refresh_if_due()
            return await self.node(key)
        except (*UNREACHABLE, *ANSWERED):
            return node

    async def close(self) -> None:
        """Closes all connections; the next lock opens new ones."""
        for node in list(self._nodes.values()):
            await node.close()
        self._nodes.clear()
