"""The facts that a session is given when its connection opens, and the ports that it uses."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.errors import Refusal


class ConnectionFacts(NamedTuple):
    """The outcome of the handshake. Fixed for the life of the connection.

    Attributes:
        node: This node's name.
        boot: This start's boot id, 16 hex digits.
        connection_id: Number of the connection, unique within the boot.
        vhost: The virtual host that is open.
        user: The authenticated user.
        frame_max: Largest frame in bytes, header and end octet included; 0 is without limit.
        channel_max: Largest number of channels; 0 is without limit.
        consumer_cancel_notify: The client understands basic.cancel from the server.
        is_impersonator: The user may set any user_id (tag `impersonator`).
        reply_secret: Key of the HMAC in direct reply-to addresses; the same on every node.
        name: As listings have it: "127.0.0.1:50000 -> 127.0.0.1:5672".
    """

    node: str
    boot: str
    connection_id: int
    vhost: str
    user: str
    frame_max: int
    channel_max: int
    consumer_cancel_notify: bool
    is_impersonator: bool
    reply_secret: bytes
    name: str = ""

    @property
    def owner(self) -> str:
        """The connection as owner of exclusive queues: `node/boot/connection_id`."""
        return f"{self.node}/{self.boot}/{self.connection_id}"

    @property
    def process(self) -> str:
        """The connection as events name it, where RabbitMQ has a process."""
        return f"<{self.node}.{self.connection_id}.0>"


class SessionLimits(NamedTuple):
    """Bounds of one session.

    Attributes:
        max_message_size: Largest body in bytes; only for the error's text, the codec enforces it.
        consumers_per_channel: Most consumers on a channel; 0 is without limit.
        consumer_timeout_ms: Longest time an unacknowledged delivery may be out; 0 is for ever.
        default_prefetch: Per-consumer prefetch before any basic.qos; 0 is without limit.
        cc_keys: Most routing keys in CC and BCC together.
        held_commands: Commands a waiting channel holds back before the socket is not read.
        held_bytes: Bytes of content they may hold before the socket is not read.
        transaction_bytes: Content bytes an open transaction may hold; more is a 406.
        routes: Entries of the route cache.
        cluster_queues: Most queues of the cluster, None is without limit (`cluster_queue_limit`).
        cluster_exchanges: Likewise (`cluster_exchange_limit`).
        events_vhost: Where the event exchange is.
        quorum_global_qos: Let a channel with a channel-wide limit consume from quorum queues,
            which RabbitMQ refuses (`compat.quorum_global_qos`).
    """

    max_message_size: int = 134_217_728
    consumers_per_channel: int = 0
    consumer_timeout_ms: int = 1_800_000
    default_prefetch: int = 0
    cc_keys: int = 1024
    held_commands: int = 1000
    held_bytes: int = 1_048_576
    transaction_bytes: int = 268_435_456
    routes: int = 4096
    cluster_queues: int | None = None
    cluster_exchanges: int | None = None
    events_vhost: str = "/"
    quorum_global_qos: bool = False


class Names(Protocol):
    """The source of unguessable names (the shell's randomness)."""

    def __call__(self) -> str:
        """22 URL-safe base64 characters, 16 random bytes."""
        ...


class Quota(Protocol):
    """The number of channels that a user, or a node, may have open."""

    def channel_refusal(self, user: str) -> Refusal | None:
        """Why a user may not open one more channel (530), None if it may; asked before each."""
        ...

    def channel_opened(self, user: str) -> None:
        """A channel is open."""
        ...

    def channels_closed(self, user: str, count: int) -> None:
        """Channels of a connection are gone."""
        ...


class Placement(Protocol):
    """The placement of a new queue. Called once for each declare of a queue that does not exist."""

    def __call__(
        self, vhost: str, name: str, queue_type: str, arguments: dict[str, object]
    ) -> tuple[str, tuple[str, ...]]:
        """The home (quorum: the first leader) and the nodes with a replica."""
        ...
