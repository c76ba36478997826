"""The ready messages of a queue in order of arrival, with everything in memory or not.

`ReadyLine` is two lines: `fresh`, in arrival order, and `returned`, served before it. A returned
message was taken from the head once, so everything still fresh arrived after it: serving `returned`
first, by number, gives every message its old place (docs/rabbitmq-behaviour.md 1.9, requeue
position). Where the queue returns to the front instead, `returned` is ordered by the time of the
return.

Here are the paths of a line that is wholly in memory; `depths` has what it does while it pages.

Invariants: 1. with `by_number`, no returned number exceeds a fresh one. 2. `size_bytes` is the sum
of the body sizes of all messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from operator import attrgetter, itemgetter

from typing_extensions import override

from broker.fifo.ready.depths import Depths
from broker.fifo.ready.line import Facts, body_bytes
from broker.message import Delivery

_number: Callable[[Delivery], int] = attrgetter("number")


class ReadyLine(Depths):
    """First in, first out. See the module; the methods are `line.Line`'s."""

    __slots__ = ()

    def __len__(self) -> int:
        if self._deep is not None:
            return self._length(self._deep)
        return len(self._fresh) + len(self._returned)

    @override
    def append(self, items: list[Delivery], size_bytes: int) -> None:
        self._last += items
        self.size_bytes += size_bytes

    @override
    def give_back(self, items: list[Delivery]) -> None:
        """Before the fresh ones, by number or in the order of return."""
        returned = self._returned
        for item in items:
            if self._by_number:
                heappush(returned, (item.number, item))
            else:
                heappush(returned, (self._next_return, item))
                self._next_return += 1
        self.size_bytes += body_bytes(items)
        stubs = [item for item in items if not item.message.content]
        if stubs or self._deep is not None:
            deep = self._deep or self._deepen()
            deep.tally.add(stubs)
            deep.returned_max = max([deep.returned_max, *[item.number for item in items]])
        if self.redelivered_below and self._by_number and items:
            self._lift(max([item.number for item in items]))

    @override
    def at_hand(self) -> int:
        if self._deep is not None:
            return self._deep_at_hand(self._deep)
        return len(self._fresh) + len(self._returned)

    @override
    def take(self, count: int) -> tuple[list[Delivery], int]:
        if self._deep is not None:
            return self._deep_take(self._deep, count)
        items: list[Delivery] = []
        returned = self._returned
        while returned and len(items) < count:
            items.append(heappop(returned)[1])
        fresh = self._fresh
        count -= len(items)
        if count >= len(fresh):
            items += fresh
            fresh.clear()
            if not returned:  # all that was here: its size is known
                size_bytes, self.size_bytes = self.size_bytes, 0
                return items, size_bytes
        else:
            pop = fresh.popleft
            items += [pop() for _ in range(count)]
        size_bytes = body_bytes(items)
        self.size_bytes -= size_bytes
        return items, size_bytes

    @override
    def take_dying(self, count: int, *, unread: bool) -> list[Delivery]:
        if self._deep is None:
            return self.take(count)[0]
        return self._deep_take_dying(self._deep, count, is_unread=unread)

    @override
    def head(self) -> Delivery | None:
        if self._deep is not None:
            return self._deep_head(self._deep)
        if self._returned:
            return self._returned[0][1]
        return self._fresh[0] if self._fresh else None

    @override
    def take_expired(self, now_ms: int) -> list[Delivery]:
        if self._deep is not None:
            return self._deep_take_expired(self._deep, now_ms)
        items: list[Delivery] = []
        returned, fresh = self._returned, self._fresh
        while returned and 0 < returned[0][1].message.expires_ms <= now_ms:
            items.append(heappop(returned)[1])
        if not returned:
            pop = fresh.popleft
            while fresh and 0 < fresh[0].message.expires_ms <= now_ms:
                items.append(pop())
        self.size_bytes -= body_bytes(items)
        return items

    @override
    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        wanted = set(numbers)
        items = [item for _, item in sorted(self._returned) if item.number in wanted]
        if items:
            self._returned = [pair for pair in self._returned if pair[1].number not in wanted]
            heapify(self._returned)
        some = [item for item in self._fresh if item.number in wanted]
        if some:
            kept = [item for item in self._fresh if item.number not in wanted]
            self._fresh.clear()
            self._fresh.extend(kept)
            items += some
        deep = self._deep
        if deep is not None:
            deep.tally.remove(items)
            items += self._deep_drop(deep, wanted)
        if self._by_number:
            items.sort(key=_number)
        self.size_bytes -= body_bytes(items)
        self._settle()
        return items

    @override
    def clear(self) -> tuple[list[Delivery], tuple[int, int] | None]:
        items = [item for _, item in sorted(self._returned)]
        items += self._fresh
        span = None
        deep, self._deep = self._deep, None
        if deep is not None:
            items += deep.stubs
            items += deep.tail
            lowest, highest = deep.delta.lowest(), deep.delta.highest()
            span = None if lowest is None or highest is None else (lowest, highest)
        self._returned = []
        self._fresh.clear()
        self._last = self._fresh
        self.size_bytes = 0
        return items, span

    @override
    def in_order(self) -> list[Delivery]:
        return list(self.along())

    @override
    def peek(self, first: int, count: int) -> list[Delivery]:
        return list(islice(self.along(), first, first + count))

    @override
    def lowest(self) -> int | None:
        lows = [self._returned[0][0]] if self._returned else []
        lines = [self._fresh]
        if self._deep is not None:
            deep = self._deep
            lines += [deep.stubs, deep.tail]
            if deep.delta:
                lows.append(deep.barrier)
        lows += [line[0].number for line in lines if line]
        return min(lows, default=None)

    @override
    def among(self, numbers: set[int]) -> set[int]:
        here = numbers.intersection([item.number for _, item in self._returned])
        lines = [self._fresh]
        deep = self._deep
        if deep is not None:
            lines += [deep.stubs, deep.tail]
            here.update([number for number in numbers if number in deep.delta])
        for line in lines:
            here.update(numbers.intersection(map(_number, line)))
        return here

    @override
    def from_number(self, low: int, count: int) -> list[Facts]:
        """Where returns go by number."""
        found: list[Facts] = [_facts(item) for _, item in self._returned if item.number >= low]
        lines = [self._fresh]
        deep = self._deep
        if deep is not None:
            lines += [deep.stubs, deep.tail]
            size_of = deep.delta.size_of
            numbers = islice(deep.delta.numbers_from(low), count)
            found += [(number, size_of(number) or 0, None) for number in numbers]
        for line in lines:
            start = bisect_left(line, low, key=_number)
            found += [_facts(item) for item in islice(line, start, start + count)]
        return nsmallest(count, found, key=itemgetter(0))

    @override
    def taken(self) -> tuple[int, list[int]]:
        numbers = [item.number for _, item in self._returned if item.delivery_count]
        lines = [self._fresh]
        below = 0
        deep = self._deep
        if deep is not None:
            lines += [deep.stubs, deep.tail]
            numbers += [number for number, count in deep.odd.items() if count]
            below = self.redelivered_below if deep.delta else 0
        for line in lines:
            numbers += [item.number for item in line if item.delivery_count]
        return below, numbers

    @override
    def fresh(self) -> list[Delivery]:
        return list(self._fresh)

    @override
    def returned(self) -> list[tuple[int, Delivery]]:
        return sorted(self._returned)

    @property
    @override
    def next_return(self) -> int:
        return self._next_return

    @override
    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        self._fresh = self._last = deque(fresh)
        self._returned = list(returned)
        self._deep = None
        heapify(self._returned)
        self._next_return = next_return
        self.size_bytes = body_bytes(fresh) + body_bytes([item for _, item in returned])


def _facts(item: Delivery) -> Facts:
    return item.number, item.message.body_size, item.message
