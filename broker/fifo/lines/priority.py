"""The ready messages of a priority queue: one line a level, the highest first.

Levels go from 0 to the queue's highest; a message of more counts as of the highest. Inside a level
messages keep the order of their numbers, a returned one its old place there. No level is aged: what
is low waits as long as anything higher is ready (behaviour.md 1.7). Whatever is said of a queue's
head (expiry, drop-head) is said of the head of the highest level that has messages.

Invariants: 1. bit n of `_filled` is set exactly when level n has messages. 2. `_count` and
`size_bytes` are the sums over the levels.

Source: rabbit_priority_queue.erl (find2, fetch, dropwhile, drop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.fifo.lines.ready import ReadyLine, body_bytes
from broker.message import Delivery

LEVEL_MAX: Final = 255


class PriorityLine:
    """See the module; the methods are `ready.Line`'s.

    Args:
        priority_max: The highest level; 0 counts as 1, more than 255 as 255.
    """

    __slots__ = ("_count", "_filled", "_levels", "_top", "size_bytes")

    def __init__(self, priority_max: int) -> None:
        self._top = max(1, min(priority_max, LEVEL_MAX))
        self._levels: dict[int, ReadyLine] = {}  # made when a message of that level comes
        self._filled = 0
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    def append(self, items: list[Delivery], size_bytes: int) -> None:
        """See `Line`."""
        for level, group in self._by_level(items).items():
            self._fill(level).append(group, body_bytes(group))
        self._count += len(items)
        self.size_bytes += size_bytes

    def give_back(self, items: list[Delivery]) -> None:
        """See `Line`: to their own levels, at their old places there."""
        for level, group in self._by_level(items).items():
            self._fill(level).give_back(group)
        self._count += len(items)
        self.size_bytes += body_bytes(items)

    def take(self, count: int) -> tuple[list[Delivery], int]:
        """See `Line`."""
        items: list[Delivery] = []
        size_bytes = 0
        while self._filled and len(items) < count:
            level = self._filled.bit_length() - 1
            line = self._levels[level]
            some, some_bytes = line.take(count - len(items))
            items += some
            size_bytes += some_bytes
            if not line:
                self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= size_bytes
        return items, size_bytes

    def head(self) -> Delivery | None:
        """See `Line`."""
        return self._levels[self._filled.bit_length() - 1].head() if self._filled else None

    def take_expired(self, now_ms: int) -> list[Delivery]:
        """See `Line`: level by level, up to the first that this does not empty."""
        items: list[Delivery] = []
        while self._filled:
            level = self._filled.bit_length() - 1
            line = self._levels[level]
            items += line.take_expired(now_ms)
            if line:
                break
            self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= body_bytes(items)
        return items

    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        """See `Line`."""
        wanted = set(numbers)
        items: list[Delivery] = []
        for level in self._filled_levels():
            line = self._levels[level]
            items += line.drop(wanted)
            if not line:
                self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= body_bytes(items)
        return items

    def in_order(self) -> list[Delivery]:
        """See `Line`."""
        return self._joined(ReadyLine.in_order)

    def peek(self, first: int, count: int) -> list[Delivery]:
        """See `Line`."""
        return self.in_order()[first : first + count]

    def lowest(self) -> int | None:
        """See `Line`."""
        levels = self._levels
        found = [levels[level].lowest() for level in self._filled_levels()]
        return min([number for number in found if number is not None], default=None)

    def numbers_from(self, low: int) -> set[int]:
        """See `Line`."""
        numbers: set[int] = set()
        for level in self._filled_levels():
            numbers |= self._levels[level].numbers_from(low)
        return numbers

    def fresh(self) -> list[Delivery]:
        """See `Line`: the highest level first."""
        return self._joined(ReadyLine.fresh)

    def returned(self) -> list[tuple[int, Delivery]]:
        """See `Line`: the highest level first."""
        return [pair for level in self._filled_levels() for pair in self._levels[level].returned()]

    @property
    def next_return(self) -> int:
        """See `Line`: always 1, for returns go by number."""
        return 1

    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        """See `Line`."""
        del next_return
        self._levels = {}
        self._filled = 0
        self._count = 0
        self.size_bytes = 0
        self.append(fresh, body_bytes(fresh))
        self.give_back([item for _, item in returned])

    def _fill(self, level: int) -> ReadyLine:
        """Return a level's line, which has messages from now on."""
        self._filled |= 1 << level
        line = self._levels.get(level)
        if line is None:
            line = self._levels[level] = ReadyLine(by_number=True)
        return line

    def _by_level(self, items: list[Delivery]) -> dict[int, list[Delivery]]:
        """Sort messages into groups of one level; inside each they keep their order."""
        top = self._top
        groups: dict[int, list[Delivery]] = {}
        for item in items:
            level = item[2].priority
            level = min(level, top)
            group = groups.get(level)
            if group is None:
                groups[level] = [item]
            else:
                group.append(item)
        return groups

    def _filled_levels(self) -> list[int]:
        """Return the levels that have messages, highest first."""
        filled = self._filled
        return [level for level in range(filled.bit_length() - 1, -1, -1) if filled >> level & 1]

    def _joined(self, part: Callable[[ReadyLine], list[Delivery]]) -> list[Delivery]:
        return [item for level in self._filled_levels() for item in part(self._levels[level])]
