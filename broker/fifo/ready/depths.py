"""How a line in order of arrival pages.

From head to tail, each part possibly empty:

    returned | fresh | stubs | delta | tail

`fresh` and `tail` are whole messages; `stubs` and `delta` are on disk (`ram`). A line is deep while
anything is; what arrives meanwhile goes to the tail. A line that is not has no `Deep`, and its
paths are `ready.ReadyLine`'s.

Returned messages go by number and may be many, so their greatest go to the delta too: then what is
returned and what is in the delta is handed out in the order of the numbers (`barrier`).

Invariants of a deep line: 1. numbers ascend along fresh, stubs and tail; a number of the delta is
below all of fresh and stubs or above all, and below all of the tail. 2. `returned` may hold stubs,
fresh and tail never. 3. without stubs in the middle and without a delta the tail is empty. 4. where
returns do not go by number, the delta is above fresh, and returned messages are served first.

Source: rabbit_variable_queue.erl (q1 to q4, push_alphas_to_betas, push_betas_to_deltas).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush, merge
from itertools import chain, islice, repeat
from operator import attrgetter

from typing_extensions import override

from broker.fifo.ready.deep import (
    DELTA_RAM_BYTES,
    NOWHERE,
    ODD_RAM_BYTES,
    Deep,
    Part,
    first_within,
    kept_of,
    leaves_stub,
)
from broker.fifo.ready.line import NO_STUBS, Cut, Line, body_bytes
from broker.fifo.ready.paged import CHUNK, CHUNK_RAM_BYTES, Paged
from broker.fifo.ready.ram import (
    HEAD_MESSAGES,
    MESSAGE_RAM_BYTES,
    PAGE_IN_MESSAGES,
    STUB_RAM_BYTES,
    Stubs,
    stub_of,
    unread,
)
from broker.message import Delivery, Message

_number: Callable[[Delivery], int] = attrgetter("number")


class Depths(Line):
    """The slow half of a `ready.ReadyLine`: see the module. The methods are `line.Line`'s.

    Args:
        by_number: Returned messages go by number (their old places), else in order of return.

    Attributes:
        redelivered_below: What comes from the delta counts as delivered once below this number.
    """

    __slots__ = ("_by_number", "_deep", "_fresh", "_last", "_next_return", "_returned")

    def __init__(self, *, by_number: bool) -> None:
        self._by_number = by_number
        self._fresh: deque[Delivery] = deque()
        self._last = self._fresh  # where what arrives is put: fresh or tail
        self._returned: list[tuple[int, Delivery]] = []  # a heap
        self._next_return = 1
        self._deep: Deep | None = None
        self.redelivered_below = 0
        self.size_bytes = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @override
    def is_paged(self) -> bool:
        return self._deep is not None

    @property
    @override
    def stubs(self) -> Stubs:
        return NO_STUBS if self._deep is None else self._deep.tally

    @property
    @override
    def delta(self) -> tuple[int, int]:
        if self._deep is None:
            return 0, 0
        return len(self._deep.delta), self._deep.delta.size_bytes

    @property
    @override
    def ram_bytes(self) -> int:
        deep, count = self._deep, len(self)
        if deep is None:
            return count * MESSAGE_RAM_BYTES + self.size_bytes
        stubs, delta = deep.tally, deep.delta
        return (
            (count - stubs.count - len(delta)) * MESSAGE_RAM_BYTES
            + (self.size_bytes - stubs.size_bytes - delta.size_bytes)
            + stubs.count * STUB_RAM_BYTES
            + delta.ram_bytes
            + len(deep.odd) * ODD_RAM_BYTES
        )

    # Out.

    def is_worth_paging(self) -> bool:
        """True if a delta of all that is whole would take less memory: not of few, far apart."""
        deep = self._deep
        parts = [self._fresh] if deep is None else [self._fresh, deep.tail]
        ends = [each.number for part in parts if part for each in (part[0], part[-1])]
        chunks = (max(ends) - min(ends)) // CHUNK + 1 if ends else 0
        delta_bytes = 0 if deep is None else deep.delta.ram_bytes
        return chunks * CHUNK_RAM_BYTES < self.ram_bytes - delta_bytes

    @override
    def page_out(self, cut: Cut, *, keeps_head: bool = True) -> None:
        """Let messages leave the memory, as `Line.page_out`.

        Args:
            cut: What is to be freed.
            keeps_head: The head is wanted soon: some of it stays.
        """
        deep = self._deep or self._deepen()
        if deep.tail:
            self._push_tail(deep, cut)
        room = HEAD_MESSAGES - len(self._returned) if keeps_head else 0
        if cut.excess_bytes > 0 and self._fresh:
            self._push_fresh(deep, cut, kept_of(self._fresh, room, cut.window_bytes))
        while cut.excess_bytes > 0 and deep.stubs:
            self._push_stubs(deep, cut)
        if cut.excess_bytes > 0 and self._returned:
            self._push_returned(deep, cut, keeps_head=keeps_head)
        self._settle()

    def _push_tail(self, deep: Deep, cut: Cut) -> None:
        """Move the oldest of the tail: behind the stubs, or into the delta."""
        tail = deep.tail
        if not deep.delta:
            while tail and leaves_stub(tail[0], cut) and cut.stub_bytes >= STUB_RAM_BYTES:
                deep.stubs.append(self._stub(deep, cut, tail.popleft()))
        excess_bytes, count = cut.excess_bytes, 0
        for item in tail:
            if excess_bytes <= 0:
                break
            excess_bytes -= item.message.body_size + MESSAGE_RAM_BYTES - DELTA_RAM_BYTES
            count += 1
        if count == len(tail):
            items = list(tail)
            tail.clear()
        else:
            pop = tail.popleft
            items = [pop() for _ in range(count)]
        cut.excess_bytes = excess_bytes
        self._sink(deep, cut, items)

    def _push_fresh(self, deep: Deep, cut: Cut, kept: int) -> None:
        """Move the newest of fresh: before the stubs, or with these into the delta."""
        fresh = self._fresh
        while len(fresh) > kept and leaves_stub(fresh[-1], cut):
            if cut.stub_bytes < STUB_RAM_BYTES:
                if not deep.stubs:
                    break
                self._push_stubs(deep, cut)
            else:
                deep.stubs.appendleft(self._stub(deep, cut, fresh.pop()))
        excess_bytes, count = cut.excess_bytes, 0
        for item in islice(reversed(fresh), max(0, len(fresh) - kept)):
            if excess_bytes <= 0:
                break
            excess_bytes -= item.message.body_size + MESSAGE_RAM_BYTES - DELTA_RAM_BYTES
            count += 1
        if not count:
            return
        while deep.stubs:
            self._push_stubs(deep, cut)
        pop = fresh.pop
        items = [pop() for _ in range(count)]
        items.reverse()
        cut.excess_bytes = excess_bytes
        self._sink(deep, cut, items)

    def _push_stubs(self, deep: Deep, cut: Cut) -> None:
        """Move the newest stubs into the delta."""
        pop = deep.stubs.pop
        items = [pop() for _ in range(min(len(deep.stubs), PAGE_IN_MESSAGES))]
        deep.tally.remove(items)
        cut.excess_bytes -= len(items) * (STUB_RAM_BYTES - DELTA_RAM_BYTES)
        cut.stub_bytes += len(items) * STUB_RAM_BYTES
        self._sink(deep, cut, items)

    def _push_returned(self, deep: Deep, cut: Cut, *, keeps_head: bool) -> None:
        """Move the last of the returned: into the delta, or leave stubs in their places."""
        returned = self._returned
        returned.sort()  # a sorted list is a heap
        head = [item for _, item in returned[:HEAD_MESSAGES]] if keeps_head else []
        at = len(returned)
        least = kept_of(head, HEAD_MESSAGES, cut.window_bytes)
        moved: list[Delivery] = []
        while at > least and cut.excess_bytes > 0:
            at -= 1
            key, item = returned[at]
            if self._by_number:
                moved.append(item)
                is_whole = bool(item.message.content)
                taken = MESSAGE_RAM_BYTES + item.message.body_size if is_whole else STUB_RAM_BYTES
                cut.excess_bytes -= taken - DELTA_RAM_BYTES
            elif item.message.content:
                returned[at] = key, self._stub(deep, cut, item)
        if moved:
            del returned[at:]
            deep.tally.remove(moved)
            # What is before one that was returned was delivered too.
            self.redelivered_below = max(self.redelivered_below, moved[0].number + 1)
            self._sink(deep, cut, moved)

    def _stub(self, deep: Deep, cut: Cut, item: Delivery) -> Delivery:
        """Return a whole message's stub, which is counted in."""
        cut.note([item])
        cut.excess_bytes -= item.message.body_size + MESSAGE_RAM_BYTES - STUB_RAM_BYTES
        cut.stub_bytes -= STUB_RAM_BYTES
        stub = Delivery(item.number, item.delivery_count, stub_of(item.message))
        deep.tally.add([stub])
        return stub

    def _sink(self, deep: Deep, cut: Cut, items: list[Delivery]) -> None:
        """Put messages that have left their places into the delta."""
        if not items:
            return
        cut.note(items)
        if items[-1].number - items[0].number == len(items) - 1:
            deep.delta.add_run(items[0].number, [item.message.body_size for item in items])
        else:
            deep.delta.add([(item.number, item.message.body_size) for item in items])
        below = self.redelivered_below
        odd = [item for item in items if item.delivery_count != (item.number < below)]
        if odd:
            deep.odd.update([(item.number, item.delivery_count) for item in odd])
        deep.barrier = min(deep.barrier, items[0].number, items[-1].number)

    # In.

    @override
    def needed(self, bytes_max: int) -> list[int]:
        deep = self._deep
        if deep is None:
            return []
        part = self._next_part(deep)
        if part == "returned":
            return self._returned_stubs(deep, bytes_max)
        if part == "delta" or not deep.stubs:
            numbers = deep.delta.first(PAGE_IN_MESSAGES, bytes_max, each_bytes=MESSAGE_RAM_BYTES)
            if deep.stubs and numbers[-1] > deep.stubs[0].number:
                return [number for number in numbers if number < deep.stubs[0].number]
            return numbers
        return first_within(deep.stubs, bytes_max)

    def _returned_stubs(self, deep: Deep, bytes_max: int) -> list[int]:
        returned = self._returned
        taken: list[tuple[int, Delivery]] = []
        barrier = deep.barrier if self._by_number else NOWHERE
        while returned and len(taken) < PAGE_IN_MESSAGES and returned[0][0] < barrier:
            if returned[0][1].message.content:
                break
            taken.append(heappop(returned))
        for pair in taken:
            heappush(returned, pair)
        return sorted(first_within([item for _, item in taken], bytes_max))

    @override
    def page_in(self, numbers: list[int], found: dict[int, Message]) -> list[int]:
        deep = self._deep
        if deep is None or not numbers:
            return []
        lost: list[int] = []
        stubs, delta = deep.stubs, deep.delta
        if stubs and stubs[0].number == numbers[0]:
            numbers = self._load_stubs(deep, numbers, found, lost)
        before_bytes = delta.size_bytes
        here = delta.remove(numbers)
        if here:
            self._load_delta(deep, here, before_bytes - delta.size_bytes, found, lost)
        if len(here) < len(numbers) and self._returned:
            self._load_returned(deep, set(numbers).difference(here), found, lost)
        self._settle()
        return lost

    def _load_stubs(
        self, deep: Deep, numbers: list[int], found: dict[int, Message], lost: list[int]
    ) -> list[int]:
        """Make the first stubs whole; return the numbers that follow."""
        stubs, append = deep.stubs, self._fresh.append
        done: list[Delivery] = []
        for number in numbers:
            if not stubs or stubs[0].number != number:
                break
            item = stubs.popleft()
            done.append(item)
            message = found.get(number)
            if message is None:
                lost.append(number)
                self.size_bytes -= item.message.body_size
            else:
                append(Delivery(number, item.delivery_count, message))
        deep.tally.remove(done)
        return numbers[len(done) :]

    def _load_delta(
        self,
        deep: Deep,
        numbers: list[int],
        size_bytes: int,
        found: dict[int, Message],
        lost: list[int],
    ) -> None:
        """Put what has left the delta to its place: nearly always behind fresh."""
        below, odd = self.redelivered_below, deep.odd
        items: list[Delivery] = []
        if not odd and (below <= numbers[0] or numbers[-1] < below) and [*found] == numbers:
            counts = repeat(1 if numbers[0] < below else 0)
            items = list(map(Delivery, numbers, counts, found.values()))
        else:
            for number in numbers:
                message = found.get(number)
                count = odd.pop(number, 1 if number < below else 0)
                if message is None:
                    lost.append(number)
                else:
                    items.append(Delivery(number, count, message))
        self.size_bytes += body_bytes(items) - size_bytes
        deep.barrier = deep.delta.lowest() or NOWHERE
        self._place(deep, items)

    def _place(self, deep: Deep, items: list[Delivery]) -> None:
        """Put whole messages in from the delta: behind fresh, or among the returned before it."""
        if not items:
            return
        first = items[0].number
        fresh, stubs, returned = self._fresh, deep.stubs, self._returned
        is_behind = not stubs and (not fresh or fresh[-1].number < first)
        if is_behind and (not self._by_number or not returned or deep.returned_max < first):
            fresh += items
            return
        low = fresh[0].number if fresh else stubs[0].number if stubs else NOWHERE
        for item in items:
            if item.number < low and (low != NOWHERE or item.number < deep.returned_max):
                heappush(returned, (item.number, item))
                deep.returned_max = max(deep.returned_max, item.number)
            else:
                fresh.append(item)

    def _load_returned(
        self, deep: Deep, wanted: set[int], found: dict[int, Message], lost: list[int]
    ) -> None:
        """Make stubs among the first of the returned whole."""
        returned = self._returned
        taken: list[tuple[int, Delivery]] = []
        while returned and wanted:
            key, item = heappop(returned)
            number = item.number
            if number in wanted:
                wanted.discard(number)
                if item.message.is_stub:
                    deep.tally.remove([item])
                    if number not in found:
                        lost.append(number)
                        self.size_bytes -= item.message.body_size
                        continue
                    item = Delivery(number, item.delivery_count, found[number])
            taken.append((key, item))
        for pair in taken:
            heappush(returned, pair)

    def load_paged(
        self,
        paged: Paged,
        head: list[Delivery],
        tail: list[Delivery],
        redelivered_below: int,
        taken: Iterable[int] = (),
    ) -> None:
        """Become a line of which most is on disk.

        Args:
            paged: The delta, this line's from now on.
            head: Whole messages, ascending; mostly below the delta.
            tail: Whole messages, ascending; mostly above it.
            redelivered_below: What is in the delta counts as delivered once below this number.
            taken: What else of the delta does.
        """
        items = sorted([*head, *tail], key=_number)
        self._fresh.clear()
        self._returned = []
        self.redelivered_below = redelivered_below
        self.size_bytes = paged.size_bytes + body_bytes(items)
        lowest, highest = paged.lowest(), paged.highest()
        if lowest is None or highest is None:
            self._fresh.extend(items)
            self._deep, self._last = None, self._fresh
            return
        deep = self._deep = Deep(0)
        deep.delta, deep.barrier = paged, lowest
        deep.odd = {number: 1 for number in taken if number >= redelivered_below}
        deep.tail.extend([item for item in items if item.number > highest])
        self._last = deep.tail
        within = [item for item in items if item.number < highest]
        if within and within[-1].number > lowest:
            self._returned = [(item.number, item) for item in within]
            deep.returned_max = within[-1].number
        else:
            self._fresh.extend(within)

    def _lift(self, highest: int) -> None:
        """Move messages below `highest` to the returned ones, which are served first.

        Args:
            highest: Number of a message that comes back now.
        """
        fresh, returned = self._fresh, self._returned
        while fresh and fresh[0].number < highest:
            item = fresh.popleft()
            heappush(returned, (item.number, item))
        deep = self._deep
        if deep is not None and not fresh:
            while deep.stubs and deep.stubs[0].number < highest:
                item = deep.stubs.popleft()
                heappush(returned, (item.number, item))
            self._settle()

    # The line's own, while it is deep.

    def _length(self, deep: Deep) -> int:
        return (
            len(self._fresh)
            + len(self._returned)
            + len(deep.stubs)
            + len(deep.delta)
            + len(deep.tail)
        )

    def _next_part(self, deep: Deep) -> Part:
        """Say where the head is."""
        returned, low = self._returned, deep.barrier
        if returned and (not self._by_number or returned[0][0] < low):
            return "returned"
        if returned:
            return "delta"
        if self._fresh and self._fresh[0].number < low:
            return "fresh"
        if deep.stubs and not self._fresh and deep.stubs[0].number < low:
            return "stubs"
        return "none" if low == NOWHERE else "delta"

    def _deep_at_hand(self, deep: Deep) -> int:
        part = self._next_part(deep)
        if part == "fresh":
            return len(self._fresh)
        return 1 if part == "returned" and self._returned[0][1].message.content else 0

    def _deep_take(self, deep: Deep, count: int) -> tuple[list[Delivery], int]:
        items: list[Delivery] = []
        returned, fresh = self._returned, self._fresh
        barrier = deep.barrier if self._by_number else NOWHERE
        while returned and len(items) < count and returned[0][0] < barrier:
            if not returned[0][1].message.content:
                break
            items.append(heappop(returned)[1])
        if not returned and fresh and fresh[0].number < deep.barrier:
            pop = fresh.popleft
            items += [pop() for _ in range(min(count - len(items), len(fresh)))]
        size_bytes = body_bytes(items)
        self.size_bytes -= size_bytes
        return items, size_bytes

    def _deep_take_dying(self, deep: Deep, count: int, *, is_unread: bool) -> list[Delivery]:
        items: list[Delivery] = []
        while len(items) < count:
            part = self._next_part(deep)
            if part == "none" or (part == "delta" and not is_unread):
                break
            items.append(self._pop(deep, part))
        self._settle()
        return items

    def _deep_take_expired(self, deep: Deep, now_ms: int) -> list[Delivery]:
        items: list[Delivery] = []
        while (item := self._deep_head(deep)) is not None:
            if not 0 < item.message.expires_ms <= now_ms:
                break
            items.append(self._pop(deep, self._next_part(deep)))
        self._settle()
        return items

    def _deep_head(self, deep: Deep) -> Delivery | None:
        part = self._next_part(deep)
        if part == "returned":
            return self._returned[0][1]
        if part == "fresh":
            return self._fresh[0]
        return deep.stubs[0] if part == "stubs" else None

    def _pop(self, deep: Deep, part: Part) -> Delivery:
        """Remove the head, wherever it is."""
        if part == "delta":
            item = self._unread(deep, deep.barrier)
            deep.delta.remove([item.number])
            deep.odd.pop(item.number, None)
            deep.barrier = deep.delta.lowest() or NOWHERE
        else:
            if part == "returned":
                item = heappop(self._returned)[1]
            else:
                item = self._fresh.popleft() if part == "fresh" else deep.stubs.popleft()
            deep.tally.remove([item])
        self.size_bytes -= item.message.body_size
        self._join_tail(deep)
        return item

    def _deep_drop(self, deep: Deep, wanted: set[int]) -> list[Delivery]:
        """Remove from stubs, delta and tail."""
        gone = [self._unread(deep, number) for number in sorted(wanted) if number in deep.delta]
        deep.delta.remove([item.number for item in gone])
        for item in gone:
            deep.odd.pop(item.number, None)
        deep.barrier = deep.delta.lowest() or NOWHERE
        for part in (deep.stubs, deep.tail):
            some = [item for item in part if item.number in wanted]
            if some:
                kept = [item for item in part if item.number not in wanted]
                part.clear()
                part.extend(kept)
                deep.tally.remove(some)
                gone += some
        return gone

    def _unread(self, deep: Deep, number: int) -> Delivery:
        count = deep.odd.get(number, 1 if number < self.redelivered_below else 0)
        return unread(number, count, deep.delta.size_of(number) or 0)

    def along(self) -> Iterator[Delivery]:
        """Everything in order; nothing may change meanwhile."""
        returned = [item for _, item in sorted(self._returned)]
        deep = self._deep
        if deep is None:
            return chain(returned, self._fresh)
        delta = map(partial(self._unread, deep), deep.delta)
        if not self._by_number:
            return chain(returned, self._fresh, deep.stubs, delta, deep.tail)
        return merge(returned, chain(self._fresh, deep.stubs), delta, deep.tail, key=_number)

    def _deepen(self) -> Deep:
        self._deep = Deep(max([key for key, _ in self._returned], default=0))
        return self._deep

    def _settle(self) -> None:
        """After a change: the tail is at hand where nothing is before it; no more deep?"""
        deep = self._deep
        if deep is None:
            return
        if deep.stubs or deep.delta:
            self._last = deep.tail
            return
        self._join_tail(deep)
        self._last = self._fresh
        if not deep.tally.count:
            self._deep = None

    def _join_tail(self, deep: Deep) -> None:
        if deep.tail and not deep.stubs and not deep.delta:
            if self._fresh:
                self._fresh += deep.tail
                deep.tail.clear()
            else:
                self._fresh, deep.tail = deep.tail, self._fresh
                self._last = self._fresh
