"""A machine whose bodies are in a log behaves as the model, which has them all in memory.

The test is the shell: a dict of entries is its log, which it cuts, moves messages in, and restarts
from checkpoints.
"""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from broker.fifo import snapshot
from broker.fifo.checkpoints import checkpoint
from broker.fifo.commands import (
    VERSION,
    CommandBatch,
    Enqueue,
    Get,
    Moved,
    QueueEntry,
    messages_in,
)
from broker.fifo.logged import blocks
from broker.fifo.machine import QueueMachine
from broker.message import Delivery
from tests.model.fifo_model import message
from tests.model.test_fifo import CHANNEL_IDS, PLAIN, RULES, QueueLife

SESSION = "p/1/7/0"
MESSAGES = st.lists(
    st.builds(
        lambda size, key, **facts: replace(message(size, **facts), routing_key=key),
        st.integers(0, 40),
        st.text("xyz", min_size=3, max_size=3),
        ttl_ms=st.sampled_from([-1, -1, -1, 0, 1, 5, 30]),
        dedup=st.sampled_from(["", "", "x", "y", "z"]),
    ),
    min_size=1,
    max_size=7,
)
WINDOWS = st.sampled_from([0, 700, 2_000, 1 << 30])


@pytest.fixture(autouse=True, scope="module")
def small():
    """Parts, blocks and sections are small, so that a checkpoint has many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "PART_BYTES", 200)
        patch.setattr(checkpoint, "PART_COST", 2)
        patch.setattr(checkpoint, "RUNS", 2)
        patch.setattr(checkpoint, "BLOCK", 3)
        patch.setattr(blocks, "BLOCK", 4)
        yield


class LoggedQueueLife(QueueLife):
    @initialize(
        order=st.sampled_from(["tail", "front"]),
        rules=st.one_of(PLAIN, RULES),
        dedup_size=st.sampled_from([0, 0, 2]),
        is_single_active=st.sampled_from([False, False, True]),
        burst_max=st.sampled_from([0, 3]),
        window_bytes=WINDOWS,
        is_logged=st.sampled_from([True, True, False]),
    )
    def start(self, order, rules, dedup_size, is_single_active, burst_max, window_bytes, is_logged):
        super().start(order, rules, dedup_size, 4, is_single_active, False, burst_max)
        self.window_bytes = window_bytes
        if is_logged:
            self.machine = QueueMachine(self.machine.config, window_bytes)
            self.machine.set_time(self.model.now_ms)
        self.log = {}
        self.begun = []
        self.index = 0
        self.number = 1  # of the publishing session

    @property
    def is_logged(self):
        return self.machine.messages.positions is not None

    def _whole(self, items):
        return [self._filled(item) for item in items]

    def _filled(self, item):
        if not item.message.is_stub:
            return item
        place = self.machine.messages.positions.find(item.number)
        found = messages_in(self.log[place.entry])[place.ordinal]
        assert found.body_size == item.message.body_size
        filled = found if not item.message.expires_ms else _expiring(found, item.message)
        return Delivery(item.number, item.delivery_count, filled)

    def _compare_effects(self):
        effects = self.machine.effects
        for key, items in effects.deliveries.items():
            effects.deliveries[key] = self._whole(items)
        super()._compare_effects()
        if self.is_logged:
            self.machine.messages.checked_out.let_go(self.window_bytes)

    def _deaths(self, dead):
        return [(reason, self._filled(item), is_held) for reason, item, is_held in dead]

    def _append(self, *commands):
        self.index += 3  # proposals may take several entries
        entry = QueueEntry(VERSION, self.model.now_ms, list(commands))
        self.log[self.index] = entry
        self.machine.apply_entry(entry, self.index)

    @rule(data=st.data(), lost=st.integers(0, 3))
    def publish_in_an_entry(self, data, lost):
        """As one or two commands, and with a part of the batch before again."""
        messages = data.draw(MESSAGES)
        before = self.sent[-lost:] if lost and hasattr(self, "sent") else []
        cut = data.draw(st.integers(0, len(messages)))
        parts = [each for each in (before + messages[:cut], messages[cut:]) if each]
        first = self.number - len(before)
        commands = [Enqueue(each) for each in parts]
        refused = self.model.publish(messages[: max(0, cut)])
        more = self.model.publish(messages[cut:]) if messages[cut:] else []
        refused += [cut + index for index in more]
        self._append(CommandBatch(SESSION, first, first, commands))
        verdicts = {}
        for verdict in self.machine.effects.verdicts:
            verdicts |= dict.fromkeys(range(verdict.first, verdict.last + 1), verdict.ok)
        expected = [index not in refused for index in range(len(messages))]
        assert [verdicts[self.number + index] for index in range(len(messages))] == expected
        self.number += len(messages)
        self.sent = messages
        self._pump()

    @rule(messages=MESSAGES)
    def publish(self, messages):
        refused = self.model.publish(messages)
        self._append(CommandBatch(SESSION, self.number, self.number, [Enqueue(messages)]))
        del refused
        self.number += len(messages)
        self._pump()

    @precondition(lambda self: self.model.config.order != "due")
    @rule(channel_id=CHANNEL_IDS, no_ack=st.booleans())
    def get(self, channel_id, no_ack):
        result = self.machine.apply_command(Get(channel_id, no_ack=no_ack))
        found = result.delivery and self._filled(result.delivery)
        assert found == self.model.get(channel_id, no_ack=no_ack)
        assert result.remaining == len(self.model.ready)
        self._pump()

    @precondition(lambda self: self.is_logged)
    @rule()
    def cut(self):
        """What lies before the lowest live message is never asked for again."""
        lowest = self.machine.messages.positions.lowest_index(self.machine.live())
        for index in list(self.log):
            if lowest is None or index < lowest:
                del self.log[index]

    @precondition(lambda self: self.is_logged)
    @rule()
    def compact(self):
        self.machine.messages.positions.compact(self.machine.live())

    @precondition(lambda self: self.is_logged)
    @rule(data=st.data(), is_cut=st.booleans())
    def move(self, data, is_cut):
        """Carry some of the oldest messages to the log's end."""
        live = [n for first, last in self.machine.live() for n in range(first, last + 1)]
        if not live:
            return
        contents = {item.number: item for item in self.machine.messages.contents()}
        numbers = [n for n in live[: data.draw(st.integers(1, 5))] if n in contents]
        moved = [self._filled(contents[number]).message for number in numbers]
        self._append(Moved(numbers, moved), CommandBatch(SESSION, self.number, self.number, []))
        self.model.pump()
        self._compare_effects()
        if is_cut:
            self.cut()

    @precondition(lambda self: self.is_logged)
    @rule(is_bare=st.booleans())
    def begin_checkpoint(self, is_bare):
        """What happens while its parts are taken does not change it."""
        machine = self.machine
        state = machine.messages, machine.consumers, machine.sessions
        parts = checkpoint.encode(*state, is_bare=is_bare)
        self.begun.append((parts, list(checkpoint.encode(*state, is_bare=is_bare))))

    @precondition(lambda self: self.begun)
    @rule(count=st.integers(0, 3))
    def take_parts(self, count):
        parts, expected = self.begun[0]
        taken = list(islice(parts, count))
        assert taken == expected[: len(taken)]
        del expected[: len(taken)]
        if not expected:
            assert next(parts, None) is None
            del self.begun[0]

    def teardown(self):
        for parts, expected in getattr(self, "begun", ()):
            assert list(parts) == expected

    @rule()
    def crash_and_restore(self):
        self._compare_effects()
        parts = self.machine.snapshot()
        window_bytes = self.window_bytes if self.is_logged else None
        other = QueueMachine(self.machine.config, window_bytes)
        other.restore(parts)
        assert other.snapshot() == parts
        self.machine = other

    @precondition(lambda self: not self.is_logged)
    @rule()
    def convert(self):
        """What was a snapshot with bodies goes on as a logged queue."""
        self._compare_effects()
        other = QueueMachine(self.machine.config, self.window_bytes)
        other.restore(self.machine.snapshot())
        self.machine = other
        parts = other.snapshot()
        again = QueueMachine(other.config, self.window_bytes)
        again.restore(parts)
        assert again.snapshot() == parts

    @rule()
    def tell_of_the_dead_again(self):
        self._compare_effects()
        self.machine.messages.redeliver_dead()
        self.model.dead = [(reason, item, True) for reason, item in self.model.held_dead]
        self._compare_effects()

    @invariant()
    def memory_is_bounded(self):
        if hasattr(self, "machine") and self.is_logged:
            ready = self.machine.messages.ready
            positions = self.machine.messages.positions
            near = [i for i in ready.near() if not i.message.is_stub and positions.has(i.number)]
            assert sum(600 + item.message.body_size for item in near) <= self.window_bytes


def _expiring(found, stub):

    return replace(found, expires_ms=stub.expires_ms)


LoggedQueueLife.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None
)
TestLoggedQueueLife = LoggedQueueLife.TestCase
