"""What a deep line has in hand; `depths` tells what it does with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final, Literal

from broker.fifo.ready.line import Cut
from broker.fifo.ready.paged import Paged
from broker.fifo.ready.ram import (
    MESSAGE_RAM_BYTES,
    PAGE_IN_MESSAGES,
    STUB_BODY_MIN,
    Stubs,
)
from broker.message import Delivery

NOWHERE: Final = 1 << 62
"""Above every number."""

DELTA_RAM_BYTES: Final = 5
ODD_RAM_BYTES: Final = 100

Part = Literal["returned", "fresh", "stubs", "delta", "none"]


class Deep:
    """What a deep line has beside `returned` and `fresh`; see `depths`.

    Attributes:
        stubs: In order.
        delta: See `Paged`.
        tail: In order.
        barrier: The delta's lowest number; `NOWHERE` without any.
        returned_max: No number in `returned` exceeds this.
        odd: Delivery counts in the delta that are not what `redelivered_below` says.
        tally: Of all stubs, the returned ones too.
    """

    __slots__ = ("barrier", "delta", "odd", "returned_max", "stubs", "tail", "tally")

    def __init__(self, returned_max: int) -> None:
        self.stubs: deque[Delivery] = deque()
        self.delta = Paged()
        self.tail: deque[Delivery] = deque()
        self.barrier = NOWHERE
        self.returned_max = returned_max
        self.odd: dict[int, int] = {}
        self.tally = Stubs()


def leaves_stub(item: Delivery, cut: Cut) -> bool:
    """Tell whether a message should leave, and is large enough for a stub."""
    return cut.excess_bytes > 0 and item.message.body_size >= STUB_BODY_MIN


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
