"""The distribution of messages: round robin, credit, priorities, single active consumer."""

from __future__ import annotations

import msgspec
import pytest

from broker.errors import ReplyCode
from broker.fifo.commands import (
    Cancel,
    Checkout,
    Get,
    Release,
    Requeue,
    Settle,
)
from broker.fifo.config import QueueConfig, classic_config, quorum_config
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from tests.model.fifo_model import message

HERE, THERE = "a/1/1/1", "b/1/1/1"


def _classic(**options: object) -> QueueMachine:
    return QueueMachine(QueueConfig(name="q", **options))


def _quorum(*, is_single_active: bool = False) -> QueueMachine:
    config = msgspec.structs.replace(
        quorum_config("q", "/", None),
        is_single_active=is_single_active,
        single_active_by_priority=False,
    )
    return QueueMachine(config)


def _given(machine: QueueMachine, count: int = 0) -> dict[str, list[int]]:
    """Publish so many, and tell which numbers each tag got."""
    machine.enqueue([message() for _ in range(count)])
    machine.pump()
    found = machine.take_effects().deliveries
    return {tag: [item.number for item in items] for (_, tag), items in found.items()}


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("no_ack", [True, False])
def test_what_is_handed_over_leaves_the_state_that_enqueue_and_pump_leave(*, no_ack, prefetch):
    machines = [_classic(), _classic()]
    told = []
    for machine in machines:
        for tag in "ab":
            machine.apply_command(Checkout(HERE, tag, no_ack=no_ack, prefetch=prefetch))
        machine.pump()
    for _ in range(5):
        given = _given(machines[0], 1)
        handed = machines[1].consumers.hand_over(machines[1].messages, message())
        if handed is None:
            assert _given(machines[1], 1) == given
        else:
            consumer, items = handed
            assert {consumer.tag: [item.number for item in items]} == given
        told.append(handed is not None)
    assert told == [True] * (4 if prefetch and not no_ack else 5) + [False] * (5 - sum(told))
    assert machines[0].snapshot() == machines[1].snapshot()
    counted = [machine.messages.counts.values() for machine in machines]
    assert counted[0] == counted[1]
    assert not machines[1].take_effects()


def test_what_is_handed_over_overtakes_nothing():
    machine = _classic()
    assert machine.consumers.hand_over(machine.messages, message()) is None, "nobody consumes"
    machine.enqueue([message()])
    machine.apply_command(Checkout(HERE, "t"))
    assert machine.consumers.hand_over(machine.messages, message()) is None, "one is ready"
    machine.pump()
    assert machine.consumers.hand_over(machine.messages, message()) is None, "one is due"
    machine.take_effects()
    assert machine.consumers.hand_over(machine.messages, message()) is not None


def test_nothing_is_handed_over_while_messages_are_on_disk():
    machine = _classic()
    machine.enqueue([message() for _ in range(9)])
    machine.paging.page_out(0, durable=False)
    machine.apply_command(Checkout(HERE, "t"))
    machine.pump()
    machine.take_effects()
    assert machine.messages.ready.is_paged
    assert machine.messages.ready.at_hand() == 0
    assert machine.consumers.hand_over(machine.messages, message()) is None


@pytest.mark.parametrize(
    "options",
    [
        {"dedup_size": 5},
        {"ledger": "all"},
        {"ledger": "persistent"},
        {"order": "priority", "priority_max": 3},
        {"rules": Rules(message_ttl_ms=1)},
        {"rules": Rules(max_length=1, overflow="reject-publish")},
    ],
)
def test_nothing_is_handed_over_where_more_is_to_be_done(options):
    machine = _classic(**options)
    machine.apply_command(Checkout(HERE, "t"))
    machine.pump()
    assert machine.consumers.hand_over(machine.messages, message()) is None


def test_consumers_take_turns_and_the_blocked_leave_theirs():
    """Rows: 1.8 round robin"""
    machine = _classic()
    machine.apply_command(Checkout(HERE, "a"))
    machine.apply_command(Checkout(HERE, "b", prefetch=2))
    machine.apply_command(Checkout(THERE, "c"))
    assert _given(machine, 6) == {"a": [1, 4], "b": [2, 5], "c": [3, 6]}
    assert _given(machine, 2) == {"a": [7], "c": [8]}
    machine.apply_command(Settle(HERE, "b", [2]))
    assert _given(machine, 3) == {"a": [9], "c": [10], "b": [11]}


def test_a_turn_goes_on_where_it_stopped():
    """Rows: 1.8 round robin"""
    machine = _classic()
    machine.apply_command(Checkout(HERE, "a"))
    machine.apply_command(Checkout(HERE, "b"))
    turns = [next(iter(_given(machine, 1))) for _ in range(4)]
    assert turns == ["a", "b", "a", "b"]


def test_prefetch_is_each_consumers_own():
    """Rows: 1.8 prefetch"""
    machine = _classic()
    machine.apply_command(Checkout(HERE, "a", prefetch=1))
    machine.apply_command(Checkout(HERE, "b", prefetch=3))
    assert _given(machine, 9) == {"a": [1], "b": [2, 3, 4]}
    assert machine.apply_command(Get(HERE, no_ack=False)).delivery.number == 5
    machine.apply_command(Settle(HERE, "b", [2, 4]))
    assert _given(machine) == {"b": [6, 7]}


def test_no_prefetch_is_no_limit_but_2000_on_a_quorum_queue():
    """Rows: 1.8 default prefetch; 1.16 prefetch 0"""
    classic = QueueMachine(classic_config("q", "/", durable=True))
    quorum = _quorum()
    for machine in (classic, quorum):
        machine.apply_command(Checkout(HERE, "a"))
        machine.enqueue([message() for _ in range(2_500)])
        while machine.pump():
            pass
    assert (classic.stat().unacked, quorum.stat().unacked) == (2_500, 2_000)


def test_who_need_not_acknowledge_has_no_prefetch():
    """Rows: 1.8 default prefetch"""
    machine = _quorum()
    machine.apply_command(Checkout(HERE, "a", prefetch=1, no_ack=True))
    assert len(_given(machine, 2_500)["a"] + _given(machine)["a"]) == 2_500


def test_the_higher_priority_gets_all_until_it_can_take_no_more():
    """Rows: 1.8 consumer priority; 1.16 consumer priority"""
    for machine in (_classic(), _quorum()):
        machine.apply_command(Checkout(HERE, "low", priority=-5))
        machine.apply_command(Checkout(HERE, "none"))
        machine.apply_command(Checkout(HERE, "high", priority=3, prefetch=2))
        machine.apply_command(Checkout(THERE, "high too", priority=3, prefetch=2))
        assert _given(machine, 5) == {"high": [1, 3], "high too": [2, 4], "none": [5]}
        machine.apply_command(Settle(HERE, "high", [1]))
        assert _given(machine, 1) == {"high": [6]}
        machine.apply_command(Cancel(HERE, "none"))
        assert _given(machine, 1) == {"low": [7]}


def test_of_a_classic_queue_the_first_is_active_then_the_highest_then_the_oldest():
    """Rows: 1.8 SAC"""
    machine = _classic(is_single_active=True)
    machine.apply_command(Checkout(HERE, "a"))
    machine.apply_command(Checkout(HERE, "old"))
    machine.apply_command(Checkout(THERE, "high", priority=7))
    machine.apply_command(Checkout(THERE, "high too", priority=7))
    assert _given(machine, 2) == {"a": [1, 2]}
    assert machine.consumers.active_key() == (HERE, "a")
    machine.apply_command(Cancel(HERE, "a"))
    assert _given(machine, 1) == {"high": [3]}
    machine.apply_command(Release(THERE))
    assert _given(machine) == {"old": [3]}
    assert machine.consumers.active_key() == (HERE, "old")
    machine.apply_command(Release(HERE))
    assert machine.consumers.active_key() is None


def test_of_a_quorum_queue_the_next_active_is_the_oldest():
    """Rows: 1.16 SAC"""
    machine = _quorum(is_single_active=True)
    machine.apply_command(Checkout(HERE, "a"))
    machine.apply_command(Checkout(HERE, "old"))
    machine.apply_command(Checkout(THERE, "high", priority=7))
    machine.apply_command(Cancel(HERE, "a"))
    assert _given(machine, 1) == {"old": [1]}


@pytest.mark.parametrize("make", [_classic, _quorum])
def test_what_a_cancelled_active_one_holds_stays_with_it(make):
    """The next gets what is ready at once; the cancelled one may still settle what it has.

    Rows: 1.8 SAC; 1.16 SAC; 1.8 basic.cancel; 1.16 cancel
    """
    machine = make(is_single_active=True)
    machine.apply_command(Checkout(HERE, "a", prefetch=1))
    machine.apply_command(Checkout(THERE, "b", prefetch=1))
    assert _given(machine, 2) == {"a": [1]}
    machine.apply_command(Cancel(HERE, "a"))
    assert _given(machine) == {"b": [2]}
    assert machine.stat().unacked == 2
    assert machine.apply_command(Settle(HERE, "a", [1]))
    assert machine.stat().unacked == 1


def test_nobody_else_is_served_while_the_active_one_is_busy():
    """Rows: 1.8 SAC"""
    machine = _classic(is_single_active=True)
    machine.apply_command(Checkout(HERE, "a", prefetch=1))
    machine.apply_command(Checkout(THERE, "b", priority=9))
    assert _given(machine, 3) == {"a": [1]}
    machine.apply_command(Settle(HERE, "a", [1]))
    assert _given(machine) == {"a": [2]}


def test_a_node_that_dies_takes_its_active_consumer_along():
    """Rows: 1.8 SAC; 1.16 SAC"""
    for machine in (_classic(is_single_active=True), _quorum(is_single_active=True)):
        machine.apply_command(Checkout(HERE, "a"))
        machine.apply_command(Checkout(THERE, "b"))
        assert _given(machine, 2) == {"a": [1, 2]}
        machine.end_boot("a", "1")
        assert _given(machine) == {"b": [1, 2]}


def test_the_active_consumer_survives_a_snapshot():
    machine, other = _quorum(is_single_active=True), _quorum(is_single_active=True)
    for tag in ("a", "b", "c"):
        machine.apply_command(Checkout(HERE, tag))
    machine.apply_command(Cancel(HERE, "a"))
    machine.apply_command(Checkout(HERE, "a"))
    other.restore(machine.snapshot())
    assert other.consumers.active_key() == (HERE, "b")
    other.apply_command(Cancel(HERE, "b"))
    assert other.consumers.active_key() == (HERE, "c")


def test_a_consumer_alone_must_be_alone():
    """Rows: 1.8 exclusive consumer"""
    machine = _classic()
    assert machine.apply_command(Checkout(HERE, "a")) is None
    assert machine.consumers.active_key() is None
    refusal = machine.apply_command(Checkout(THERE, "b", exclusive=True))
    assert refusal.code is ReplyCode.ACCESS_REFUSED
    assert refusal.text == "queue 'q' in vhost '/' in exclusive use"
    machine.apply_command(Cancel(HERE, "a"))
    assert machine.apply_command(Checkout(THERE, "b", exclusive=True)) is None
    assert machine.consumers.active_key() == (THERE, "b")
    assert machine.apply_command(Checkout(HERE, "a")).text == refusal.text
    assert machine.apply_command(Checkout(HERE, "c", exclusive=True)).text == refusal.text
    machine.apply_command(Release(THERE))
    assert machine.apply_command(Checkout(HERE, "a")) is None


def test_where_one_at_a_time_is_active_nobody_is_exclusive():
    """Rows: 1.8 SAC"""
    machine = _classic(is_single_active=True)
    assert (
        machine.apply_command(Checkout(HERE, "a", exclusive=True)).code is ReplyCode.ACCESS_REFUSED
    )
    assert machine.consumers.active_key() is None


def test_a_quorum_queue_knows_no_exclusive_consumer():
    """Rows: 1.8 exclusive consumer; 1.16 exclusive consume flag"""
    for machine in (_quorum(), _quorum(is_single_active=True)):
        assert machine.apply_command(Checkout(HERE, "a", exclusive=True)) is None
        assert machine.apply_command(Checkout(THERE, "b", exclusive=True)) is None


def test_a_cancelled_consumer_keeps_what_it_has_and_gets_no_more():
    """Rows: 1.8 basic.cancel; 1.16 cancel"""
    for machine in (_classic(), _quorum()):
        machine.apply_command(Checkout(HERE, "a"))
        assert _given(machine, 2) == {"a": [1, 2]}
        machine.apply_command(Cancel(HERE, "a"))
        machine.apply_command(Cancel(HERE, "a"))
        assert _given(machine, 1) == {}
        assert (machine.stat().unacked, machine.stat().consumers) == (2, 0)
        machine.apply_command(Release(HERE))
        assert machine.stat().ready == 3


def test_only_what_was_handed_out_before_is_redelivered():
    """Rows: 1.8 delivery flags; 1.16 what counts"""
    machine = _classic()
    machine.enqueue([message(), message()])
    assert machine.apply_command(Get(HERE, no_ack=False)).delivery.delivery_count == 0
    machine.apply_command(Requeue(HERE, "", [1]))
    machine.apply_command(Checkout(THERE, "a"))
    machine.pump()
    items = machine.take_effects().deliveries[THERE, "a"]
    assert [(item.number, item.delivery_count) for item in items] == [(1, 1), (2, 0)]
    machine.apply_command(Release(THERE))
    assert machine.apply_command(Get(HERE, no_ack=True)).delivery.delivery_count == 2


def test_all_that_a_mirror_got_before_its_promotion_is_redelivered():
    """Rows: 1.8 delivery flags"""
    master, replica = _classic(ledger="all"), LedgerReplica()
    master.enqueue([message(), message()])
    replica.apply(master.take_effects().ledger)
    heir = replica.promote(master.config)
    heir.enqueue([message()])
    counts = [heir.apply_command(Get(HERE, no_ack=True)).delivery.delivery_count for _ in range(3)]
    assert [count > 0 for count in counts] == [True, True, False]


def test_one_pump_hands_out_a_mebibyte_and_a_larger_message_goes_alone():
    machine = QueueMachine(QueueConfig(name="q", burst_max=2_000))
    machine.enqueue([message(400_000)] * 9 + [message(5 << 20)] * 2)
    machine.apply_command(Checkout(HERE, "t", no_ack=True))
    pumps = []
    more = True
    while more:
        more = machine.pump()
        pumps += [len(items) for items in machine.take_effects().deliveries.values()]
    assert pumps == [3, 3, 3, 1, 1]
    assert not machine.has_ready
