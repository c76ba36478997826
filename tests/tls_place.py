"""A node with TLS at its ports, and the authority that signs its certificate and its clients'."""

from __future__ import annotations

import itertools
import re
import socket
from pathlib import Path
from typing import Any, NamedTuple, cast

import pika

from tests.certificates import Authority, Pair
from tests.nodes import Node, free_ports, wait_until

HEADER = b"AMQP\0\0\x09\1"

_hosts = itertools.count(2)


def connected(port: int) -> socket.socket:
    """A socket from an address of its own: the log has one line a second of each."""
    return socket.create_connection(
        ("127.0.0.1", port), timeout=15, source_address=(f"127.0.0.{next(_hosts)}", 0)
    )


class TlsPlace(NamedTuple):
    """A node with TLS, and who signs."""

    node: Node
    authority: Authority
    port: int
    https_port: int
    metrics_port: int
    server: Pair

    def parameters(self, pair: Pair | None = None, **more: Any) -> pika.ConnectionParameters:
        context = self.authority.context(pair)
        options = pika.SSLOptions(context, "localhost")
        more.setdefault("blocked_connection_timeout", 30)
        return pika.ConnectionParameters("127.0.0.1", self.port, ssl_options=options, **more)

    def connect(self, pair: Pair | None = None, **more: Any) -> pika.BlockingConnection:
        return pika.BlockingConnection(self.parameters(pair, **more))

    def issuer(self, *others: Authority, pair: Pair | None = None) -> str:
        """Who has signed the certificate that a new client is shown.

        Args:
            others: Authorities that the client trusts beside the node's first one.
            pair: What the client shows.

        Raises:
            ssl.SSLError: The node does not let it in.
        """
        context = self.authority.context(pair, *others)
        with (
            connected(self.port) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as encrypted,
        ):
            encrypted.sendall(HEADER)
            assert encrypted.recv(1) == b"\1"  # connection.start
            found = encrypted.getpeercert()
        assert found is not None
        issuer = dict(part[0] for part in cast("tuple[Any, ...]", found["issuer"]))
        return str(issuer["commonName"])

    def lines(self, text: str) -> list[str]:
        return [line for line in self.node.full_log().splitlines() if re.search(text, line)]

    def tells(self, text: str) -> None:
        """The log has one line of this, which may come a moment later."""
        wait_until(lambda: bool(self.lines(text)), f"a line with {text!r}", 15)
        assert len(self.lines(text)) == 1

    def serves(self) -> None:
        """Others get what they ask for."""
        with self.node.connect() as plain, self.connect() as encrypted:
            for connection in (plain, encrypted):
                assert connection.channel().queue_declare("", exclusive=True).method.queue


def started(folder: Path, *settings: str) -> TlsPlace:
    authority = Authority(folder, "authority")
    authority.revoke()
    server = authority.pair("server")
    node = Node("tls", folder)
    port, https_port, metrics_port = free_ports(3)
    node.settings = [
        f"listeners.ssl.1=127.0.0.1:{port}",
        f"ssl_options.certfile={server.certfile}",
        f"ssl_options.keyfile={server.keyfile}",
        f"ssl_options.cacertfile={authority.certfile}",
        "ssl_options.verify=verify_peer",
        "management.ssl.ip=127.0.0.1",
        f"management.ssl.port={https_port}",
        f"management.ssl.certfile={server.certfile}",
        f"management.ssl.keyfile={server.keyfile}",
        "prometheus.ssl.ip=127.0.0.1",
        f"prometheus.ssl.port={metrics_port}",
        f"prometheus.ssl.certfile={server.certfile}",
        f"prometheus.ssl.keyfile={server.keyfile}",
        *settings,
    ]
    node.start()
    return TlsPlace(node, authority, port, https_port, metrics_port, server)


def round_trip(connection: pika.BlockingConnection, body: bytes = b"hello") -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, body)
    assert channel.basic_get(queue, auto_ack=True)[2] == body


def shown(place: TlsPlace, name: str) -> dict[str, Any]:
    """The connection with this name of its own, as the HTTP API lists it."""
    found: list[dict[str, Any]] = []

    def is_listed() -> bool:
        found[:] = [
            each
            for each in place.node.api("GET", "/connections")
            if each.get("user_provided_name") == name
        ]
        return bool(found)

    wait_until(is_listed, f"connection {name} is listed", 15)
    return found[0]
