"""A way to the server on which requests can be late."""

import contextlib
import socket
import socketserver
import threading
from typing import Any


class Proxy(socketserver.ThreadingTCPServer):
    """Stands between clients and a server. What has ``late`` in it is kept until ``deliver`` is set."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.server = port  # Where new connections lead to.
        self.port: int = self.server_address[1]
        self.late: bytes | None = None
        self.deliver = threading.Event()
        self._clients: list[socket.socket] = []
        self._forgotten: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def server_close(self) -> None:
        self.deliver.set()
        self.shutdown()
        super().server_close()

    def finish_request(self, client: Any, _: object) -> None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.server)) as server:
            self._clients.append(client)
            replies = threading.Thread(target=self._forward, args=(server, client), daemon=True)
            replies.start()
            self._forward(client, server)
            replies.join()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while said := source.recv(65536):
                if self.late is not None and self.late in said:
                    self.late = None
                    self.deliver.wait()
                if source not in self._forgotten and target not in self._forgotten:
                    target.sendall(said)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def forget_connections(self) -> None:
        """Delivers nothing any more of the connections of clients, as a NAT that has forgotten them."""
        self._forgotten += self._clients

    def close_connections(self) -> None:
        """Closes the connections of clients. What they have sent still reaches the server."""
        while self._clients:
            with contextlib.suppress(OSError):
                self._clients.pop().shutdown(socket.SHUT_RDWR)
