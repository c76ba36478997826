"""Deduplication in the queue, its replicas and its next master."""

from __future__ import annotations

import msgspec

from broker.fifo import ledger
from broker.fifo.commands import CommandBatch, Enqueue, encode_entry
from broker.fifo.config import QueueConfig
from broker.fifo.effects import Verdict
from broker.fifo.join_state import decode_join_state, encode_join_state
from broker.fifo.ledger import cut_records, decode_records, encode_records
from broker.fifo.limits import Rules
from broker.fifo.machine import QueueMachine
from broker.fifo.replica import LedgerReplica
from broker.message import Message
from tests.model.fifo_model import message

SESSION = "a/1/7/0"
OTHER = "b/1/7/0"
NOW_MS = 1_000_000


def _keyed(key: str) -> Message:
    return msgspec.structs.replace(message(persistent=True), dedup=key)


def _config(**options: object) -> QueueConfig:
    return QueueConfig(name="q", dedup_size=3, dedup_ttl_ms=100, **options)


def _machine(**options: object) -> QueueMachine:
    machine = QueueMachine(_config(**options))
    machine.set_time(NOW_MS)
    return machine


def test_a_double_is_dropped_and_counts_as_published():
    """Rows: 1.11 message dedup"""
    machine = _machine()
    assert machine.enqueue([_keyed("a"), _keyed("b"), _keyed("a"), message(), message()]) == []
    assert machine.stat().ready == 4
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [Enqueue([_keyed("b"), _keyed("c")])]), NOW_MS)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 1, 2, True)]
    assert machine.stat().ready == 5


def test_keys_are_forgotten_by_time_and_by_room():
    """Rows: 1.11 message dedup"""
    machine = _machine()
    machine.enqueue([_keyed("a")])
    machine.set_time(NOW_MS + 99)
    machine.enqueue([_keyed("a")])
    assert machine.stat().ready == 1
    machine.set_time(NOW_MS + 100)
    machine.enqueue([_keyed("a"), _keyed("b"), _keyed("c"), _keyed("d"), _keyed("a")])
    assert machine.stat().ready == 6


def test_what_is_refused_is_not_remembered():
    machine = _machine(rules=Rules(max_length=0, overflow="reject-publish"))
    assert machine.enqueue([_keyed("a")]) == [0]
    machine.set_rules(Rules())
    assert machine.enqueue([_keyed("a")]) == []
    assert machine.stat().ready == 1


def test_a_double_is_confirmed_when_the_first_is_durable():
    machine = _machine(ledger="persistent")
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [Enqueue([_keyed("a")])]), NOW_MS)
    machine.apply_batch(CommandBatch(OTHER, 1, 1, [Enqueue([_keyed("a")])]), NOW_MS)
    assert machine.take_effects().verdicts == []
    machine.mark_durable(machine.position)
    assert machine.take_effects().verdicts == [
        Verdict(SESSION, 1, 1, True),
        Verdict(OTHER, 1, 1, True),
    ]
    machine.apply_batch(CommandBatch(OTHER, 2, 2, [Enqueue([_keyed("a")])]), NOW_MS)
    assert machine.take_effects().verdicts == [Verdict(OTHER, 2, 2, True)]


def test_replicas_remember_alike():
    """Rows: 1.11 message dedup"""
    machine, late = _machine(), _machine()
    machine.apply_encoded(
        encode_entry([CommandBatch(SESSION, 1, 1, [Enqueue([_keyed("a"), _keyed("b")])])], NOW_MS)
    )
    late.restore(machine.snapshot())
    again = encode_entry(
        [CommandBatch(SESSION, 1, 3, [Enqueue([_keyed("b"), _keyed("c")])])], NOW_MS + 5
    )
    for each in (machine, late):
        each.apply_encoded(again)
    assert machine.stat().ready == 3
    assert late.snapshot() == machine.snapshot()


def _replayed(machine: QueueMachine, replica: LedgerReplica) -> None:
    for group in cut_records(machine.take_effects().ledger):
        replica.apply(decode_records(encode_records(group)))


def test_a_promoted_mirror_knows_what_its_master_knew():
    """Rows: 1.11 message dedup"""
    machine = _machine(ledger="all")
    founder, joiner = LedgerReplica(3, 100), LedgerReplica(3, 100)
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [Enqueue([_keyed("a"), message()])]), NOW_MS)
    _replayed(machine, founder)
    joiner.adopt(decode_join_state(encode_join_state(machine.join_state())))
    machine.apply_batch(
        CommandBatch(SESSION, 1, 3, [Enqueue([_keyed("b"), _keyed("a")])]), NOW_MS + 60
    )
    effects = machine.take_effects()
    assert ledger.Skipped(SESSION, 4, 4) in effects.ledger
    for replica in (founder, joiner):
        for group in cut_records(effects.ledger):
            replica.apply(decode_records(encode_records(group)))
        heir = replica.promote(_config(ledger="all"))
        heir.set_time(NOW_MS + 90)
        before = heir.stat().ready
        heir.enqueue([_keyed("a"), _keyed("b"), _keyed("c")])
        assert heir.stat().ready == before + 1
        heir.set_time(NOW_MS + 110)
        heir.enqueue([_keyed("a"), _keyed("b")])
        assert heir.stat().ready == before + 2


def test_a_restart_remembers_what_is_left():
    machine = _machine()
    machine.restore_messages([(3, _keyed("a"))], 4)
    machine.enqueue([_keyed("a"), _keyed("b")])
    assert machine.stat().ready == 2
