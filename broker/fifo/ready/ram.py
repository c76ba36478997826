"""Memory use of messages, and their four states: alpha, beta, gamma, delta.

    alpha   everything in memory
    beta    a stub: the content only on disk, among the pages (it need not survive a restart)
    gamma   a stub: the content only on disk, where it was recorded to survive a restart
    delta   all on disk: memory has number and body size (`paged.Paged`)

Source: rabbit_variable_queue.erl, definitions of alpha to delta.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.message import Delivery, Message

MESSAGE_RAM_BYTES: Final = 600
"""Memory of a whole message beside its body: objects, header, routing key, place in the queue."""

STUB_RAM_BYTES: Final = 450
"""Memory of a stub."""

HEAD_MESSAGES: Final = 500
"""Messages at the head that stay in memory for consumers, if there is room."""

PAGE_IN_MESSAGES: Final = HEAD_MESSAGES
"""Most messages that are read at a time."""

PAGE_IN_BYTES: Final = 1 << 20
"""Most bytes of bodies that are read at a time; a larger one is read alone."""

STUB_BODY_MIN: Final = 4096
"""Bodies from this many bytes on leave a stub behind; smaller ones are not worth one."""


class PageOut(NamedTuple):
    """Messages that left the memory and are not on disk yet.

    Attributes:
        pages: Number and message of each. They must be written before anything else happens.
    """

    pages: list[tuple[int, Message]]


class Counts(NamedTuple):
    """The number of a queue's messages in each state, those that consumers hold included.

    Attributes:
        alpha: All in memory.
        beta: Stubs of messages that need not survive a restart.
        gamma: Stubs of recorded messages.
        delta: All on disk.
        ram_bytes: About how much memory all of them take.
        unacked_ram: Alphas that consumers hold.
        alpha_bytes: Body bytes of the alphas.
        unacked_alpha_bytes: Body bytes of the alphas that consumers hold.
    """

    alpha: int
    beta: int
    gamma: int
    delta: int
    ram_bytes: int
    unacked_ram: int = 0
    alpha_bytes: int = 0
    unacked_alpha_bytes: int = 0


def stub_of(message: Message) -> Message:
    """Return a message without its content."""
    return Message(
        message.exchange,
        message.routing_key,
        b"",
        message.channel,
        message.header_size,
        message.body_size,
        message.persistent,
        message.ttl_ms,
        message.priority,
        message.expires_ms,
        message.bcc,
        message.dedup,
    )


def unread(number: int, delivery_count: int, body_size: int) -> Delivery:
    """Return a stub of a message of which only number and size are known."""
    return Delivery(number, delivery_count, Message("", "", b"", 0, 0, body_size, persistent=True))


class Stubs:
    """A count of stubs.

    Attributes:
        count: All of them.
        recorded: Those of persistent messages.
        size_bytes: Sum of their body sizes.
    """

    __slots__ = ("count", "recorded", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.recorded = 0
        self.size_bytes = 0

    def add(self, items: list[Delivery]) -> None:
        """Count stubs in."""
        self.count += len(items)
        for item in items:
            message = item.message
            self.size_bytes += message.body_size
            self.recorded += message.persistent

    def join(self, other: Stubs) -> None:
        """Add another count."""
        self.count += other.count
        self.recorded += other.recorded
        self.size_bytes += other.size_bytes

    def remove(self, items: list[Delivery]) -> None:
        """Count stubs out; other messages among them are ignored."""
        for item in items:
            message = item.message
            if not message.content:
                self.count -= 1
                self.size_bytes -= message.body_size
                self.recorded -= message.persistent
