from __future__ import annotations

import msgspec
import pytest

from broker.errors import Refusal
from broker.fifo import ledger
from broker.fifo.commands import (
    Cancel,
    Checkout,
    CommandBatch,
    Discard,
    EndBoot,
    Enqueue,
    Get,
    Purge,
    QueueEntry,
    Release,
    Requeue,
    Settle,
    encode_entry,
)
from broker.fifo.config import QUORUM_CREDIT, QueueConfig, classic_config, quorum_config
from broker.fifo.effects import Reply, Verdict
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.message import Delivery
from broker.ports import GetResult, QueueStat
from tests.model.fifo_model import message

CHANNEL = "a/1/1/1"
SESSION = "a/1/7/0"


def _machine(**options: object) -> QueueMachine:
    return QueueMachine(QueueConfig(name="q", **options))


def _consume(tag: str = "t", *, prefetch: int = 0) -> Checkout:
    return Checkout(CHANNEL, tag, False, False, prefetch, 0, {})


def test_one_batch_of_a_consume_and_publishes_is_answered_and_delivered():
    machine = _machine()
    one, two = message(1), message(2)
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [_consume(), Enqueue([one, two])]), 0)
    effects = machine.take_effects()
    assert effects.replies == [Reply(SESSION, 1, None)]
    assert effects.verdicts == [Verdict(SESSION, 2, 3, True)]
    assert effects.deliveries == {(CHANNEL, "t"): [Delivery(1, 0, one), Delivery(2, 0, two)]}
    assert not machine.take_effects()


def test_a_get_repeated_for_a_lost_answer_is_answered_the_same():
    machine = _machine()
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [Enqueue([message(), message()])]), 0)
    get = CommandBatch(SESSION, 1, 3, [Get(CHANNEL, True)])
    machine.apply_batch(get, 0)
    first = machine.take_effects().replies
    machine.apply_batch(get, 0)
    assert machine.take_effects().replies == first
    assert first[0].value == GetResult(Delivery(1, 0, message()), 1)
    assert machine.stat().ready == 1


def test_a_refused_consume_is_refused_again():
    machine = _machine()
    machine.apply_command(Checkout("b/1/1/1", "x", exclusive=True))
    batch = CommandBatch(SESSION, 1, 1, [_consume()])
    for _ in range(2):
        machine.apply_batch(batch, 0)
        (reply,) = machine.take_effects().replies
        assert isinstance(reply.value, Refusal)
        assert reply.value.text == "queue 'q' in vhost '/' in exclusive use"


def test_exclusive_consumer_is_refused_where_others_are_and_refuses_them():
    machine = _machine()
    assert machine.apply_command(Checkout(CHANNEL, "a")) is None
    assert machine.apply_command(Checkout(CHANNEL, "b", exclusive=True)) is not None
    machine.apply_command(Cancel(CHANNEL, "a"))
    assert machine.apply_command(Checkout(CHANNEL, "b", exclusive=True)) is None
    assert machine.apply_command(Checkout(CHANNEL, "a")) is not None


def test_a_quorum_queue_ignores_exclusive_and_limits_credit():
    machine = QueueMachine(quorum_config("q", "/", None))
    machine.apply_command(Checkout(CHANNEL, "a", exclusive=True))
    assert machine.apply_command(Checkout(CHANNEL, "b")) is None
    machine.enqueue([message()] * (2 * QUORUM_CREDIT + 1))
    while machine.pump():
        pass
    assert machine.stat().unacked == 2 * QUORUM_CREDIT


def test_delivery_limit_decides_live_where_a_quorum_queue_requeues():
    """Front with one, tail without.

    Rows: 1.9 requeue position; 1.16 requeue position
    """
    machine = QueueMachine(quorum_config("q", "/", None))
    machine.enqueue([message()] * 3)
    for limit, order in ((None, [2, 3, 1]), (3, [2, 3, 1]), (None, [3, 1, 2])):
        machine.set_rules(Rules(delivery_limit=limit))
        number = machine.apply_command(Get(CHANNEL, no_ack=False)).delivery.number
        machine.apply_command(Requeue(CHANNEL, "", [number]))
        assert [item.number for item in machine.messages.peek(0, 9)] == order


def test_ledger_of_a_durable_classic_queue_names_persistent_messages_only():
    """P15."""
    machine = QueueMachine(classic_config("q", "/", durable=True))
    kept = message(persistent=True)
    machine.enqueue([message(), kept, message(), kept])
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=2))
    machine.pump()
    machine.apply_command(Settle(CHANNEL, "t", [1, 2]))
    machine.apply_command(Purge())
    assert machine.take_effects().ledger == [
        ledger.Enqueued([2, 4], [kept, kept]),
        ledger.Settled([2]),
        ledger.Removed([4]),
    ]


def test_ledger_of_everything_tells_the_whole_life():
    """P15."""
    machine = _machine(ledger="all")
    machine.enqueue([message()] * 2)
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=2))
    machine.pump()
    machine.apply_command(Requeue(CHANNEL, "t", [1]))
    machine.pump()
    machine.apply_command(Discard(CHANNEL, "t", [1]))
    machine.apply_command(Release(CHANNEL))
    machine.apply_command(Get("b/1/1/1", no_ack=True))
    kinds = [(type(r).__name__, r.numbers) for r in machine.take_effects().ledger]
    assert kinds == [
        ("Enqueued", [1, 2]),
        ("Taken", [1, 2]),
        ("Returned", [1]),
        ("Taken", [1]),
        ("Removed", [1]),
        ("Returned", [2]),
        ("Settled", [2]),
    ]


def test_a_transient_queue_keeps_no_ledger():
    machine = QueueMachine(classic_config("q", "/", durable=False))
    machine.enqueue([message(persistent=True)])
    assert machine.take_effects().ledger == []


def test_persistent_publishes_are_confirmed_when_durable_and_not_before():
    """P11, P15."""
    machine = _machine(ledger="persistent")
    batch = CommandBatch(SESSION, 1, 1, [Enqueue([message(persistent=True)]), Enqueue([message()])])
    machine.apply_batch(batch, 0)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 2, 2, True)]
    machine.mark_durable(0)
    assert not machine.take_effects()
    machine.mark_durable(machine.position)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 1, 1, True)]
    machine.mark_durable(machine.position)
    assert not machine.take_effects()


def test_restored_messages_all_count_as_redelivered_and_numbers_go_on():
    """P16."""
    machine = _machine()
    machine.restore_messages([(4, message(1)), (9, message(2))], 12)
    assert machine.next_number == 12
    machine.enqueue([message(3)])
    machine.apply_command(Checkout(CHANNEL, "t"))
    machine.pump()
    (items,) = machine.take_effects().deliveries.values()
    assert [(item.number, item.delivery_count) for item in items] == [(4, 1), (9, 1), (12, 0)]
    assert machine.stat() == QueueStat(0, 3, 1, 0, 6, "running")


def test_a_new_leader_repeats_what_is_checked_out_but_not_what_was_got():
    """P17."""
    machine = _machine()
    machine.enqueue([message()] * 3)
    machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=1))
    machine.apply_command(Checkout(CHANNEL, "u", no_ack=True))
    machine.pump()
    machine.take_effects()
    machine.redeliver_checked_out()
    assert machine.take_effects().deliveries == {(CHANNEL, "t"): [Delivery(2, 0, message())]}


def test_an_ended_boot_loses_consumers_and_gives_back_what_it_held():
    """P1, P10."""
    machine = _machine()
    machine.enqueue([message()] * 2)
    entry = QueueEntry(1, 0, [CommandBatch(SESSION, 1, 1, [_consume()])])
    machine.apply_entry(entry)
    machine.apply_entry(QueueEntry(1, 0, [EndBoot("a", "1")]))
    assert machine.stat()[:3] == (2, 0, 0)
    machine.apply_entry(entry)
    assert machine.take_effects().session_lost == [SESSION]


def test_another_boot_with_the_same_beginning_lives_on():
    machine = _machine()
    machine.apply_command(Checkout("a/12/1/1", "t"))
    machine.end_boot("a", "1")
    assert machine.stat().consumers == 1


def test_a_held_message_outlives_its_consumer():
    machine = _machine()
    machine.enqueue([message()])
    machine.apply_command(Checkout(CHANNEL, "t"))
    machine.pump()
    machine.apply_command(Cancel(CHANNEL, "t"))
    assert machine.stat().unacked == 1
    machine.apply_command(Settle(CHANNEL, "t", [1]))
    assert machine.stat().unacked == 0
    assert machine.messages.checked_out.channel_ids() == []


def test_numbers_held_by_someone_else_are_not_settled():
    machine = _machine()
    machine.enqueue([message()])
    machine.apply_command(Checkout(CHANNEL, "t"))
    machine.pump()
    machine.apply_command(Settle("b/1/1/1", "t", [1]))
    machine.apply_command(Settle(CHANNEL, "u", [1]))
    assert machine.stat().unacked == 1


def test_a_pump_stops_at_its_burst_and_says_so():
    machine = _machine(burst_max=10)
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [_consume(), Enqueue([message()] * 25)]), 0)
    assert machine.is_pump_due
    assert machine.stat().unacked == 10
    assert machine.pump()
    assert not machine.pump()
    assert machine.stat().unacked == 25


def test_cancel_and_purge_are_answered_with_values():
    machine = _machine()
    commands = [
        Enqueue([message()] * 3),
        Purge(),
        Cancel(CHANNEL, "none"),
        Settle(CHANNEL, "t", [1]),
    ]
    machine.apply_batch(CommandBatch(SESSION, 1, 1, commands), 0)
    effects = machine.take_effects()
    assert effects.replies == [Reply(SESSION, 4, 3), Reply(SESSION, 5, None)]
    # The settle names a message that is not held (P18), and says so a second time too.
    assert effects.verdicts == [Verdict(SESSION, 1, 3, True), Verdict(SESSION, 6, 6, False)]
    machine.apply_batch(CommandBatch(SESSION, 6, 6, commands[3:]), 0)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 6, 6, False)]


def test_an_entry_of_an_unknown_version_is_not_applied():
    data = msgspec.msgpack.encode([99, 0, []])
    with pytest.raises(msgspec.DecodeError, match="version"):
        _machine().apply_encoded(data)


def test_an_entry_is_applied_like_its_batch():
    machine = _machine()
    machine.apply_encoded(encode_entry([CommandBatch(SESSION, 1, 1, [Enqueue([message()])])], 5))
    assert machine.take_effects().verdicts == [Verdict(SESSION, 1, 1, True)]


def test_a_queue_names_everyone_it_knows():
    machine = _machine()
    machine.enqueue([message()] * 2)
    machine.apply_command(Checkout("b/1/1/1", "t", no_ack=True))
    machine.apply_command(Get("c/3/1/1", no_ack=False))
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [Enqueue([message()])]), 0)
    assert machine.boots() == [("a", "1"), ("b", "1"), ("c", "3")]
    assert machine.consumers.attached() == [("b/1/1/1", "t")]
