"""A machine that pages at random behaves as the model, which never pages.

The test is the shell: a dict is its disk.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from broker.fifo.commands import (
    Get,
)
from broker.fifo.ledger import Cleared, Enqueued, Removed, Settled
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.paged import Paged
from tests.model.fifo_model import again, message
from tests.model.test_fifo import CHANNEL_IDS, PLAIN, RULES, QueueLife

LARGE = 40_000  # leaves a stub, and so do two of them that are held
LIMITS = st.sampled_from([0, 1_000, 2_000, 3_000, 5_000, 50_000, 90_000, 1 << 30])
MESSAGES = st.lists(
    st.builds(
        message,
        st.sampled_from([0, 1, 2, 3, 4, LARGE]),
        persistent=st.booleans(),
        ttl_ms=st.sampled_from([-1, -1, -1, -1, 0, 1, 5, 30]),
        priority=st.integers(0, 4),
        dedup=st.sampled_from(["", "", "x", "y", "z"]),
    ),
    min_size=1,
    max_size=12,
)


class PagedQueueLife(QueueLife):
    @initialize(
        order=st.sampled_from(["original", "original", "front", "priority", "tail", "due"]),
        rules=st.one_of(PLAIN, RULES),
        dedup_size=st.sampled_from([0, 0, 2]),
        is_single_active=st.sampled_from([False, False, True]),
        burst_max=st.sampled_from([0, 3]),
        ledger=st.sampled_from(["none", "persistent", "all"]),
        durable=st.booleans(),
        level=LIMITS,
    )
    def start(self, order, rules, dedup_size, is_single_active, burst_max, ledger, durable, level):
        super().start(order, rules, dedup_size, 4, is_single_active, True, burst_max)
        self.machine.set_ledger(ledger)
        self.durable = durable and ledger != "none"
        self.level = level
        self.records = {}  # what survives a restart
        self.pages = {}
        self.ends = set()  # numbers the ledger said are gone

    def _compare_effects(self):
        self._hand_in()
        super()._compare_effects()

    def _hand_in(self):
        effects = self.machine.effects
        for each in effects.dead:  # before the ledger removes them from the disk
            each.items[:] = self._whole(each.items)
        for record in effects.ledger:
            if isinstance(record, Enqueued):
                pairs = zip(record.numbers, record.messages, strict=True)
                self.records |= {n: each for n, each in pairs if self.durable and each.persistent}
            elif isinstance(record, Settled | Removed):
                self._end(record.numbers)
            elif isinstance(record, Cleared):
                self._end(range(record.first, record.last + 1))
        effects.ledger = []
        for record in effects.unpaged:
            self._unpage(record)
        effects.unpaged = []

    def _unpage(self, record):
        is_range = isinstance(record, Cleared)
        numbers = range(record.first, record.last + 1) if is_range else record.numbers
        assert not {item.number for item in self.machine.messages.contents()} & {*numbers}
        for number in numbers:
            self.pages.pop(number, None)

    def _end(self, numbers):
        here = {item.number for item in self.machine.messages.contents()}
        assert not here & {*numbers}
        self.ends.update(numbers)
        for number in numbers:
            self.records.pop(number, None)
            self.pages.pop(number, None)

    def _read(self, numbers, *, keep=False):
        found = []
        for number in numbers:
            if number in self.records:
                found.append((number, self.records[number]))
            elif number in self.pages:
                found.append((number, self.pages[number] if keep else self.pages.pop(number)))
        return found

    def _whole(self, items):
        paged = [item.number for item in items if item.message.is_stub]
        found = dict(self._read(paged, keep=True))
        assert len(found) == len(paged)
        return [
            msgspec.structs.replace(item, message=found.get(item.number, item.message))
            for item in items
        ]

    def _deaths(self, dead):
        """While a queue is shortened and waits for the disk, what is next may expire."""
        late = [item.message.expires_ms <= self.model.now_ms for _, item, _ in dead]
        return [
            ("late" if is_late and item.message.expires_ms else reason, item, is_held)
            for is_late, (reason, item, is_held) in zip(late, dead, strict=True)
        ]

    def _load(self, numbers):
        assert numbers == sorted(numbers)
        found = self._read(numbers)
        assert len(found) == len(numbers)
        assert self.machine.paging.page_in(numbers, found) == []

    def _serve(self):
        is_due = True
        while is_due:
            is_due = self.machine.pump()
            if not is_due and (numbers := self.machine.paging.needed()):
                self._load(numbers)
                is_due = True
        self._hand_in()
        if self.machine.paging.ram_bytes > self.level:
            self.page_out(self.level)

    @rule(level=LIMITS, messages=MESSAGES)
    def other_level(self, level, messages):
        self.level = level
        self.publish(messages, redelivered=False)

    @precondition(QueueLife._has_consumers)
    @rule(data=st.data(), channel_id=CHANNEL_IDS, count=st.integers(1, 9), level=LIMITS)
    def some_come_back(self, data, channel_id, count, level):
        """They are got one by one, perhaps let go of the memory, and given back."""
        for _ in range(count):
            self.get(channel_id, no_ack=False)
        self.page_out(level)
        self.requeue(data, channel_id, "")

    @rule(limit=LIMITS)
    def page_out(self, limit):
        self._hand_in()
        before = [(i.number, i.delivery_count) for i in self.machine.messages.contents()]
        page_out = self.machine.paging.page_out(limit, durable=self.durable)
        numbers = [number for number, _ in page_out.pages]
        assert not {*numbers} & {*self.records}
        assert all(not each.is_stub for _, each in page_out.pages)
        self.pages |= dict(page_out.pages)
        assert [(i.number, i.delivery_count) for i in self.machine.messages.contents()] == before
        counts = self.machine.paging.counts()
        stat = self.machine.stat()
        assert sum(counts[:4]) == stat.ready + stat.unacked
        on_disk = {item.number for item in self.machine.messages.contents() if item.message.is_stub}
        assert {*self.pages} <= on_disk  # nothing stays that nobody needs
        if not self.machine.paging.is_paged:
            assert counts.beta == counts.gamma == counts.delta == 0

    @rule(messages=MESSAGES, redelivered=st.booleans())
    def publish(self, messages, redelivered):
        self._prepare()
        first = self.model.published
        refused = self.machine.enqueue(messages, redelivered=redelivered)
        assert refused == self.model.publish(messages)
        if redelivered:
            tail = self.model.tail
            tail[:] = [again(item) if item.number > first else item for item in tail]
        self._pump()

    def _prepare(self):
        while numbers := self.machine.paging.needed():
            self._load(numbers)

    @precondition(QueueLife._has_consumers)
    @rule(channel_id=CHANNEL_IDS, no_ack=st.booleans())
    def get(self, channel_id, no_ack):
        while numbers := self.machine.paging.needed(1):
            self._load(numbers)
        result = self.machine.apply_command(Get(channel_id, no_ack=no_ack))
        assert result.delivery == self.model.get(channel_id, no_ack=no_ack)
        assert result.remaining == len(self.model.ready)
        self._pump()

    @rule()
    def what_an_orderly_stop_writes_down(self):
        """P16: of a message that was handed out nobody says that it is new."""
        self._hand_in()
        config, fresh = self.machine.config, self.machine.messages.fresh()
        new = {*range(fresh.first, fresh.last + 1)} - {*fresh.taken}
        held = [item for items in self.model.held.values() for item in items]
        held_dead = [item for _, item in self.model.held_dead]
        taken = {item.number for item in self.model.ready if item.delivery_count}
        taken |= {item.number for item in held + held_dead}
        assert not new & taken
        if config.order == "fifo" and config.requeue == "original":
            assert {item.number for item in self.model.ready} - taken <= new
        self._compare_restored(fresh, new)

    def _compare_restored(self, fresh, new):
        """The next start takes from it what it said."""
        machine = QueueMachine(self.machine.config)
        if not machine.config.may_page:
            return
        number = self.machine.next_number
        if machine.config.is_restored_unread:
            paged = Paged([(n, each.body_size) for n, each in self.records.items()])
            machine.restore_paged(paged, number, is_timed=True, fresh=fresh)
        else:
            machine.restore_messages(sorted(self.records.items()), number, fresh=fresh)
        restored = {item.number: item.delivery_count for item in machine.messages.contents()}
        assert restored == {n: int(n not in new) for n in self.records}

    @rule()
    def crash_and_restore(self):
        if not self.machine.paging.is_paged:
            self._compare_effects()
            super().crash_and_restore()


PagedQueueLife.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestPagedQueueLife = PagedQueueLife.TestCase
