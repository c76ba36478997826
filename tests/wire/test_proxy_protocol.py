"""AMQP ports behind proxies: clients are who the header says, and a header is what it must be."""

from __future__ import annotations

import itertools
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pika
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError

from tests.certificates import Authority, Pair
from tests.nodes import Node, free_ports, wait_until
from tests.proxy_protocol import Proxy

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672\r\n"
HERE = b"PROXY TCP4 127.0.0.1 127.0.0.1 40001 5672\r\n"
BINARY = (
    SIGNATURE
    + b"\x21\x11"
    + (12 + 3 + 5).to_bytes(2)
    + socket.inet_aton("192.0.2.8")
    + socket.inet_aton("192.0.2.1")
    + (40_002).to_bytes(2)
    + (5671).to_bytes(2)
    + b"\x20\0\5\1\0\0\0\0"  # a TLV: the proxy's client spoke TLS
)
LOCAL = SIGNATURE + b"\x20\0\0\0"
LOGIN = pika.PlainCredentials("till", "till")

_hosts = itertools.count(2)


class Place(NamedTuple):
    """A node whose AMQP ports take connections of 127.0.0.0/16 and of nobody else."""

    node: Node
    authority: Authority
    tls_port: int

    def connect(
        self,
        header: bytes,
        name: str,
        *,
        tls: bool = False,
        pair: Pair | None = None,
        login: pika.PlainCredentials | ExternalCredentials = LOGIN,
    ) -> pika.BlockingConnection:
        proxy = Proxy(self.tls_port if tls else self.node.amqp_port, header)
        options = pika.SSLOptions(self.authority.context(pair), "localhost") if tls else None
        try:
            return pika.BlockingConnection(
                pika.ConnectionParameters(
                    "127.0.0.1",
                    proxy.port,
                    credentials=login,
                    ssl_options=options,
                    client_properties={"connection_name": name},
                )
            )
        finally:
            proxy.close()

    def shown(self, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def is_listed() -> bool:
            connections = self.node.api("GET", "/connections")
            found[:] = [each for each in connections if each.get("user_provided_name") == name]
            return bool(found)

        wait_until(is_listed, f"connection {name} is listed", 15)
        return found[0]

    def lines(self, text: str) -> list[str]:
        return [line for line in self.node.full_log().splitlines() if re.search(text, line)]

    def refuses(self, data: bytes, line: str, *, port: int = 0, source: str = "") -> None:
        """The connection is closed without an answer, in one line, and others go on."""
        source = source or f"127.0.0.{next(_hosts)}"
        with self.connect(LINE, "other") as other:
            with socket.create_connection(
                ("127.0.0.1", port or self.node.amqp_port), timeout=15, source_address=(source, 0)
            ) as client:
                client.sendall(data)
                with suppress(ConnectionResetError):
                    assert client.recv(100) == b""
            pattern = rf"PROXY header refused: {re.escape(source)}:\d+ -> .*{line}"
            wait_until(lambda: bool(self.lines(pattern)), f"a line with {line!r}", 15)
            assert len(self.lines(re.escape(source))) == 1
            assert other.channel().queue_declare("", exclusive=True).method.queue


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("proxy")
    authority = Authority(folder, "authority")
    server = authority.pair("server")
    (port,) = free_ports(1)
    node = Node("proxied", folder)
    node.settings = [
        "proxy_protocol=true",
        "proxy_protocol.trusted_proxies.1=127.0.0.0/16",
        f"listeners.ssl.1=127.0.0.1:{port}",
        f"ssl_options.certfile={server.certfile}",
        f"ssl_options.keyfile={server.keyfile}",
        f"ssl_options.cacertfile={authority.certfile}",
        "ssl_options.verify=verify_peer",
        "auth_mechanisms.1=PLAIN",
        "auth_mechanisms.2=EXTERNAL",
        "ssl_cert_login_from=subject_alternative_name",
        "ssl_cert_login_san_type=ip",
        "handshake_timeout=1500",
    ]
    node.start()
    for name in ("till", "127.0.0.1"):
        node.api("PUT", f"/users/{name}", {"password": "till", "tags": ""})
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        node.api("PUT", f"/permissions/%2F/{name}", rights)
    try:
        yield Place(node, authority, port)
    finally:
        node.end()


def test_listings_and_log_have_the_client_of_a_header_of_version_1(place: Place) -> None:
    """Rows: 1.1 PROXY protocol v1/v2"""
    with place.connect(LINE, "one"):
        item = place.shown("one")
        assert (item["peer_host"], item["peer_port"]) == ("192.0.2.7", 40_000)
        assert (item["host"], item["port"]) == ("192.0.2.1", 5672)
        assert item["name"] == "192.0.2.7:40000 -> 192.0.2.1:5672"
    with socket.create_connection(("127.0.0.1", place.node.amqp_port), timeout=15) as client:
        client.sendall(LINE.replace(b"40000", b"40007") + b"nonsense")
        assert client.recv(8)[:4] == b"AMQP"
    wait_until(
        lambda: bool(place.lines(r"192\.0\.2\.7:40007 -> 192\.0\.2\.1:5672.*unsupported")),
        "the log names the client",
        15,
    )


def test_a_header_of_version_2_comes_before_the_tls_of_its_client(place: Place) -> None:
    """Rows: 1.1 PROXY protocol v1/v2"""
    with place.connect(BINARY, "two", tls=True) as connection:
        item = place.shown("two")
        assert (item["peer_host"], item["peer_port"], item["ssl"]) == ("192.0.2.8", 40_002, True)
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, bytes(1_000_000))
        assert channel.basic_get(queue, auto_ack=True)[2] == bytes(1_000_000)


def test_external_logs_in_whom_an_alternative_name_of_the_certificate_names(place: Place) -> None:
    """Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"""
    pair = place.authority.pair("till")  # its alternative names: localhost, 127.0.0.1
    with place.connect(BINARY, "named", tls=True, pair=pair, login=ExternalCredentials()):
        item = place.shown("named")
        assert (item["user"], item["peer_host"]) == ("127.0.0.1", "192.0.2.8")
        assert (item["peer_cert_subject"], item["auth_mechanism"]) == ("CN=till,O=Shop", "EXTERNAL")


@pytest.mark.parametrize("header", [LOCAL, b"PROXY UNKNOWN\r\n"], ids=["LOCAL", "UNKNOWN"])
def test_a_header_without_a_client_leaves_the_ends_of_the_socket(
    place: Place, header: bytes
) -> None:
    """Rows: 1.1 PROXY protocol v1/v2"""
    name = f"of {len(header)} octets"
    with place.connect(header, name):
        item = place.shown(name)
        assert (item["peer_host"], item["port"]) == ("127.0.0.1", place.node.amqp_port)


def test_who_may_connect_from_this_machine_only_is_judged_by_the_header(place: Place) -> None:
    """Rows: 1.1 PROXY protocol v1/v2"""
    guest = pika.PlainCredentials("guest", "guest")
    with place.connect(HERE, "guest", login=guest) as connection:
        assert connection.channel().queue_declare("", exclusive=True).method.queue
    with pytest.raises(AMQPConnectionError, match="Login was refused"):
        place.connect(LINE, "guest", login=guest)


def test_a_header_octet_by_octet_is_read(place: Place) -> None:
    with socket.create_connection(("127.0.0.1", place.node.amqp_port), timeout=15) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in LINE + b"AMQP\0\0\x09\1":
            client.sendall(bytes((octet,)))
        assert client.recv(1) == b"\1"  # connection.start


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"AMQP\0\0\x09\1", "does not begin with a PROXY header"),
        (b"PROXY TCP4 nonsense\r\n", "its line is not PROXY"),
        (b"PROXY TCP4 " + b"1" * 5_000, "longer than 107 octets"),
        (SIGNATURE + b"\x21\x11\xff\xff" + bytes(60_000), "longer than 8208 octets"),
        (SIGNATURE + b"\x21\x11\0\x0d" + bytes(13), "a TLV in it does not end with it"),
        (LINE[:20], r"not whole within 1\.5 s \(handshake_timeout\)"),
    ],
    ids=["none", "malformed", "long line", "oversized", "TLV", "half-sent"],
)
def test_what_is_no_header_ends_the_connection_in_one_line(
    place: Place, data: bytes, line: str
) -> None:
    place.refuses(data, line)


def test_a_header_from_an_address_that_may_not_send_one_is_one_line(place: Place) -> None:
    line = "its address is none of proxy_protocol.trusted_proxies"
    place.refuses(LINE, line, source="127.9.0.1")
    place.refuses(BINARY, line, source="127.9.0.2", port=place.tls_port)


def test_tls_without_a_header_is_one_line(place: Place) -> None:
    place.refuses(
        b"\x16\x03\x01\x02\0\1", "does not begin with a PROXY header", port=place.tls_port
    )


@pytest.mark.parametrize("header", [LOCAL, b""], ids=["with a header", "without"])
def test_health_checks_of_proxies_are_no_line(place: Place, header: bytes) -> None:
    for port in (place.node.amqp_port, place.tls_port):
        source = f"127.0.2.{next(_hosts)}"
        for _ in range(20):
            with socket.create_connection(
                ("127.0.0.1", port), timeout=15, source_address=(source, 0)
            ) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(header)  # and then a reset, as HAProxy's checks end
        with place.connect(LINE, "after", tls=False):
            pass
        assert not place.lines(re.escape(source))
        assert not place.lines("PROXY header refused: :0|headers of  refused")


def test_who_says_nothing_is_no_line_and_leaves_its_place(place: Place) -> None:
    def taken() -> int:
        return int(place.node.api("GET", "/nodes")[0]["doors"]["handshakes"]["connections"])

    source = ("127.0.1.1", 0)
    with socket.create_connection(
        ("127.0.0.1", place.node.amqp_port), timeout=15, source_address=source
    ) as client:
        wait_until(lambda: taken() == 1, "a stranger has a place", 15)
        assert client.recv(1) == b""
    wait_until(lambda: taken() == 0, "and leaves it", 15)
    assert not place.lines(re.escape("127.0.1.1"))
