"""The queue machine against `fifo_model.QueueModel`, through random lives with crashes."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.fifo.config import QueueConfig
from broker.fifo.machine import QueueMachine
from broker.fifo.rules import Rules
from tests.model.fifo_model import QueueModel, message

HOLDERS = st.sampled_from(["a/1/1/1", "a/1/1/2", "a/2/1/1", "b/1/1/1"])
TAGS = st.sampled_from(["s", "t"])
ALL_TAGS = st.sampled_from(["s", "t", ""])


class QueueLife(RuleBasedStateMachine):
    @initialize(
        mode=st.sampled_from(["original", "front", "tail"]),
        limit=st.sampled_from([None, None, 2]),
    )
    def start(self, mode, limit):
        self.machine = QueueMachine(
            QueueConfig(name="q", requeue=mode, rules=Rules(delivery_limit=limit))
        )
        self.model = QueueModel(mode, limit)
        self.size = 1

    def _pump(self):
        self.machine.pump()
        self.model.pump()
        effects = self.machine.take_effects()
        assert effects.deliveries == self.model.delivered
        self.model.delivered = {}

    @rule(count=st.integers(1, 7))
    def publish(self, count):
        messages = [message(self.size + i) for i in range(count)]
        self.size += count
        assert self.machine.enqueue(messages) == []
        self.model.publish(messages)
        self._pump()

    @rule(
        holder=HOLDERS,
        tag=TAGS,
        no_ack=st.booleans(),
        exclusive=st.sampled_from([False, False, False, True]),
        prefetch=st.integers(0, 3),
        priority=st.integers(-1, 1),
    )
    def checkout(self, holder, tag, no_ack, exclusive, prefetch, priority):
        refusal = self.machine.checkout(
            holder,
            tag,
            no_ack=no_ack,
            exclusive=exclusive,
            prefetch=prefetch,
            priority=priority,
        )
        is_accepted = self.model.checkout(
            (holder, tag),
            exclusive=exclusive,
            no_ack=no_ack,
            prefetch=prefetch,
            priority=priority,
        )
        assert (refusal is None) == is_accepted
        self._pump()

    def _some_held(self, data, holder, tag):
        held = [item.number for item in self.model.held.get((holder, tag), [])]
        numbers = st.sampled_from(held) if held else st.integers(1, 9)
        return data.draw(st.lists(numbers, max_size=4)) + data.draw(
            st.lists(st.integers(1, 30), max_size=1)
        )

    @rule(data=st.data(), holder=HOLDERS, tag=ALL_TAGS)
    def settle(self, data, holder, tag):
        numbers = self._some_held(data, holder, tag)
        self.machine.settle(holder, tag, numbers)
        self.model.settle((holder, tag), numbers)
        self._pump()

    @rule(data=st.data(), holder=HOLDERS, tag=ALL_TAGS)
    def discard(self, data, holder, tag):
        numbers = self._some_held(data, holder, tag)
        self.machine.discard(holder, tag, numbers)
        self.model.settle((holder, tag), numbers)
        self._pump()

    @rule(data=st.data(), holder=HOLDERS, tag=ALL_TAGS)
    def requeue(self, data, holder, tag):
        numbers = self._some_held(data, holder, tag)
        self.machine.requeue(holder, tag, numbers)
        self.model.requeue((holder, tag), numbers)
        self._pump()

    @rule(holder=HOLDERS, tag=TAGS)
    def cancel(self, holder, tag):
        self.machine.cancel(holder, tag)
        self.model.cancel((holder, tag))
        self._pump()

    @rule(holder=HOLDERS)
    def release(self, holder):
        tags = list(self.machine._held.get(holder, {}))
        self.machine.release(holder)
        self.model.release(holder, tags)
        self._pump()

    @rule()
    def end_boot(self):
        holders = {*self.machine._held, *(key[0] for key in self.model.consumers)}
        for holder in sorted(name for name in holders if name.startswith("a/1/")):
            self.model.release(holder, list(self.machine._held.get(holder, {})))
        self.machine.end_boot("a", "1")
        self._pump()

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), active=st.booleans())
    def set_active(self, data, active):
        key = data.draw(st.sampled_from(sorted(self.model.consumers)))
        self.machine.set_active(*key, active=active)
        self.model.consumers[key]["active"] = active
        self.model.refresh(key)
        self._pump()

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), prefetch=st.integers(0, 3))
    def set_prefetch(self, data, prefetch):
        key = data.draw(st.sampled_from(sorted(self.model.consumers)))
        self.machine.set_prefetch(*key, prefetch)
        self.model.consumers[key]["prefetch"] = prefetch
        self.model.refresh(key)
        self._pump()

    @rule()
    def unknown_consumers_are_ignored(self):
        self.machine.set_active("a/1/1/1", "none", active=False)
        self.machine.set_prefetch("a/1/1/1", "none", 1)
        self.machine.cancel("a/1/1/1", "none")

    @rule(holder=HOLDERS, no_ack=st.booleans())
    def get(self, holder, no_ack):
        result = self.machine.get(holder, no_ack=no_ack)
        assert result.delivery == self.model.get(holder, no_ack=no_ack)
        assert result.remaining == len(self.model.ready)

    @rule()
    def purge(self):
        assert self.machine.purge() == self.model.purge()

    @rule()
    def crash_and_restore(self):
        parts = self.machine.snapshot()
        other = QueueMachine(self.machine.config)
        other.restore(parts)
        assert other.snapshot() == parts
        self.machine = other

    @invariant()
    def nothing_is_lost_or_doubled(self):
        if not hasattr(self, "machine"):
            return
        stat = self.machine.stat()
        model = self.model
        held = [item for items in model.held.values() for item in items]
        assert stat.ready + stat.unacked + model.gone == model.published
        assert self.machine._ready.in_order() == model.ready
        assert stat.unacked == len(held)
        assert stat.consumers == len(model.consumers)
        assert stat.ready_bytes == sum(item.message.body_size for item in model.ready)
        assert stat.unacked_bytes == sum(item.message.body_size for item in held)

    @invariant()
    def rings_hold_exactly_who_can_take(self):
        if hasattr(self, "machine"):
            assert all(c.in_ring == (c.credit > 0) for c in self.machine._roster)


QueueLife.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestQueueLife = QueueLife.TestCase
