"""What a definitions document says, as typed records. Nothing here knows a catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from broker.metadata.policies import Policy
from broker.metadata.records import Binding, Exchange, Parameter, Permission, Tap, TopicPermission

R = TypeVar("R")

SECTIONS: Final = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "exchanges",
    "queues",
    "bindings",
    "taps",
)
"""In the order in which they are imported: each needs only what comes before it. Taps are ours."""

OF_CLUSTER: Final = frozenset(
    ("users", "vhosts", "permissions", "topic_permissions", "global_parameters")
)
"""Sections that an import into one vhost leaves alone, as RabbitMQ does."""

IMPORTED_HASH: Final = "imported_definition_hash_value"
"""Global parameter with the hash of what was imported last (definitions.skip_if_unchanged)."""


class Placed(NamedTuple, Generic[R]):
    """A record with its place in the document.

    Attributes:
        where: "queues[3]".
        record: The record.
    """

    where: str
    record: R


class UserDefinition(NamedTuple):
    """A user of a document.

    Attributes:
        name: Its name.
        tags: Its tags.
        password_hash: base64 of the salt and the digest; "" allows no login with a password.
        hashing_algorithm: Of `password_hash`, or that which is to hash `password`.
        password: In clear, to be hashed before a plan is made; None where the hash is given.
        limits: None where the document has none.
    """

    name: str
    tags: tuple[str, ...]
    password_hash: str
    hashing_algorithm: str
    password: str | None
    limits: dict[str, int] | None


class VhostDefinition(NamedTuple):
    """A virtual host of a document; None stands for what it does not say.

    Attributes:
        name: Its name.
        description: Free text.
        tags: Free labels.
        default_queue_type: "" or "undefined" for none.
    """

    name: str
    description: str | None
    tags: tuple[str, ...] | None
    default_queue_type: str | None


class PolicyDefinition(NamedTuple):
    """A policy of a document.

    Attributes:
        policy: The policy, checked.
        operator: True for an operator policy, which stands among the parameters.
    """

    policy: Policy
    operator: bool


class QueueDefinition(NamedTuple):
    """A queue of a document.

    Attributes:
        vhost: Its virtual host.
        name: Its name.
        durable: False: gone after a stop of the whole cluster.
        auto_delete: Deleted when its last consumer goes.
        arguments: As declared.
        type: What newer files say beside the arguments; "" for nothing.
    """

    vhost: str
    name: str
    durable: bool
    auto_delete: bool
    arguments: dict[str, object]
    type: str


@dataclass(slots=True)
class Definitions:
    """A document whose every object is valid in itself.

    Attributes:
        users: Users.
        vhosts: Virtual hosts.
        permissions: Users' permissions.
        topic_permissions: Users' topic permissions.
        parameters: Of vhosts and, with vhost "", of the cluster.
        policies: Policies and operator policies.
        exchanges: Exchanges.
        queues: Queues.
        bindings: Bindings.
        taps: Taps.
        ignored: Sections that this import leaves alone.
    """

    users: list[Placed[UserDefinition]] = field(default_factory=list)
    vhosts: list[Placed[VhostDefinition]] = field(default_factory=list)
    permissions: list[Placed[Permission]] = field(default_factory=list)
    topic_permissions: list[Placed[TopicPermission]] = field(default_factory=list)
    parameters: list[Placed[Parameter]] = field(default_factory=list)
    policies: list[Placed[PolicyDefinition]] = field(default_factory=list)
    exchanges: list[Placed[Exchange]] = field(default_factory=list)
    queues: list[Placed[QueueDefinition]] = field(default_factory=list)
    bindings: list[Placed[Binding]] = field(default_factory=list)
    taps: list[Placed[Tap]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


class Faults:
    """Why a document is refused: the first faults, and how many there are.

    Attributes:
        texts: At most `SHOWN_MAX` lines, "queues[3]: durable must be true or false, found 7".
        count: Of all.
    """

    SHOWN_MAX: Final = 100

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.count = 0

    def add(self, where: str, text: str) -> None:
        """Note a fault.

        Args:
            where: "queues[3]", "" for the document.
            text: What is wrong; made one line.
        """
        self.count += 1
        if self.count <= self.SHOWN_MAX:
            line = " ".join(text.split())
            self.texts.append(f"{where}: {line}" if where else line)

    @property
    def line(self) -> str:
        """The first fault, and how many more there are."""
        more = self.count - 1
        return self.texts[0] + (f" (and {more} more)" if more else "")
