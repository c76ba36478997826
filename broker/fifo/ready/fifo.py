"""The ready messages of a queue in order of arrival, in memory or paged out.

From head to tail, each part possibly empty:

    returned | fresh | stubs | delta | tail

`returned` is served before `fresh`. A returned message was taken from the head once, so everything
still fresh arrived after it: serving `returned` first, by number, gives every message its old place
(docs/rabbitmq-behaviour.md 1.9, requeue position). Where the queue returns to the front instead,
`returned` is ordered by the time of the return.

`fresh` and `tail` are whole messages; `stubs` and `delta` are on disk (`ram`). A queue is paged
while any message is; arrivals then go to the tail. A queue that is not paged has no `PagedState`,
and each method handles that case first. Returned messages that go by number may be many, so those
with the highest numbers go to the delta too: `returned` and the delta are then handed out together,
in the order of their numbers (`first_paged_number`).

Invariants: 1. with `by_number`, no returned number exceeds a fresh one. 2. `size_bytes` is the sum
of the body sizes of all messages. While the queue is paged: 3. numbers ascend along fresh, stubs
and tail; a number of the delta is below all of fresh and stubs or above all, and below all of the
tail. 4. `returned` may hold stubs, fresh and tail never. 5. without stubs in the middle and without
a delta the tail is empty. 6. where returns do not go by number, the delta is above fresh, and
returned messages are served first.

Source: rabbit_variable_queue.erl (q1 to q4, push_alphas_to_betas, push_betas_to_deltas).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, merge, nsmallest
from itertools import chain, islice, repeat
from operator import attrgetter, itemgetter

from typing_extensions import override

from broker.fifo.ready import places
from broker.fifo.ready.paged import CHUNK, CHUNK_RAM_BYTES, Paged
from broker.fifo.ready.paged_state import (
    DELTA_RAM_BYTES,
    NOWHERE,
    OVERRIDE_RAM_BYTES,
    PagedState,
    Part,
    first_within,
    kept_of,
    leaves_stub,
)
from broker.fifo.ready.queue import NO_STUBS, Eviction, Facts, ReadyQueue, body_bytes
from broker.fifo.ready.ram import (
    HEAD_MESSAGES,
    MESSAGE_RAM_BYTES,
    PAGE_IN_MESSAGES,
    STUB_RAM_BYTES,
    Stubs,
    stub_of,
)
from broker.message import Delivery, Message

_number: Callable[[Delivery], int] = attrgetter("number")


class PagedFifo(ReadyQueue):
    """A FIFO of ready messages that may be paged out.

    Args:
        by_number: Returned messages go by number (their old places), else in order of return.

    Attributes:
        redelivered_below: Messages of the delta below this number count as delivered once.
    """

    __slots__ = ("_by_number", "_fresh", "_last", "_next_return", "_returned", "_state")

    def __init__(self, *, by_number: bool) -> None:
        self._by_number = by_number
        self._fresh: deque[Delivery] = deque()
        self._last = self._fresh  # where arrivals go: fresh or tail
        self._returned: list[tuple[int, Delivery]] = []  # a heap
        self._next_return = 1
        self._state: PagedState | None = None  # None where not `is_paged`
        self.is_paged = False
        self.redelivered_below = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        paged = 0 if self._state is None else self._state.count()
        return len(self._fresh) + len(self._returned) + paged

    @override
    def append(self, items: list[Delivery], size_bytes: int) -> None:
        self._last += items
        self.size_bytes += size_bytes

    @override
    def give_back(self, items: list[Delivery]) -> None:
        """Put messages before the fresh ones, by number or in the order of return."""
        returned = self._returned
        for item in items:
            if self._by_number:
                heappush(returned, (item.number, item))
            else:
                heappush(returned, (self._next_return, item))
                self._next_return += 1
        self.size_bytes += body_bytes(items)
        stubs = [item for item in items if not item.message.content]
        if stubs or self._state is not None:
            state = self._state or self._begin_paging()
            state.stub_stats.add(stubs)
            state.returned_max = max([state.returned_max, *[item.number for item in items]])
        if self.redelivered_below and self._by_number and items:
            self._lift(max([item.number for item in items]))

    @override
    def at_hand(self) -> int:
        if self._state is not None:
            return self._at_hand_paged(self._state)
        return len(self._fresh) + len(self._returned)

    @override
    def take(self, count: int) -> tuple[list[Delivery], int]:
        if self._state is not None:
            return self._take_paged(self._state, count)
        returned, fresh = self._returned, self._fresh
        if len(fresh) == 1 and count > 0 and not returned:  # a consumer has waited for it
            size_bytes, self.size_bytes = self.size_bytes, 0
            return [fresh.popleft()], size_bytes
        items: list[Delivery] = []
        while returned and len(items) < count:
            items.append(heappop(returned)[1])
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
    def take_discarded(self, count: int, *, unread: bool) -> list[Delivery]:
        if self._state is None:
            return self.take(count)[0]
        return self._take_discarded_paged(self._state, count, is_unread=unread)

    @override
    def head(self) -> Delivery | None:
        if self._state is not None:
            return self._head_paged(self._state)
        if self._returned:
            return self._returned[0][1]
        return self._fresh[0] if self._fresh else None

    @override
    def take_expired(self, now_ms: int) -> list[Delivery]:
        if self._state is not None:
            return self._take_expired_paged(self._state, now_ms)
        items: list[Delivery] = []
        returned, fresh = self._returned, self._fresh
        while returned and 0 < returned[0][1].message.expires_ms <= now_ms:
            items.append(heappop(returned)[1])
        if not returned:
            while fresh and 0 < fresh[0].message.expires_ms <= now_ms:
                items.append(fresh.popleft())
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
        state = self._state
        if state is not None:
            state.stub_stats.remove(items)
            items += state.drop(wanted, self.redelivered_below)
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
        state, self._state = self._state, None
        self.is_paged = False
        if state is not None:
            items += state.stubs
            items += state.tail
            lowest, highest = state.delta.lowest(), state.delta.highest()
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
    def walk(self, after: places.Place, count: int) -> list[places.Placed]:
        state, low = self._state, after.number + 1
        if not self._by_number:
            return places.in_order(self.along, after, count)
        parts = [self._fresh] if state is None else [self._fresh, state.stubs, state.tail]
        delta = None if state is None else state.unread_from(low, self.redelivered_below)
        return places.by_numbers(low, count, self._returned, parts, delta)

    @override
    def lowest(self) -> int | None:
        lows = [self._returned[0][0]] if self._returned else []
        parts = [self._fresh]
        if self._state is not None:
            state = self._state
            parts += [state.stubs, state.tail]
            if state.delta:
                lows.append(state.first_paged_number)
        lows += [part[0].number for part in parts if part]
        return min(lows, default=None)

    @override
    def among(self, numbers: set[int]) -> set[int]:
        here = numbers.intersection([item.number for _, item in self._returned])
        parts = [self._fresh]
        state = self._state
        if state is not None:
            parts += [state.stubs, state.tail]
            here.update([number for number in numbers if number in state.delta])
        for part in parts:
            here.update(numbers.intersection(map(_number, part)))
        return here

    @override
    def from_number(self, low: int, count: int) -> list[Facts]:
        """Correct only if returns go by number."""
        found: list[Facts] = [_facts(item) for _, item in self._returned if item.number >= low]
        parts = [self._fresh]
        state = self._state
        if state is not None:
            parts += [state.stubs, state.tail]
            size_of = state.delta.size_of
            numbers = islice(state.delta.numbers_from(low), count)
            found += [(number, size_of(number) or 0, None) for number in numbers]
        for part in parts:
            start = bisect_left(part, low, key=_number)
            found += [_facts(item) for item in islice(part, start, start + count)]
        return nsmallest(count, found, key=itemgetter(0))

    @override
    def taken(self) -> tuple[int, list[int]]:
        numbers = [item.number for _, item in self._returned if item.delivery_count]
        parts = [self._fresh]
        below = 0
        state = self._state
        if state is not None:
            parts += [state.stubs, state.tail]
            numbers += [number for number, count in state.delivery_count_overrides.items() if count]
            below = self.redelivered_below if state.delta else 0
        for part in parts:
            numbers += [item.number for item in part if item.delivery_count]
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
        self._state = None
        self.is_paged = False
        heapify(self._returned)
        self._next_return = next_return
        self.size_bytes = body_bytes(fresh) + body_bytes([item for _, item in returned])

    # Paging.

    @property
    @override
    def stubs(self) -> Stubs:
        return NO_STUBS if self._state is None else self._state.stub_stats

    @property
    @override
    def delta(self) -> tuple[int, int]:
        if self._state is None:
            return 0, 0
        return len(self._state.delta), self._state.delta.size_bytes

    @property
    @override
    def ram_bytes(self) -> int:
        state = self._state
        if state is None:
            count = len(self._fresh) + len(self._returned)
            return count * MESSAGE_RAM_BYTES + self.size_bytes
        count = len(self)
        stubs, delta = state.stub_stats, state.delta
        return (
            (count - stubs.count - len(delta)) * MESSAGE_RAM_BYTES
            + (self.size_bytes - stubs.size_bytes - delta.size_bytes)
            + stubs.count * STUB_RAM_BYTES
            + delta.ram_bytes
            + len(state.delivery_count_overrides) * OVERRIDE_RAM_BYTES
        )

    # Paging out.

    def is_worth_paging(self) -> bool:
        """True if whole messages would take less memory in a delta: not a few with wide gaps."""
        state = self._state
        parts = [self._fresh] if state is None else [self._fresh, state.tail]
        ends = [each.number for part in parts if part for each in (part[0], part[-1])]
        chunks = (max(ends) - min(ends)) // CHUNK + 1 if ends else 0
        delta_bytes = 0 if state is None else state.delta.ram_bytes
        return chunks * CHUNK_RAM_BYTES < self.ram_bytes - delta_bytes

    @override
    def page_out(self, eviction: Eviction, *, keeps_head: bool = True) -> None:
        """Page messages out, as `ReadyQueue.page_out` does.

        Args:
            eviction: The memory to free.
            keeps_head: The head is wanted soon: part of it stays.
        """
        state = self._state or self._begin_paging()
        if state.tail:
            self._push_tail(state, eviction)
        room = HEAD_MESSAGES - len(self._returned) if keeps_head else 0
        if eviction.excess_bytes > 0 and self._fresh:
            self._push_fresh(state, eviction, kept_of(self._fresh, room, eviction.window_bytes))
        while eviction.excess_bytes > 0 and state.stubs:
            self._push_stubs(state, eviction)
        if eviction.excess_bytes > 0 and self._returned:
            self._push_returned(state, eviction, keeps_head=keeps_head)
        self._settle()

    def _push_tail(self, state: PagedState, eviction: Eviction) -> None:
        """Move the oldest of the tail: behind the stubs, or into the delta."""
        tail = state.tail
        if not state.delta:
            while tail and leaves_stub(tail[0], eviction) and eviction.stub_bytes >= STUB_RAM_BYTES:
                state.stubs.append(self._stub(state, eviction, tail.popleft()))
        excess_bytes, count = eviction.excess_bytes, 0
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
        eviction.excess_bytes = excess_bytes
        self._sink(state, eviction, items)

    def _push_fresh(self, state: PagedState, eviction: Eviction, kept: int) -> None:
        """Move the newest of fresh: before the stubs, or with these into the delta."""
        fresh = self._fresh
        while len(fresh) > kept and leaves_stub(fresh[-1], eviction):
            if eviction.stub_bytes < STUB_RAM_BYTES:
                if not state.stubs:
                    break
                self._push_stubs(state, eviction)
            else:
                state.stubs.appendleft(self._stub(state, eviction, fresh.pop()))
        excess_bytes, count = eviction.excess_bytes, 0
        for item in islice(reversed(fresh), max(0, len(fresh) - kept)):
            if excess_bytes <= 0:
                break
            excess_bytes -= item.message.body_size + MESSAGE_RAM_BYTES - DELTA_RAM_BYTES
            count += 1
        if not count:
            return
        while state.stubs:
            self._push_stubs(state, eviction)
        pop = fresh.pop
        items = [pop() for _ in range(count)]
        items.reverse()
        eviction.excess_bytes = excess_bytes
        self._sink(state, eviction, items)

    def _push_stubs(self, state: PagedState, eviction: Eviction) -> None:
        """Move the newest stubs into the delta."""
        pop = state.stubs.pop
        items = [pop() for _ in range(min(len(state.stubs), PAGE_IN_MESSAGES))]
        state.stub_stats.remove(items)
        eviction.excess_bytes -= len(items) * (STUB_RAM_BYTES - DELTA_RAM_BYTES)
        eviction.stub_bytes += len(items) * STUB_RAM_BYTES
        self._sink(state, eviction, items)

    def _push_returned(self, state: PagedState, eviction: Eviction, *, keeps_head: bool) -> None:
        """Move the last of the returned: into the delta, or leave stubs in their places."""
        returned = self._returned
        returned.sort()  # a sorted list is a heap
        head = [item for _, item in returned[:HEAD_MESSAGES]] if keeps_head else []
        at = len(returned)
        least = kept_of(head, HEAD_MESSAGES, eviction.window_bytes)
        moved: list[Delivery] = []
        while at > least and eviction.excess_bytes > 0:
            at -= 1
            key, item = returned[at]
            if self._by_number:
                moved.append(item)
                is_whole = bool(item.message.content)
                taken = MESSAGE_RAM_BYTES + item.message.body_size if is_whole else STUB_RAM_BYTES
                eviction.excess_bytes -= taken - DELTA_RAM_BYTES
            elif item.message.content:
                returned[at] = key, self._stub(state, eviction, item)
        if moved:
            del returned[at:]
            state.stub_stats.remove(moved)
            # Messages before a returned one were delivered too.
            self.redelivered_below = max(self.redelivered_below, moved[0].number + 1)
            self._sink(state, eviction, moved)

    def _stub(self, state: PagedState, eviction: Eviction, item: Delivery) -> Delivery:
        """Return a stub of a whole message, and count it in."""
        eviction.note([item])
        eviction.excess_bytes -= item.message.body_size + MESSAGE_RAM_BYTES - STUB_RAM_BYTES
        eviction.stub_bytes -= STUB_RAM_BYTES
        stub = Delivery(item.number, item.delivery_count, stub_of(item.message))
        state.stub_stats.add([stub])
        return stub

    def _sink(self, state: PagedState, eviction: Eviction, items: list[Delivery]) -> None:
        """Put messages that have left their places into the delta."""
        if not items:
            return
        eviction.note(items)
        if items[-1].number - items[0].number == len(items) - 1:
            state.delta.add_run(items[0].number, [item.message.body_size for item in items])
        else:
            state.delta.add([(item.number, item.message.body_size) for item in items])
        below = self.redelivered_below
        delivery_count_overrides = [
            item for item in items if item.delivery_count != (item.number < below)
        ]
        if delivery_count_overrides:
            state.delivery_count_overrides.update(
                [(item.number, item.delivery_count) for item in delivery_count_overrides]
            )
        state.first_paged_number = min(state.first_paged_number, items[0].number, items[-1].number)

    # Paging in.

    @override
    def needed(self, bytes_max: int) -> list[int]:
        state = self._state
        if state is None:
            return []
        part = self._next_part(state)
        if part == "returned":
            return self._returned_stubs(state, bytes_max)
        if part == "delta" or not state.stubs:
            numbers = state.delta.first(PAGE_IN_MESSAGES, bytes_max, each_bytes=MESSAGE_RAM_BYTES)
            if state.stubs and numbers[-1] > state.stubs[0].number:
                return [number for number in numbers if number < state.stubs[0].number]
            return numbers
        return first_within(state.stubs, bytes_max)

    def _returned_stubs(self, state: PagedState, bytes_max: int) -> list[int]:
        returned = self._returned
        taken: list[tuple[int, Delivery]] = []
        first_paged_number = state.first_paged_number if self._by_number else NOWHERE
        while returned and len(taken) < PAGE_IN_MESSAGES and returned[0][0] < first_paged_number:
            if returned[0][1].message.content:
                break
            taken.append(heappop(returned))
        for pair in taken:
            heappush(returned, pair)
        return sorted(first_within([item for _, item in taken], bytes_max))

    @override
    def page_in(self, numbers: list[int], found: dict[int, Message]) -> list[int]:
        state = self._state
        if state is None or not numbers:
            return []
        lost: list[int] = []
        stubs, delta = state.stubs, state.delta
        if stubs and stubs[0].number == numbers[0]:
            numbers = self._load_stubs(state, numbers, found, lost)
        before_bytes = delta.size_bytes
        here = delta.remove(numbers)
        if here:
            self._load_delta(state, here, before_bytes - delta.size_bytes, found, lost)
        if len(here) < len(numbers) and self._returned:
            self._load_returned(state, set(numbers).difference(here), found, lost)
        self._settle()
        return lost

    def _load_stubs(
        self, state: PagedState, numbers: list[int], found: dict[int, Message], lost: list[int]
    ) -> list[int]:
        """Make the first stubs whole; return the numbers that follow."""
        stubs, append = state.stubs, self._fresh.append
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
        state.stub_stats.remove(done)
        return numbers[len(done) :]

    def _load_delta(
        self,
        state: PagedState,
        numbers: list[int],
        size_bytes: int,
        found: dict[int, Message],
        lost: list[int],
    ) -> None:
        """Put messages that have left the delta in place: nearly always behind fresh."""
        below, overrides = self.redelivered_below, state.delivery_count_overrides
        items: list[Delivery] = []
        if not overrides and (below <= numbers[0] or numbers[-1] < below) and [*found] == numbers:
            counts = repeat(1 if numbers[0] < below else 0)
            items = list(map(Delivery, numbers, counts, found.values()))
        else:
            for number in numbers:
                message = found.get(number)
                count = overrides.pop(number, 1 if number < below else 0)
                if message is None:
                    lost.append(number)
                else:
                    items.append(Delivery(number, count, message))
        self.size_bytes += body_bytes(items) - size_bytes
        state.first_paged_number = state.delta.lowest() or NOWHERE
        self._place(state, items)

    def _place(self, state: PagedState, items: list[Delivery]) -> None:
        """Put whole messages in from the delta: behind fresh, or among the returned before it."""
        if not items:
            return
        first = items[0].number
        fresh, stubs, returned = self._fresh, state.stubs, self._returned
        is_behind = not stubs and (not fresh or fresh[-1].number < first)
        if is_behind and (not self._by_number or not returned or state.returned_max < first):
            fresh += items
            return
        low = fresh[0].number if fresh else stubs[0].number if stubs else NOWHERE
        for item in items:
            if item.number < low and (low != NOWHERE or item.number < state.returned_max):
                heappush(returned, (item.number, item))
                state.returned_max = max(state.returned_max, item.number)
            else:
                fresh.append(item)

    def _load_returned(
        self, state: PagedState, wanted: set[int], found: dict[int, Message], lost: list[int]
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
                    state.stub_stats.remove([item])
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
        """Load a queue that is mostly on disk.

        Args:
            paged: The delta, this queue's from now on.
            head: Whole messages, ascending; mostly below the delta.
            tail: Whole messages, ascending; mostly above it.
            redelivered_below: Messages of the delta below this number count as delivered once.
            taken: Other messages of the delta that count as delivered once.
        """
        items = sorted([*head, *tail], key=_number)
        self._fresh.clear()
        self._returned = []
        self.redelivered_below = redelivered_below
        self.size_bytes = paged.size_bytes + body_bytes(items)
        lowest, highest = paged.lowest(), paged.highest()
        if lowest is None or highest is None:
            self._fresh.extend(items)
            self._state, self._last = None, self._fresh
            self.is_paged = False
            return
        state = self._state = PagedState(0)
        self.is_paged = True
        state.delta, state.first_paged_number = paged, lowest
        state.delivery_count_overrides = {
            number: 1 for number in taken if number >= redelivered_below
        }
        state.tail.extend([item for item in items if item.number > highest])
        self._last = state.tail
        within = [item for item in items if item.number < highest]
        if within and within[-1].number > lowest:
            self._returned = [(item.number, item) for item in within]
            state.returned_max = within[-1].number
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
        state = self._state
        if state is not None and not fresh:
            while state.stubs and state.stubs[0].number < highest:
                item = state.stubs.popleft()
                heappush(returned, (item.number, item))
            self._settle()

    # While it is paged.

    def _next_part(self, state: PagedState) -> Part:
        """Return which part has the head."""
        returned, low = self._returned, state.first_paged_number
        if returned and (not self._by_number or returned[0][0] < low):
            return "returned"
        if returned:
            return "delta"
        if self._fresh and self._fresh[0].number < low:
            return "fresh"
        if state.stubs and not self._fresh and state.stubs[0].number < low:
            return "stubs"
        return "none" if low == NOWHERE else "delta"

    def _at_hand_paged(self, state: PagedState) -> int:
        part = self._next_part(state)
        if part == "fresh":
            return len(self._fresh)
        return 1 if part == "returned" and self._returned[0][1].message.content else 0

    def _take_paged(self, state: PagedState, count: int) -> tuple[list[Delivery], int]:
        items: list[Delivery] = []
        returned, fresh = self._returned, self._fresh
        first_paged_number = state.first_paged_number if self._by_number else NOWHERE
        while returned and len(items) < count and returned[0][0] < first_paged_number:
            if not returned[0][1].message.content:
                break
            items.append(heappop(returned)[1])
        if not returned and fresh and fresh[0].number < state.first_paged_number:
            pop = fresh.popleft
            items += [pop() for _ in range(min(count - len(items), len(fresh)))]
        size_bytes = body_bytes(items)
        self.size_bytes -= size_bytes
        return items, size_bytes

    def _take_discarded_paged(
        self, state: PagedState, count: int, *, is_unread: bool
    ) -> list[Delivery]:
        items: list[Delivery] = []
        while len(items) < count:
            part = self._next_part(state)
            if part == "none" or (part == "delta" and not is_unread):
                break
            items.append(self._pop(state, part))
        self._settle()
        return items

    def _take_expired_paged(self, state: PagedState, now_ms: int) -> list[Delivery]:
        items: list[Delivery] = []
        while (item := self._head_paged(state)) is not None:
            if not 0 < item.message.expires_ms <= now_ms:
                break
            items.append(self._pop(state, self._next_part(state)))
        self._settle()
        return items

    def _head_paged(self, state: PagedState) -> Delivery | None:
        part = self._next_part(state)
        if part == "returned":
            return self._returned[0][1]
        if part == "fresh":
            return self._fresh[0]
        return state.stubs[0] if part == "stubs" else None

    def _pop(self, state: PagedState, part: Part) -> Delivery:
        """Remove the head, from whichever part has it."""
        if part == "delta":
            item = state.unread(state.first_paged_number, self.redelivered_below)
            state.delta.remove([item.number])
            state.delivery_count_overrides.pop(item.number, None)
            state.first_paged_number = state.delta.lowest() or NOWHERE
        else:
            if part == "returned":
                item = heappop(self._returned)[1]
            else:
                item = self._fresh.popleft() if part == "fresh" else state.stubs.popleft()
            state.stub_stats.remove([item])
        self.size_bytes -= item.message.body_size
        self._join_tail(state)
        return item

    def along(self) -> Iterator[Delivery]:
        """Yield all messages in order; nothing may change meanwhile."""
        returned = [item for _, item in sorted(self._returned)]
        state = self._state
        if state is None:
            return chain(returned, self._fresh)
        below = self.redelivered_below
        delta = (state.unread(number, below) for number in state.delta)
        if not self._by_number:
            return chain(returned, self._fresh, state.stubs, delta, state.tail)
        return merge(returned, chain(self._fresh, state.stubs), delta, state.tail, key=_number)

    def _begin_paging(self) -> PagedState:
        self._state = PagedState(max([key for key, _ in self._returned], default=0))
        self.is_paged = True
        return self._state

    def _settle(self) -> None:
        """After a change: load the tail if nothing is before it, and drop a state that is empty."""
        state = self._state
        if state is None:
            return
        if state.stubs or state.delta:
            self._last = state.tail
            return
        self._join_tail(state)
        self._last = self._fresh
        if not state.stub_stats.count:
            self._state = None
            self.is_paged = False

    def _join_tail(self, state: PagedState) -> None:
        if state.tail and not state.stubs and not state.delta:
            if self._fresh:
                self._fresh += state.tail
                state.tail.clear()
            else:
                self._fresh, state.tail = state.tail, self._fresh
                self._last = self._fresh


def _facts(item: Delivery) -> Facts:
    return item.number, item.message.body_size, item.message
