from __future__ import annotations

from broker.errors import Refusal
from broker.fifo.commands import CommandBatch, Enqueue, Purge, Settle, Skip
from broker.fifo.effects import Effects, OutOfSequence, Reply, Verdict
from broker.fifo.sessions import ENDED_MAX, REPLIES_MAX, SessionTable
from tests.model.fifo_model import message

SESSION = "a/1/7/0"
SETTLE = Settle("a/1/1/1", "t", [1])


def _admit(table: SessionTable, first: int, count: int, lowest: int = 1, session: str = SESSION):
    effects = Effects()
    admitted = table.admit(CommandBatch(session, lowest, first, [SETTLE] * count), effects)
    if admitted is not None:
        table.advance(session, admitted[0] + len(admitted[1]))
    return admitted, effects


def test_an_unknown_session_must_begin_with_one():
    """P10. Its beginning may have come to a replica that did not lead: nothing was answered."""
    table = SessionTable()
    admitted, effects = _admit(table, 2, 1)
    assert admitted is None
    assert effects.session_lost == []
    assert effects.out_of_sequence == [OutOfSequence(SESSION, 1)]


def test_an_unknown_session_that_has_answers_already_is_lost():
    """P10. A queue that forgot has answered its first number: doing it again would double it."""
    _, effects = _admit(SessionTable(), 1, 1, lowest=2)
    assert effects.session_lost == [SESSION]


def test_an_unknown_session_whose_publishes_an_earlier_master_was_sent_is_lost():
    """P11. They may be among what was read from its disk: doing them again would double them."""
    table = SessionTable()
    effects = Effects()
    again = Enqueue([message()], redelivered=True)
    assert table.admit(CommandBatch(SESSION, 1, 1, [again]), effects) is None
    assert effects.session_lost == [SESSION]
    table.take_over()  # a mirror that was promoted would know the session, had it done anything
    effects = Effects()
    assert table.admit(CommandBatch(SESSION, 1, 1, [again]), effects) == (1, [again], None, [])
    assert effects.session_lost == []


def test_a_gap_is_refused_with_the_number_expected():
    table = SessionTable()
    _admit(table, 1, 2)
    admitted, effects = _admit(table, 5, 1)
    assert admitted is None
    assert effects.out_of_sequence == [OutOfSequence(SESSION, 3)]


def test_abandoned_numbers_are_not_waited_for():
    table = SessionTable()
    _admit(table, 1, 2)
    admitted, _ = _admit(table, 5, 1, lowest=5)
    assert admitted == (5, [SETTLE], (3, 4), [])


def test_duplicates_are_answered_and_only_the_rest_is_new():
    table = SessionTable()
    _admit(table, 1, 3)
    admitted, effects = _admit(table, 2, 4)
    assert admitted == (4, [SETTLE, SETTLE], None, [])
    assert effects.verdicts == [Verdict(SESSION, 2, 3, True)]


def test_of_an_enqueue_done_in_part_the_rest_is_new():
    table = SessionTable()
    _admit(table, 1, 2)
    messages = [message(1), message(2), message(3)]
    admitted = table.admit(CommandBatch(SESSION, 1, 1, [Enqueue(messages), Skip(2)]), Effects())
    assert admitted == (3, [Enqueue(messages[2:]), Skip(2)], None, [])


def test_a_duplicate_is_answered_as_the_original_was():
    """Rows: 1.16 dedupe of resends"""
    table = SessionTable()
    _admit(table, 1, 6)
    table.owe(SESSION, 1, 2, 10)
    table.reject(SESSION, 4, 4)
    _, effects = _admit(table, 1, 6)
    assert effects.verdicts == [
        Verdict(SESSION, 3, 3, True),
        Verdict(SESSION, 4, 4, False),
        Verdict(SESSION, 5, 6, True),
    ]
    table.mark_durable(9, effects := Effects())
    assert not effects.verdicts
    table.mark_durable(10, effects)
    assert effects.verdicts == [Verdict(SESSION, 1, 2, True)]


def test_nothing_below_lowest_is_answered_or_remembered():
    table = SessionTable()
    _admit(table, 1, 6)
    table.owe(SESSION, 1, 2, 10)
    table.reject(SESSION, 3, 3)
    table.reply(SESSION, 4, 1)
    _, effects = _admit(table, 1, 6, lowest=5)
    assert effects.verdicts == [Verdict(SESSION, 5, 6, True)]
    (record,) = table.records()
    assert (record.owed, record.rejected, record.replies) == ([], [], [])


def test_a_newer_count_replaces_a_session_and_the_older_is_silent_after():
    table = SessionTable()
    _admit(table, 1, 3)
    admitted, _ = _admit(table, 1, 1, session="a/1/7/1")
    assert admitted is not None
    admitted, effects = _admit(table, 4, 1)
    assert admitted is None
    assert not effects


def test_remembered_values_are_bounded():
    table = SessionTable()
    batch = CommandBatch(SESSION, 1, 1, [Purge()] * (REPLIES_MAX + 1))
    table.admit(batch, Effects())
    table.advance(SESSION, REPLIES_MAX + 2)
    for number in range(1, REPLIES_MAX + 2):
        table.reply(SESSION, number, number)
    table.admit(batch, effects := Effects())
    assert isinstance(effects.replies[0].value, Refusal)
    assert effects.replies[1:] == [Reply(SESSION, n, n) for n in range(2, REPLIES_MAX + 2)]


def test_ended_boots_are_remembered_up_to_a_limit():
    table = SessionTable()
    for boot in range(ENDED_MAX + 1):
        table.end_boot("a", str(boot))
    assert not table.has_ended("a/0/1/1")
    assert table.has_ended("a/1/1/1")
    assert len(table.ended()) == ENDED_MAX


def test_a_loaded_table_answers_like_the_saved_one():
    table = SessionTable()
    _admit(table, 1, 4)
    table.owe(SESSION, 1, 1, 10)
    table.reply(SESSION, 2, 5)
    table.end_boot("b", "1")
    other = SessionTable()
    other.load(table.records(), table.ended())
    assert other.records() == table.records()
    assert other.has_ended("b/1/1/1")
