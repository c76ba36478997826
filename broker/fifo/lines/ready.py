"""The ready messages of a queue, in the order in which they are handed out.

`Line` is what the queue machine asks of any order, `ReadyLine` first in, first out.

`ReadyLine` is two lines: `fresh`, in arrival order, and `returned`, served before it. A returned
message was taken from the head once, so everything still fresh arrived after it: serving `returned`
first, by number, gives every message its old place (behaviour.md 1.9, requeue position). Where the
queue returns to the front instead, `returned` is ordered by the time of the return.

Invariants: 1. with `by_number`, no returned number exceeds a fresh one. 2. `size_bytes` is the sum
of the body sizes of both lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from broker.message import Delivery


def body_bytes(items: list[Delivery]) -> int:
    """Return the sum of the messages' body sizes in bytes."""
    return sum([item[2].body_size for item in items])


class Line(Protocol):
    """Ready messages in some order. One `Delivery` a message, handed out as it was put in.

    Attributes:
        size_bytes: Sum of the body sizes of all that is here.
    """

    size_bytes: int

    def __len__(self) -> int: ...

    def append(self, items: list[Delivery], size_bytes: int) -> None:
        """Put messages at the tail.

        Args:
            items: In order.
            size_bytes: Their `body_bytes`.
        """

    def give_back(self, items: list[Delivery]) -> None:
        """Put returned messages at the places the queue's kind gives them.

        Args:
            items: With their new delivery counts, in the order of the return.
        """

    def take(self, count: int) -> tuple[list[Delivery], int]:
        """Remove up to `count` messages from the head.

        Returns:
            The messages in order, and the sum of their body sizes in bytes.
        """

    def head(self) -> Delivery | None:
        """Return what `take(1)` would remove, or None."""

    def take_expired(self, now_ms: int) -> list[Delivery]:
        """Remove from the head while it has expired at `now_ms` (behaviour.md 1.4, When removed).

        Args:
            now_ms: Milliseconds since the epoch. A head with `expires_ms <= now_ms` goes; the
                first that lives longer, or for ever, keeps everything behind it.

        Returns:
            What was removed, in order.
        """

    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        """Remove messages by number, wherever they stand; unknown numbers are ignored.

        Returns:
            What was removed, in the line's order.
        """

    def in_order(self) -> list[Delivery]:
        """Return all ready messages in the order in which they would be handed out."""

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return `in_order()[first : first + count]`."""

    def lowest(self) -> int | None:
        """Return the lowest number that is ready, where returns go by number; None when empty."""

    def numbers_from(self, low: int) -> set[int]:
        """Return the ready numbers from `low` on, where returns go by number."""

    def fresh(self) -> list[Delivery]:
        """Return the messages that were never returned to the front, in order (snapshots)."""

    def returned(self) -> list[tuple[int, Delivery]]:
        """Return the returned messages with their sort keys, in order (snapshots)."""

    @property
    def next_return(self) -> int:
        """The key the next return will get where returns are served in their order (snapshots)."""

    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        """Take over what `fresh`, `returned` and `next_return` of another line said."""


class ReadyLine:
    """First in, first out. See the module; the methods are `Line`'s.

    Args:
        by_number: Returned messages go by number (their old places), else in order of return.
    """

    __slots__ = ("_by_number", "_fresh", "_next_return", "_returned", "size_bytes")

    def __init__(self, *, by_number: bool) -> None:
        self._by_number = by_number
        self._fresh: deque[Delivery] = deque()
        self._returned: list[tuple[int, Delivery]] = []  # a heap
        self._next_return = 1
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    def append(self, items: list[Delivery], size_bytes: int) -> None:
        """See `Line`."""
        self._fresh += items
        self.size_bytes += size_bytes

    def give_back(self, items: list[Delivery]) -> None:
        """See `Line`: before the fresh ones, by number or in the order of return."""
        returned = self._returned
        for item in items:
            if self._by_number:
                heappush(returned, (item.number, item))
            else:
                heappush(returned, (self._next_return, item))
                self._next_return += 1
        self.size_bytes += body_bytes(items)

    def take(self, count: int) -> tuple[list[Delivery], int]:
        """See `Line`."""
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

    def head(self) -> Delivery | None:
        """See `Line`."""
        if self._returned:
            return self._returned[0][1]
        return self._fresh[0] if self._fresh else None

    def take_expired(self, now_ms: int) -> list[Delivery]:
        """See `Line`."""
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

    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        """See `Line`."""
        wanted = set(numbers)
        items = [item for item in self.in_order() if item.number in wanted]
        if items:
            self._fresh = deque([item for item in self._fresh if item.number not in wanted])
            self._returned = [pair for pair in self._returned if pair[1].number not in wanted]
            heapify(self._returned)
            self.size_bytes -= body_bytes(items)
        return items

    def in_order(self) -> list[Delivery]:
        """See `Line`."""
        return [item for _, item in sorted(self._returned)] + list(self._fresh)

    def peek(self, first: int, count: int) -> list[Delivery]:
        """See `Line`."""
        return self.in_order()[first : first + count]

    def lowest(self) -> int | None:
        """See `Line`."""
        if self._returned:
            return self._returned[0][0]
        return self._fresh[0].number if self._fresh else None

    def numbers_from(self, low: int) -> set[int]:
        """See `Line`."""
        numbers = {number for number, _ in self._returned if number >= low}
        for item in reversed(self._fresh):
            if item.number < low:
                break
            numbers.add(item.number)
        return numbers

    def fresh(self) -> list[Delivery]:
        """See `Line`."""
        return list(self._fresh)

    def returned(self) -> list[tuple[int, Delivery]]:
        """See `Line`."""
        return sorted(self._returned)

    @property
    def next_return(self) -> int:
        """See `Line`."""
        return self._next_return

    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        """See `Line`."""
        self._fresh = deque(fresh)
        self._returned = list(returned)
        heapify(self._returned)
        self._next_return = next_return
        self.size_bytes = body_bytes(fresh) + body_bytes([item for _, item in returned])
