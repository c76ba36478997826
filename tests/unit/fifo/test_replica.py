"""broker.fifo.replica, and the machine it becomes (P10, P11, P15, P16, P18)."""

from __future__ import annotations

from broker.fifo.commands import (
    Checkout,
    CommandBatch,
    Enqueue,
    Get,
    Release,
    Requeue,
    SetActive,
    Settle,
    Skip,
)
from broker.fifo.config import mirrored_config
from broker.fifo.effects import Effects, OutOfSequence, Verdict
from broker.fifo.ledger import (
    Cleared,
    Enqueued,
    Opened,
    Rejected,
    Removed,
    Settled,
    Skipped,
    cut_records,
)
from broker.fifo.machine import QueueMachine
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES
from broker.fifo.replica import LedgerReplica
from broker.fifo.sync_batch import SyncBatch
from tests.model.fifo_model import message

CONFIG = mirrored_config("q", "/")
SESSION = "a/1/7/0"
CHANNEL = "a/1/1/1"


def _apply(machine: QueueMachine, first: int, *commands, lowest: int = 1) -> Effects:
    machine.apply_batch(CommandBatch(SESSION, lowest, first, list(commands)), 0)
    return machine.take_effects()


def _replay(replica: LedgerReplica, effects: Effects) -> None:
    for group in cut_records(effects.ledger):
        replica.apply(group)


def _enqueued(first_number: int, count: int, *, first: int = 0, lowest: int = 1) -> Enqueued:
    numbers = list(range(first_number, first_number + count))
    messages = [message(number) for number in numbers]
    return Enqueued(numbers, messages, SESSION if first else "", first, lowest)


def test_it_holds_what_its_master_holds_whoever_holds_it_there():
    """P15."""
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    _replay(replica, _apply(master, 1, Enqueue([message(n) for n in range(6)])))
    _replay(replica, _apply(master, 7, Checkout(CHANNEL, "t", False, False, 3, 0, {})))
    _replay(replica, _apply(master, 8, Settle(CHANNEL, "t", [2])))
    _replay(replica, _apply(master, 9, Get(CHANNEL, True)))
    assert replica.numbers() == [1, 3, 4, 6]
    assert replica.depth == 4
    assert replica.ranges() == [(1, 1), (3, 4), (6, 6)]
    assert replica.digest() == master.messages.digest()
    assert replica.next_number == master.next_number


def test_numbers_it_does_not_have_are_ignored():
    """P15: it may have joined later."""
    replica = LedgerReplica()
    replica.apply([_enqueued(8, 2), Settled([1, 8]), Removed([2, 99])])
    assert replica.numbers() == [9]
    assert replica.holds(9)
    assert not replica.holds(8)


def test_promoted_everything_is_ready_in_order_and_redelivered():
    """P16."""
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 5), Settled([3])])
    machine = replica.promote(CONFIG)
    machine.apply_command(Checkout(CHANNEL, "t"))
    machine.pump()
    (items,) = machine.take_effects().deliveries.values()
    assert [(item.number, item.delivery_count) for item in items] == [
        (1, 1),
        (2, 1),
        (4, 1),
        (5, 1),
    ]
    assert machine.next_number == 6


def test_a_duplicate_is_ok_only_with_evidence():
    """P11: it holds 1 and saw 2 settled; 3 was emptied away, 4 refused, 5 never enqueued."""
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 3, first=1), Rejected(SESSION, 4, 4), Skipped(SESSION, 5, 5)])
    replica.apply([Settled([2])])
    replica.apply_sync_batch(SyncBatch(1, 3, [], [], []))  # none is under way: it changes nothing
    assert replica.depth == 2
    replica.begin_sync()
    assert replica.apply_sync_batch(SyncBatch(3, 3, [], [], [])).dropped == [3]
    replica.end_sync()
    machine = replica.promote(CONFIG)
    effects = _apply(machine, 1, Enqueue([message()] * 6))
    assert effects.verdicts == [Verdict(SESSION, 1, 2, True), Verdict(SESSION, 3, 5, False)]
    assert machine.stat().ready == 2, "1 was here, 6 is new"
    machine.mark_durable(machine.position)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 6, 6, True)]


def test_a_mirror_that_empties_itself_drops_its_evidence_and_gets_it_back_with_the_messages():
    """P11."""
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 3, first=1), Settled([1])])
    replica.empty()
    replica.begin_sync()
    replica.apply_sync_batch(SyncBatch(1, 3, [(2, 3)], [2], [message(2)]))
    machine = replica.promote(CONFIG)
    assert _apply(machine, 1, Enqueue([message()] * 3)).verdicts == [
        Verdict(SESSION, 1, 2, True),
        Verdict(SESSION, 3, 3, False),
    ]


def test_a_joiner_answers_for_what_its_master_saw_settled_and_not_for_what_it_never_got():
    """P11, P20."""
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    _apply(master, 1, Enqueue([message()] * 3))
    master.apply_command(Get(CHANNEL, no_ack=True))
    replica.adopt(master.join_state())
    machine = replica.promote(CONFIG)
    assert machine.next_number == 4
    assert _apply(machine, 1, Enqueue([message()] * 3)).verdicts == [
        Verdict(SESSION, 1, 1, True),
        Verdict(SESSION, 2, 3, False),
    ]
    assert machine.stat().ready == 0


def test_what_a_master_never_had_proves_nothing_to_its_joiners_either() -> None:
    """P11."""
    master, replica, second = QueueMachine(CONFIG), LedgerReplica(), LedgerReplica()
    _apply(master, 1, Enqueue([message()] * 2))
    replica.adopt(master.join_state())
    replica.apply([_enqueued(3, 1, first=3)])
    second.adopt(replica.promote(CONFIG).join_state())
    effects = _apply(second.promote(CONFIG), 1, Enqueue([message()] * 3))
    assert effects.verdicts == [Verdict(SESSION, 1, 3, False)]


def test_a_join_state_makes_a_mirror_begin_again():
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    replica.apply([_enqueued(50, 2, first=1)])
    replica.begin_sync()
    replica.adopt(master.join_state())
    assert (replica.depth, replica.next_number, replica.is_filling) == (0, 1, False)
    assert replica.boots() == []


def test_what_was_settled_during_a_fill_does_not_come_back_with_a_batch():
    """P26."""
    replica = LedgerReplica()
    replica.begin_sync()
    replica.apply([Settled([2]), Removed([3])])
    batch = SyncBatch(1, 4, [(1, 4)], [1, 2, 3, 4], [message(n) for n in range(1, 5)])
    assert replica.apply_sync_batch(batch).added == [(1, message(1)), (4, message(4))]
    replica.apply([Settled([1])])
    replica.end_sync()
    assert replica.numbers() == [4]
    assert not replica.is_filling


def test_consumers_attach_again_though_their_numbers_are_old():
    """P17, P18: the old master did them, this one has no consumers and no values."""
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    checkout = Checkout(CHANNEL, "t", False, False, 1, 0, {})
    publish = Enqueue([message()] * 2)
    _replay(replica, _apply(master, 1, checkout, publish))
    machine = replica.promote(CONFIG)
    effects = _apply(machine, 1, checkout, publish)
    assert [(reply.number, reply.value) for reply in effects.replies] == [(1, None)]
    assert [item.number for item in effects.deliveries[CHANNEL, "t"]] == [1]
    assert effects.verdicts == [Verdict(SESSION, 2, 3, True)]


def test_an_old_settle_is_refused_though_the_same_number_is_held_again():
    """P18: settles of tags from an older epoch are ignored."""
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    checkout, settle = (
        Checkout(CHANNEL, "t", False, False, 1, 0, {}),
        Settle(CHANNEL, "t", [1]),
    )
    _replay(replica, _apply(master, 1, Enqueue([message()]), checkout))
    _apply(master, 3, settle)  # its ledger dies with the master
    _replay(replica, _apply(master, 4, Enqueue([message()])))
    machine = replica.promote(CONFIG)
    _apply(machine, 2, checkout, lowest=2)
    assert machine.stat().unacked == 1
    assert _apply(machine, 2, checkout, settle, lowest=2).verdicts == [
        Verdict(SESSION, 3, 3, False)
    ]
    assert machine.stat().unacked == 1


def test_what_is_done_again_is_done_again_once():
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    checkout = Checkout(CHANNEL, "t", False, False, 1, 0, {})
    pause, resume = SetActive(CHANNEL, "t", False), SetActive(CHANNEL, "t", True)
    _replay(replica, _apply(master, 1, checkout, pause, Enqueue([message()])))
    machine = replica.promote(CONFIG)
    _apply(machine, 1, checkout, pause, Skip(1), resume)
    assert machine.stat().unacked == 1
    effects = _apply(machine, 1, checkout, pause)
    assert [reply.value for reply in effects.replies] == [None]
    assert effects.verdicts == [Verdict(SESSION, 2, 2, True)]
    machine.enqueue([message()])
    machine.apply_command(Settle(CHANNEL, "t", [1]))
    machine.pump()
    assert machine.stat().unacked == 1, "the consumer is still active"


def test_a_release_the_old_master_did_ends_the_consumer_that_attached_again():
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    checkout = Checkout(CHANNEL, "t", False, False, 1, 0, {})
    _replay(replica, _apply(master, 1, checkout, Release(CHANNEL), Enqueue([message()])))
    machine = replica.promote(CONFIG)
    _apply(machine, 1, checkout, Release(CHANNEL))
    assert machine.stat().consumers == 0


def test_a_session_that_never_published_is_known_to_a_mirror():
    """P10."""
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    effects = _apply(master, 1, Checkout(CHANNEL, "t", False, False, 1, 0, {}))
    assert effects.ledger == [Opened(SESSION)]
    _replay(replica, effects)
    assert replica.boots() == [("a", "1")]
    machine = replica.promote(CONFIG)
    effects = _apply(machine, 2, Get(CHANNEL, True), lowest=2)
    assert not effects.session_lost
    assert len(effects.replies) == 1


def test_a_promoted_mirror_knows_every_session_that_left_a_trace():
    """P10: one it never saw begins at its lowest unanswered number, and not before that."""
    machine = LedgerReplica().promote(CONFIG)
    effects = _apply(machine, 7, Enqueue([message()]), lowest=5)
    assert effects.out_of_sequence == [OutOfSequence(SESSION, 5)]
    effects = _apply(machine, 5, Enqueue([message()] * 3), lowest=5)
    assert effects.ledger[:2] == [Opened(SESSION), Skipped(SESSION, 1, 4)]
    assert machine.stat().ready == 3


def test_after_a_recovery_from_disk_unknown_sessions_are_lost_here_and_in_mirrors():
    """P10: what they had published may be among the messages."""
    master, replica = QueueMachine(CONFIG), LedgerReplica()
    master.restore_messages([(1, message())], 2)
    assert _apply(master, 5, Enqueue([message()]), lowest=5).session_lost == [SESSION]
    replica.adopt(master.join_state())
    machine = replica.promote(CONFIG)
    assert _apply(machine, 5, Enqueue([message()]), lowest=5).session_lost == [SESSION]


def test_a_session_of_an_ended_boot_leaves_its_messages_only():
    """P1: group 0 may be ahead of the ring."""
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 1, first=1)])
    replica.end_boot("a", "1")
    replica.apply([_enqueued(2, 1, first=2), Opened("a/1/7/1")])
    assert replica.boots() == []
    assert replica.numbers() == [1, 2]


def test_settles_of_a_mirrored_queue_wait_for_the_ledger_like_publishes():
    """P18, P19."""
    master = QueueMachine(CONFIG)
    checkout = Checkout(CHANNEL, "t", False, False, 2, 0, {})
    _apply(master, 1, Enqueue([message()] * 2), checkout)
    before = master.position
    effects = _apply(master, 4, Settle(CHANNEL, "t", [1]), Settle(CHANNEL, "t", [9]))
    assert effects.verdicts == [Verdict(SESSION, 5, 5, False)]
    master.mark_durable(before)
    assert master.take_effects().verdicts == [Verdict(SESSION, 1, 2, True)]
    assert not _apply(master, 4, Settle(CHANNEL, "t", [1])).verdicts, "not before the original"
    master.mark_durable(master.position)
    assert master.take_effects().verdicts == [Verdict(SESSION, 4, 4, True)]


def test_a_plain_queue_becomes_mirrored_and_plain_again_with_what_it_owes():
    machine = QueueMachine(CONFIG)
    machine.set_ledger("persistent")
    kept = message(1, persistent=True)
    assert len(_apply(machine, 1, Enqueue([kept])).ledger) == 1
    machine.set_ledger("all")
    (record,) = _apply(machine, 2, Enqueue([message(2)])).ledger
    assert record == Enqueued([2], [message(2)], SESSION, 2, 1)
    replica = LedgerReplica()
    replica.adopt(machine.join_state())
    _replay(replica, _apply(machine, 3, Enqueue([message(3)])))
    assert replica.numbers() == [3]
    machine.set_ledger("none")
    assert _apply(machine, 4, Enqueue([kept])).verdicts == [Verdict(SESSION, 4, 4, True)]
    machine.mark_durable(machine.position)
    assert machine.take_effects().verdicts == [Verdict(SESSION, 1, 3, True)]


def test_contents_and_the_lowest_number_count_what_is_held_and_what_came_back():
    machine = QueueMachine(CONFIG)
    assert machine.messages.lowest_number() is None
    machine.enqueue([message(n) for n in range(1, 6)])
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=3))
    machine.pump()
    machine.apply_command(Get(CHANNEL, no_ack=False))
    machine.apply_command(Requeue(CHANNEL, "t", [2]))
    assert [item.number for item in machine.messages.contents()] == [1, 2, 3, 4, 5]
    assert machine.messages.among({*range(3, 9)}) == {3, 4, 5}
    assert machine.messages.lowest_number() == 1
    machine.apply_command(Settle(CHANNEL, "t", [1]))
    assert machine.messages.lowest_number() == 2


def test_a_mirror_without_a_limit_estimates_its_memory_and_weighs_it_under_one():
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 200)])  # bodies of 1 to 200 bytes
    exact = 200 * MESSAGE_RAM_BYTES + sum(range(1, 201))
    assert abs(replica.ram_bytes - exact) < exact // 20
    replica.weigh()
    assert replica.ram_bytes == exact
    replica.apply([_enqueued(201, 1), Settled([1, 7]), Removed([200])])
    assert replica.ram_bytes == exact - 2 * MESSAGE_RAM_BYTES - 1 - 7 - 200 + 201


def test_what_is_paged_out_is_held_settled_cleared_and_filled_like_the_rest():
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 10)])
    assert [n for n, _ in replica.page_out(0, durable=True).pages] == list(range(1, 11))
    assert (replica.depth, replica.paged, replica.messages()) == (10, 10, [])
    assert replica.holds(4)
    assert replica.ranges() == [(1, 10)]
    replica.apply([Settled([1]), Cleared(4, 6)])
    assert replica.numbers() == [2, 3, 7, 8, 9, 10]
    assert replica.lowest() == 2
    replica.begin_sync()
    batch = SyncBatch(1, 8, [(2, 2), (7, 8)], [2, 7], [message(2), message(7)])
    assert replica.apply_sync_batch(batch) == ([], [3])
    replica.end_sync()
    assert replica.paged == 5
    replica.empty()
    assert (replica.depth, replica.lowest()) == (0, None)


def test_persistent_messages_of_a_durable_queue_leave_without_being_written_again():
    replica = LedgerReplica()
    messages = [message(n, persistent=n % 2 == 0) for n in range(1, 5)]
    replica.apply([Enqueued([1, 2, 3, 4], messages)])
    assert [n for n, _ in replica.page_out(0, durable=True).pages] == [1, 3]
    replica.apply([Enqueued([5], [message(6, persistent=True)])])
    assert [n for n, _ in replica.page_out(0, durable=False).pages] == [5]


def test_the_newest_leave_first_so_that_a_promoted_mirror_has_its_head():
    replica = LedgerReplica()
    replica.apply([_enqueued(1, 100)])
    replica.page_out(20 * MESSAGE_RAM_BYTES, durable=True)
    held = [number for number, _ in replica.messages()]
    assert held == list(range(1, len(held) + 1))
    assert 10 < len(held) <= 20
    machine = replica.promote(CONFIG)
    machine.apply_command(Checkout(CHANNEL, "t", prefetch=5))
    machine.pump()
    (items,) = machine.take_effects().deliveries.values()
    assert [item.number for item in items] == [1, 2, 3, 4, 5]
