"""Numbers of messages and clients that are counted since the node started. Pure.

Whoever works on a batch adds its length once, to the object that stands for the place: a channel,
a vhost, an exchange, a queue. Nobody looks a counter up on the path of a message; they are read
where listings and metrics are made. What clients publish, and what their consumers are delivered,
is added when somebody is about to read (`NodeCounts.settle`): until then it is one number for each
way from an exchange to its queues, and one for each consumer.

Source: rabbit_mgmt_metrics.hrl, rabbit_core_metrics.erl (names of the counters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

MESSAGE_KEYS: Final = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)
"""The order of `MessageCounts.values`; between nodes new ones are appended."""

_SETTLED_MAX: Final = 64
"""How many are counted in one step of `NodeCounts.settle`: a few microseconds each."""

CHURN_KEYS: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)


class MessageCounts:
    """What happened to messages at one place: a channel, a queue, or a vhost's clients of a node.

    Attributes:
        publish: Messages that were published; at a queue those that it took.
        confirm: Of those, messages that were confirmed to their publishers.
        return_unroutable: Mandatory messages that went back.
        drop_unroutable: Messages without a route that were dropped.
        deliver: Messages that were delivered to consumers that acknowledge.
        deliver_no_ack: Messages that were delivered to consumers that don't.
        get: Messages that basic.get took, to be acknowledged.
        get_no_ack: Messages that basic.get took without.
        get_empty: basic.get that found nothing.
        redeliver: Of all that was delivered or taken, messages that had been handed out before.
        ack: Messages that were acknowledged, or rejected for good.
    """

    __slots__ = MESSAGE_KEYS

    def __init__(self) -> None:
        self.publish = 0
        self.confirm = 0
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.deliver = 0
        self.deliver_no_ack = 0
        self.get = 0
        self.get_no_ack = 0
        self.get_empty = 0
        self.redeliver = 0
        self.ack = 0

    def values(self) -> tuple[int, ...]:
        """All counters, in the order of `MESSAGE_KEYS`."""
        return (
            self.publish,
            self.confirm,
            self.return_unroutable,
            self.drop_unroutable,
            self.deliver,
            self.deliver_no_ack,
            self.get,
            self.get_no_ack,
            self.get_empty,
            self.redeliver,
            self.ack,
        )


class Counted(Protocol):
    """A queue, as far as counters know it."""

    @property
    def uid(self) -> int:
        """Its incarnation."""
        ...


class Uncounted(Protocol):
    """A publisher or a channel's consumers, with messages that are in no counter yet."""

    def count(self) -> None:
        """Add them to their counters, and leave `NodeCounts.uncounted`."""
        ...


class ExchangeCounts:
    """What went through one exchange at this node.

    Attributes:
        publish_in: Messages that clients published to it.
        publish_out: Messages that it gave to queues: one that goes to three queues counts as three.
        return_unroutable: Mandatory messages that went back.
        drop_unroutable: Messages without a route that were dropped.
        by_queue: Of those, the messages of each queue, by its uid.
    """

    __slots__ = (
        "by_queue",
        "drop_unroutable",
        "publish_in",
        "publish_out",
        "return_unroutable",
    )

    def __init__(self) -> None:
        self.publish_in = 0
        self.publish_out = 0
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.by_queue: dict[int, int] = {}

    def routed(self, queues: Sequence[Counted], count: int) -> None:
        """Count messages that clients published: once for all that went to the same queues.

        Args:
            queues: Where they went.
            count: How many messages.
        """
        self.publish_in += count
        by_queue = self.by_queue
        for queue in queues:
            uid = queue.uid
            by_queue[uid] = by_queue.get(uid, 0) + count
        self.publish_out += count * len(queues)


DEATHS: Final = ("expired", "rejected", "maxlen", "delivery_limit")
"""Why messages die (x-death)."""


class QueueingCounts:
    """What the queues of a node did, those that are gone too.

    Attributes:
        deaths: Messages that died in queues served here, by queue type ("classic", "quorum"), what
            was done with them ("disabled", "at_most_once", "at_least_once") and why (`DEATHS`).
        dead_confirmed: Messages dead-lettered at least once that all of their targets confirmed.
        commits: Entries of quorum queues that were proposed here and applied.
        commit_ms: From their proposal to their apply, all together.
        elections: How often a replica of a quorum queue began to lead here.
        resends: How often this node sent all unanswered commands to a queue again: its server had
            changed, or was silent.
    """

    __slots__ = ("commit_ms", "commits", "dead_confirmed", "deaths", "elections", "resends")

    def __init__(self) -> None:
        self.deaths: dict[tuple[str, str, str], int] = {}
        self.dead_confirmed = 0
        self.commits = 0
        self.commit_ms = 0
        self.elections = 0
        self.resends = 0

    def died(self, queue_type: str, strategy: str, died: Mapping[str, int]) -> None:
        """Count messages that died in one turn of a queue.

        Args:
            queue_type: The queue's.
            strategy: What is done with them.
            died: How many, by reason; ends of delays are no deaths.
        """
        for reason, count in died.items():
            if reason in DEATHS:
                key = queue_type, strategy, reason
                self.deaths[key] = self.deaths.get(key, 0) + count


class ChurnCounts:
    """Clients and queues that came and went at this node."""

    __slots__ = CHURN_KEYS

    def __init__(self) -> None:
        self.connection_created = 0
        self.connection_closed = 0
        self.channel_created = 0
        self.channel_closed = 0
        self.queue_declared = 0
        self.queue_created = 0
        self.queue_deleted = 0

    def values(self) -> tuple[int, ...]:
        """All counters, in the order of `CHURN_KEYS`."""
        return (
            self.connection_created,
            self.connection_closed,
            self.channel_created,
            self.channel_closed,
            self.queue_declared,
            self.queue_created,
            self.queue_deleted,
        )


class NodeCounts:
    """All counters of a node that do not belong to a single channel or queue.

    Attributes:
        churn: Clients and queues that came and went.
        vhosts: What the node's clients did, by vhost.
        exchanges: By vhost and name.
        received_bytes: From connections that have ended.
        sent_bytes: To connections that have ended.
        reads: Pieces in which they came.
        writes: Pieces in which they were sent.
        octets: Bytes received and sent, by vhost.
        gone_queues: Uids of deleted queues that exchanges may still count (`forget_queues`).
        uncounted: Who has messages that are in no counter yet (`settle`).
    """

    __slots__ = (
        "_gone",
        "_gone_routed",
        "churn",
        "exchanges",
        "gone_queues",
        "octets",
        "reads",
        "received_bytes",
        "sent_bytes",
        "uncounted",
        "vhosts",
        "writes",
    )

    def __init__(self) -> None:
        self.churn = ChurnCounts()
        self.vhosts: dict[str, MessageCounts] = {}
        self.exchanges: dict[tuple[str, str], ExchangeCounts] = {}
        self.received_bytes = 0
        self.sent_bytes = 0
        self.reads = 0
        self.writes = 0
        self.octets: dict[str, tuple[int, int]] = {}
        self.gone_queues: set[int] = set()
        self.uncounted: set[Uncounted] = set()
        self._gone: tuple[int, ...] = (0,) * len(MESSAGE_KEYS)  # of vhosts that were deleted
        self._gone_routed = 0  # by exchanges that were deleted

    def settle(self) -> Iterator[None]:
        """Count everything, in steps: before counters of vhosts or exchanges are read."""
        for number, each in enumerate(list(self.uncounted), 1):
            each.count()
            if not number % _SETTLED_MAX:
                yield

    def connection_ended(
        self, vhost: str, received_bytes: int, sent_bytes: int, *, reads: int = 0, writes: int = 0
    ) -> None:
        """Count a connection that is gone.

        Args:
            vhost: Of the connection; "" if it opened none.
            received_bytes: From its client.
            sent_bytes: To its client.
            reads: Pieces in which they came.
            writes: Pieces in which they were sent.
        """
        self.churn.connection_closed += 1
        self.received_bytes += received_bytes
        self.sent_bytes += sent_bytes
        self.reads += reads
        self.writes += writes
        if vhost in self.vhosts:  # else it was deleted meanwhile
            received, sent = self.octets.get(vhost, (0, 0))
            self.octets[vhost] = received + received_bytes, sent + sent_bytes

    def of_vhost(self, vhost: str) -> MessageCounts:
        """Return the counters of a vhost, made at first use."""
        return self.vhosts.setdefault(vhost, MessageCounts())

    def of_exchange(self, vhost: str, name: str) -> ExchangeCounts:
        """Return the counters of an exchange, made at first use; call it where a route is found."""
        found = self.exchanges.get((vhost, name))
        if found is None:
            found = self.exchanges[vhost, name] = ExchangeCounts()
        return found

    def messages(self) -> tuple[int, ...]:
        """The sums over all vhosts that ever were, in the order of `MESSAGE_KEYS`."""
        found = [self._gone, *[counts.values() for counts in self.vhosts.values()]]
        return tuple(map(sum, zip(*found, strict=True)))

    def routed(self) -> int:
        """Copies of messages that all exchanges gave to queues, deleted exchanges too."""
        return self._gone_routed + sum([each.publish_out for each in self.exchanges.values()])

    def forget_vhost(self, vhost: str) -> None:
        """A vhost is deleted: its counters go, and those of its exchanges; the sums stay."""
        for _ in self.settle():
            pass
        gone = self.vhosts.pop(vhost, None)
        self.octets.pop(vhost, None)
        if gone is not None:
            self._gone = tuple(map(sum, zip(self._gone, gone.values(), strict=True)))
        for key in [key for key in self.exchanges if key[0] == vhost]:
            self.forget_exchange(*key)

    def forget_queues(self) -> Iterator[None]:
        """Stop counting deleted queues by exchange; a step for each exchange."""
        gone, self.gone_queues = self.gone_queues, set()
        yield from self.settle() if gone else ()  # or they would come back
        for each in list(self.exchanges.values()) if gone else ():
            for uid in each.by_queue.keys() & gone:
                del each.by_queue[uid]
            yield

    def forget_exchange(self, vhost: str, name: str) -> None:
        """An exchange is deleted; what it routed stays in the sum. Call `settle` before."""
        gone = self.exchanges.pop((vhost, name), None)
        if gone is not None:
            self._gone_routed += gone.publish_out
