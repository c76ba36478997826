"""Bodies of a quorum queue's messages, read from its Raft log when they are about to leave.

The machine hands out stubs of what its replica has not in memory (`broker.fifo.logged`). The leader
fills them here. A queue's head is read in order, so a read brings the entries behind it, too, and
they stay for a while. Each is decoded when a message of it is wanted: a read of small messages has
thousands.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from broker.fifo.commands import decode_entry, messages_in
from broker.fifo.effects import Effects
from broker.fifo.logged.positions import Positions
from broker.message import Delivery, Message
from broker.ports import GetResult
from raft.core.messages import Entry
from raft.parts import Proposal, ProposalAssembler, proposals

READ_BYTES: Final = 1 << 20
"""Read at a time: about 0.1 ms from the system's cache, and some 3 ms to decode 1,000 messages."""

KEPT_BYTES: Final = 4 << 20
"""Entries that stay in memory, by the size that they have in the log."""


class ReadableLog(Protocol):
    """The log of a queue's Raft group (`raft.group.Group`)."""

    def read_later(
        self, low: int, size_bytes_max: int, done: Callable[[list[Entry] | Exception], None]
    ) -> None:
        """Read applied entries from an index on, at least one if there is any.

        `done` is told once, possibly before this returns; the disk is read in another thread.
        """
        ...

    def fail(self, error: Exception) -> None:
        """Stop the replica: what it has applied can't be served."""
        ...


class BodyMissing(Exception):
    """A message of the queue is not where its position says: a bug, or a log that was cut."""


class LogBodies:
    """Reads the bodies of one queue.

    Args:
        log: The queue's.
    """

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        # By first entry: a proposal's size and bytes, or its messages once they were wanted.
        self._kept: OrderedDict[int, tuple[int, bytes | list[Message]]] = OrderedDict()
        self._kept_bytes = 0
        self._is_used = False

    def filling(self, effects: Effects, positions: Positions) -> Iterator[int]:
        """Fill what leaves for consumers; dead letters are filled when they are published.

        Yields:
            The entry that must be read (`read_later`) before this can go on.

        Raises:
            BodyMissing: As in `fill`.
        """
        for key, items in effects.deliveries.items():
            if not all([item.message.content for item in items]):  # noqa: C419
                whole: list[Delivery] = []
                yield from self.fill(items, positions, whole)
                effects.deliveries[key] = whole
        for at, reply in enumerate(effects.replies):
            value = reply.value
            if isinstance(value, GetResult) and value.delivery is not None:
                found: list[Delivery] = []
                yield from self.fill([value.delivery], positions, found)
                effects.replies[at] = reply._replace(value=value._replace(delivery=found[0]))

    def fill(
        self, items: list[Delivery], positions: Positions, whole: list[Delivery]
    ) -> Iterator[int]:
        """Put deliveries with their bodies into a list, in the same order.

        Args:
            items: Some of them stubs, whose messages are or were in the queue.
            positions: Where they are.
            whole: The list.

        Yields:
            As `filling`.

        Raises:
            BodyMissing: One is not there; the replica must not go on.
        """
        find = positions.find
        index, messages = -1, list[Message]()
        for item in items:
            stub = item.message
            if stub.content:
                whole.append(item)
                continue
            place = find(item.number)
            if place is None:
                raise BodyMissing(f"message {item.number} has no place in the log")
            if place.entry != index:
                while (found := self._known(place.entry)) is None:
                    yield place.entry
                index, messages = place.entry, found
            message = messages[place.ordinal] if place.ordinal < len(messages) else stub
            if not message.content or message.body_size != stub.body_size:
                raise BodyMissing(f"message {item.number} is not at {place}")
            if stub.expires_ms:
                message = _with_expiry(message, stub.expires_ms)
            whole.append(Delivery(item.number, item.delivery_count, message))

    def find(
        self, number: int, positions: Positions, published: dict[int, Message]
    ) -> Iterator[int]:
        """Put a message as it stands in the log under its number.

        Args:
            number: It is in the log.
            positions: Where it is.
            published: Where it is put.

        Yields:
            As `filling`.

        Raises:
            BodyMissing: As in `fill`.
        """
        place = positions.find(number)
        if place is None:
            raise BodyMissing(f"message {number} has no place in the log")
        while (messages := self._known(place.entry)) is None:
            yield place.entry
        published[number] = messages[place.ordinal]

    @property
    def kept_bytes(self) -> int:
        """What is kept in memory of entries."""
        return self._kept_bytes

    def rest(self) -> None:
        """Forget what was decoded, if it was not used since the last call."""
        if not self._is_used:
            self._kept.clear()
            self._kept_bytes = 0
        self._is_used = False

    def _known(self, index: int) -> list[Message] | None:
        self._is_used = True
        found = self._kept.get(index)
        if found is None:
            return None
        self._kept.move_to_end(index)
        size_bytes, messages = found
        if isinstance(messages, bytes):
            messages = messages_in(decode_entry(messages))
            self._kept[index] = size_bytes, messages
        return messages

    def read_later(self, index: int, done: Callable[[Exception | None], None]) -> None:
        """Read the proposal at an entry, and those behind it; no disk is waited for.

        Args:
            index: Where a proposal begins.
            done: Told when it is there, possibly before this returns; or why it is not: the group
                is over, or must be.
        """
        reading = Reading(self, index)

        def arrived(found: list[Entry] | Exception) -> None:
            error = found if isinstance(found, Exception) else reading.taken(found)
            if error is not None or reading.is_over:
                done(error)
            else:
                self._log.read_later(reading.next_index, READ_BYTES, arrived)

        self._log.read_later(index, READ_BYTES, arrived)

    def keep(self, index: int, whole: list[Proposal]) -> None:
        """Keep the messages of proposals, the first of which is wanted now.

        Raises:
            BodyMissing: None begins at `index`.
        """
        for each in reversed(whole):  # the first is wanted now, so it is the newest
            if each.first_index not in self._kept:
                self._kept[each.first_index] = len(each.data), each.data
                self._kept_bytes += len(each.data)
        if index not in self._kept:
            raise BodyMissing(f"no proposal begins at entry {index}")
        self._kept.move_to_end(index)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            _, (size_bytes, _) = self._kept.popitem(last=False)
            self._kept_bytes -= size_bytes


class Reading:
    """The reads that a proposal takes: it can be larger than one.

    Args:
        bodies: Given what was read.
        index: Where it begins.

    Attributes:
        next_index: Where to read on.
        is_over: All of it was read.
    """

    def __init__(self, bodies: LogBodies, index: int) -> None:
        self.next_index = index
        self.is_over = False
        self._bodies = bodies
        self._index = index
        self._assembler = ProposalAssembler()

    def take(self, entries: list[Entry]) -> None:
        """Take what was read from `next_index` on.

        Raises:
            BodyMissing: It is not what must be there.
        """
        if not entries or entries[0].index != self.next_index:
            raise BodyMissing(f"entry {self.next_index} is not in the log any more")
        whole = proposals(entries, self._assembler).whole
        if whole:
            self.is_over = True
            self._bodies.keep(self._index, whole)
        self.next_index = entries[-1].index + 1

    def taken(self, entries: list[Entry]) -> Exception | None:
        """`take`, for whoever was called by a read: what it raises."""
        try:
            self.take(entries)
        except Exception as error:  # noqa: BLE001 - whoever reads has nothing to do with it
            return error
        return None


def _with_expiry(message: Message, expires_ms: int) -> Message:
    return Message(
        message.exchange,
        message.routing_key,
        message.content,
        message.channel,
        message.header_size,
        message.body_size,
        message.persistent,
        message.ttl_ms,
        message.priority,
        expires_ms,
        message.bcc,
        message.dedup,
    )
