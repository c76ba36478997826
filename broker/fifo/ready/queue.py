"""The interface of a queue's ready messages, for every order in which they may be.

Some of them may be on disk (`ram` has the states, `fifo` the paging). A queue does no IO: it names
the messages to read (`needed`), and the shell hands them in (`page_in`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from typing_extensions import override

from broker.fifo.ready.places import Place, Placed
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES, Stubs
from broker.message import Delivery, Message

Facts = tuple[int, int, Message | None]
"""A message's number, its body size in bytes, and itself: a stub, or None, where it is on disk."""

NO_STUBS: Final = Stubs()


def body_bytes(items: list[Delivery]) -> int:
    """Return the sum of the messages' body sizes in bytes."""
    return sum([item.message.body_size for item in items])


class Eviction:
    """The progress of one `page_out` through the parts of a queue.

    Args:
        excess_bytes: Memory to free.
        window_bytes: Most memory of the head that stays.
        stub_bytes: Memory that new stubs may take.
        durable: Persistent messages have been written.

    Attributes:
        excess_bytes: Memory that is still to be freed.
        pages: Messages that have left the memory and are not on disk yet.
    """

    __slots__ = ("durable", "excess_bytes", "pages", "stub_bytes", "window_bytes")

    def __init__(
        self, excess_bytes: int, *, window_bytes: int, stub_bytes: int, durable: bool
    ) -> None:
        self.excess_bytes = excess_bytes
        self.window_bytes = window_bytes
        self.stub_bytes = stub_bytes
        self.durable = durable
        self.pages: list[tuple[int, Message]] = []

    def note(self, items: list[Delivery]) -> None:
        """Note messages that leave the memory, and those whose content must be written to disk."""
        if self.durable:
            self.pages += [
                (item.number, item.message)
                for item in items
                if item.message.content and not item.message.persistent
            ]
        else:
            self.pages += [(item.number, item.message) for item in items if item.message.content]


class ReadyQueue(Protocol):
    """Ready messages in some order. One `Delivery` a message, handed out as it was put in.

    Attributes:
        is_paged: False only if everything is in memory; may stay True for a while after that.
        size_bytes: Sum of the body sizes of all messages here, in memory or on disk.
        redelivered_below: Messages of the delta below this number count as delivered once, so the
            delta need not note it for each. May be set on an empty queue.
    """

    __slots__ = ("is_paged", "redelivered_below", "size_bytes")

    is_paged: bool
    size_bytes: int
    redelivered_below: int

    def __len__(self) -> int: ...

    def append(self, items: list[Delivery], size_bytes: int) -> None:
        """Put messages at the tail.

        Args:
            items: In order.
            size_bytes: Their `body_bytes`.
        """

    def give_back(self, items: list[Delivery]) -> None:
        """Put returned messages at the places the queue's kind gives them.

        Args:
            items: With their new delivery counts, in the order of the return; perhaps stubs.
        """

    def take(self, count: int) -> tuple[list[Delivery], int]:
        """Remove up to `count` messages from the head, as far as it is in memory.

        Returns:
            The messages in order, and the sum of their body sizes in bytes.
        """

    def take_discarded(self, count: int, *, unread: bool) -> list[Delivery]:
        """Remove up to `count` messages from the head that are discarded: expired, or over a limit.

        Args:
            count: At most so many.
            unread: Those of which only number and size are known go too.

        Returns:
            In order; stubs among them, and `ram.unread` ones if asked for.
        """

    def head(self) -> Delivery | None:
        """Return the next message, perhaps a stub; None if there is none, or only its number."""

    def take_expired(self, now_ms: int) -> list[Delivery]:
        """Remove from the head while it has expired at `now_ms` (docs/rabbitmq-behaviour.md 1.4).

        Args:
            now_ms: Milliseconds since the epoch. A head with `expires_ms <= now_ms` is removed. It
                stops at the first that expires later or never, or whose expiry is not in memory.

        Returns:
            What was removed, in order; stubs among them.
        """

    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        """Remove messages by number, wherever they stand; unknown numbers are ignored.

        Returns:
            What was removed, in the queue's order; stubs and `ram.unread` ones among them.
        """

    def clear(self) -> tuple[list[Delivery], tuple[int, int] | None]:
        """Remove everything.

        Returns:
            The messages in memory, in order; and the lowest and highest number of the others.
        """

    def in_order(self) -> list[Delivery]:
        """Return all ready messages in the order in which they would be handed out."""

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return the messages at positions `first` to `first + count`."""

    def walk(self, after: Place, count: int) -> list[Placed]:
        """Return up to `count` messages behind a place, in order, each with its own place."""

    def lowest(self) -> int | None:
        """Return the lowest number that is ready, where returns go by number; None when empty."""

    def among(self, numbers: set[int]) -> set[int]:
        """Return which of some numbers are ready."""

    def from_number(self, low: int, count: int) -> list[Facts]:
        """Return the lowest `count` messages from number `low` on, ascending."""

    def taken(self) -> tuple[int, list[int]]:
        """Return which messages were delivered before and came back.

        Returns:
            A number below which every message may have been, and the numbers that are known to.
        """

    def fresh(self) -> list[Delivery]:
        """Return the messages that were never returned to the front, in order (snapshots)."""

    def returned(self) -> list[tuple[int, Delivery]]:
        """Return the returned messages with their sort keys, in order (snapshots)."""

    @property
    def next_return(self) -> int:
        """The key the next return will get where returns are served in their order (snapshots)."""

    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        """Load what `fresh`, `returned` and `next_return` of another queue returned."""

    # Paging.

    @property
    def ram_bytes(self) -> int:
        """About how much memory all this takes, in bytes."""

    @property
    def stubs(self) -> Stubs:
        """The number and size of stubs here."""

    @property
    def delta(self) -> tuple[int, int]:
        """The number of messages of the delta, and their body bytes."""

    def at_hand(self) -> int:
        """Return at least 1 if `take(1)` gives one, and never more than `take` would."""

    def page_out(self, eviction: Eviction) -> None:
        """Page messages out, from the tail, as far as the queue can."""

    def needed(self, bytes_max: int) -> list[int]:
        """Return the numbers to read so that the head, now on disk, is in memory.

        Args:
            bytes_max: Their bodies have at most so many bytes; one message is always named.
        """

    def page_in(self, numbers: list[int], found: dict[int, Message]) -> list[int]:
        """Take messages that were read from disk.

        Args:
            numbers: What `needed` returned; others are ignored.
            found: The messages that were found.

        Returns:
            The numbers that were not found, and are removed.
        """


class InMemory(ReadyQueue):
    """The paging of a queue that has everything in memory."""

    __slots__ = ()

    @override
    def at_hand(self) -> int:
        return len(self)

    @override
    def take_discarded(self, count: int, *, unread: bool) -> list[Delivery]:
        del unread
        return self.take(count)[0]

    @override
    def clear(self) -> tuple[list[Delivery], tuple[int, int] | None]:
        return self.take(len(self))[0], None

    @property
    @override
    def ram_bytes(self) -> int:
        return len(self) * MESSAGE_RAM_BYTES + self.size_bytes

    @property
    @override
    def stubs(self) -> Stubs:
        return NO_STUBS

    @property
    @override
    def delta(self) -> tuple[int, int]:
        return 0, 0

    @override
    def page_out(self, eviction: Eviction) -> None:
        """Does nothing."""
        del eviction

    @override
    def needed(self, bytes_max: int) -> list[int]:
        del bytes_max
        return []

    @override
    def page_in(self, numbers: list[int], found: dict[int, Message]) -> list[int]:
        del numbers, found
        return []
