"""Where in its Raft log a queue's messages are.

Messages that one entry brought have consecutive numbers, so they are one run, of 24 bytes:

    first number | how many | index of the entry | place in it of the first message

Runs of messages that have ended stay until `compact`, which is due when there are twice as many as
the last one left. Entries bring ever higher numbers, so indexes ascend with the numbers; what was
moved to the log's end is an exception, and lies below `_moved_below`.

Invariants: 1. runs ascend by number and do not overlap. 2. from `_moved_below` on, so do their
indexes. 3. every message of the queue has a run from `logged_from` on; below that it may be one
that a snapshot brought with its body.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

COMPACT_MIN: Final = 1024
"""Runs that may stay whether their messages have ended or not."""

Span = tuple[int, int]
"""First and last of consecutive message numbers."""


class Position(NamedTuple):
    """Where a message is.

    Attributes:
        entry: Index of the proposal's first entry in the log.
        ordinal: Which of the proposal's messages it is, from 0 on, all its commands together.
    """

    entry: int
    ordinal: int


class Arrivals:
    """Which messages of the entry that is being applied come next.

    Attributes:
        index: The proposal's first entry.
        ordinal: Place of the message that is taken in next.
        end: Place behind the messages of the commands so far.
    """

    __slots__ = ("end", "index", "ordinal")

    def __init__(self, index: int) -> None:
        self.index = index
        self.ordinal = self.end = 0

    def begin(self, count: int) -> None:
        """Note that the next command has so many messages."""
        self.ordinal = self.end
        self.end += count

    def only_last(self, count: int) -> None:
        """Note that only the last messages of the command are new."""
        self.ordinal = self.end - count


class Columns(NamedTuple):
    """All runs, as columns; equally long."""

    firsts: array[int]
    counts: array[int]
    indexes: array[int]
    ordinals: array[int]

    @classmethod
    def empty(cls) -> Columns:
        """Return columns without runs."""
        return cls(array("Q"), array("I"), array("Q"), array("I"))


class FrozenPositions(NamedTuple):
    """The positions of a queue's messages at one instant.

    Attributes:
        columns: The runs, behind which others may come; these do not change but for the last one.
        run_count: How many runs there were.
        last_count: Messages of the last one.
        moved_below: Indexes ascend from this number on.
        logged_from: Messages below this number need not be in the log.
    """

    columns: Columns
    run_count: int
    last_count: int
    moved_below: int
    logged_from: int

    def has(self, number: int) -> bool:
        """Tell whether the body of a message was in the log, which the queue had then."""
        return number >= self.logged_from or _place_of(self.columns, number) is not None

    def part(self, low: int, high: int) -> Columns:
        """Return some runs, `high` not included."""
        part = Columns(*[column[low : min(high, self.run_count)] for column in self.columns])
        if high >= self.run_count > low:
            part.counts[-1] = self.last_count
        return part


class Positions:
    """The positions of one queue's messages.

    Attributes:
        logged_from: Messages below this number need not be in the log.
    """

    __slots__ = ("_columns", "_compact_at", "_is_shared", "_moved_below", "logged_from")

    def __init__(self) -> None:
        self.logged_from = 0
        self._columns = Columns.empty()
        self._compact_at = COMPACT_MIN
        self._is_shared = False  # with what `frozen` returned
        self._moved_below = 0

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._columns.firsts)

    def add(self, first: int, count: int, index: int, ordinal: int) -> None:
        """Note messages that an entry brought, above all numbers here.

        Args:
            first: Number of the first; the others follow.
            count: How many.
            index: The proposal's first entry.
            ordinal: Place of the first.
        """
        firsts, counts, indexes, ordinals = self._columns
        if firsts and indexes[-1] == index:
            before = counts[-1]
            if firsts[-1] + before == first and ordinals[-1] + before == ordinal:
                counts[-1] = before + count
                return
        firsts.append(first)
        counts.append(count)
        indexes.append(index)
        ordinals.append(ordinal)

    def has(self, number: int) -> bool:
        """Tell whether the body of a message of the queue is in the log."""
        return number >= self.logged_from or self.find(number) is not None

    def find(self, number: int) -> Position | None:
        """Return where a message is; None where only a snapshot had it."""
        columns = self._columns
        place = _place_of(columns, number)
        if place is None:
            return None
        offset = number - columns.firsts[place]
        return Position(columns.indexes[place], columns.ordinals[place] + offset)

    def move(self, numbers: Sequence[int], index: int, ordinal: int) -> None:
        """Note that an entry has brought messages once more.

        Args:
            numbers: Ascending.
            index: The proposal's first entry, behind all others here.
            ordinal: Place of the first; the others follow.
        """
        if not numbers:
            return
        if self._is_shared:
            self._columns = Columns(*[column[:] for column in self._columns])
            self._is_shared = False
        old, new = self._columns, Columns.empty()
        low = max(0, bisect_right(old.firsts, numbers[0]) - 1)
        high = bisect_right(old.firsts, numbers[-1])
        moved = set(numbers)
        kept = []
        for place in range(low, high):
            first, count = old.firsts[place], old.counts[place]
            stays = [n for n in range(first, first + count) if n not in moved]
            shift = old.ordinals[place] - first
            kept += [(a, b - a + 1, old.indexes[place], a + shift) for a, b in spans_of(stays)]
        at = ordinal
        for a, b in spans_of(numbers):
            kept.append((a, b - a + 1, index, at))
            at += b - a + 1
        for run in sorted(kept):
            for column, value in zip(new, run, strict=True):
                column.append(value)
        for column, part in zip(old, new, strict=True):
            column[low:high] = part
        self._moved_below = max(self._moved_below, numbers[-1] + 1)

    def lowest_index(self, live: Sequence[Span]) -> int | None:
        """Return the first entry that is still needed.

        Args:
            live: The messages that are here, ascending.

        Returns:
            None if none of them is in the log.
        """
        firsts, counts, indexes, _ = self._columns
        lowest: int | None = None
        for first, last in live:
            low = bisect_right(firsts, first) - 1
            if low < 0 or firsts[low] + counts[low] <= first:
                low += 1
            high = bisect_right(firsts, last)
            if low >= high:
                continue
            if first >= self._moved_below:
                return indexes[low] if lowest is None else min(lowest, indexes[low])
            found = min(indexes[low:high])
            lowest = found if lowest is None else min(lowest, found)
        return lowest

    def are_all_behind(self, index: int, live: Sequence[Span]) -> bool:
        """Tell whether the bodies of all messages are in the log behind an entry.

        Args:
            index: Of the entry.
            live: The messages that are here, ascending.
        """
        firsts, counts, indexes, _ = self._columns
        for first, last in live:
            number, place = first, bisect_right(firsts, first) - 1
            while number <= last:
                if not 0 <= place < len(firsts) or indexes[place] <= index:
                    return False
                end = firsts[place] + counts[place]
                if not firsts[place] <= number < end:
                    return False
                number, place = end, place + 1
        return True

    def up_to(self, index: int, live: Sequence[Span]) -> Iterator[int]:
        """Yield the messages whose entries are not behind an index; nothing may change meanwhile.

        Args:
            index: Of an entry.
            live: The messages that are here, ascending.
        """
        firsts, counts, indexes, _ = self._columns
        for first, last in live:
            for place in range(max(0, bisect_right(firsts, first) - 1), bisect_right(firsts, last)):
                start = firsts[place]
                if indexes[place] <= index:
                    yield from range(max(start, first), min(start + counts[place], last + 1))
                elif start >= self._moved_below:
                    return

    @property
    def is_compact_due(self) -> bool:
        """True if many runs may be of messages that have ended."""
        return len(self) >= self._compact_at

    def compact(self, live: Sequence[Span]) -> None:
        """Forget the runs of messages that have ended.

        Args:
            live: The messages that are here, ascending.
        """
        old, new = self._columns, Columns.empty()
        firsts, counts = old.firsts, old.counts
        done = 0
        for first, last in live:
            low = max(done, bisect_right(firsts, first) - 1)
            if low < len(firsts) and firsts[low] + counts[low] <= first:
                low += 1
            high = bisect_right(firsts, last)
            if low < high:
                for column, part in zip(new, old, strict=True):
                    column.extend(part[low:high])
                done = high
        self._columns = new
        self._is_shared = False
        self._compact_at = max(COMPACT_MIN, 2 * len(new.firsts))

    # Checkpoints.

    def frozen(self) -> FrozenPositions:
        """Return what is here now; what is noted later does not change it.

        Runs are only put behind the others; the first move copies all of them.
        """
        columns = self._columns
        self._is_shared = True
        last_count = columns.counts[-1] if columns.counts else 0
        count = len(columns.firsts)
        return FrozenPositions(columns, count, last_count, self._moved_below, self.logged_from)

    def load(self, columns: Columns, moved_below: int) -> None:
        """Load the runs of a checkpoint, and the number below which some were moved."""
        self._columns = columns
        self._is_shared = False
        self._moved_below = moved_below
        self._compact_at = max(COMPACT_MIN, 2 * len(columns.firsts))

    def take_over(self, other: Positions) -> None:
        """Become what another was, which is not used any more."""
        self.logged_from = other.logged_from
        self.load(other._columns, other._moved_below)


def _place_of(columns: Columns, number: int) -> int | None:
    """Return the run that has a message; None if none has."""
    firsts, counts = columns.firsts, columns.counts
    place = bisect_right(firsts, number) - 1
    if place < 0 or number - firsts[place] >= counts[place]:
        return None
    return place


def spans_of(numbers: Iterable[int]) -> list[Span]:
    """Return ascending numbers as spans."""
    spans: list[Span] = []
    first = last = -1
    for number in numbers:
        if number == last + 1 and first >= 0:
            last = number
            continue
        if first >= 0:
            spans.append((first, last))
        first = last = number
    if first >= 0:
        spans.append((first, last))
    return spans


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in any order, ascending, and those that touch as one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
