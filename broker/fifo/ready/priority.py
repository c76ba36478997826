"""The ready messages of a priority queue: a FIFO for each level, the highest first.

Levels go from 0 to the queue's highest, and a higher priority counts as that one. In a level,
messages are in the order of their numbers, and a returned one gets its old place. Levels do not
age: a low one waits as long as anything higher is ready (docs/rabbitmq-behaviour.md 1.7). The head
of the queue (for expiry and drop-head) is the head of the highest level that has messages.

Invariants: 1. bit n of `_filled` is set exactly when level n has messages. 2. `_count` and
`size_bytes` are the sums over the levels.

Source: rabbit_priority_queue.erl (find2, fetch, dropwhile, drop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from itertools import chain, islice
from operator import itemgetter
from typing import Final

from typing_extensions import override

from broker.fifo.ready.fifo import PagedFifo
from broker.fifo.ready.paged import Paged
from broker.fifo.ready.places import BEGINNING, Place, Placed
from broker.fifo.ready.queue import Eviction, Facts, ReadyQueue, body_bytes
from broker.fifo.ready.ram import Stubs
from broker.message import Delivery, Message

LEVEL_MAX: Final = 255


class PriorityQueue(ReadyQueue):
    """Ready messages by priority, a `PagedFifo` for each level.

    Args:
        priority_max: The highest level; 0 counts as 1, more than 255 as 255.
    """

    __slots__ = ("_count", "_filled", "_levels", "_top")

    def __init__(self, priority_max: int) -> None:
        self._top = max(1, min(priority_max, LEVEL_MAX))
        self._levels: dict[int, PagedFifo] = {}  # made when a message of that level comes
        self._filled = 0
        self._count = 0
        self.is_paged = False  # True if a level is paged
        self.redelivered_below = 0  # see `PagedFifo`; for new levels
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    def lengths(self) -> list[int]:
        """Return how many messages each level has, from 0 to the highest."""
        found = [0] * (self._top + 1)
        for level in self._filled_levels():
            found[level] = len(self._levels[level])
        return found

    @override
    def append(self, items: list[Delivery], size_bytes: int) -> None:
        for level, group in self._by_level(items).items():
            self._fill(level).append(group, body_bytes(group))
        self._count += len(items)
        self.size_bytes += size_bytes

    @override
    def give_back(self, items: list[Delivery]) -> None:
        """Put messages into their levels, at their old places there."""
        for level, group in self._by_level(items).items():
            fifo = self._fill(level)
            fifo.give_back(group)
            self.is_paged |= fifo.is_paged
        self._count += len(items)
        self.size_bytes += body_bytes(items)

    @override
    def take(self, count: int) -> tuple[list[Delivery], int]:
        items: list[Delivery] = []
        size_bytes = 0
        while self._filled and len(items) < count:
            level = self._filled.bit_length() - 1
            fifo = self._levels[level]
            some, some_bytes = fifo.take(count - len(items))
            items += some
            size_bytes += some_bytes
            if fifo:  # enough, or what follows is on disk
                break
            self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= size_bytes
        return items, size_bytes

    @override
    def at_hand(self) -> int:
        if not self.is_paged:
            return self._count
        count = 0
        for level in self._filled_levels():
            fifo = self._levels[level]
            count += fifo.at_hand()
            if fifo.is_paged:
                break
        return count

    @override
    def take_discarded(self, count: int, *, unread: bool) -> list[Delivery]:
        items: list[Delivery] = []
        while self._filled and len(items) < count:
            level = self._filled.bit_length() - 1
            fifo = self._levels[level]
            items += fifo.take_discarded(count - len(items), unread=unread)
            if fifo:
                break
            self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= body_bytes(items)
        return items

    @override
    def head(self) -> Delivery | None:
        return self._levels[self._filled.bit_length() - 1].head() if self._filled else None

    @override
    def take_expired(self, now_ms: int) -> list[Delivery]:
        """Go from level to level, up to the first that this does not empty."""
        items: list[Delivery] = []
        while self._filled:
            level = self._filled.bit_length() - 1
            fifo = self._levels[level]
            items += fifo.take_expired(now_ms)
            if fifo:
                break
            self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= body_bytes(items)
        return items

    @override
    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        wanted = set(numbers)
        items: list[Delivery] = []
        for level in self._filled_levels():
            fifo = self._levels[level]
            items += fifo.drop(wanted)
            if not fifo:
                self._filled ^= 1 << level
        self._count -= len(items)
        self.size_bytes -= body_bytes(items)
        return items

    @override
    def clear(self) -> tuple[list[Delivery], tuple[int, int] | None]:
        items: list[Delivery] = []
        spans: list[tuple[int, int]] = []
        for level in self._filled_levels():
            some, span = self._levels[level].clear()
            items += some
            if span is not None:
                spans.append(span)
        self._filled = 0
        self._count = 0
        self.is_paged = False
        self.size_bytes = 0
        if not spans:
            return items, None
        return items, (min([low for low, _ in spans]), max([high for _, high in spans]))

    @override
    def in_order(self) -> list[Delivery]:
        return self._joined(PagedFifo.in_order)

    @override
    def peek(self, first: int, count: int) -> list[Delivery]:
        levels = [self._levels[level].along() for level in self._filled_levels()]
        return list(islice(chain.from_iterable(levels), first, first + count))

    @override
    def walk(self, after: Place, count: int) -> list[Placed]:
        """Go from level to level, the highest first; a place's rank is its level, negated."""
        found: list[Placed] = []
        for level in self._filled_levels():
            if -level < after.rank:
                continue
            inner = Place(0, after.number) if -level == after.rank else BEGINNING
            some = self._levels[level].walk(inner, count - len(found))
            found += [(Place(-level, place.number), item) for place, item in some]
            if len(found) >= count:
                break
        return found

    @override
    def lowest(self) -> int | None:
        levels = self._levels
        found = [levels[level].lowest() for level in self._filled_levels()]
        return min([number for number in found if number is not None], default=None)

    @override
    def among(self, numbers: set[int]) -> set[int]:
        here: set[int] = set()
        for level in self._filled_levels():
            here |= self._levels[level].among(numbers)
        return here

    @override
    def from_number(self, low: int, count: int) -> list[Facts]:
        found: list[Facts] = []
        for level in self._filled_levels():
            found += self._levels[level].from_number(low, count)
        return nsmallest(count, found, key=itemgetter(0))

    @override
    def taken(self) -> tuple[int, list[int]]:
        found = [self._levels[level].taken() for level in self._filled_levels()]
        numbers = [number for _, some in found for number in some]
        return max([below for below, _ in found], default=0), numbers

    @override
    def fresh(self) -> list[Delivery]:
        """The highest level first."""
        return self._joined(PagedFifo.fresh)

    @override
    def returned(self) -> list[tuple[int, Delivery]]:
        """The highest level first."""
        return [pair for level in self._filled_levels() for pair in self._levels[level].returned()]

    @property
    @override
    def next_return(self) -> int:
        """Always 1, for returns go by number."""
        return 1

    @override
    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        del next_return
        self._levels = {}
        self._filled = 0
        self._count = 0
        self.is_paged = False
        self.size_bytes = 0
        self.append(fresh, body_bytes(fresh))
        self.give_back([item for _, item in returned])

    # Paging: the lowest level first.

    @property
    @override
    def ram_bytes(self) -> int:
        return sum([self._levels[level].ram_bytes for level in self._filled_levels()])

    @property
    @override
    def stubs(self) -> Stubs:
        stubs = Stubs()
        for level in self._filled_levels():
            stubs.join(self._levels[level].stubs)
        return stubs

    @property
    @override
    def delta(self) -> tuple[int, int]:
        deltas = [self._levels[level].delta for level in self._filled_levels()]
        return sum([count for count, _ in deltas]), sum([size for _, size in deltas])

    @override
    def page_out(self, eviction: Eviction) -> None:
        """Leave out levels of few messages with wide gaps: a delta would take more memory."""
        levels = self._filled_levels()
        for level in reversed(levels):
            fifo = self._levels[level]
            if eviction.excess_bytes > 0 and fifo.is_worth_paging():
                fifo.page_out(eviction, keeps_head=level == levels[0])
        self._look()

    @override
    def needed(self, bytes_max: int) -> list[int]:
        if not self._filled:
            return []
        return self._levels[self._filled.bit_length() - 1].needed(bytes_max)

    @override
    def page_in(self, numbers: list[int], found: dict[int, Message]) -> list[int]:
        """Take messages of the highest level, whose numbers `needed` returned."""
        if not self._filled:
            return []
        level = self._filled.bit_length() - 1
        fifo = self._levels[level]
        before_bytes = fifo.size_bytes
        lost = fifo.page_in(numbers, found)
        self._count -= len(lost)
        self.size_bytes += fifo.size_bytes - before_bytes
        if not fifo:
            self._filled ^= 1 << level
        self._look()
        return lost

    def load_paged(
        self,
        paged: Mapping[int, Paged],
        head: list[Delivery],
        tail: list[Delivery],
        redelivered_below: int,
    ) -> None:
        """Take what `PagedFifo.load_paged` takes, the delta by priority."""
        self.load([], [], 1)
        heads, tails = self._by_level(head), self._by_level(tail)
        for level in sorted({*paged, *heads, *tails}):
            fifo = self._fill(level)
            fifo.load_paged(
                paged.get(level) or Paged(),
                heads.get(level, []),
                tails.get(level, []),
                redelivered_below,
            )
            self._count += len(fifo)
            self.size_bytes += fifo.size_bytes
            if not fifo:
                self._filled ^= 1 << level
        self._look()

    def _look(self) -> None:
        self.is_paged = any(fifo.is_paged for fifo in self._levels.values())

    def _fill(self, level: int) -> PagedFifo:
        """Return a level's FIFO, which has messages from now on."""
        self._filled |= 1 << level
        fifo = self._levels.get(level)
        if fifo is None:
            fifo = self._levels[level] = PagedFifo(by_number=True)
            fifo.redelivered_below = self.redelivered_below
        return fifo

    def _by_level(self, items: list[Delivery]) -> dict[int, list[Delivery]]:
        """Sort messages into groups of one level; inside each they keep their order."""
        top = self._top
        groups: dict[int, list[Delivery]] = {}
        for item in items:
            level = item.message.priority
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

    def _joined(self, part: Callable[[PagedFifo], list[Delivery]]) -> list[Delivery]:
        return [item for level in self._filled_levels() for item in part(self._levels[level])]
