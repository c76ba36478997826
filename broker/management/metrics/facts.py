"""What metrics show: a node at one moment, and its objects, each with its labels. Pure.

There may be ten thousand of each object, kept while a text is written. They are in no circle and
unknown to the garbage collector, or texts would bring about its walks over all that the node has:
0.3 s beside 10,000 queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from broker.counters import MessageCounts, QueueingCounts
from broker.management.metrics.exposition import labelled
from broker.metadata.records import Queue


class NodeFacts(NamedTuple):
    """What a node knows of itself.

    Attributes:
        node: The NODE part of its report.
        name: The node's.
        cluster: The cluster's name.
        cluster_id: The cluster's permanent id.
        attempts: Logins by protocol, as `/api/auth/attempts` shows them.
        sources: Logins by address, user and protocol, likewise.
        received_bytes: From all clients since the start.
        sent_bytes: To all clients since the start.
        reads: Pieces in which clients' bytes came.
        writes: Pieces in which they were sent.
        routed: Copies of messages that exchanges gave to queues since the start.
        messages: `broker.counters.MESSAGE_KEYS` of all vhosts since the start, deleted ones too.
        churn: `broker.counters.CHURN_KEYS`.
        queueing: What the node's queues did.
    """

    node: Mapping[str, Any]
    name: str
    cluster: str
    cluster_id: str
    attempts: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    received_bytes: int
    sent_bytes: int
    reads: int
    writes: int
    routed: int
    messages: tuple[int, ...]
    churn: tuple[int, ...]
    queueing: QueueingCounts


class QueueFacts(msgspec.Struct, gc=False):
    """A queue that the node serves.

    Attributes:
        queue: Its record.
        counts: What happened to its messages here.
        memory_bytes: As `broker.management.memory.of_queue`.
        is_classic: False: what is in memory is not known, and 0.
        is_idle: True without messages and consumers: all that follows is as by default.
        ready: As all that follows in `broker.ports.QueueStat`.
        segments: Of a stream; None for other queues.
        capacity: As all that follows in `broker.ports.QueueDetails`.
    """

    queue: Queue
    counts: MessageCounts
    memory_bytes: int
    is_classic: bool
    is_idle: bool = True
    ready: int = 0
    unacked: int = 0
    consumers: int = 0
    ready_bytes: int = 0
    unacked_bytes: int = 0
    alpha: int = 0
    alpha_bytes: int = 0
    unacked_alpha: int = 0
    segments: int | None = None
    capacity: float = 0.0
    head_timestamp: int | None = None
    persistent: int = 0
    persistent_bytes: int = 0
    _labels: str = ""

    @property
    def labels(self) -> str:
        """`vhost` and `queue`; written once, when they are asked for."""
        if not self._labels:
            self._labels = labels_of(self.queue)
        return self._labels


def labels_of(queue: Queue) -> str:
    """`vhost` and `queue`, as they stand behind a name."""
    return labelled((("vhost", queue.vhost), ("queue", queue.name)))


class StreamNumbers(msgspec.Struct, gc=False):
    """A replica of a stream on the node.

    Attributes:
        labels: `vhost` and `queue`.
        is_leading: True if it leads: the stream is counted here.
        size_bytes: As retention counts it.
        first_offset: Of the oldest message kept.
        next_offset: Of the next message.
        publishers: Named publishers that are remembered.
        offsets: Offsets that consumers have stored.
        commit_ms: How long the latest entry took that was proposed here; 0 if there was none.
        disk_bytes: Of the files of its log.
    """

    labels: str
    is_leading: bool
    size_bytes: int
    first_offset: int
    next_offset: int
    publishers: int
    offsets: int
    commit_ms: int
    disk_bytes: int


class ReplicaFacts(msgspec.Struct, gc=False):
    """A replica of a quorum queue or stream on the node.

    Attributes:
        labels: `vhost` and `queue`.
        term: Current term.
        snapshot_index: Where its newest snapshot stands.
        applied_index: The newest entry given to the machine.
        commit_index: The newest entry known to be committed.
        last_index: The newest entry.
        commit_ms: How long the latest entry took that this replica proposed; None unless it leads.
        role: As `raft.group.GroupStatus.role`.
        is_leaderless: True if it knows of no leader.
        is_stream: Of a stream: RabbitMQ's families of Raft are about quorum queues alone.
    """

    labels: str
    term: int
    snapshot_index: int
    applied_index: int
    commit_index: int
    last_index: int
    commit_ms: int | None
    role: str
    is_leaderless: bool
    is_stream: bool

    @property
    def is_leading(self) -> bool:
        """True if it leads its group."""
        return self.commit_ms is not None


class ConnectionFacts(msgspec.Struct, gc=False):
    """A client's connection that has logged in.

    Attributes:
        labels: `channel`, as RabbitMQ has it: its name.
        received_bytes: From the client.
        sent_bytes: To the client.
        reads: Pieces in which they came.
        writes: Pieces in which they were sent.
        unsent_bytes: That wait to be sent.
        channels: How many are open.
        is_in_flow: True if listings show it as `flow`.
    """

    labels: str
    received_bytes: int
    sent_bytes: int
    reads: int
    writes: int
    unsent_bytes: int
    channels: int
    is_in_flow: bool


class ChannelNumbers(msgspec.Struct, gc=False):
    """A channel.

    Attributes:
        labels: `channel`: its name.
        consumer_count: As all that follows in `broker.session.listing.ChannelFacts`.
        counts: What happened to its messages.
        is_in_flow: True if listings show it as `flow`.
    """

    labels: str
    consumer_count: int
    unacknowledged: int
    unconfirmed: int
    uncommitted_messages: int
    uncommitted_acks: int
    prefetch: int
    global_prefetch: int
    counts: MessageCounts
    is_in_flow: bool


class ChannelExchangeNumbers(msgspec.Struct, gc=False):
    """A channel and an exchange that it published to.

    Attributes:
        labels: `channel`, `vhost` and `exchange`.
        published: Messages.
        returned: Of those, mandatory messages that went back.
        dropped: Of those, messages that had no route.
    """

    labels: str
    published: int
    returned: int
    dropped: int


class ChannelQueueNumbers(msgspec.Struct, gc=False):
    """A channel and a queue that it got messages from, or asked for one.

    Attributes:
        labels: `channel`, `vhost` and `queue`.
        counts: What happened to those messages.
    """

    labels: str
    counts: MessageCounts


class Totals(NamedTuple):
    """How many there are.

    Attributes:
        connections: Of this node's clients.
        channels: Of this node's clients.
        publishers: Of those, channels that have published.
        consumers: Of this node's clients.
        queues: That this node serves.
        queue_consumers: Of those queues.
    """

    connections: int
    channels: int
    publishers: int
    consumers: int
    queues: int
    queue_consumers: int


class ExchangeFacts(msgspec.Struct, gc=False):
    """An exchange.

    Attributes:
        labels: `vhost` and `exchange`.
        published: Messages that the node's clients published to it.
        returned: Of those, mandatory messages that went back.
        dropped: Of those, messages that had no route.
    """

    labels: str
    published: int
    returned: int
    dropped: int


class PairFacts(msgspec.Struct, gc=False):
    """An exchange and a queue that got messages from it.

    Attributes:
        labels: `vhost`, `exchange` and `queue`.
        published: Messages of this node's clients that went this way.
    """

    labels: str
    published: int


class RingFacts(NamedTuple):
    """The node's part in mirrored queues.

    Attributes:
        masters: Queues of which it is the master.
        mirrors: Queues of which it has a mirror.
        unsynchronised: Mirrors of its masters that are not synchronised.
        syncing: Synchronisations that its masters have under way.
        in_flight_bytes: Of its broadcasts that have not come round.
    """

    masters: int
    mirrors: int
    unsynchronised: int
    syncing: int
    in_flight_bytes: int


class OwnFacts(NamedTuple):
    """What only this broker has.

    Attributes:
        node: The NODE part of the node's report.
        queueing: What the node's queues did.
        roles: How many of its replicas of quorum queues and streams have which role.
        leaderless: Of those, replicas that know of no leader.
        late_ticks: Ticks of Raft that came a tick late or more.
        metadata_index: The newest entry of group 0 that was applied.
        leads_metadata: It leads group 0.
        rings: Mirrored queues.
        flow: By stage: how many of its connections, channels and queues are held back.
        unsynced_bytes: Written to the store and not durable yet.
        dead_letter_bytes: Of dead messages that wait to be published.
    """

    node: Mapping[str, Any]
    queueing: QueueingCounts
    roles: Mapping[str, int]
    leaderless: int
    late_ticks: int
    metadata_index: int
    leads_metadata: bool
    rings: RingFacts
    flow: Mapping[str, int]
    unsynced_bytes: int
    dead_letter_bytes: int
