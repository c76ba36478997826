"""The records of group 0: one frozen record for each thing, in snapshots and in memory.

Every record is a msgpack array whose fields are only ever appended, with defaults, so that an older
snapshot stays readable. Records are values: a change replaces the record.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from broker.metadata.rings import Ring

QueueType = Literal["classic", "quorum", "stream"]
REPLICATED: Final = frozenset(("quorum", "stream"))
"""Types whose queues have replicas, a Raft group of them, and always are durable and shared."""

DestinationKind = Literal["queue", "exchange"]

STORE_PREFIX: Final = "amq.delayed."
STORE_ARGUMENT: Final = "x-warren-delayed-exchange"
"""A queue with both keeps what an x-delayed-message exchange delays. No client can declare one."""

HISTORY_PREFIX: Final = "amq.history."
HISTORY_ARGUMENT: Final = "x-warren-history-exchange"
"""A queue with both keeps the latest messages of an x-recent-history exchange."""


class Vhost(msgspec.Struct, array_like=True, frozen=True):
    """A virtual host.

    Attributes:
        name: Its name; "/" is the first one.
        description: Free text.
        tags: Free labels.
        default_queue_type: Type of a durable queue declared without x-queue-type; None is classic.
        tracing: True while the firehose is on.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str | None = None
    tracing: bool = False


class User(msgspec.Struct, array_like=True, frozen=True):
    """A user of the internal database.

    Attributes:
        name: User name.
        password_hash: base64 of the salt and the digest; "" allows no password login.
        hashing_algorithm: Of `broker.passwords.HASHINGS`.
        tags: administrator, monitoring, policymaker, management, impersonator, or any other.
        limits: "max-connections" and "max-channels"; absent or negative is unlimited.
    """

    name: str
    password_hash: str
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}


class Permission(msgspec.Struct, array_like=True, frozen=True):
    """A user's permissions in a vhost: three regular expressions over resource names."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermission(msgspec.Struct, array_like=True, frozen=True):
    """A user's permissions for routing keys of one topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class Exchange(msgspec.Struct, array_like=True, frozen=True):
    """An exchange.

    Attributes:
        vhost: Its virtual host.
        name: Its name; "" is the default exchange.
        type: "direct", "fanout", "topic" or "headers".
        durable: False: gone after a stop of the whole cluster.
        auto_delete: Deleted when its last binding as source is removed.
        internal: Clients can't publish to it.
        arguments: As declared.
    """

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, object]

    @property
    def alternate(self) -> str | None:
        """Name of the alternate exchange, None without one."""
        value = self.arguments.get("alternate-exchange")
        return value if isinstance(value, str) else None


class Queue(msgspec.Struct, array_like=True, frozen=True):
    """A queue. Whoever acts on one names its `uid`, so a late command can't hit a namesake (P3).

    Attributes:
        vhost: Its virtual host.
        name: Its name.
        uid: Incarnation: the group 0 index of the declaring command, unique for ever.
        type: "classic", "quorum" or "stream".
        durable: Effective durability: False for exclusive queues.
        auto_delete: Deleted by its home when its last consumer goes.
        exclusive_owner: "NODE/BOOT/CONNECTION_ID" of the connection that owns it, or None.
        arguments: As declared; x-queue-type added where the vhost's default decided.
        home: The node that serves a classic queue (the last master's while a ring has none); for a
            quorum queue or a stream a hint at its leader.
        members: Nodes with a replica.
        state: "running", unless an operation in steps is under way.
        moved_at: Group 0 index of its last MoveMembers, 0 for none: from then on its members are
            not those that founded its group.
        is_logged: A quorum queue was declared while `feature_flags.QUORUM_LOGS` was enabled, so its
            bodies are in its Raft log on every replica. Others come into that form replica by
            replica (decision 0065).
    """

    vhost: str
    name: str
    uid: int
    type: QueueType
    durable: bool
    auto_delete: bool
    exclusive_owner: str | None
    arguments: dict[str, object]
    home: str
    members: tuple[str, ...]
    state: str = "running"
    moved_at: int = 0
    ring: Ring | None = None
    past_version: int = 0
    past_epoch: int = 0
    is_logged: bool = False

    @property
    def delays_for(self) -> str | None:
        """The exchange whose delayed messages it keeps; None for every queue of clients."""
        if not self.name.startswith(STORE_PREFIX):
            return None
        value = self.arguments.get(STORE_ARGUMENT)
        return value if isinstance(value, str) else None

    @property
    def keeps_for(self) -> str | None:
        """The exchange whose store it is, delays or history; None for every queue of clients."""
        if not self.name.startswith(HISTORY_PREFIX):
            return self.delays_for
        value = self.arguments.get(HISTORY_ARGUMENT)
        return value if isinstance(value, str) else None


class Binding(msgspec.Struct, array_like=True, frozen=True):
    """A binding. All of its fields together are its identity, the arguments included.

    Attributes:
        vhost: Virtual host of both ends.
        source: Exchange that messages come from.
        kind: What the destination is: "queue" or "exchange".
        destination: Name of the destination.
        routing_key: Binding key.
        arguments: As bound; x-match and headers for headers exchanges.
    """

    vhost: str
    source: str
    kind: DestinationKind
    destination: str
    routing_key: str
    arguments: dict[str, object]


class Tap(msgspec.Struct, array_like=True, frozen=True):
    """A stream that gets a copy of what goes to a queue, or through an exchange.

    Attributes:
        vhost: Virtual host of both.
        kind: What the source is: "queue" or "exchange". A source has one tap at most.
        source: Name of the queue or exchange.
        stream: Name of the stream.
        routing_key: Of the binding, for an exchange.
    """

    vhost: str
    kind: DestinationKind
    source: str
    stream: str
    routing_key: str = ""

    @property
    def binding(self) -> Binding | None:
        """The binding by which an exchange's tap gets its copies; None for a queue's."""
        if self.kind == "queue":
            return None
        return Binding(self.vhost, self.source, "queue", self.stream, self.routing_key, {})


class Node(msgspec.Struct, array_like=True, frozen=True):
    """A member of the cluster.

    Attributes:
        name: "rabbit@node1".
        boot: Its living boot id (P1), None while it has none.
        alive: True from BootNode to EndBoot.
        address: "HOST:PORT" other nodes reach it at.
        booted_at: Group 0 index of its last BootNode, 0 before the first.
        ended_boots: Its latest boots that have ended, oldest first, boundedly many.
        being_drained: It is in maintenance mode: it serves no clients and gets no leaders. The next
            boot ends that.
    """

    name: str
    boot: str | None
    alive: bool
    address: str
    booted_at: int = 0
    ended_boots: tuple[str, ...] = ()
    being_drained: bool = False


class Parameter(msgspec.Struct, array_like=True, frozen=True):
    """A runtime parameter; with vhost "" a global one (component "" then).

    Vhost limits are component "vhost-limits", name "limits", as in RabbitMQ.
    """

    vhost: str
    component: str
    name: str
    value: object
