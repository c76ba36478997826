"""The state of a paged FIFO beside the messages that are wholly in memory (`fifo`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal

from broker.fifo.ready.paged import Paged
from broker.fifo.ready.queue import Eviction
from broker.fifo.ready.ram import (
    MESSAGE_RAM_BYTES,
    PAGE_IN_MESSAGES,
    STUB_BODY_MIN,
    Stubs,
    unread,
)
from broker.message import Delivery

NOWHERE: Final = 1 << 62
"""Above every number."""

DELTA_RAM_BYTES: Final = 5
OVERRIDE_RAM_BYTES: Final = 100

Part = Literal["returned", "fresh", "stubs", "delta", "none"]


class PagedState:
    """What a paged queue has beside `returned` and `fresh` (`fifo`).

    Attributes:
        stubs: In order.
        delta: See `Paged`.
        tail: In order.
        first_paged_number: The delta's lowest number; `NOWHERE` without any.
        returned_max: No number in `returned` exceeds this.
        delivery_count_overrides: Delivery counts in the delta that are not what
            `redelivered_below` says.
        stub_stats: Counts all stubs, those in `returned` too.
    """

    __slots__ = (
        "delivery_count_overrides",
        "delta",
        "first_paged_number",
        "returned_max",
        "stub_stats",
        "stubs",
        "tail",
    )

    def __init__(self, returned_max: int) -> None:
        self.stubs: deque[Delivery] = deque()
        self.delta = Paged()
        self.tail: deque[Delivery] = deque()
        self.first_paged_number = NOWHERE
        self.returned_max = returned_max
        self.delivery_count_overrides: dict[int, int] = {}
        self.stub_stats = Stubs()

    def count(self) -> int:
        """How many messages are in stubs, delta and tail."""
        return len(self.stubs) + len(self.delta) + len(self.tail)

    def unread(self, number: int, redelivered_below: int) -> Delivery:
        """Return the stub of a number of the delta; the argument is the queue's attribute."""
        usual = 1 if number < redelivered_below else 0
        count = self.delivery_count_overrides.get(number, usual)
        return unread(number, count, self.delta.size_of(number) or 0)

    def unread_from(self, low: int, redelivered_below: int) -> Iterator[Delivery]:
        """Yield `unread` of the delta's numbers from `low` on, ascending."""
        for number in self.delta.numbers_from(low):
            yield self.unread(number, redelivered_below)

    def drop(self, wanted: set[int], redelivered_below: int) -> list[Delivery]:
        """Remove messages by number from stubs, delta and tail, and return them."""
        delta = self.delta
        gone = [self.unread(each, redelivered_below) for each in sorted(wanted) if each in delta]
        delta.remove([item.number for item in gone])
        for item in gone:
            self.delivery_count_overrides.pop(item.number, None)
        self.first_paged_number = delta.lowest() or NOWHERE
        for part in (self.stubs, self.tail):
            some = [item for item in part if item.number in wanted]
            if some:
                kept = [item for item in part if item.number not in wanted]
                part.clear()
                part.extend(kept)
                self.stub_stats.remove(some)
                gone += some
        return gone


def leaves_stub(item: Delivery, eviction: Eviction) -> bool:
    """True if a message should leave the memory and is large enough for a stub."""
    return eviction.excess_bytes > 0 and item.message.body_size >= STUB_BODY_MIN


def kept_of(head: Iterable[Delivery], room: int, window_bytes: int) -> int:
    """Return how many messages of a head stay in memory: at least one if `room` > 0."""
    kept = 0
    for item in islice(head, max(0, room)):
        window_bytes -= item.message.body_size + MESSAGE_RAM_BYTES
        if window_bytes < 0 and kept:
            break
        kept += 1
    return kept


def first_within(items: Iterable[Delivery], bytes_max: int) -> list[int]:
    """The numbers of the first stubs that may be read together."""
    numbers: list[int] = []
    for item in islice(items, PAGE_IN_MESSAGES):
        bytes_max -= item.message.body_size + MESSAGE_RAM_BYTES
        if bytes_max < 0 and numbers:
            break
        numbers.append(item.number)
    return numbers
