"""A way to the server on which requests can be late."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator


class Proxy:
    """Stands between clients and a server. A request with ``late`` in it is kept until ``deliver``.

    Those with ``slow`` in them are delivered after the seconds it names.
    """

    def __init__(self, port: int) -> None:
        self.late: bytes | None = None
        self.slow: tuple[bytes, float] | None = None
        self.deliver = threading.Event()
        #: Where new connections lead to.
        self.server = port
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._begin(self._accept)

    @staticmethod
    def _begin(work: object, *args: object) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
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
                if self.slow is not None and self.slow[0] in said:
                    time.sleep(self.slow[1])
                target.sendall(said)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close_connections(self) -> None:
        """Closes the connections of clients. What they have sent still reaches the server."""
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self._clients.clear()

    def close(self) -> None:
        self.deliver.set()
        self._listener.close()


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy for the server at a port."""
    one = Proxy(port)
    try:
        yield one
    finally:
        one.close()
