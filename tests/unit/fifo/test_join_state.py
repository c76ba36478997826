"""broker.fifo.join_state: what a joiner replays the ledger on (P10, P20)."""

from __future__ import annotations

import msgspec
import pytest

from broker.fifo.commands import Checkout, CommandBatch, Enqueue, Settle
from broker.fifo.config import mirrored_config
from broker.fifo.join_state import decode_join_state, encode_join_state
from broker.fifo.machine import QueueMachine
from tests.model.fifo_model import message

SESSION = "a/1/7/0"


def _master() -> QueueMachine:
    machine = QueueMachine(mirrored_config("q", "/"))
    machine.apply_batch(CommandBatch(SESSION, 1, 1, [Enqueue([message()] * 4)]), 0)
    machine.apply_command(Checkout("a/1/1/1", "t", prefetch=2))
    machine.pump()
    return machine


def test_it_says_where_numbers_and_sessions_stand_and_holds_no_messages():
    machine = _master()
    join_state = machine.join_state()
    assert join_state.next_number == 5
    (session,) = join_state.sessions
    assert (session.next_number, session.lowest, session.owed) == (5, 1, [])
    assert len(encode_join_state(join_state)) < 100


def test_messages_the_joiner_will_not_have_prove_nothing_to_it():
    """P11: those that are settled do, ready and held ones do not."""
    machine = _master()
    machine.apply_command(Settle("a/1/1/1", "t", [2]))
    assert machine.join_state().absent == [(1, 1), (3, 4)]


def test_what_nobody_will_ask_for_again_is_left_out():
    machine = _master()
    machine.apply_batch(CommandBatch(SESSION, 4, 5, [Settle("a/1/1/1", "t", [])]), 0)
    join_state = machine.join_state()
    assert join_state.absent == [(4, 4)]
    assert join_state.sessions[0].spans == [(4, 4, 4)]


def test_a_queue_that_came_back_from_a_disk_says_that_sessions_are_missing():
    machine = QueueMachine(mirrored_config("q", "/"))
    assert machine.join_state().is_whole
    machine.restore_messages([(3, message())], 10)
    assert not machine.join_state().is_whole


def test_bytes_and_back():
    join_state = _master().join_state()
    data = encode_join_state(join_state)
    assert decode_join_state(data) == join_state
    with pytest.raises(msgspec.DecodeError, match="expected join state version 1, found 2"):
        decode_join_state(data[:1] + b"\x02" + data[2:])
