"""Ready messages in columns: number, body size, delivery count and expiry; no bodies.

A block has up to 1,024 messages in their order. Most have consecutive numbers, were never delivered
and never expire, so they take 4 bytes each: a column that says nothing is left out. Numbers in any
other order take 8 bytes more, counts 4, expiries 8.

Invariants: 1. `len` and `size_bytes` are the sums over all messages here. 2. no block is empty.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from broker.fifo.logged.positions import Span, spans_of
from broker.message import Delivery, Message

BLOCK: Final = 1024
BLOCK_RAM_BYTES: Final = 600
"""Memory of a block beside its columns."""


class Stubs:
    """Makes stubs. Messages of equal sizes and expiries share one: it says nothing else."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = stub(0, 0)

    def of(self, size: int, expires_ms: int) -> Message:
        """Return a stub.

        Args:
            size: Of the body, in bytes.
            expires_ms: When it expires, in milliseconds since the epoch; 0 is never.
        """
        last = self._last
        if last.body_size != size or last.expires_ms != expires_ms:
            last = self._last = stub(size, expires_ms)
        return last


def stub(size: int, expires_ms: int) -> Message:
    """Return the stub of a message: what the machine must know of it, and nothing else.

    Args:
        size: Of the body, in bytes.
        expires_ms: When it expires, in milliseconds since the epoch; 0 is never.
    """
    return Message("", "", b"", 0, 0, size, persistent=True, expires_ms=expires_ms)


class Bodies(Protocol):
    """Knows which bodies are in the log (`positions.Positions`)."""

    def has(self, number: int) -> bool:
        """Tell whether the body of a message of the queue is in the log."""
        ...


def bare(item: Delivery, logged: Bodies) -> Delivery:
    """Return a message of the queue without its body, if that is in the log."""
    message = item.message
    if not message.content or not logged.has(item.number):
        return item
    return Delivery(item.number, item.delivery_count, stub(message.body_size, message.expires_ms))


class Block:
    """Neighbours in the queue.

    Attributes:
        numbers: Of all of them, in order.
        sizes: Body sizes in bytes.
        counts: Delivery counts; None: all are 0.
        expires: Expiries in milliseconds since the epoch, 0 for never; None: all are 0.
        start: Those before have left.
    """

    __slots__ = ("counts", "expires", "numbers", "sizes", "start")

    def __init__(
        self,
        numbers: range | array[int],
        sizes: array[int],
        counts: array[int] | None = None,
        expires: array[int] | None = None,
    ) -> None:
        self.numbers: range | array[int] = numbers
        self.sizes = sizes
        self.counts = counts
        self.expires = expires
        self.start = 0

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    @property
    def ram_bytes(self) -> int:
        """About how much memory it takes, in bytes."""
        each = 4 + 4 * (self.counts is not None) + 8 * (self.expires is not None)
        return BLOCK_RAM_BYTES + len(self.sizes) * (each + 8 * isinstance(self.numbers, array))

    def frozen(self) -> Block:
        """Return the same messages: what leaves this block stays there. They share columns."""
        block = Block(self.numbers, self.sizes, self.counts, self.expires)
        block.start = self.start
        return block

    def copied(self) -> Block:
        """Return the same messages, in columns of their own."""
        block = Block(
            self.numbers[:],
            self.sizes[:],
            None if self.counts is None else self.counts[:],
            None if self.expires is None else self.expires[:],
        )
        block.start = self.start
        return block

    def append(self, items: Sequence[Delivery]) -> None:
        """Put messages at the end; there is room."""
        numbers, old = [item.number for item in items], len(self.sizes)
        known, first = self.numbers, numbers[0]
        is_run = first + len(numbers) - 1 == numbers[-1] and numbers == [
            *range(first, first + len(numbers))
        ]
        if is_run and isinstance(known, range) and known.stop == first:
            self.numbers = range(known.start, first + len(numbers))
        else:
            if isinstance(known, range):
                known = self.numbers = array("Q", known)
            known.extend(numbers)
        self.sizes.extend([item.message.body_size for item in items])
        self.counts = _extended(self.counts, "I", old, [item.delivery_count for item in items])
        expires = [item.message.expires_ms for item in items]
        self.expires = _extended(self.expires, "Q", old, expires)

    def place_of(self, number: int) -> int | None:
        """Return the place of a message that has not left; None where it is not here."""
        numbers = self.numbers
        if number not in numbers:
            return None
        place = numbers.index(number)
        return place if place >= self.start else None

    def items(self, low: int, high: int, stubs: Stubs) -> list[Delivery]:
        """Return those from place `low` up to `high`."""
        numbers, sizes = self.numbers[low:high], self.sizes[low:high]
        of, counts, expires = stubs.of, self.counts, self.expires
        if counts is None and expires is None:
            return [Delivery(n, 0, of(size, 0)) for n, size in zip(numbers, sizes, strict=True)]
        return [
            Delivery(
                numbers[at],
                0 if counts is None else counts[low + at],
                of(sizes[at], 0 if expires is None else expires[low + at]),
            )
            for at in range(len(sizes))
        ]


def _extended(column: array[int] | None, kind: str, old: int, new: list[int]) -> array[int] | None:
    """Return a column with more values; it is left out while all are 0."""
    if column is None:
        if not any(new):
            return None
        column = array(kind, [0]) * old
    column.extend(new)
    return column


class Blocks:
    """Messages in order, in columns.

    Attributes:
        size_bytes: Sum of the body sizes.
    """

    __slots__ = ("_blocks", "_count", "_stubs", "size_bytes")

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._stubs = Stubs()
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Delivery]:
        """Yield stubs of all, in order; nothing may change meanwhile."""
        for block in self._blocks:
            yield from block.items(block.start, len(block.sizes), self._stubs)

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks in order (checkpoints)."""
        yield from self._blocks

    def frozen(self) -> list[Block]:
        """Return all blocks as they are now; what comes and goes later changes none of them.

        Messages come into the last one only, so it alone is copied.
        """
        found = [block.frozen() for block in self._blocks]
        if found:
            found[-1] = found[-1].copied()
        return found

    def add_block(self, block: Block) -> None:
        """Put a whole block at the end."""
        self._blocks.append(block)
        self._count += len(block)
        self.size_bytes += sum(block.sizes[block.start :])

    @property
    def ram_bytes(self) -> int:
        """About how much memory all this takes, in bytes."""
        return sum([block.ram_bytes for block in self._blocks])

    def append(self, items: Sequence[Delivery], size_bytes: int) -> None:
        """Put messages at the end.

        Args:
            items: In order; only their columns are kept.
            size_bytes: Sum of their body sizes.
        """
        self._count += len(items)
        self.size_bytes += size_bytes
        at = 0
        while at < len(items):
            last = self._blocks[-1] if self._blocks else None
            if last is None or len(last.sizes) >= BLOCK:
                first = items[at].number
                last = Block(range(first, first), array("I"))
                self._blocks.append(last)
            room = BLOCK - len(last.sizes)
            last.append(items[at : at + room])
            at += room

    def head(self) -> Delivery | None:
        """Return a stub of the first message; None without any."""
        if not self._blocks:
            return None
        block = self._blocks[0]
        return block.items(block.start, block.start + 1, self._stubs)[0]

    def peek(self, first: int, count: int) -> list[Delivery]:
        """Return stubs of up to `count` messages in order, `first` of them skipped."""
        found: list[Delivery] = []
        for block in self._blocks:
            if first >= len(block):
                first -= len(block)
                continue
            low = block.start + first
            found += block.items(low, low + count - len(found), self._stubs)
            first = 0
            if len(found) >= count:
                break
        return found

    def index_behind(self, number: int, near: int) -> int | None:
        """Return the index behind a message; None where it is not here.

        Args:
            number: The message's.
            near: Where it stood before; messages in front of it have left since.
        """
        begin = 0
        found: int | None = None
        for block in self._blocks:
            place = block.place_of(number)
            if place is not None:
                found = begin + place - block.start + 1
                break
            begin += len(block)
            if begin > near + BLOCK:  # nothing moves backwards
                break
        return found

    def index_above(self, number: int) -> int:
        """Return the index of the first message with a higher number; the length without any."""
        begin = 0
        for block in self._blocks:
            numbers = block.numbers[block.start :]
            if isinstance(numbers, range):
                if numbers[-1] > number:
                    return begin + max(0, number + 1 - numbers[0])
            elif max(numbers) > number:
                return begin + next(at for at, each in enumerate(numbers) if each > number)
            begin += len(block)
        return begin

    def take(self, count: int) -> tuple[list[Delivery], int]:
        """Remove up to `count` messages from the front.

        Returns:
            Their stubs in order, and the sum of their body sizes in bytes.
        """
        items: list[Delivery] = []
        before_bytes = self.size_bytes
        while count > 0 and self._blocks:
            block = self._blocks[0]
            end = min(len(block.sizes), block.start + count)
            count -= end - block.start
            items += block.items(block.start, end, self._stubs)
            self.size_bytes -= sum(block.sizes[block.start : end])
            self._shift(block, end)
        return items, before_bytes - self.size_bytes

    def _shift(self, block: Block, end: int) -> None:
        self._count -= end - block.start
        block.start = end
        if end == len(block.sizes):
            self._blocks.popleft()

    def expired(self, now_ms: int, count_max: int) -> int:
        """Return how many messages at the front have expired at a time, `count_max` at most."""
        count = 0
        for block in self._blocks:
            expires = block.expires
            if expires is None:
                return count
            for at in range(block.start, len(expires)):
                if count >= count_max or not 0 < expires[at] <= now_ms:
                    return count
                count += 1
        return count

    @property
    def is_timed(self) -> bool:
        """True if a message here may expire."""
        return any(block.expires is not None for block in self._blocks)

    def drop(self, wanted: set[int]) -> list[Delivery]:
        """Remove messages by number, and return their stubs in order."""
        found = [item for item in self if item.number in wanted]
        if found:
            kept = [item for item in self if item.number not in wanted]
            self.clear()
            self.append(kept, sum([item.message.body_size for item in kept]))
        return found

    def clear(self) -> None:
        """Remove all."""
        self._blocks.clear()
        self._count = 0
        self.size_bytes = 0

    def spans(self) -> Iterator[Span]:
        """Yield the numbers here as spans, in any order."""
        for block in self._blocks:
            numbers = block.numbers[block.start :]
            if isinstance(numbers, range):
                yield numbers.start, numbers.stop - 1
            else:
                yield from spans_of(sorted(numbers))
