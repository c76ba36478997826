"""Commands to group 0, one record each, and the request that carries one (P3).

On the wire and in the log a request is the msgpack array
`[version, boot, number, lowest, [tag, field, ...]]`. Tags are never used again for something else;
fields are only appended, with defaults. A node that does not know a tag can't decode the request
and stops following group 0; it ignores appended fields. So both need a feature flag
(`broker.feature_flags`).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from broker.amqp.fields import plain_value
from broker.errors import Refusal, ReplyCode
from broker.feature_flags import EVENT_EXCHANGE, LOG_EXCHANGE, MAINTENANCE, STREAM_QUEUE
from broker.metadata.records import Binding, DestinationKind
from broker.metadata.ring_commands import RingStep

REQUEST_VERSION = 1
REQUEST_BYTES_MAX = 1024 * 1024
"""Every node applies a change in one turn of its loop, and keeps it in its log."""


class Command(msgspec.Struct, array_like=True, frozen=True, tag_field="_tag"):
    """Base of all commands.

    Attributes:
        flag: The feature flag without which no node proposes it; "" where 0.2.0 knows it.
    """

    flag: ClassVar[str] = ""


class Bootstrap(Command, frozen=True, tag=1):
    """Found the cluster: its members, the first vhost with its exchanges, the first user.

    Attributes:
        cluster_id: Drawn by the founder; never changes.
        cluster_name: What users see.
        nodes: (name, address) of each founding member.
        vhost: The first virtual host.
        user: The first user, an administrator with all permissions; "" for none.
        password_hash: See `access.hash_password`.
        hashing_algorithm: Of `password_hash`.
        tags: The first user's.
        permissions: The first user's in the first vhost: configure, write, read.
        features: Feature flags that are enabled from the beginning (`feature_flags`).
    """

    cluster_id: str
    cluster_name: str
    nodes: tuple[tuple[str, str], ...]
    vhost: str = "/"
    user: str = "guest"
    password_hash: str = ""
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: tuple[str, ...] = ("administrator",)
    permissions: tuple[str, str, str] = (".*", ".*", ".*")
    features: tuple[str, ...] = ()


class AddVhost(Command, frozen=True, tag=2):
    """Add a virtual host or change its metadata. Result: True if it is new.

    `user` gets all permissions in a new vhost, as the HTTP API does; "" grants nothing.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    default_queue_type: str | None = None
    user: str = ""


class DeleteVhost(Command, frozen=True, tag=3):
    """Delete a virtual host with all that is in it. Result: True if it existed."""

    name: str


class AddUser(Command, frozen=True, tag=4):
    """Add a user, or replace password and tags of an existing one. Result: True if new."""

    name: str
    password_hash: str
    hashing_algorithm: str = "rabbit_password_hashing_sha256"
    tags: tuple[str, ...] = ()
    may_exist: bool = True


class ChangePassword(Command, frozen=True, tag=5):
    """Change a user's password."""

    name: str
    password_hash: str
    hashing_algorithm: str = "rabbit_password_hashing_sha256"


class SetUserTags(Command, frozen=True, tag=6):
    """Replace a user's tags."""

    name: str
    tags: tuple[str, ...]


class SetUserLimits(Command, frozen=True, tag=7):
    """Replace a user's limits ("max-connections", "max-channels").

    Attributes:
        name: The user.
        limits: New values.
        is_update: Limits that are named in neither stay as they are.
        removed: With `is_update`: those to remove.
    """

    name: str
    limits: dict[str, int]
    is_update: bool = False
    removed: tuple[str, ...] = ()


class DeleteUser(Command, frozen=True, tag=8):
    """Delete a user and its permissions. Result: True if it existed."""

    name: str


class SetPermissions(Command, frozen=True, tag=9):
    """Set a user's permissions in a vhost. Result: True if there were none before."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class ClearPermissions(Command, frozen=True, tag=10):
    """Remove a user's permissions in a vhost. Result: True if there were any."""

    user: str
    vhost: str


class SetTopicPermissions(Command, frozen=True, tag=11):
    """Set a user's permissions on one topic exchange's routing keys. Result: True if new."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class ClearTopicPermissions(Command, frozen=True, tag=12):
    """Remove topic permissions; exchange None: all of the vhost. Result: True if any."""

    user: str
    vhost: str
    exchange: str | None = None


class DeclareExchange(Command, frozen=True, tag=13):
    """Declare an exchange (never passively). Result: True if created, False if it was there.

    Attributes:
        home: First leader of the store of an x-delayed-message exchange; "" for all others.
        members: Nodes with a replica of it; () leaves the choice to the machine.
    """

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, object]
    home: str = ""
    members: tuple[str, ...] = ()


class DeleteExchange(Command, frozen=True, tag=14):
    """Delete an exchange. Result: True if it existed."""

    vhost: str
    name: str
    if_unused: bool = False


class DeclareQueue(Command, frozen=True, tag=15):
    """Declare a queue (never passively; the name is never empty). Result: `Declared`.

    Attributes:
        exclusive_owner: "NODE/BOOT/CONNECTION_ID" of the declaring connection if it asked for an
            exclusive queue, else None.
        home: Node to serve it, or first leader of a quorum queue.
        members: Nodes with a replica; () is (home,).
        server_named: The session drew the name ("amq.gen-..."); any other "amq." name is a 403.
        queue_limit: Most queues the cluster may have, as the asking node is configured; it stands
            in the command so that every replica decides alike. None is without limit.
    """

    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    exclusive_owner: str | None
    arguments: dict[str, object]
    home: str
    members: tuple[str, ...] = ()
    server_named: bool = False
    queue_limit: int | None = None


class DeleteQueue(Command, frozen=True, tag=16):
    """Delete the incarnation `uid`; its home has checked if-unused and if-empty (P5).

    Result: True if it existed, False (and nothing happens) if it is gone.
    """

    uid: int


class Bind(Command, frozen=True, tag=17):
    """Bind a destination to an exchange. Result: True if new.

    Attributes:
        uid: For a queue: the incarnation meant, 0 for whatever bears the name.
        connection: "NODE/BOOT/CONNECTION_ID" of the asking connection: an exclusive queue of any
            other one is a 405. "" (the HTTP API) owns none.
    """

    vhost: str
    source: str
    kind: DestinationKind
    destination: str
    routing_key: str
    arguments: dict[str, object]
    uid: int = 0
    connection: str = ""


class Unbind(Command, frozen=True, tag=18):
    """Remove a binding. Result: True if it existed. Missing ends are no error."""

    vhost: str
    source: str
    kind: DestinationKind
    destination: str
    routing_key: str
    arguments: dict[str, object]
    uid: int = 0
    connection: str = ""


def binding_of(command: Bind | Unbind) -> Binding:
    """The binding that a command adds or removes."""
    return Binding(
        vhost=command.vhost,
        source=command.source,
        kind=command.kind,
        destination=command.destination,
        routing_key=command.routing_key,
        arguments=command.arguments,
    )


class MoveBindings(Command, frozen=True, tag=33):
    """Bind a queue as another is bound, and that one no more, at once. Result: how many bindings.

    So no publish goes to both or to neither.

    Attributes:
        source: Incarnation of the queue that loses its bindings.
        target: Incarnation of the one that gets them, in the same vhost.
    """

    source: int
    target: int


class EndConnection(Command, frozen=True, tag=19):
    """A connection has ended: delete its exclusive queues. Result: how many.

    A declare that was under way may still be applied after this one. Its node sees an exclusive
    queue added whose connection it does not know, and proposes this command again (P6).

    Attributes:
        owner: "NODE/BOOT/CONNECTION_ID".
    """

    owner: str


class BootNode(Command, frozen=True, tag=20):
    """A member starts with a new boot id, which ends all its earlier ones (P1).

    Attributes:
        node: The member.
        boot: The new boot id.
        address: "HOST:PORT" other nodes reach it at.
        is_first: No other boot goes on, so a stop of the whole cluster is over. Only the leader can
            tell the last node of a stop, which had nobody to tell, from one that lives: it writes
            this. None: by the nodes that the records call alive.
    """

    node: str
    boot: str
    address: str
    is_first: bool | None = None


class EndBoot(Command, frozen=True, tag=21):
    """A node is dead: its boot ends, with all that lived by it (P2). Stale boots are no-ops."""

    node: str
    boot: str


class JoinNode(Command, frozen=True, tag=22):
    """Add a member; it boots later. Result: True if it is new.

    `features` are the feature flags that it knows; a node of 0.2.0 names none. The leader looks at
    them before the command gets into the log (`broker.cluster.feature_gate`).
    """

    node: str
    address: str
    features: tuple[str, ...] = ()


class ForgetNode(Command, frozen=True, tag=23):
    """Remove a member for good. Result: True if it was one."""

    node: str


class NoteLeader(Command, frozen=True, tag=24):
    """Note the leaders of quorum queues, late and in batches (P31): (uid, node) pairs."""

    leaders: tuple[tuple[int, str], ...]


class SetParameter(Command, frozen=True, tag=25):
    """Set a runtime parameter; vhost "" and component "" for a global one."""

    vhost: str
    component: str
    name: str
    value: object


class ClearParameter(Command, frozen=True, tag=26):
    """Remove a runtime parameter. Result: True if it existed."""

    vhost: str
    component: str
    name: str


class SetClusterName(Command, frozen=True, tag=27):
    """Rename the cluster."""

    name: str


class MoveMembers(Command, frozen=True, tag=28):
    """A queue has other replicas now. Result: True if it was done.

    Attributes:
        uid: Its incarnation.
        members: The replicas.
        home: Its leader, as far as is known; "" leaves that as it is.
        expected: The replicas that `members` was made from: nothing is done where the queue has
            others by now. None: whatever it has.
    """

    uid: int
    members: tuple[str, ...]
    home: str = ""
    expected: tuple[str, ...] | None = None


class SetPolicy(Command, frozen=True, tag=29):
    """Set a policy, or an operator policy; `policy_keys.fault` has found nothing wrong with it.

    Result: True if it is new.
    """

    vhost: str
    name: str
    pattern: str
    definition: dict[str, object]
    priority: int | float = 0
    apply_to: str = "all"
    operator: bool = False


class ClearPolicy(Command, frozen=True, tag=30):
    """Remove a policy, or an operator policy. Result: True if it existed."""

    vhost: str
    name: str
    operator: bool = False


class ChangeRings(Command, frozen=True, tag=31):
    """Change rings of mirrored queues, all that is due at one tick (P2).

    Result: a bool per step, in order: False where its preconditions did not hold.
    """

    steps: tuple[RingStep, ...]


class EndMemberships(Command, frozen=True, tag=32):
    """A node has been silent for a while: the rings go on without it where they can (P7).

    Its boot goes on, and so do its sessions, its exclusive and its transient queues (P27): it joins
    again when it is heard. A queue that only it could serve waits for it.

    Result: how many rings it has left.
    """

    node: str
    boot: str


class EnableFeatures(Command, frozen=True, tag=34):
    """Enable feature flags, for ever. Result: True if one of them was not enabled.

    Only the leader of a cluster whose members all know them lets it into the log: to a node that
    does not, this very command is undecodable.
    """

    names: tuple[str, ...]


class SetMaintenance(Command, frozen=True, tag=35):
    """Put a member into maintenance mode, or end that. Result: True if it was not so.

    A boot ends it too, as in RabbitMQ.
    """

    flag: ClassVar[str] = MAINTENANCE

    node: str
    being_drained: bool


class DeclareEventExchange(Command, frozen=True, tag=36):
    """Declare `amq.rabbitmq.event` in a vhost, a name no client may declare. Result: True if new.

    A vhost that is not there, or has it, is no error.
    """

    flag: ClassVar[str] = EVENT_EXCHANGE

    vhost: str


class DeclareLogExchange(Command, frozen=True, tag=37):
    """Declare `amq.rabbitmq.log` in a vhost, as `DeclareEventExchange` does its exchange."""

    flag: ClassVar[str] = LOG_EXCHANGE

    vhost: str


class SetTap(Command, frozen=True, tag=38):
    """Have a stream get a copy of what goes to a queue, or through an exchange.

    Result: True if new. An exchange's is bound to the stream. A source with another tap is refused.

    Attributes:
        vhost: Virtual host of both.
        kind: What the source is.
        source: Name of the queue or exchange.
        stream: Name of a stream that is there.
        routing_key: Of the binding, for an exchange.
    """

    flag: ClassVar[str] = STREAM_QUEUE

    vhost: str
    kind: DestinationKind
    source: str
    stream: str
    routing_key: str = ""


class DeleteTap(Command, frozen=True, tag=39):
    """Remove the tap of a queue or exchange; its stream stays. Result: True if there was one."""

    flag: ClassVar[str] = STREAM_QUEUE

    vhost: str
    kind: DestinationKind
    source: str


AnyCommand = (
    Bootstrap
    | AddVhost
    | DeleteVhost
    | AddUser
    | ChangePassword
    | SetUserTags
    | SetUserLimits
    | DeleteUser
    | SetPermissions
    | ClearPermissions
    | SetTopicPermissions
    | ClearTopicPermissions
    | DeclareExchange
    | DeleteExchange
    | DeclareQueue
    | DeleteQueue
    | Bind
    | Unbind
    | MoveBindings
    | EndConnection
    | BootNode
    | EndBoot
    | EndMemberships
    | JoinNode
    | ForgetNode
    | NoteLeader
    | SetParameter
    | ClearParameter
    | SetClusterName
    | MoveMembers
    | SetPolicy
    | ClearPolicy
    | ChangeRings
    | EnableFeatures
    | SetMaintenance
    | DeclareEventExchange
    | DeclareLogExchange
    | SetTap
    | DeleteTap
)


class Request(msgspec.Struct, array_like=True, frozen=True):
    """A command with the boot that asks, so that a repetition gets the remembered answer.

    Attributes:
        version: Of this format, `REQUEST_VERSION`.
        boot: Boot id of the asking node.
        number: Counts that boot's requests from 1.
        lowest: The lowest number whose answer the asker still waits for; answers below it are
            forgotten. At most `number`.
        command: What to do.
    """

    version: int
    boot: str
    number: int
    lowest: int
    command: AnyCommand


_encoder = msgspec.msgpack.Encoder(enc_hook=plain_value)
_decoder = msgspec.msgpack.Decoder(Request)


def encode_request(boot: str, number: int, lowest: int, command: AnyCommand) -> bytes:
    """Encode a request for `MetadataMachine.apply`."""
    return _encoder.encode(Request(REQUEST_VERSION, boot, number, lowest, command))


def size_refusal(data: bytes) -> Refusal | None:
    """Return why a request is too large for group 0's log; None if it is not.

    Args:
        data: Of `encode_request`.
    """
    if len(data) <= REQUEST_BYTES_MAX:
        return None
    text = f"the change has {len(data)} bytes; the most is {REQUEST_BYTES_MAX}"
    return Refusal(ReplyCode.PRECONDITION_FAILED, text)


def decode_request(data: bytes) -> Request:
    """Decode a request.

    Raises:
        msgspec.DecodeError: `data` is no request; in the log that is a bug or damage.
    """
    return _decoder.decode(data)
