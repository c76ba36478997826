"""Priority queues: the order of deliveries, expiry, overflow and requeues."""

from __future__ import annotations

import msgspec
import pytest

from broker.fifo.commands import (
    Checkout,
    Get,
    Requeue,
    Settle,
)
from broker.fifo.config import QueueConfig
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from broker.message import Message
from tests.model.fifo_model import message

CHANNEL = "a/1/1/1"
NOW_MS = 1_000_000


def _message(priority: int = 0, ttl_ms: int = -1) -> Message:
    return msgspec.structs.replace(message(), priority=priority, ttl_ms=ttl_ms)


def _machine(priority_max: int = 10, **options: object) -> QueueMachine:
    config = QueueConfig(name="q", order="priority", priority_max=priority_max, **options)
    machine = QueueMachine(config)
    machine.set_time(NOW_MS)
    return machine


def _publish(machine: QueueMachine, *priorities: int) -> None:
    machine.enqueue([_message(priority) for priority in priorities])


def _got(machine: QueueMachine) -> list[int]:
    """Numbers of all that is ready, as basic.get hands them out."""
    found = []
    while (delivery := machine.apply_command(Get(CHANNEL, no_ack=True)).delivery) is not None:
        found.append(delivery.number)
    return found


def _deaths(machine: QueueMachine) -> list[tuple[str, list[int]]]:
    machine.pump()
    return [(dead.reason, [d.number for d in dead.items]) for dead in machine.take_effects().dead]


@pytest.mark.parametrize(("asked", "told_apart"), [(1, 2), (10, 11), (255, 256), (0, 2)])
def test_there_is_a_level_for_every_priority_up_to_the_highest(asked, told_apart):
    """Zero counts as one.

    Rows: 1.7 x-max-priority
    """
    machine = _machine(asked)
    _publish(machine, *range(256))
    expected = [*range(told_apart, 257), *range(told_apart - 1, 0, -1)]
    assert _got(machine) == expected


def test_the_highest_leaves_first_and_equals_in_their_order():
    """Rows: 1.7 x-max-priority; 1.7 message priority"""
    machine = _machine()
    _publish(machine, 1, 5, 0, 5, 10, 1)
    assert _got(machine) == [5, 2, 4, 1, 6, 3]


def test_more_than_the_highest_counts_as_the_highest_and_none_as_zero():
    """Rows: 1.7 message priority"""
    machine = _machine(3)
    _publish(machine, 3, 200, 4)
    machine.enqueue([message(), _message(0)])
    assert _got(machine) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "limits", [{}, {"max_length": 1}, {"max_length": 1, "overflow": "reject-publish"}]
)
def test_what_has_expired_at_the_head_dies_before_a_higher_one_gets_in_front_of_it(limits):
    """Else it would wait, dead, for as long as something higher is ready; found by the model."""
    machine = _machine()
    machine.set_rules(Rules(is_dead_lettered=True, **limits))
    machine.enqueue([_message(0, ttl_ms=3)])
    machine.set_time(NOW_MS + 5)
    assert machine.enqueue([_message(1)]) == []
    assert _deaths(machine) == [("expired", [1])]
    assert _got(machine) == [2]


def test_what_a_consumer_holds_is_not_overtaken():
    """Only ready messages are put in order: prefetch 1 shows it, more hides it.

    Rows: 1.7 message priority
    """
    machine = _machine()
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=2))
    _publish(machine, 0, 0, 0)
    machine.pump()
    _publish(machine, 9)
    machine.pump()
    machine.apply_command(Settle(CHANNEL, "t", [1, 2]))
    machine.pump()
    items = machine.take_effects().deliveries[CHANNEL, "t"]
    assert [item.number for item in items] == [1, 2, 4, 3]


def test_a_requeued_message_goes_back_to_its_level_and_place():
    """Rows: 1.7 message priority; 1.9 requeue position"""
    machine = _machine()
    _publish(machine, 5, 5, 0, 5)
    for _ in range(4):
        machine.apply_command(Get(CHANNEL, no_ack=False))
    _publish(machine, 5, 9)
    machine.apply_command(Requeue(CHANNEL, "", [4, 3]))
    machine.apply_command(Requeue(CHANNEL, "", [1]))
    assert _got(machine) == [6, 1, 4, 5, 3]


def test_no_level_ages():
    """Rows: 1.7 starvation"""
    machine = _machine(1)
    _publish(machine, 0)
    for _ in range(1_000):
        machine.set_time(machine.now_ms + 60_000)
        _publish(machine, 1)
        assert machine.apply_command(Get(CHANNEL, no_ack=True)).delivery.message.priority == 1
    assert _got(machine) == [1]


def test_expiry_stops_at_the_first_level_it_does_not_empty():
    """Rows: 1.4 Priority+TTL"""
    machine = _machine(rules=Rules(is_dead_lettered=True))
    machine.enqueue(
        [_message(0, 5), _message(3, 5), _message(9, 5), _message(3, 500), _message(3, 5)]
    )
    machine.set_time(NOW_MS + 10)
    assert _deaths(machine) == [("expired", [3, 2])]
    assert machine.stat().ready == 3
    assert machine.due_ms() == NOW_MS + 500
    assert machine.apply_command(Get(CHANNEL, no_ack=True)).delivery.number == 4
    assert _deaths(machine) == [("expired", [5, 1])]
    assert machine.stat().ready == 0


def test_no_consumer_gets_what_expired_on_a_lower_level():
    """Rows: 1.4 Priority+TTL"""
    machine = _machine()
    machine.enqueue([_message(0, 5), _message(3, 500), _message(0, 500)])
    machine.set_time(NOW_MS + 10)
    machine.apply_command(Checkout(CHANNEL, "t"))
    machine.pump()
    items = machine.take_effects().deliveries[CHANNEL, "t"]
    assert [item.number for item in items] == [2, 3]


def test_what_is_too_much_is_dropped_from_the_highest_level():
    """Rows: 1.6 drop-head (default)"""
    machine = _machine(rules=Rules(max_length=3, is_dead_lettered=True))
    _publish(machine, 0, 9, 5)
    _publish(machine, 0)
    assert _deaths(machine) == [("maxlen", [2])]
    _publish(machine, 9)
    assert _deaths(machine) == [("maxlen", [5])]
    assert _got(machine) == [3, 1, 4]


def test_mirrors_and_their_heirs_know_the_levels():
    """Rows: 1.7 with mirroring"""
    master, replica = _machine(ledger="all"), LedgerReplica()
    _publish(master, 1, 5, 0, 5, 200)
    master.apply_command(Get(CHANNEL, no_ack=False))
    master.apply_command(Requeue(CHANNEL, "", [5]))
    master.apply_command(Get(CHANNEL, no_ack=True))
    replica.apply(master.take_effects().ledger)
    heir = replica.promote(master.config)
    assert heir.messages.digest() == master.messages.digest()
    assert heir.stat().ready == master.stat().ready == 4
    assert _got(heir) == _got(master) == [2, 4, 1, 3]


def test_a_restored_queue_has_the_same_order():
    machine = _machine()
    _publish(machine, 1, 5, 0, 5, 9)
    for _ in range(3):
        machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(Requeue(CHANNEL, "", [2]))
    other = _machine()
    other.restore(machine.snapshot())
    assert other.snapshot() == machine.snapshot()
    assert _got(other) == _got(machine) == [2, 1, 3]


def test_quorum_queues_know_no_priorities():
    """Rows: 1.16 priorities of messages; 1.7 starvation"""
    machine = QueueMachine(QueueConfig(name="q", requeue="tail"))
    _publish(machine, 0, 9, 5)
    assert _got(machine) == [1, 2, 3]
