"""Facts about a connection beside its protocol: for listings, logs and limits."""

from __future__ import annotations

import asyncio

from broker.amqp.connection import ConnectionMachine, MachineSettings
from broker.amqp.partial import MESSAGE_SIZE_CAP
from broker.amqp.sasl import EXTERNAL
from broker.audit.actor import Actor
from broker.config import Settings
from broker.doors.admission import is_loopback
from broker.doors.proxy_header import Ends
from broker.server.entrance.tls import TlsFacts
from broker.session.facts import ConnectionFacts

_IN_IPV4 = "::ffff:"


def machine_settings(settings: Settings, tls: TlsFacts | None = None) -> MachineSettings:
    """Return what the connection machine needs of a node's settings.

    Args:
        settings: The node's.
        tls: The connection's TLS; without it the mechanism EXTERNAL is not offered.

    Source:
        rabbit_auth_mechanism_ssl.erl, should_offer/1.
    """
    mechanisms = settings.auth_mechanisms
    if tls is None and EXTERNAL in mechanisms:
        mechanisms = tuple(each for each in mechanisms if each != EXTERNAL)
    return MachineSettings(
        heartbeat_s=settings.heartbeat_s,
        frame_max_bytes=settings.frame_max_bytes,
        initial_frame_max_bytes=settings.initial_frame_max_bytes,
        channel_max=settings.channel_max,
        max_message_size_bytes=min(settings.max_message_size_bytes, MESSAGE_SIZE_CAP),
        mechanisms=mechanisms,
        handshake_timeout_ms=settings.handshake_timeout_ms,
    )


class ConnectionInfo:
    """One connection, for `list_connections` and the log.

    Attributes:
        connection_id: Unique within the boot.
        name: As RabbitMQ names connections: "127.0.0.1:40000 -> 127.0.0.1:5672".
        peer_host: The client's address.
        peer_port: The client's port.
        host: Our address.
        port: Our port.
        connected_at_ms: Milliseconds since the epoch.
        user: "" before login.
        vhost: "" before connection.open.
        heartbeat_s: Negotiated interval, 0 for none.
        frame_max: Negotiated largest frame in bytes.
        channel_max: Negotiated number of channels.
        client_properties: As the client sent them.
        mechanism: SASL mechanism.
        received_bytes: From the client.
        sent_bytes: To the client.
        reads: Pieces in which they came.
        writes: Pieces in which they were sent.
        descriptor: Of the socket that may be written past its transport; -1: none, as with TLS.
        tls: What its TLS handshake settled; None without TLS.
        ends: What a proxy says of the client; None: the socket's own ends count.
    """

    __slots__ = (
        "_is_local",
        "channel_max",
        "client_properties",
        "connected_at_ms",
        "connection_id",
        "descriptor",
        "ends",
        "frame_max",
        "heartbeat_s",
        "host",
        "mechanism",
        "name",
        "peer_host",
        "peer_port",
        "port",
        "reads",
        "received_bytes",
        "sent_bytes",
        "tls",
        "user",
        "vhost",
        "writes",
    )

    def __init__(
        self, connection_id: int, tls: TlsFacts | None = None, ends: Ends | None = None
    ) -> None:
        self.connection_id = connection_id
        self.name = ""
        self.peer_host, self.peer_port = "", 0
        self.host, self.port = "", 0
        self.connected_at_ms = 0
        self.user = ""
        self.vhost = ""
        self.heartbeat_s = 0
        self.frame_max = 0
        self.channel_max = 0
        self.client_properties: dict[str, object] = {}
        self.mechanism = ""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.reads = self.writes = 0
        self.descriptor = -1
        self.tls = tls
        self.ends = ends
        self._is_local = False

    def connected(self, transport: asyncio.Transport, now_ms: int) -> None:
        """Note the two ends of the connection: the socket's, or those that a proxy told."""
        peer = transport.get_extra_info("peername") or ("", 0)
        own = transport.get_extra_info("sockname") or ("", 0)
        self._is_local = is_loopback(peer[0])
        socket = transport.get_extra_info("socket")
        if self.tls is None and socket is not None:
            self.descriptor = socket.fileno()
        if self.ends is not None:
            peer, own = self.ends[:2], self.ends[2:]
        self.peer_host, self.peer_port = peer[0].removeprefix(_IN_IPV4), peer[1]
        self.host, self.port = own[0].removeprefix(_IN_IPV4), own[1]
        self.name = f"{self.peer_host}:{self.peer_port} -> {self.host}:{self.port}"
        self.connected_at_ms = now_ms

    def opened(self, facts: ConnectionFacts, machine: ConnectionMachine) -> None:
        """Note what the handshake settled."""
        self.user = facts.user
        self.vhost = facts.vhost
        self.heartbeat_s = machine.heartbeat
        self.frame_max = machine.frame_max
        self.channel_max = machine.channel_max
        self.client_properties = machine.client_properties
        self.mechanism = machine.mechanism

    def event_headers(self, facts: ConnectionFacts) -> dict[str, object]:
        """Describe the connection for its event, under RabbitMQ's names.

        Args:
            facts: The outcome of its handshake.

        Source: rabbit_reader.erl, CREATION_EVENT_KEYS.
        """
        return {
            "pid": facts.process,
            "name": self.name,
            "node": facts.node,
            "host": self.host,
            "port": self.port,
            "peer_host": self.peer_host,
            "peer_port": self.peer_port,
            "user": self.user,
            "vhost": self.vhost,
            "protocol": "AMQP 0-9-1",
            "auth_mechanism": self.mechanism,
            "ssl": self.tls is not None,
            "timeout": self.heartbeat_s,
            "frame_max": self.frame_max,
            "channel_max": self.channel_max,
            "connected_at": self.connected_at_ms,
            "client_properties": self.client_properties,
        }

    def login_headers(self, mechanism: str) -> dict[str, object]:
        """Describe a login for its event, under RabbitMQ's names.

        Args:
            mechanism: Of SASL.

        Source: rabbit_reader.erl, AUTH_NOTIFICATION_INFO_KEYS.
        """
        return {
            "connection_type": "network",
            "connection_name": self.name,
            "host": self.host,
            "peer_host": self.peer_host,
            "peer_port": self.peer_port,
            "protocol": "AMQP 0-9-1",
            "auth_mechanism": mechanism,
            "ssl": self.tls is not None,
        }

    @property
    def actor(self) -> Actor:
        """The client, as events and the audit log name it."""
        return Actor(self.user, "amqp", self.name)

    @property
    def is_loopback(self) -> bool:
        """True if the client's own address is a loopback one (never the listener's address).

        Of a client behind a proxy the proxy's must be one, too: from elsewhere a header can claim
        any address, and an address of that machine's loopback is none of this one's.
        """
        return self._is_local and is_loopback(self.peer_host)
