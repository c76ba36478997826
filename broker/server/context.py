"""The objects that all connections of a node share. Built once by node.py, never changed after."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from broker.audit.actor import BROKER, Actor
from broker.config import Settings
from broker.counters import NodeCounts
from broker.message import Message
from broker.metadata.access import Access
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import AnyCommand
from broker.metadata.records import Queue
from broker.ports import Clock, Done
from broker.queues.handle import QueueHandle
from broker.server.alarms import Board
from broker.server.entrance.doors import Doors
from broker.server.events.exchange import EventExchange
from broker.server.shares.half_sent import HalfSentShared
from broker.server.shares.turns import FairTurns
from broker.server.sockets.outbox import Outbox
from broker.server.sockets.socket_io import Room
from broker.server.throttle import Behind
from broker.session.facts import Names, Placement, SessionLimits
from broker.session.traced_vhosts import TracedVhosts


class Metadata(Protocol):
    """Group 0, as far as connections change it."""

    async def propose(self, command: AnyCommand, /, *, by: Actor) -> object:
        """Commit a command and wait until every lease holder has applied it (P4).

        Returns:
            What applying it returned, or a `Refusal`; never raises for either.
        """
        ...


class Queues(Protocol):
    """The way to every queue of the cluster."""

    def open(self, queue: Queue) -> QueueHandle:
        """The queue's handle on this node, made at first use."""
        ...

    def find(self, uid: int) -> QueueHandle | None:
        """The handle of an incarnation, None when it was never opened here or is gone."""
        ...

    def consumer_count(self, uid: int) -> int:
        """Return a queue's number of consumers: all if it is served here, else this node's."""
        ...

    def delete(
        self, queue: Queue, done: Done, *, if_unused: bool, if_empty: bool, by: Actor = BROKER
    ) -> None:
        """Delete a queue through its home, which checks the conditions first (P5).

        `done(count)` with the messages that were ready, or a `Refusal`.
        """
        ...


class Spawner(Protocol):
    """Runs coroutines that nobody waits for, inside the node's task group."""

    def __call__(self, work: Coroutine[Any, Any, None], /) -> None:
        """Run `work`; its failure is logged and ends nothing else."""
        ...


class ReplyRoute(Protocol):
    """Carries direct replies to the node of the asking connection."""

    def __call__(
        self, node: str, boot: str, connection_id: int, channel: int, key: str, message: Message
    ) -> Behind | None:
        """Send; fire and forget.

        Returns:
            What the publisher shall wait for before its next one; None: for nothing.
        """
        ...


class Lease(Protocol):
    """May this node route, confirm and deliver for its clients (P4)?"""

    def is_valid(self, now_ms: int | None = None) -> bool:
        """True while the node's lease on group 0 lasts; asked before each batch.

        Args:
            now_ms: Monotonic milliseconds, read in this call of the event loop; None: read now.
        """
        ...


class LeaseWaiter(Protocol):
    """A connection that keeps commands or output until the node has its lease again (P4)."""

    def resume(self) -> None:
        """The lease is there: carry out and write what waited."""
        ...


@dataclass(slots=True)
class ServerContext:
    """The shared surroundings of connections.

    Attributes:
        settings: The node's settings.
        node: This node's name.
        boot: This start's boot id.
        clock: Time.
        outbox: The connections that have output to write.
        catalogue: Group 0's state.
        access: Logins and permissions.
        metadata: Changes to group 0.
        queues: The way to queues.
        lease: Whether the node may serve.
        spawn: Runs a coroutine in the node's task group.
        send_reply: Direct replies to other connections.
        place: Where new queues go.
        new_name: Unguessable names.
        limits: Bounds of sessions.
        reply_secret: Key of the HMAC in direct reply-to addresses.
        server_properties: For connection.start.
        doors: Places, turns and logins of who comes in.
        half_sent: Memory for messages that are not complete.
        alarms: Why publishers are blocked.
        turns: Of connections whose messages are expensive to route.
        counts: What is counted since the node started to serve.
        traced: The vhosts of which copies of messages are published.
        events: Publishes what happens here.
        room: What sockets are read into.
        lease_waiters: Connections that wait for the lease (`lease_back`), in the order they came.
    """

    settings: Settings
    node: str
    boot: str
    clock: Clock
    outbox: Outbox
    catalogue: Catalogue
    access: Access
    metadata: Metadata
    queues: Queues
    lease: Lease
    spawn: Spawner
    send_reply: ReplyRoute
    place: Placement
    new_name: Names
    limits: SessionLimits
    reply_secret: bytes
    traced: TracedVhosts
    server_properties: dict[str, object] = field(default_factory=dict)
    doors: Doors = field(default_factory=Doors)
    half_sent: HalfSentShared = field(default_factory=HalfSentShared)
    alarms: Board = field(default_factory=lambda: Board(""))
    counts: NodeCounts = field(default_factory=NodeCounts)
    room: Room = field(default_factory=Room)
    lease_waiters: dict[LeaseWaiter, None] = field(default_factory=dict)
    events: EventExchange = field(init=False)
    turns: FairTurns = field(init=False)

    def __post_init__(self) -> None:
        self.turns = FairTurns(self.clock)
        self.events = EventExchange(
            self.limits.events_vhost,
            self.catalogue,
            self.metadata,
            self.queues,
            self.lease,
            self.clock,
        )

    def lease_back(self) -> None:
        """The lease is there: let the connections go on that waited for it."""
        for connection in list(self.lease_waiters):
            del self.lease_waiters[connection]  # who must wait again notes that anew
            connection.resume()
