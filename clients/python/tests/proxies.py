"""A way to the server on which requests can be late."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Proxy:
    """Stands between clients and a server. A request with ``late`` in it is kept until ``deliver``."""

    def __init__(self, port: int) -> None:
        self.late: bytes | None = None
        self.deliver = threading.Event()
        #: Where new connections lead to.
        self.server = port
        self._clients: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self._begin(self._accept)

    @staticmethod
    def _begin(work: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server))
                self._clients.append(client)
                self._begin(self._forward, client, server)
                self._begin(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        """What one side says, also if the other one hears nothing any more, until it has said all."""
        with contextlib.suppress(OSError):
            while said := source.recv(65536):
                if self.late is not None and self.late in said:
                    self.late = None
                    self.deliver.wait()
                target.sendall(said)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close_connections(self) -> None:
        """Closes the connections of clients. What they have sent still reaches the server."""
        while self._clients:
            with contextlib.suppress(OSError):
                self._clients.pop().shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy for the server at a port."""
    one = Proxy(port)
    try:
        yield one
    finally:
        one.deliver.set()
        one.listener.close()
