"""The queue machine against `fifo_model.QueueModel`, through random lives with crashes."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.fifo.commands import (
    Cancel,
    Checkout,
    Discard,
    Drop,
    Get,
    Purge,
    Release,
    Requeue,
    SetActive,
    SetPrefetch,
    Settle,
)
from broker.fifo.config import QueueConfig
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from tests.model.fifo_model import QueueModel, message

CHANNEL_IDS = st.sampled_from(["a/1/1/1", "a/1/1/2", "a/2/1/1", "b/1/1/1"])
TAGS = st.sampled_from(["s", "t"])
ALL_TAGS = st.sampled_from(["s", "t", ""])
MESSAGES = st.lists(
    st.builds(
        message,
        st.integers(0, 4),
        ttl_ms=st.sampled_from([-1, -1, -1, 0, 1, 5, 30]),
        priority=st.integers(0, 4),
        dedup=st.sampled_from(["", "", "x", "y", "z"]),
    ),
    min_size=1,
    max_size=7,
)
RULES = st.builds(
    Rules,
    message_ttl_ms=st.sampled_from([None, None, 0, 3]),
    max_length=st.sampled_from([None, None, 0, 1, 4]),
    max_length_bytes=st.sampled_from([None, None, 5, 12]),
    overflow=st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
    delivery_limit=st.sampled_from([None, None, 2]),
    is_dead_lettered=st.booleans(),
    is_held=st.booleans(),
)
PLAIN = st.just(Rules())
ORDERS = {
    "original": {"requeue": "original"},
    "front": {"requeue": "front"},
    "tail": {"requeue": "tail"},
    "priority": {"order": "priority", "priority_max": 3},
    "due": {"order": "due"},
}


class QueueLife(RuleBasedStateMachine):
    @initialize(
        order=st.sampled_from(sorted(ORDERS)),
        rules=st.one_of(PLAIN, RULES),
        dedup_size=st.sampled_from([0, 0, 2]),
        dedup_ttl_ms=st.sampled_from([None, 4]),
        is_single_active=st.sampled_from([False, False, True]),
        by_priority=st.booleans(),
        burst_max=st.sampled_from([0, 3]),
    )
    def start(
        self, order, rules, dedup_size, dedup_ttl_ms, is_single_active, by_priority, burst_max
    ):
        config = QueueConfig(
            name="q",
            rules=rules,
            dedup_size=dedup_size,
            dedup_ttl_ms=dedup_ttl_ms,
            is_single_active=is_single_active,
            single_active_by_priority=by_priority,
            burst_max=burst_max,
            **ORDERS[order],
        )
        self.machine = QueueMachine(config)
        self.model = QueueModel(config, rules)
        self.tick(1)

    def _serve(self):
        while self.machine.pump():
            pass

    def _whole(self, items):
        """What is in memory; tests that page read the rest from their disk."""
        return items

    def _deaths(self, dead):
        return dead

    def _pump(self):
        self._serve()
        self.model.pump()
        self._compare_effects()
        head = next(iter(self.model.ready), None)
        due_ms = self.machine.due_ms()
        assert due_ms == ((head and head.message.expires_ms) or None)
        assert due_ms is None or due_ms > self.model.now_ms

    def _compare_effects(self):
        effects = self.machine.take_effects()
        assert effects.deliveries == self.model.delivered
        dead = [(d.reason, item, d.is_held) for d in effects.dead for item in self._whole(d.items)]
        assert self._deaths(dead) == self._deaths(self.model.dead)
        self.model.delivered, self.model.dead = {}, []

    def _has_consumers(self):
        return self.model.config.order != "due"

    @rule(later_ms=st.sampled_from([0, 1, 2, 5, 40]), is_pumped=st.booleans())
    def time_passes(self, later_ms, is_pumped):
        self.tick(later_ms)
        if is_pumped:
            self._pump()

    def tick(self, later_ms):
        self.model.now_ms += later_ms
        self.machine.set_time(self.model.now_ms)
        self.machine.set_time(self.model.now_ms - 1)

    @rule(rules=RULES, is_pumped=st.booleans())
    def other_rules(self, rules, is_pumped):
        self.machine.set_rules(rules)
        self.model.set_rules(rules)
        if is_pumped:
            self._pump()

    @rule(messages=MESSAGES)
    def publish(self, messages):
        assert self.machine.enqueue(messages) == self.model.publish(messages)
        self._pump()

    @precondition(lambda self: self.machine.messages.positions is None)  # else by entries only
    @rule(messages=MESSAGES)
    def hand_over(self, messages):
        """Publishes of which each is handed over where that is possible, as if it were enqueued."""
        self._pump()
        for each in messages:
            handed = self.machine.consumers.hand_over(self.machine.messages, each)
            if handed is None:
                refused = self.machine.enqueue([each])
            else:
                consumer, items = handed
                self.machine.effects.deliveries[consumer.key] = items
                refused = []
            assert refused == self.model.publish([each])
            self._pump()

    @precondition(_has_consumers)
    @rule(
        channel_id=CHANNEL_IDS,
        tag=TAGS,
        no_ack=st.booleans(),
        exclusive=st.sampled_from([False, False, False, True]),
        prefetch=st.integers(0, 3),
        priority=st.integers(-1, 1),
    )
    def checkout(self, channel_id, tag, no_ack, exclusive, prefetch, priority):
        options = {"no_ack": no_ack, "prefetch": prefetch, "priority": priority}
        refusal = self.machine.apply_command(
            Checkout(channel_id, tag, exclusive=exclusive, **options)
        )
        is_accepted = self.model.checkout((channel_id, tag), exclusive=exclusive, **options)
        assert (refusal is None) == is_accepted
        self._pump()

    def _some_held(self, data, channel_id, tag):
        held = [item.number for item in self.model.held.get((channel_id, tag), [])]
        numbers = st.sampled_from(held) if held else st.integers(1, 9)
        return data.draw(st.lists(numbers, max_size=4)) + data.draw(
            st.lists(st.integers(1, 30), max_size=1)
        )

    @rule(data=st.data(), channel_id=CHANNEL_IDS, tag=ALL_TAGS)
    def settle(self, data, channel_id, tag):
        numbers = self._some_held(data, channel_id, tag)
        self.machine.apply_command(Settle(channel_id, tag, numbers))
        self.model.settle((channel_id, tag), numbers)
        self._pump()

    @rule(data=st.data(), channel_id=CHANNEL_IDS, tag=ALL_TAGS)
    def discard(self, data, channel_id, tag):
        numbers = self._some_held(data, channel_id, tag)
        self.machine.apply_command(Discard(channel_id, tag, numbers))
        self.model.discard((channel_id, tag), numbers)
        self._pump()

    @rule(data=st.data(), channel_id=CHANNEL_IDS, tag=ALL_TAGS)
    def requeue(self, data, channel_id, tag):
        numbers = self._some_held(data, channel_id, tag)
        self.machine.apply_command(Requeue(channel_id, tag, numbers))
        self.model.requeue((channel_id, tag), numbers)
        self._pump()

    @rule(channel_id=CHANNEL_IDS, tag=TAGS)
    def cancel(self, channel_id, tag):
        self.machine.apply_command(Cancel(channel_id, tag))
        self.model.cancel((channel_id, tag))
        self._pump()

    @rule(channel_id=CHANNEL_IDS)
    def release(self, channel_id):
        tags = list(self.machine.messages.checked_out.held_by(channel_id))
        self.machine.apply_command(Release(channel_id))
        self.model.release(channel_id, tags)
        self._pump()

    @rule()
    def end_boot(self):
        channel_ids = {
            *self.machine.messages.checked_out.channel_ids(),
            *(key[0] for key in self.model.consumers),
        }
        for channel_id in sorted(name for name in channel_ids if name.startswith("a/1/")):
            self.model.release(
                channel_id, list(self.machine.messages.checked_out.held_by(channel_id))
            )
        self.machine.end_boot("a", "1")
        self._pump()

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), active=st.booleans())
    def set_active(self, data, active):
        key = data.draw(st.sampled_from(sorted(self.model.consumers)))
        self.machine.apply_command(SetActive(*key, active=active))
        self.model.consumers[key].active = active
        self.model.refresh(key)
        self._pump()

    @precondition(lambda self: self.model.consumers)
    @rule(data=st.data(), prefetch=st.integers(0, 3))
    def set_prefetch(self, data, prefetch):
        key = data.draw(st.sampled_from(sorted(self.model.consumers)))
        self.machine.apply_command(SetPrefetch(*key, prefetch))
        self.model.consumers[key].prefetch = prefetch
        self.model.refresh(key)
        self._pump()

    @rule()
    def unknown_consumers_are_ignored(self):
        self.machine.apply_command(SetActive("a/1/1/1", "none", active=False))
        self.machine.apply_command(SetPrefetch("a/1/1/1", "none", 1))
        self.machine.apply_command(Cancel("a/1/1/1", "none"))

    @precondition(_has_consumers)
    @rule(channel_id=CHANNEL_IDS, no_ack=st.booleans())
    def get(self, channel_id, no_ack):
        result = self.machine.apply_command(Get(channel_id, no_ack=no_ack))
        assert result.delivery == self.model.get(channel_id, no_ack=no_ack)
        assert result.remaining == len(self.model.ready)
        self._pump()

    @rule()
    def purge(self):
        assert self.machine.apply_command(Purge()) == self.model.purge()

    @rule(first=st.integers(0, 3), count=st.integers(0, 3))
    def drop_some(self, first, count):
        seen = self._whole(self.machine.messages.peek(first, count))
        assert seen == self.model.ready[first : first + count]
        numbers = [item.number for item in seen] + [1]
        assert self.machine.apply_command(Drop(numbers)) == self.model.drop(numbers)

    @precondition(lambda self: self.model.held_dead)
    @rule(data=st.data())
    def drop_dead_lettered(self, data):
        held = [item.number for _, item in self.model.held_dead]
        numbers = data.draw(st.lists(st.sampled_from(held), unique=True, max_size=3))
        assert self.machine.drop_dead_lettered([*numbers, 10_000]) == self.model.drop_dead_lettered(
            numbers
        )

    @rule()
    def tell_of_the_dead_again(self):
        self._compare_effects()
        self.machine.messages.redeliver_dead()
        self.model.dead = [(reason, item, True) for reason, item in self.model.held_dead]
        self._compare_effects()

    @rule()
    def crash_and_restore(self):
        self._compare_effects()
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
        waiting = [*model.ready, *(item for _, item in model.held_dead)]
        assert stat.ready + stat.unacked + model.gone == model.published
        assert self._whole(self.machine.messages.peek(0, 1000)) == model.ready
        assert stat.ready == len(waiting)
        assert stat.unacked == len(held)
        assert stat.consumers == len(model.consumers)
        assert stat.ready_bytes == sum(item.message.body_size for item in waiting)
        assert stat.unacked_bytes == sum(item.message.body_size for item in held)
        everything = sorted(item.number for item in [*held, *waiting])
        assert [item.number for item in self.machine.messages.contents()] == everything
        if model.config.requeue == "original":
            assert self.machine.messages.lowest_number() == min(everything, default=None)
            assert self.machine.messages.among({*range(5, 40)}) == {
                n for n in everything if 5 <= n < 40
            }

    @invariant()
    def rings_hold_exactly_who_can_take(self):
        if hasattr(self, "machine"):
            for each in self.machine.consumers:
                assert each.in_ring == (self.model.credit(each.key) > 0)
            if self.machine.config.is_single_active:
                alone = self.model.single
            else:
                consumers = self.model.consumers.items()
                alone = next((key for key, each in consumers if each.exclusive), None)
            assert self.machine.consumers.active_key() == alone


QueueLife.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestQueueLife = QueueLife.TestCase
