"""The ready messages of a queue whose bodies are in its log.

From head to tail: `returned | fresh | behind`. Returned messages are served first, in the order of
their return. Fresh ones are whole, behind are those for which there was no room: in columns
(`blocks`), so while there are any, arrivals go there, too. What is taken from there is a stub.

Nothing here waits for a disk, and how a message is kept changes nothing but whether it is a stub:
replicas whose memories differ hand out the same messages.

Invariants: 1. `size_bytes` is the sum of all body sizes. 2. a message whose body is not in the log
is handed out whole: if it is behind, `_unlogged` has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from typing_extensions import override

from broker.fifo.logged.blocks import Blocks, bare
from broker.fifo.logged.positions import Positions, Span
from broker.fifo.ready import places
from broker.fifo.ready.places import BEGINNING, Place, Placed
from broker.fifo.ready.queue import NO_STUBS, Eviction, Facts, ReadyQueue, body_bytes
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES, Stubs
from broker.message import Delivery, Message

WINDOW_BYTES: Final = 4 * 1024 * 1024
"""Memory of the head's bodies: a queue that is shorter reads nothing."""

EXPIRED_MAX: Final = 10_000
"""Messages that expire at a time: each is a stub for a moment."""


class LoggedFifo(ReadyQueue):
    """A FIFO with bodies near its head only; `is_paged` is never true, for nothing must be read.

    Args:
        positions: Where the bodies are.
        window_bytes: Memory for bodies.

    Attributes:
        behind: Those for which there was no room.
    """

    __slots__ = (
        "_fresh",
        "_next_return",
        "_positions",
        "_returned",
        "_unlogged",
        "_unlogged_bytes",
        "_window_bytes",
        "behind",
    )

    def __init__(self, positions: Positions, window_bytes: int) -> None:
        self._positions = positions
        self._window_bytes = window_bytes
        self._unlogged: dict[int, Message] = {}
        self._unlogged_bytes = 0
        self._fresh: deque[Delivery] = deque()
        self._returned: deque[tuple[int, Delivery]] = deque()
        self._next_return = 1
        self.behind = Blocks()
        self.is_paged = False
        self.redelivered_below = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned) + len(self.behind)

    def _room_bytes(self) -> int:
        """Memory for more bodies; negative if too much is taken."""
        whole_bytes = self.size_bytes - self.behind.size_bytes
        count = len(self._fresh) + len(self._returned)
        return self._window_bytes - whole_bytes - count * MESSAGE_RAM_BYTES

    @override
    def append(self, items: list[Delivery], size_bytes: int) -> None:
        ram_bytes = size_bytes + len(items) * MESSAGE_RAM_BYTES
        if not self.behind and ram_bytes <= self._room_bytes():
            self._fresh += items
        else:
            self._put_behind(items, size_bytes)
        self.size_bytes += size_bytes

    def _put_behind(self, items: list[Delivery], size_bytes: int) -> None:
        self.behind.append(items, size_bytes)
        logged_from, has = self._positions.logged_from, self._positions.has
        for item in items if logged_from else ():
            if not has(item.number):
                self._keep({item.number: item.message})

    def _keep(self, unlogged: dict[int, Message]) -> None:
        self._unlogged.update(unlogged)
        self._unlogged_bytes += sum([each.body_size for each in unlogged.values()])

    def _forget(self, number: int) -> None:
        found = self._unlogged.pop(number, None)
        if found is not None:
            self._unlogged_bytes -= found.body_size

    def _from_behind(self, items: list[Delivery]) -> list[Delivery]:
        """Return what was behind, with the bodies that are nowhere else."""
        if not self._unlogged:
            return items
        get = self._unlogged.get
        return [
            Delivery(item.number, item.delivery_count, get(item.number, item.message))
            for item in items
        ]

    def _taken_from_behind(self, items: list[Delivery]) -> list[Delivery]:
        found = self._from_behind(items)
        if self._unlogged:
            for item in items:
                self._forget(item.number)
        return found

    @override
    def give_back(self, items: list[Delivery]) -> None:
        """Put messages before the fresh ones, in the order of their return."""
        room_bytes = self._room_bytes()
        for item in items:
            room_bytes -= item.message.body_size + MESSAGE_RAM_BYTES
            kept = item if room_bytes >= 0 else bare(item, self._positions)
            self._returned.append((self._next_return, kept))
            self._next_return += 1
        self.size_bytes += body_bytes(items)

    @override
    def at_hand(self) -> int:
        return len(self)

    @override
    def take(self, count: int) -> tuple[list[Delivery], int]:
        items: list[Delivery] = []
        returned, fresh, behind = self._returned, self._fresh, self.behind
        while returned and len(items) < count:
            items.append(returned.popleft()[1])
        more = count - len(items)
        if more >= len(fresh):
            items += fresh
            fresh.clear()
            if not returned and not behind:  # all that was here: its size is known
                size_bytes, self.size_bytes = self.size_bytes, 0
                return items, size_bytes
        else:
            pop = fresh.popleft
            items += [pop() for _ in range(more)]
        size_bytes = body_bytes(items)
        if len(items) < count and behind:
            some, some_bytes = behind.take(count - len(items))
            items += self._taken_from_behind(some)
            size_bytes += some_bytes
        self.size_bytes -= size_bytes
        return items, size_bytes

    @override
    def take_discarded(self, count: int, *, unread: bool) -> list[Delivery]:
        del unread
        return self.take(count)[0]

    @override
    def head(self) -> Delivery | None:
        if self._returned:
            return self._returned[0][1]
        if self._fresh:
            return self._fresh[0]
        head = self.behind.head()
        return None if head is None else self._from_behind([head])[0]

    @override
    def take_expired(self, now_ms: int) -> list[Delivery]:
        """Remove from the head while it has expired, `EXPIRED_MAX` at a time."""
        count = 0
        for item in self.along_whole():
            if count >= EXPIRED_MAX or not 0 < item.message.expires_ms <= now_ms:
                return self.take(count)[0]
            count += 1
        return self.take(count + self.behind.expired(now_ms, EXPIRED_MAX - count))[0]

    @override
    def drop(self, numbers: Iterable[int]) -> list[Delivery]:
        wanted = set(numbers)
        items = [item for _, item in self._returned if item.number in wanted]
        if items:
            self._returned = deque([p for p in self._returned if p[1].number not in wanted])
        some = [item for item in self._fresh if item.number in wanted]
        if some:
            self._fresh = deque([item for item in self._fresh if item.number not in wanted])
            items += some
        items += self._taken_from_behind(self.behind.drop(wanted))
        self.size_bytes -= body_bytes(items)
        return items

    @override
    def clear(self) -> tuple[list[Delivery], tuple[int, int] | None]:
        """Remove everything; nothing is returned, for there is no ledger."""
        self._returned.clear()
        self._fresh.clear()
        self.behind.clear()
        self._unlogged.clear()
        self.size_bytes = self._unlogged_bytes = 0
        return [], None

    def along(self) -> Iterator[Delivery]:
        """Yield all messages in order; nothing may change meanwhile."""
        yield from self.along_whole()
        if not self._unlogged:
            yield from self.behind
        else:
            for item in self.behind:
                yield from self._from_behind([item])

    def along_whole(self) -> Iterator[Delivery]:
        """Yield those that are not behind, in order; nothing may change meanwhile."""
        return chain((item for _, item in self._returned), self._fresh)

    @override
    def in_order(self) -> list[Delivery]:
        return list(self.along())

    @override
    def peek(self, first: int, count: int) -> list[Delivery]:
        found = list(islice(self.along_whole(), first, first + count))
        if len(found) < count and self.behind:
            whole = len(self) - len(self.behind)
            some = self.behind.peek(max(0, first - whole), count - len(found))
            found += self._from_behind(some)
        return found

    @override
    def walk(self, after: Place, count: int) -> list[Placed]:
        """Return what is behind a place; its rank is a position, where it is looked for first."""
        at = 0 if after == BEGINNING else self._index_behind(after)
        found = self.peek(at, count)
        return [(Place(at + i, item.number), item) for i, item in enumerate(found)]

    def _index_behind(self, after: Place) -> int:
        number, whole = after.number, len(self) - len(self.behind)
        if after.rank < whole:
            at = places.index_of(self.along_whole(), number)
            if at is not None:
                return at + 1
        found = self.behind.index_behind(number, after.rank - whole)
        if found is not None:
            return whole + found
        at = places.index_above(self.along_whole(), number)
        return at if at < whole else whole + self.behind.index_above(number)

    @override
    def lowest(self) -> int | None:
        return min([first for first, _ in self.spans()], default=None)

    @override
    def among(self, numbers: set[int]) -> set[int]:
        return numbers.intersection([item.number for item in self.along()])

    @override
    def from_number(self, low: int, count: int) -> list[Facts]:
        raise NotImplementedError("only mirrors are sent messages by number")

    @override
    def taken(self) -> tuple[int, list[int]]:
        return 0, [item.number for item in self.along() if item.delivery_count]

    def spans(self) -> Iterator[Span]:
        """Yield the numbers here as spans, in any order."""
        for item in self.along_whole():
            yield item.number, item.number
        yield from self.behind.spans()

    @override
    def fresh(self) -> list[Delivery]:
        return [*self._fresh, *self._from_behind(list(self.behind))]

    def near(self) -> list[Delivery]:
        """Return those that are neither returned nor behind, in order (checkpoints)."""
        return list(self._fresh)

    def unlogged(self) -> dict[int, Message]:
        """Return those behind whose bodies are not in the log (checkpoints)."""
        return self._unlogged.copy()

    def only_here(self) -> Iterator[Delivery]:
        """Yield those behind whose bodies are not in the log, as first delivered, in any order."""
        for number, message in self._unlogged.items():
            yield Delivery(number, 0, message)

    @override
    def returned(self) -> list[tuple[int, Delivery]]:
        return list(self._returned)

    @property
    @override
    def next_return(self) -> int:
        return self._next_return

    @override
    def load(
        self, fresh: list[Delivery], returned: list[tuple[int, Delivery]], next_return: int
    ) -> None:
        self._returned = deque(sorted(returned))
        self._next_return = next_return
        self._fresh.clear()
        self.behind = Blocks()
        self._unlogged.clear()
        self._unlogged_bytes = 0
        self.size_bytes = body_bytes([item for _, item in returned])
        self.append(fresh, body_bytes(fresh))

    def load_behind(self, behind: Blocks, unlogged: dict[int, Message]) -> None:
        """Put a checkpoint's blocks behind what was loaded; some bodies are nowhere else."""
        self._keep(unlogged)
        self.size_bytes += behind.size_bytes
        for block in behind.blocks():
            self.behind.add_block(block)

    @property
    def is_timed(self) -> bool:
        """True if a message here may expire."""
        return self.behind.is_timed or any(i.message.expires_ms for i in self.along_whole())

    def come_into_log(self, numbers: Collection[int]) -> None:
        """Let go of bodies that are in the log now, as far as there is no room."""
        for number in numbers:
            self._forget(number)
        if self._returned and self._room_bytes() < 0:
            for at, (key, item) in enumerate(self._returned):
                if item.number in numbers:
                    self._returned[at] = (key, bare(item, self._positions))

    # Paging: there is none.

    @property
    @override
    def ram_bytes(self) -> int:
        whole_bytes = self._window_bytes - self._room_bytes()
        return whole_bytes + self.behind.ram_bytes + self._unlogged_bytes

    @property
    @override
    def stubs(self) -> Stubs:
        return NO_STUBS

    @property
    @override
    def delta(self) -> tuple[int, int]:
        whole, whole_bytes = len(self._unlogged), self._unlogged_bytes
        return len(self.behind) - whole, self.behind.size_bytes - whole_bytes

    @override
    def page_out(self, eviction: Eviction) -> None:
        """No-op: the window is a fixed one."""
        del eviction

    @override
    def needed(self, bytes_max: int) -> list[int]:
        del bytes_max
        return []

    @override
    def page_in(self, numbers: list[int], found: dict[int, Message]) -> list[int]:
        del numbers, found
        return []
