"""Messages by the time at which they are due: the store of a delayed-message exchange.

The order is that of `expires_ms`, and of the numbers among equals; messages that never expire come
last. A returned message gets its old place, for neither changes. Messages are cancelled by number,
so a dict holds them; the heap may still have keys of messages that have left.

Invariants: 1. every message of `_items` has its key in `_heap`. 2. `_heap` has at most
`SLACK_MIN` keys more than twice the messages. 3. its first key, if any, is that of a message here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from typing import Final

from typing_extensions import override

from broker.fifo.ready.places import Place, Placed
from broker.fifo.ready.queue import Facts, InMemory, body_bytes
from broker.message import Delivery

SLACK_MIN: Final = 64
"""Keys of messages that have left which the heap may always keep."""

PEEK_FEW: Final = 1_000
"""Up to here `peek` picks the first ones; beyond it sorting is quicker (of 300,000: picking 60 ms;
sorting 700 ms once and 100 ms then; picking the 100,000th took a second)."""

_NEVER_MS: Final = 1 << 63


def _key(item: Delivery) -> tuple[int, int]:
    return item.message.expires_ms or _NEVER_MS, item.number


class DueQueue(InMemory):
    """Ready messages by the time at which they are due; all are in memory."""

    __slots__ = ("_heap", "_items")

    def __init__(self) -> None:
        self._items: dict[int, Delivery] = {}
        self._heap: list[tuple[int, int]] = []
        self.size_bytes = 0
        self.is_paged = False
        self.redelivered_below = 0

    def __len__(self) -> int:
        return len(self._items)

    @override
    def append(self, items: list[Delivery], size_bytes: int) -> None:
        """Put each message in the place of its time."""
        self._items.update([(item.number, item) for item in items])
        heap = self._heap
        for item in items:
            heappush(heap, _key(item))
        self.size_bytes += size_bytes

    @override
    def give_back(self, items: list[Delivery]) -> None:
        """Put each message in the place of its time."""
        self.append(items, body_bytes(items))

    @override
    def take(self, count: int) -> tuple[list[Delivery], int]:
        items: list[Delivery] = []
        while self._heap and len(items) < count:
            items.append(self._pop())
        size_bytes = body_bytes(items)
        self.size_bytes -= size_bytes
        return items, size_bytes

    @override
    def head(self) -> Delivery | None:
        return self._items[self._heap[0][1]] if self._heap else None

    @override
    def take_expired(self, now_ms: int) -> list[Delivery]:
        """Remove all messages that are due."""
        items: list[Delivery] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            items.append(self._pop())
        self.size_bytes -= body_bytes(items)
        return items

    @override
    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        pop = self._items.pop
        items = [item for number in numbers if (item := pop(number, None)) is not None]
        items.sort(key=_key)
        self.size_bytes -= body_bytes(items)
        if len(self._heap) > SLACK_MIN + 2 * len(self._items):
            self._heap = [_key(item) for item in self._items.values()]
            heapify(self._heap)
        self._clean()
        return items

    @override
    def in_order(self) -> list[Delivery]:
        return sorted(self._items.values(), key=_key)

    @override
    def peek(self, first: int, count: int) -> list[Delivery]:
        items = self._items
        if first + count <= PEEK_FEW:
            return nsmallest(first + count, items.values(), key=_key)[first:]
        self._heap.sort()  # a sorted list is a heap too, and costs little to sort again
        return list(islice(self._along_the_heap(), first, first + count))

    @override
    def walk(self, after: Place, count: int) -> list[Placed]:
        """A place's rank is when its message is due, milliseconds since the epoch."""
        behind = [item for item in self._items.values() if _key(item) > after]
        return [(Place(*_key(item)), item) for item in nsmallest(count, behind, key=_key)]

    def _along_the_heap(self) -> Iterator[Delivery]:
        """Yield messages by a sorted heap, where one that left and came back has two keys."""
        before: tuple[int, int] | None = None
        for key in self._heap:
            item = self._items.get(key[1])
            if item is not None and key != before:
                yield item
            before = key

    @override
    def taken(self) -> tuple[int, list[int]]:
        return 0, [item.number for item in self._items.values() if item.delivery_count]

    @override
    def lowest(self) -> int | None:
        return min(self._items, default=None)

    @override
    def among(self, numbers: set[int]) -> set[int]:
        return numbers.intersection(self._items)

    @override
    def from_number(self, low: int, count: int) -> list[Facts]:
        numbers = nsmallest(count, [number for number in self._items if number >= low])
        messages = [self._items[number].message for number in numbers]
        return [(n, each.body_size, each) for n, each in zip(numbers, messages, strict=True)]

    @override
    def fresh(self) -> list[Delivery]:
        """Return all messages: returned ones are like any other."""
        return self.in_order()

    @override
    def returned(self) -> list[tuple[int, Delivery]]:
        """Return no message: `fresh` has all."""
        return []

    @property
    @override
    def next_return(self) -> int:
        """Always 1, for returns have no order of their own."""
        return 1

    @override
    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        del next_return
        items = fresh + [item for _, item in returned]
        self._items = {item.number: item for item in items}
        self._heap = [_key(item) for item in items]
        heapify(self._heap)
        self.size_bytes = body_bytes(items)

    def _pop(self) -> Delivery:
        item = self._items.pop(heappop(self._heap)[1])
        self._clean()
        return item

    def _clean(self) -> None:
        """Remove keys of messages that have left from the top of the heap."""
        heap, items = self._heap, self._items
        while heap and heap[0][1] not in items:
            heappop(heap)
