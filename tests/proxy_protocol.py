"""A proxy for tests: it passes bytes on, behind a header of the PROXY protocol."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Listens on a loopback port of its own, and connects to a node for each client.

    Each connection to the node begins with `header`.
    """

    def __init__(self, port: int, header: bytes) -> None:
        self._header = header
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more; connections end with their clients."""
        self._listening.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listening, suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as node:
            node.sendall(self._header)
            back = threading.Thread(target=_pass_on, args=(node, client), daemon=True)
            back.start()
            _pass_on(client, node)
            back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
