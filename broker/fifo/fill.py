"""How an unsynchronised mirror gets the older messages: batches that describe number intervals.

The master takes its contents at one point of the ledger, marks that point in the ring, and sends
the mirror batches that together describe every number below its next one: which are still there,
and those messages that the mirror said it lacks. The mirror applies each batch as it comes; the
ledger behind the mark goes on meanwhile. What the ledger settled since the mark stays gone, though
a batch may bring it later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import msgspec

from broker.fifo.handshake import Ranges, ranges_of
from broker.message import Delivery, Message

HELD_MAX: Final = 50_000
"""Messages one batch tells of, sent or not: a mirror looks through them in one turn."""


class Fill(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the master holds between two message numbers, both included.

    Attributes:
        low: First number this is about.
        high: Last number this is about; the next batch begins behind it.
        held: The master's messages among them; all others are gone.
        numbers: Those of `held` that the mirror lacks, ascending.
        messages: Their messages.
    """

    low: int
    high: int
    held: Ranges
    numbers: list[int]
    messages: list[Message]


def cut_fills(
    contents: list[Delivery],
    next_number: int,
    has: Ranges,
    *,
    items_max: int,
    bytes_max: int,
) -> Iterator[Fill]:
    """Cut a queue's contents into batches, lazily.

    Args:
        contents: `QueueMachine.contents()` at the mark.
        next_number: The machine's next number at the mark: the batches end below it.
        has: What the mirror has already, at the mark.
        items_max: Most messages sent in a batch.
        bytes_max: Most bytes of contents in a batch; a larger message goes alone.

    Yields:
        At least one batch, in ascending order, together all numbers below `next_number`.
    """
    starts = [first for first, _ in has]
    low = 1
    held: list[int] = []
    numbers: list[int] = []
    messages: list[Message] = []
    size_bytes = 0
    for number, _, message in contents:
        if len(held) >= HELD_MAX:
            yield Fill(low, number - 1, ranges_of(held), numbers, messages)
            low, held, numbers, messages, size_bytes = number, [], [], [], 0
        place = bisect_right(starts, number) - 1
        if place < 0 or has[place][1] < number:
            more = len(message.content)
            if numbers and (len(numbers) >= items_max or size_bytes + more > bytes_max):
                yield Fill(low, number - 1, ranges_of(held), numbers, messages)
                low, held, numbers, messages, size_bytes = number, [], [], [], 0
            numbers.append(number)
            messages.append(message)
            size_bytes += more
        held.append(number)
    yield Fill(low, next_number - 1, ranges_of(held), numbers, messages)
