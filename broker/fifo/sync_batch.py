"""Batches of a synchronisation: how a mirror gets the older messages, interval by interval.

The master marks a place of its ledger in the ring, and sends the mirror batches that together
describe every number below its next one at the mark: which are still there, and those messages
that the mirror said it lacks. Neither side holds or reads the whole queue for that: each batch is
cut from what is there when its turn comes, while the ledger behind the mark goes on.

Why a batch may be cut late. Between the mark and the batch, messages below the mark only end:
numbers are given once, and what is requeued keeps its own. So a batch never brings what was not
there at the mark, and what it leaves out, or has the mirror drop, has its end in the ledger behind
the mark: the ring brings it before the mark that ends the synchronisation, which is when the mirror
first counts as a whole copy. The other way round the ring may be ahead of a batch that was cut
before: so what the ledger settled since the mark stays gone, though a batch may bring it later
(`EndedSinceMark`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from broker.fifo.join_state import Ranges, ranges_of
from broker.fifo.ready.paged import Paged
from broker.fifo.ready.queue import Facts
from broker.message import Message


class SyncBatch(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The messages that the master has between two numbers, both included.

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


class SyncBatchPlan(NamedTuple):
    """A batch whose messages are not read yet.

    Attributes:
        high: Last number it is about.
        held: As in `SyncBatch`.
        wanted: What the mirror lacks of it.
    """

    high: int
    held: Ranges
    wanted: list[Facts]


def plan_sync_batch(
    items: list[Facts],
    last: int,
    has: Ranges,
    *,
    is_rest: bool,
    items_max: int,
    bytes_max: int,
) -> SyncBatchPlan:
    """Plan the next batch.

    Args:
        items: What is in the queue behind the last batch: the lowest ones, ascending.
        last: The last number that batches are about.
        has: What the mirror has, or a part of that, ascending.
        is_rest: The queue has nothing behind `items`.
        items_max: Most messages sent.
        bytes_max: Most bytes of their bodies; a larger message goes alone.
    """
    held: list[int] = []
    wanted: list[Facts] = []
    size_bytes = 0
    at = 0 if not items else bisect_left(has, items[0][0], key=_last)
    for item in items:
        number = item[0]
        if number > last:
            return SyncBatchPlan(last, ranges_of(held), wanted)
        while at < len(has) and has[at][1] < number:
            at += 1
        if at == len(has) or number < has[at][0]:
            more = item[1]
            if wanted and (len(wanted) >= items_max or size_bytes + more > bytes_max):
                return SyncBatchPlan(number - 1, ranges_of(held), wanted)
            wanted.append(item)
            size_bytes += more
        held.append(number)
    return SyncBatchPlan(last if is_rest else held[-1], ranges_of(held), wanted)


def gaps(low: int, high: int, held: Ranges) -> Iterator[tuple[int, int]]:
    """Yield the intervals of `low` to `high` that ascending ranges leave out."""
    for first, last in held:
        if low < first:
            yield low, first - 1
        low = last + 1
    if low <= high:
        yield low, high


class EndedSinceMark:
    """Numbers of messages that ended since the mark and that no batch has described yet.

    Four bytes each, for a deep queue may be emptied meanwhile.
    """

    __slots__ = ("_high", "_numbers", "_ranges")

    def __init__(self) -> None:
        self._numbers = Paged()
        self._ranges: Ranges = []
        self._high = 0  # no batch comes for these any more

    def __contains__(self, number: int) -> bool:
        return number in self._numbers or any(a <= number <= b for a, b in self._ranges)

    def __len__(self) -> int:
        return len(self._numbers) + len(self._ranges)

    def add(self, numbers: Iterable[int]) -> None:
        """Note that these messages ended."""
        high = self._high
        self._numbers.add([(number, 0) for number in numbers if number > high])

    def add_range(self, first: int, last: int) -> None:
        """Everything from `first` to `last` ended."""
        if last > self._high:
            self._ranges.append((first, last))

    def forget_up_to(self, high: int) -> None:
        """A batch has described everything up to here."""
        self._high = high
        self._numbers.remove_range(0, high)
        self._ranges = [each for each in self._ranges if each[1] > high]


def _last(run: tuple[int, int]) -> int:
    return run[1]
