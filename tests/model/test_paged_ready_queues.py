"""Ready queues that page at random behave as a sorted list.

The test is the shell: a dict is its disk, and what is read from it is gone there unless durable.
"""

from __future__ import annotations

from operator import attrgetter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from broker.fifo.config import QueueConfig
from broker.fifo.message_state import ready_queue
from broker.fifo.ready.queue import Eviction, body_bytes
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES, STUB_RAM_BYTES
from broker.message import Delivery
from tests.model.fifo_model import again, message

BY_NUMBER = attrgetter("number")
LINES = {
    "original": {"requeue": "original"},
    "front": {"requeue": "front"},
    "priority": {"order": "priority", "priority_max": 2},
}
SIZES = st.sampled_from([0, 1, 5_000, 5_000])
FACTS = st.lists(
    st.tuples(SIZES, st.integers(0, 3), st.integers(0, 9), st.booleans(), st.integers(0, 1)),
    min_size=3,
    max_size=9,
)
CUTS = {
    "kept_bytes": st.sampled_from([0, 1_000, 2_000, 4_000, 8_000, 12_000]),
    "window_bytes": st.sampled_from([0, 0, 700, 6_000]),
    "stub_bytes": st.sampled_from([0, 450, 900, 9_000, 9_000]),
}


class PagedLineLife(RuleBasedStateMachine):
    @initialize(
        kind=st.sampled_from(["original", *sorted(LINES)]), durable=st.booleans(), facts=FACTS
    )
    def start(self, kind, durable, facts):
        self.kind = kind
        self.durable = durable
        self.ready = ready_queue(QueueConfig(name="q", **LINES[kind]))
        self.here = []  # in order
        self.front = []  # kind "front": what was returned, in order
        self.out = []
        self.number = 1
        self.records = {}
        self.pages = {}
        self.append(facts)

    def _sort(self):
        if self.kind == "priority":
            self.here.sort(key=lambda item: (-min(item.message.priority, 2), item.number))
        elif self.kind == "original":
            self.here.sort(key=BY_NUMBER)
        else:
            self.front = [item for item in self.front if item in self.here]
            fresh = [item for item in sorted(self.here, key=BY_NUMBER) if item not in self.front]
            self.here = [*self.front, *fresh]

    def _read(self, numbers):
        found = []
        for number in numbers:
            stored = self.records.get(number) or self.pages.pop(number)
            found.append((number, stored))
        return found

    def _whole(self, items):
        """Items with what is on disk instead of stubs; what only is named is named truly."""
        whole = []
        for item in items:
            number, count, each = item.number, item.delivery_count, item.message
            stored = each
            if each.is_stub:
                stored = self.records.get(number) or self.pages[number]
                assert stored.body_size == each.body_size
            whole.append(Delivery(number, count, stored))
        return whole

    def _reach(self):
        """Have the head in memory."""
        ready = self.ready
        while len(ready) and not ready.at_hand():
            numbers = ready.needed(5_000)
            assert numbers == sorted(numbers)
            assert numbers
            assert self.here[0].number in numbers
            assert ready.page_in(numbers, dict(self._read(numbers))) == []

    @rule(facts=FACTS)
    def append(self, facts):
        items = []
        for size, priority, expires_ms, persistent, count in facts:
            each = replace(
                message(size, persistent=persistent), priority=priority, expires_ms=expires_ms
            )
            if self.durable and persistent:
                self.records[self.number] = each
            items.append(Delivery(self.number, count, each))
            self.number += 1
        self.ready.append(items, body_bytes(items))
        self.here += items
        self._sort()

    @rule(**CUTS)
    def page_out(self, kept_bytes, window_bytes, stub_bytes):
        before_bytes = self.ready.ram_bytes
        eviction = Eviction(
            before_bytes - kept_bytes,
            window_bytes=window_bytes,
            stub_bytes=stub_bytes,
            durable=self.durable,
        )
        if eviction.excess_bytes <= 0:
            return
        self.ready.page_out(eviction)
        for number, each in eviction.pages:
            assert not each.is_stub
            assert number not in self.pages
            assert number not in self.records
            self.pages[number] = each

    @rule(facts=FACTS, **CUTS)
    def append_and_page_out(self, facts, kept_bytes, window_bytes, stub_bytes):
        self.append(facts)
        self.page_out(kept_bytes, window_bytes, stub_bytes)

    @rule(count=st.integers(0, 9))
    def take(self, count):
        items = []
        while len(items) < count:
            self._reach()
            at_hand = self.ready.at_hand()
            some, size_bytes = self.ready.take(count - len(items))
            assert len(some) >= min(at_hand, count - len(items))
            assert size_bytes == body_bytes(some)
            if not some:
                break
            assert some == self.here[: len(some)]
            del self.here[: len(some)]
            items += some
        assert len(items) == count or not self.here
        self.out += items

    @rule(count=st.integers(0, 9), unread=st.booleans())
    def take_discarded(self, count, unread):
        items = self.ready.take_discarded(count, unread=unread)
        assert self._whole(items) == self.here[: len(items)]
        assert not unread or len(items) == min(count, len(self.here))
        del self.here[: len(items)]
        if len(items) < count and self.here:
            assert self.ready.head() is None

    @precondition(lambda self: self.out)
    @rule(data=st.data(), as_stubs=st.booleans())
    def give_back(self, data, as_stubs):
        items = data.draw(st.lists(st.sampled_from(self.out), unique=True, max_size=9))
        self._give_back(items, as_stubs=as_stubs)

    @rule(
        count=st.integers(1, 9),
        first=st.integers(1, 9),
        as_stubs=st.booleans(),
        eviction=st.fixed_dictionaries(CUTS),
        is_all=st.booleans(),
    )
    def come_back_in_two_parts(self, count, first, as_stubs, eviction, is_all):
        """The second may be higher than what of the first went into the delta."""
        self.take(count)
        self._give_back(sorted(self.out, key=BY_NUMBER)[:first], as_stubs=as_stubs)
        self.page_out(**eviction)
        if is_all:
            self._give_back(self.out, as_stubs=as_stubs)

    def _give_back(self, items, *, as_stubs):
        self.out = [item for item in self.out if item not in items]
        back = [again(item) for item in items]
        self.front += back
        self.here += back
        self._sort()
        if as_stubs:
            for each in back:
                if each.number not in self.records:
                    self.pages[each.number] = each.message
            back = [replace(item, message=replace(item.message, content=b"")) for item in back]
        self.ready.give_back(back)

    @rule(now_ms=st.integers(0, 9))
    def expire(self, now_ms):
        is_known = False
        while not is_known:
            items = self._whole(self.ready.take_expired(now_ms))
            assert items == self.here[: len(items)]
            assert all(0 < item.message.expires_ms <= now_ms for item in items)
            del self.here[: len(items)]
            is_known = not self.here or self.ready.head() is not None
            self._reach()
        assert not self.here or not 0 < self.here[0].message.expires_ms <= now_ms

    @rule(numbers=st.lists(st.integers(1, 60), max_size=3))
    def drop(self, numbers):
        expected = [item for item in self.here if item.number in numbers]
        self.here = [item for item in self.here if item.number not in numbers]
        assert self._whole(self.ready.drop(numbers)) == expected

    @precondition(lambda self: self.ready.is_paged and not self.ready.at_hand() and len(self.ready))
    @rule(data=st.data())
    def lose_some(self, data):
        numbers = self.ready.needed(5_000)
        found = dict(self._read(numbers))
        lost = data.draw(st.lists(st.sampled_from(numbers), unique=True))
        for number in lost:
            del found[number]
            self.records.pop(number, None)
        assert sorted(self.ready.page_in(numbers, found)) == sorted(lost)
        self.here = [item for item in self.here if item.number not in lost]

    @precondition(lambda self: len(self.here) > 20)
    @rule()
    def clear(self):
        items, span = self.ready.clear()
        named = {item.number for item in items}
        for item in self.here:
            assert item.number in named or span[0] <= item.number <= span[1]
        self.here = []

    @rule(low=st.integers(1, 60), count=st.integers(0, 9))
    def look(self, low, count):
        numbers = {low, low + count}
        assert self.ready.among(numbers) == {i.number for i in self.here} & numbers
        peeked = self._whole(self.ready.peek(count, low))
        assert peeked == self.here[count : count + low]
        if self.kind == "front":
            return
        found = self.ready.from_number(low, count)
        here = sorted(self.here, key=BY_NUMBER)
        expected = [item for item in here if item.number >= low][:count]
        sizes = [(item.number, item.message.body_size) for item in expected]
        assert [(number, size) for number, size, _ in found] == sizes
        for (_, _, each), item in zip(found, expected, strict=True):
            assert each is None or each.is_stub or each == item.message

    @invariant()
    def it_is_the_sorted_list(self):
        if not hasattr(self, "ready"):
            return
        ready, here = self.ready, self.here
        assert self._whole(ready.in_order()) == here
        assert len(ready) == len(here)
        assert ready.size_bytes == body_bytes(here)
        head = ready.head()
        assert head is None or self._whole([head]) == here[:1]
        assert bool(ready.at_hand()) == (head is not None and not head.message.is_stub)
        if self.kind != "front":
            assert ready.lowest() == min([item.number for item in here], default=None)
        seen = ready.in_order()
        stubs = [i for i in seen if i.message.is_stub and i.message.header_size]
        unread = [i for i in seen if i.message.is_stub and not i.message.header_size]
        assert (ready.stubs.count, ready.stubs.size_bytes) == (len(stubs), body_bytes(stubs))
        assert ready.stubs.recorded == sum(item.message.persistent for item in stubs)
        assert ready.delta == (len(unread), body_bytes(unread))
        whole = [item for item in seen if not item.message.is_stub]
        least = len(whole) * MESSAGE_RAM_BYTES + body_bytes(whole) + len(stubs) * STUB_RAM_BYTES
        assert ready.ram_bytes >= least
        assert unread or ready.ram_bytes <= least + 100 * len(here)
        if not ready.is_paged:
            assert not stubs
            assert not unread


PagedLineLife.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPagedLineLife = PagedLineLife.TestCase
