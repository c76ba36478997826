"""The index of one queue's messages on disk: numbers and body sizes, four bytes a message.

So a queue can be told what it has without a scan, a settle of what is not stored costs the disk
nothing, and a clean stop can write down what the next start need not count. Most messages leave
soon after they came: the newest are kept in a dict, where that is cheapest.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from broker.fifo.fresh import NOTHING_FRESH, Fresh
from broker.fifo.ready.paged import Paged
from broker.storage.int_map import IntMap

RECENT_MAX: Final = 2048


class MessageIndexRecord(msgspec.Struct, array_like=True, frozen=True):
    """A `MessageIndex` as it is stored.

    Attributes:
        is_timed: As in `MessageIndex`.
        sizes: `Paged.dump` of numbers and body sizes.
        external: `IntMap.dump` of body ids.
        fresh: As in `MessageIndex`; a summary of an older version has none.
    """

    is_timed: bool
    sizes: list[tuple[int, bytes]]
    external: list[tuple[int, bytes]]
    fresh: Fresh = NOTHING_FRESH


class MessageIndex:
    """One queue's stored messages.

    Attributes:
        recent: Body sizes in bytes of the newest; who adds calls `settle_down` now and then.
        external: Body ids of those whose content is elsewhere.
        is_timed: True when one of them may expire.
        fresh: Messages never delivered, while the queue is not served.
    """

    __slots__ = ("_older", "external", "fresh", "is_timed", "recent")

    def __init__(self) -> None:
        self.recent: dict[int, int] = {}
        self._older = Paged()
        self.external = IntMap()
        self.fresh = NOTHING_FRESH
        self.is_timed = False

    def __len__(self) -> int:
        return len(self.recent) + len(self._older)

    def __contains__(self, number: int) -> bool:
        return number in self.recent or number in self._older

    @property
    def size_bytes(self) -> int:
        """Sum of the body sizes."""
        return sum(self.recent.values()) + self._older.size_bytes

    def add_older(self, items: Iterable[tuple[int, int]]) -> None:
        """Take in (number, body size in bytes) that a start has found."""
        self._older.add(items)

    def settle_down(self) -> None:
        """Keep `recent` small."""
        surplus = len(self.recent) - RECENT_MAX
        if surplus > 0:
            # Half of it at once, the oldest: they stayed for that long and may stay longer.
            oldest = list(islice(self.recent.items(), surplus + RECENT_MAX // 2))
            self._older.add(oldest)
            for number, _ in oldest:
                del self.recent[number]

    def remove(self, numbers: Iterable[int]) -> list[int]:
        """Take out numbers; those that were here."""
        numbers = list(numbers)
        if not self.recent:
            return self._older.remove(numbers)
        take = self.recent.pop
        found = [number for number in numbers if take(number, -1) >= 0]
        if len(found) == len(numbers) or not self._older:
            return found
        if found:
            known = set(found)
            numbers = [number for number in numbers if number not in known]
        return found + self._older.remove(numbers)

    def remove_range(self, first: int, last: int) -> int:
        """Take out all numbers from `first` to `last`, both included; how many there were."""
        recent = [number for number in self.recent if first <= number <= last]
        for number in recent:
            del self.recent[number]
        return len(recent) + self._older.remove_range(first, last)

    def paged(self) -> Paged:
        """All of them, as a set of the caller's own."""
        self._older.add(self.recent.items())
        self.recent.clear()
        return self._older.copy()

    def dump(self) -> MessageIndexRecord:
        """The record that `load` takes."""
        is_timed = self.is_timed and len(self) > 0
        return MessageIndexRecord(is_timed, self.paged().dump(), self.external.dump(), self.fresh)

    @classmethod
    def load(cls, record: MessageIndexRecord) -> MessageIndex:
        """The index that `dump` wrote.

        Raises:
            ValueError: It is not one.
        """
        index = cls()
        index.is_timed = record.is_timed
        index._older = Paged.load(record.sizes)
        index.external = IntMap.load(record.external)
        index.fresh = record.fresh
        return index
