"""Dead-lettering: by TTL, length, delivery limit, rejection; at-least-once dead letters."""

from __future__ import annotations

import msgspec
import pytest

from broker.fifo import ledger
from broker.fifo.commands import (
    Checkout,
    CommandBatch,
    Discard,
    Drop,
    DropDeadLettered,
    Enqueue,
    Get,
    Purge,
    QueueEntry,
    Release,
    Requeue,
    SetRules,
    encode_entry,
)
from broker.fifo.config import QueueConfig
from broker.fifo.effects import Dead, Verdict
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.message import Delivery, Message
from tests.model.fifo_model import message

CHANNEL = "a/1/1/1"
SESSION = "a/1/7/0"
NOW_MS = 1_000_000


def _timed(ttl_ms: int) -> Message:
    return msgspec.structs.replace(message(), ttl_ms=ttl_ms)


DEAD_LETTERED = Rules(is_dead_lettered=True)


def _machine(rules: Rules = DEAD_LETTERED, **options: object) -> QueueMachine:
    machine = QueueMachine(QueueConfig(name="q", rules=rules, **options))
    machine.set_time(NOW_MS)
    return machine


def _deaths(machine: QueueMachine) -> list[tuple[str, list[int]]]:
    machine.pump()
    return [(dead.reason, [d.number for d in dead.items]) for dead in machine.take_effects().dead]


def _ready(machine: QueueMachine) -> list[int]:
    return [item.number for item in machine.messages.peek(0, 1000)]


@pytest.mark.parametrize(
    ("queue_ms", "own_ms", "expected_ms"),
    [(None, -1, 0), (None, 50, 50), (70, -1, 70), (70, 50, 50), (70, 90, 70), (0, 90, 0)],
)
def test_the_smaller_time_to_live_counts_from_the_enqueue(queue_ms, own_ms, expected_ms):
    """Rows: 1.4 per-queue TTL; 1.4 per-message TTL; 1.16 TTL"""
    machine = _machine(Rules(message_ttl_ms=queue_ms))
    machine.enqueue([_timed(own_ms)])
    (item,) = machine.messages.peek(0, 1)
    lives = queue_ms is None and own_ms < 0
    assert item.message.expires_ms == (0 if lives else NOW_MS + expected_ms)


def test_another_time_to_live_is_for_new_messages_only():
    """Rows: 1.4 per-queue TTL"""
    machine = _machine(Rules(message_ttl_ms=10))
    machine.enqueue([message()])
    machine.set_rules(Rules(message_ttl_ms=1_000))
    machine.enqueue([message()])
    assert machine.due_ms() == NOW_MS + 10
    machine.set_time(NOW_MS + 10)
    machine.pump()
    assert _ready(machine) == [2]
    assert machine.due_ms() == NOW_MS + 1_000


def test_only_the_head_expires_and_what_is_behind_it_counts():
    """Rows: 1.4 When removed"""
    machine = _machine()
    machine.enqueue([_timed(100), _timed(5), _timed(200)])
    machine.set_time(NOW_MS + 50)
    assert _deaths(machine) == []
    assert machine.stat().ready == 3
    machine.set_time(NOW_MS + 100)
    assert _deaths(machine) == [("expired", [1, 2])]
    assert machine.due_ms() == NOW_MS + 200


def test_a_message_without_age_keeps_what_is_behind_it():
    """Rows: 1.4 When removed"""
    machine = _machine()
    machine.enqueue([message(), _timed(5)])
    assert machine.due_ms() is None
    machine.set_time(NOW_MS + 50)
    assert _deaths(machine) == []
    assert machine.apply_command(Get(CHANNEL, no_ack=True)).delivery.number == 1
    assert machine.apply_command(Get(CHANNEL, no_ack=True)).delivery is None, (
        "never delivered expired"
    )


def test_ttl_zero_goes_to_a_waiting_consumer_or_dies_at_once():
    """Rows: 1.4 TTL 0"""
    machine = _machine()
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=2))
    machine.enqueue([_timed(0)] * 3)
    machine.pump()
    effects = machine.take_effects()
    assert [item.number for item in effects.deliveries[CHANNEL, "t"]] == [1, 2]
    assert [(dead.reason, len(dead.items)) for dead in effects.dead] == [("expired", 1)]


@pytest.mark.parametrize("requeue", ["original", "tail"])
def test_ttl_zero_is_not_delivered_again(requeue):
    """A quorum queue's leader tells a later time with a requeue.

    Rows: 1.4 TTL 0; 1.9 ack / nack / reject
    """
    machine = _machine(requeue=requeue)
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=1))
    machine.enqueue([_timed(0)])
    machine.pump()
    assert machine.take_effects().deliveries
    machine.set_time(NOW_MS + (requeue == "tail"))
    machine.apply_command(Requeue(CHANNEL, "t", [1]))
    machine.pump()
    assert not machine.effects.deliveries
    assert _deaths(machine) == [("expired", [1])]


@pytest.mark.parametrize("consumers", [1, 3])
def test_what_expired_in_the_line_is_passed_over(consumers):
    """Rows: 1.4 When removed"""
    machine = _machine()
    machine.enqueue([message(), _timed(5), _timed(5), message(), _timed(5), message(), message()])
    machine.set_time(NOW_MS + 6)
    for index in range(consumers):
        machine.apply_command(Checkout(CHANNEL, f"t{index}", prefetch=9))
    machine.pump()
    effects = machine.take_effects()
    delivered = {tag: [d.number for d in items] for (_, tag), items in effects.deliveries.items()}
    dealt = {f"t{i}": [1, 4, 6, 7][i::consumers] for i in range(consumers)}
    assert delivered == dealt
    assert sorted(d.number for dead in effects.dead for d in dead.items) == [2, 3, 5]


def test_the_turn_is_with_who_got_none_where_some_had_expired():
    machine = _machine()
    machine.enqueue([message(), _timed(5), message(), message()])
    machine.set_time(NOW_MS + 6)
    machine.apply_command(Checkout(CHANNEL, "a", prefetch=9))
    machine.apply_command(Checkout(CHANNEL, "b", prefetch=9))
    machine.pump()
    machine.enqueue([message()])
    machine.pump()
    deliveries = machine.take_effects().deliveries
    assert [item.number for item in deliveries[CHANNEL, "a"]] == [1, 4]
    assert [item.number for item in deliveries[CHANNEL, "b"]] == [3, 5]


def test_a_requeued_message_keeps_its_time():
    """Rows: 1.4 When removed"""
    machine = _machine()
    machine.enqueue([_timed(10)])
    machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.set_time(NOW_MS + 20)
    machine.apply_command(Requeue(CHANNEL, "", [1]))
    assert _deaths(machine) == [("expired", [1])]


def test_the_next_leaders_clock_may_be_behind():
    machine = _machine()
    machine.set_time(NOW_MS - 60_000)
    assert machine.now_ms == NOW_MS


def test_a_clock_that_was_set_right_is_believed():
    """Else nothing would expire until the wrong time came."""
    machine = _machine()
    machine.set_time(NOW_MS + 10**9)
    machine.set_time(NOW_MS)
    machine.enqueue([_timed(5)])
    assert machine.due_ms() == NOW_MS + 5


def test_drop_head_drops_the_oldest_ready_ones():
    """Rows: 1.6 max-length / -bytes; 1.6 drop-head (default); 1.5 Triggers; 1.5 Order vs confirm"""
    machine = _machine(Rules(max_length=2, is_dead_lettered=True))
    machine.enqueue([message()] * 3)
    machine.apply_command(Get(CHANNEL, no_ack=False))
    assert _deaths(machine) == []
    machine.enqueue([message()] * 2)
    assert _deaths(machine) == [("maxlen", [2, 3])]
    machine.set_rules(Rules(max_length_bytes=5, is_dead_lettered=True))
    assert _deaths(machine) == [("maxlen", [4])]
    machine.set_rules(Rules(max_length=0, is_dead_lettered=True))
    assert _deaths(machine) == [("maxlen", [5])]


def test_what_a_drop_brings_to_the_head_may_have_expired():
    machine = _machine(Rules(max_length=2, is_dead_lettered=True))
    machine.enqueue([_timed(100), _timed(5)])
    machine.set_time(NOW_MS + 10)
    machine.enqueue([message()])
    assert _deaths(machine) == [("maxlen", [1]), ("expired", [2])]
    assert machine.due_ms() is None


def test_what_a_waiting_consumer_gets_never_counts():
    """Rows: 1.6 drop-head (default)"""
    machine = _machine(Rules(max_length=0, is_dead_lettered=True))
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=2))
    machine.enqueue([message()] * 3)
    assert _deaths(machine) == [("maxlen", [3])]
    assert machine.stat().unacked == 2


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses(overflow):
    """Rows: 1.6 reject-publish; 1.6 reject-publish-dlx"""
    machine = _machine(Rules(max_length=2, overflow=overflow, is_dead_lettered=True))
    assert machine.enqueue([message(1), message(2), message(3), message(4)]) == [2, 3]
    effects = machine.take_effects()
    items = [Delivery(0, 0, message(3)), Delivery(0, 0, message(4))]
    assert effects.dead == ([] if overflow == "reject-publish" else [Dead("maxlen", items, False)])
    assert machine.next_number == 3


def test_bytes_refuse_what_does_not_fit_and_take_what_does():
    """Rows: 1.6 reject-publish"""
    machine = _machine(Rules(max_length_bytes=5, overflow="reject-publish"))
    assert machine.enqueue([message(3), message(3), message(2), message(0), message(1)]) == [1, 4]


def test_a_queue_that_delivers_at_once_is_not_full():
    """Rows: 1.6 reject-publish"""
    machine = _machine(Rules(max_length=1, overflow="reject-publish"))
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=3))
    assert machine.enqueue([message()] * 5) == [4]
    machine.pump()
    assert machine.stat()[:2] == (1, 3)


def test_what_waits_for_its_turn_in_a_batch_uses_up_credit():
    """Rows: 1.6 reject-publish"""
    machine = _machine(Rules(max_length=1, overflow="reject-publish"))
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=3))
    commands = [Enqueue([message()] * 2), Enqueue([message()] * 4)]
    machine.apply_batch(CommandBatch(SESSION, 1, 1, commands), NOW_MS)
    assert machine.take_effects().verdicts == [
        Verdict(SESSION, 1, 4, True),
        Verdict(SESSION, 5, 6, False),
    ]
    assert machine.stat()[:2] == (1, 3)


def test_what_has_expired_takes_no_room():
    machine = _machine(Rules(max_length=1, overflow="reject-publish"))
    machine.enqueue([_timed(5)])
    machine.set_time(NOW_MS + 5)
    assert machine.enqueue([message()]) == [0], "it may still go to a consumer"
    machine.set_time(NOW_MS + 6)
    assert machine.enqueue([message()]) == []


def test_requeue_may_exceed_a_limit_that_refuses():
    """Rows: 1.6 reject-publish"""
    machine = _machine(Rules(max_length=1, overflow="reject-publish"))
    machine.enqueue([message()])
    machine.apply_command(Get(CHANNEL, no_ack=False))
    assert machine.enqueue([message()]) == []
    machine.apply_command(Requeue(CHANNEL, "", [1]))
    assert _deaths(machine) == []
    assert machine.stat().ready == 2


def test_a_session_hears_which_of_its_publishes_were_refused():
    """P11: a duplicate is refused as the original was.

    Rows: 1.6 reject-publish; 1.16 enqueue refused
    """
    machine = _machine(Rules(max_length=1, overflow="reject-publish"), ledger="all")
    batch = CommandBatch(SESSION, 1, 1, [Enqueue([message()] * 3)])
    machine.apply_batch(batch, NOW_MS)
    effects = machine.take_effects()
    assert effects.verdicts == [Verdict(SESSION, 2, 3, False)]
    assert ledger.Rejected(SESSION, 2, 3) in effects.ledger
    machine.mark_durable(machine.position)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 1, 1, True)]
    machine.apply_batch(batch, NOW_MS)
    again = machine.take_effects().verdicts
    assert again == [Verdict(SESSION, 1, 1, True), Verdict(SESSION, 2, 3, False)]


def test_rejected_messages_die_and_purged_ones_do_not():
    """Rows: 1.5 Triggers; 1.3 queue.purge"""
    machine = _machine(ledger="all")
    machine.enqueue([message()] * 3)
    machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(Discard(CHANNEL, "", [1]))
    machine.apply_command(Purge())
    effects = machine.take_effects()
    assert [(dead.reason, [d.number for d in dead.items]) for dead in effects.dead] == [
        ("rejected", [1])
    ]
    assert [record for record in effects.ledger if isinstance(record, ledger.Removed)] == [
        ledger.Removed([1]),
        ledger.Removed([2, 3]),
    ]


def test_a_message_dies_when_it_came_back_more_often_than_allowed():
    """Rows: 1.5 Triggers; 1.16 delivery-limit; 1.16 what counts"""
    machine = _machine(Rules(delivery_limit=1, is_dead_lettered=True), requeue="tail")
    machine.enqueue([message()])
    for _ in range(2):
        assert machine.apply_command(Get(CHANNEL, no_ack=False)).delivery is not None
        machine.apply_command(Requeue(CHANNEL, "", [1]))
    assert _deaths(machine) == [("delivery_limit", [1])]
    machine.enqueue([message()])
    for _ in range(2):
        machine.apply_command(Get(CHANNEL, no_ack=False))
        machine.apply_command(Release(CHANNEL))
    assert _deaths(machine) == [("delivery_limit", [2])]


def test_without_dead_lettering_nobody_hears_of_the_dead():
    machine = _machine(Rules(max_length=1, message_ttl_ms=5), ledger="all")
    machine.enqueue([message()] * 2)
    machine.set_time(NOW_MS + 5)
    machine.pump()
    effects = machine.take_effects()
    assert effects.dead == []
    assert effects.ledger[-1] == ledger.Removed([1, 2])


HELD = Rules(is_dead_lettered=True, is_held=True, max_length=2, overflow="reject-publish")


def test_held_dead_messages_count_until_they_are_dropped():
    """Rows: 1.18 worker; 1.18 reasons; 1.16 length limits; 1.16 purge"""
    machine = _machine(HELD, ledger="all")
    machine.enqueue([message(2), message(2)])
    machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(Discard(CHANNEL, "", [1]))
    effects = machine.take_effects()
    assert effects.dead == [Dead("rejected", [Delivery(1, 0, message(2))], True)]
    assert not any(isinstance(record, ledger.Removed) for record in effects.ledger)
    assert machine.stat()[:5] == (2, 0, 0, 4, 0)
    assert machine.enqueue([message()]) == [0]
    assert machine.apply_command(Purge()) == 1
    assert [item.number for item in machine.messages.contents()] == [1]
    assert machine.drop_dead_lettered([1, 7]) == 1
    assert machine.take_effects().ledger[-1] == ledger.Removed([1])
    assert machine.enqueue([message()]) == []


def test_a_new_leader_hears_of_the_held_dead_again_and_drops_them_through_its_log():
    """Rows: 1.18 worker"""
    machine = _machine(HELD)
    machine.enqueue([_timed(5), message()])
    machine.apply_command(Get("b/1/1/1", no_ack=False))
    machine.apply_command(Discard("b/1/1/1", "", [1]))
    restored = _machine(HELD)
    restored.restore(machine.snapshot())
    restored.messages.redeliver_dead()
    assert restored.take_effects().dead == machine.take_effects().dead
    for each in (machine, restored):
        each.apply_encoded(encode_entry([DropDeadLettered([1])], NOW_MS))
    assert restored.stat().ready == machine.stat().ready == 1
    assert restored.snapshot() == machine.snapshot()


def test_rules_that_hold_no_more_let_go_of_the_held():
    """Rows: 1.18 change strategy"""
    machine = _machine(HELD)
    machine.enqueue([message()])
    machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(Discard(CHANNEL, "", [1]))
    machine.apply_entry(QueueEntry(1, NOW_MS, [SetRules(Rules(is_dead_lettered=True))]))
    assert machine.stat().ready == 0
    machine.take_effects()
    machine.messages.redeliver_dead()
    assert machine.take_effects().dead == []


def test_a_snapshot_keeps_time_and_rules():
    machine = _machine()
    machine.set_rules(Rules(max_length=1))
    other = QueueMachine(machine.config)
    other.restore(machine.snapshot())
    assert (other.now_ms, other.rules) == (NOW_MS, Rules(max_length=1))


def test_a_restart_keeps_when_messages_expire():
    """Rows: 1.4 When removed"""
    machine = _machine()
    kept = msgspec.structs.replace(message(persistent=True), ttl_ms=10, expires_ms=NOW_MS + 10)
    machine.restore_messages([(4, kept)], 5)
    assert machine.due_ms() == NOW_MS + 10
    machine.set_time(NOW_MS + 10)
    assert _deaths(machine) == [("expired", [4])]


def test_delays_end_in_the_order_of_their_times_and_can_be_cancelled():
    """Rows: 1.11 sender selected delay"""
    rules = Rules(is_dead_lettered=True, is_held=True)
    machine = _machine(rules, order="due")
    machine.enqueue([_timed(300), _timed(100), _timed(200), _timed(50), message()])
    assert _ready(machine) == [5, 4, 2, 3, 1]
    assert _deaths(machine) == [("delayed", [5])]
    assert machine.due_ms() == NOW_MS + 50
    assert machine.apply_command(Drop([2, 9])) == 1
    machine.set_time(NOW_MS + 210)
    assert _deaths(machine) == [("delayed", [4, 3])]
    assert machine.stat().ready == 4
    assert machine.drop_dead_lettered([5, 4, 3]) == 3
    assert _ready(machine) == [1]
