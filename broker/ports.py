"""Ports: what the broker's floors promise each other. Promises, no code.

What channels ask of queues stands in `broker.queues.handle`; here is what queues tell channels, and
what both need of their node. Calls never block and never await.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from broker.counters import MessageCounts
from broker.errors import Refusal
from broker.message import Delivery


class Clock(Protocol):
    """The clock of shells. Cores are given times instead."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for stamps users see; may jump."""
        ...

    def now_us(self) -> int:
        """Microseconds since the epoch; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never jump; for every timeout."""
        ...

    def busy_ms(self) -> int:
        """Milliseconds of processor time that the event loop's thread has had."""
        ...


class PublisherPort(Protocol):
    """A channel's ear for verdicts on what it published."""

    def confirmed(self, seqnos: Sequence[int]) -> None:
        """The queue has these safely (docs/protocol-rules.md P15: never before it is true)."""
        ...

    def rejected(self, seqnos: Sequence[int]) -> None:
        """The queue refused these or cannot tell: basic.nack."""
        ...


class ConsumerPort(Protocol):
    """A channel's ear for deliveries."""

    def deliver(self, consumer_tag: str, deliveries: Sequence[Delivery]) -> None:
        """Messages for one consumer, in order, never more than its prefetch outstanding."""
        ...

    def consumer_lost(self, consumer_tag: str) -> None:
        """The queue is gone or its node is: the client gets basic.cancel."""
        ...

    def consumer_moved(self, consumer_tag: str) -> None:
        """The queue has another master, and the consumer goes on there; its client hears nothing.

        What it was delivered before will come again, can't be settled any more and counts for no
        limit (P18).
        """
        ...


class GetResult(NamedTuple):
    """Answer to basic.get: the message, or None when there was none, and how many remain ready."""

    delivery: Delivery | None
    remaining: int


class QueueStat(NamedTuple):
    """A queue's counts and state, for declare-ok and for listings.

    Attributes:
        ready: Messages waiting.
        unacked: Messages handed out and not settled.
        consumers: Consumers attached.
        ready_bytes: Body bytes waiting.
        unacked_bytes: Body bytes handed out.
        state: "running", "down", "minority" or "syncing".
        active: (channel_id, tag) of the single active consumer, or of an exclusive one; None if all
            are active, or there is none.
        alpha: Classic queues, and quorum queues whose bodies are in their logs: messages that are
            in memory with their content, ready and unacked.
        beta: Of which memory has all but the content, and the disk a copy that ends with the node.
        gamma: Of which memory has all but the content, and the disk a copy that lasts.
        delta: Of which memory has no more than that they are there.
        ram_bytes: What all of them take of the memory, about; of a stream, what it keeps for its
            readers and knows of clients. 0: of a quorum queue that has all of them in memory.
        unacked_alpha: Of `alpha`, those handed out.
        alpha_bytes: Body bytes of `alpha`.
        next_number: Number of the next message.
        ram_target_bytes: Most of `ram_bytes` the queue may use now; None is without limit.
        mode: "default" or "lazy".
    """

    ready: int
    unacked: int
    consumers: int
    ready_bytes: int
    unacked_bytes: int
    state: str
    active: tuple[str, str] | None = None
    alpha: int = 0
    beta: int = 0
    gamma: int = 0
    delta: int = 0
    ram_bytes: int = 0
    unacked_alpha: int = 0
    alpha_bytes: int = 0
    next_number: int = 1
    ram_target_bytes: int | None = None
    mode: str = "default"


class StreamFacts(msgspec.Struct, array_like=True):
    """What listings show of a stream; fields are only appended.

    Attributes:
        first_offset: Of the oldest message kept.
        next_offset: Of the next message.
        first_ms: Time of the oldest entry, milliseconds since the epoch; 0 if there is none.
        last_ms: Time of the newest entry.
        size_bytes: Of the log, as far as retention counts it.
        segments: How many.
        publishers: Named publishers that are remembered.
        publishers_forgotten: Those that were forgotten for want of room.
        offsets: Offsets that are stored.
        disk_bytes: Of the files of its log on the node that says so.
    """

    first_offset: int = 0
    next_offset: int = 0
    first_ms: int = 0
    last_ms: int = 0
    size_bytes: int = 0
    segments: int = 0
    publishers: int = 0
    publishers_forgotten: int = 0
    offsets: int = 0
    disk_bytes: int = 0


class QueueDetails(msgspec.Struct, array_like=True):
    """What listings show of a queue beside its counts; fields are only appended.

    Attributes:
        capacity: Share of time in which it could deliver at once, from 0 to 1; 0 without consumers.
        head_timestamp: The `timestamp` of its oldest message, if that has one and is in memory.
        persistent: Messages that survive a restart of its node.
        persistent_bytes: Their body bytes.
        dead: Dead messages that are kept until their targets have them.
        dead_bytes: Their body bytes.
        delivery_limit: How often a message may come back; None is without limit.
        priorities: How many messages are ready of each priority, from 0 on; empty where the queue
            has none.
        stream: Of streams.
        disk_bytes: What it takes of the disk of the node that serves it, before compression. A
            classic queue: bodies that are recorded or paged out. Others: the log and its snapshot.
    """

    capacity: float = 0.0
    head_timestamp: int | None = None
    persistent: int = 0
    persistent_bytes: int = 0
    dead: int = 0
    dead_bytes: int = 0
    delivery_limit: int | None = None
    priorities: list[int] = []
    stream: StreamFacts | None = None
    disk_bytes: int = 0


class QueueLook(NamedTuple):
    """A queue at one moment, as metrics show it.

    Attributes:
        counts: What happened to its messages here.
        stat: What is in it, and its consumers.
        details: The rest, without `disk_bytes`.
    """

    counts: MessageCounts
    stat: QueueStat
    details: QueueDetails


NOTHING: Final = QueueStat(0, 0, 0, 0, 0, "running")
"""The `stat` of each `QueueLook` at a queue without messages and consumers."""

NO_DETAILS: Final = QueueDetails()
"""Its `details`. Not to be changed."""


Done = Callable[[object], None]
"""Called once, with the value that was promised or with a `Refusal`."""


class Journal(Protocol):
    """The node's durable store: ordered writes, one sync for everyone who waits.

    Writes take effect in the order of the calls, atomically per event-loop tick. Nothing is
    durable before `when_synced` says so. A failed sync stops the node; no callback runs then.
    The same promises stand in raft/ports.py, so that Raft need not know the broker.
    """

    @property
    def pending_bytes(self) -> int:
        """Bytes written and not yet durable; tells who must slow down."""
        ...

    def put(self, family: str, key: bytes, value: bytes) -> None:
        """Write a record. Families: see docs/on-disk.md."""
        ...

    def delete(self, family: str, key: bytes) -> None:
        """Remove a record. One that was put but not yet handed to the disk is never written."""
        ...

    def put_many(self, family: str, records: list[tuple[bytes, bytes]]) -> None:
        """`put` for many records of one family."""
        ...

    def delete_many(self, family: str, keys: list[bytes]) -> None:
        """`delete` for many records of one family."""
        ...

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Remove all keys in [start, end)."""
        ...

    def when_synced(self, done: Callable[[], None]) -> None:
        """Call `done` on the event loop when everything written before this call is durable."""
        ...

    def scan(self, family: str, start: bytes, end: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Records in [start, end) in key order, as of the last finished batch (for recovery)."""
        ...

    def values(self, family: str, start: bytes, end: bytes) -> Iterable[bytes]:
        """What `scan` finds, without the keys and in half the time; it may end early.

        Where something can't be read it ends without a word: who knows how many there must be
        counts them, and scans if they are too few.
        """
        ...

    def get(self, family: str, key: bytes) -> bytes | None:
        """One record, pending writes included."""
        ...


__all__ = [
    "Clock",
    "ConsumerPort",
    "Done",
    "GetResult",
    "Journal",
    "PublisherPort",
    "QueueStat",
    "Refusal",
]
