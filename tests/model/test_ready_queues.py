"""Ready queues of every order behave as a sorted list, through random operations and crashes."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.fifo.config import QueueConfig
from broker.fifo.message_state import ready_queue
from broker.fifo.ready.fifo import body_bytes
from broker.message import Delivery
from tests.model.fifo_model import again, message

ORDERS = ("fifo", "priority", "due")
KEYS = {
    "fifo": lambda item: item.number,
    "priority": lambda item: (-min(item.message.priority, 3), item.number),
    "due": lambda item: (item.message.expires_ms or 1 << 62, item.number),
}


class LineLife(RuleBasedStateMachine):
    @initialize(order=st.sampled_from(ORDERS))
    def start(self, order):
        self.config = QueueConfig(name="q", order=order, priority_max=3)
        self.key = KEYS[order]
        self.ready = ready_queue(self.config)
        self.here = []  # in order
        self.out = []
        self.number = 1

    def _sort(self):
        self.here.sort(key=self.key)

    @rule(facts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=6))
    def append(self, facts):
        items = []
        for priority, expires_ms in facts:
            each = msgspec.structs.replace(
                message(self.number), priority=priority, expires_ms=expires_ms
            )
            items.append(Delivery(self.number, 0, each))
            self.number += 1
        self.ready.append(items, body_bytes(items))
        self.here += items
        self._sort()

    @rule(count=st.integers(0, 5))
    def take(self, count):
        items, size_bytes = self.ready.take(count)
        assert items == self.here[:count]
        assert size_bytes == body_bytes(items)
        del self.here[:count]
        self.out += items

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data):
        items = data.draw(st.lists(st.sampled_from(self.out), unique=True, max_size=4))
        self.out = [item for item in self.out if item not in items]
        back = [again(item) for item in items]
        self.ready.give_back(back)
        self.here += back
        self._sort()

    @rule(now_ms=st.integers(0, 9))
    def expire(self, now_ms):
        expected = []
        while self.here and 0 < self.here[0].message.expires_ms <= now_ms:
            expected.append(self.here.pop(0))
        assert self.ready.take_expired(now_ms) == expected

    @rule(numbers=st.lists(st.integers(1, 30), max_size=4))
    def drop(self, numbers):
        expected = [item for item in self.here if item.number in numbers]
        self.here = [item for item in self.here if item.number not in numbers]
        assert self.ready.drop(numbers) == expected

    @rule(numbers=st.sets(st.integers(1, 30), max_size=9))
    def among(self, numbers):
        assert self.ready.among(numbers) == {i.number for i in self.here} & numbers

    @rule(low=st.integers(1, 30), count=st.integers(0, 9))
    def from_number(self, low, count):
        found = [(i.number, i.message.body_size, i.message) for i in self.here if i.number >= low]
        assert self.ready.from_number(low, count) == sorted(found)[:count]

    @rule(first=st.integers(0, 5), count=st.integers(0, 5))
    def peek(self, first, count):
        assert self.ready.peek(first, count) == self.here[first : first + count]

    @rule()
    def crash_and_restore(self):
        other = ready_queue(self.config)
        other.load(self.ready.fresh(), self.ready.returned(), self.ready.next_return)
        assert (other.fresh(), other.returned()) == (self.ready.fresh(), self.ready.returned())
        self.ready = other

    @invariant()
    def it_is_the_sorted_list(self):
        if not hasattr(self, "ready"):
            return
        ready, here = self.ready, self.here
        assert ready.in_order() == here
        assert len(ready) == len(here)
        assert ready.size_bytes == body_bytes(here)
        assert ready.head() == (here[0] if here else None)
        assert ready.lowest() == min([item.number for item in here], default=None)


LineLife.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLineLife = LineLife.TestCase
