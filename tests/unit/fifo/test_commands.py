from __future__ import annotations

import msgspec
import pytest

from broker.amqp.fields import plain_table
from broker.errors import Refusal, ReplyCode
from broker.fifo import ledger
from broker.fifo.commands import (
    UNENCODABLE,
    Checkout,
    CommandBatch,
    Drop,
    DropDeadLettered,
    EndBoot,
    Enqueue,
    Purge,
    SetRules,
    Settle,
    Skip,
    decode_commands,
    decode_entry,
    encodable,
    encode_commands,
    encode_entry,
    owner_of,
    session_name,
    width,
)
from broker.fifo.effects import Effects, Verdict, pack_value, unpack_value
from broker.fifo.join_state import JoinState, decode_join_state
from broker.fifo.limits import Rules
from broker.message import Delivery
from broker.ports import GetResult
from tests.model.fifo_model import message
from tests.wire import every_field

BATCH = CommandBatch(
    session_name("rabbit@a", "b0", 7, 2),
    3,
    4,
    [
        Enqueue([message()]),
        Settle("h", "t", [1, 2]),
        Checkout("h", "t", True, False, 1, 0, {}),
        Purge(),
        Drop([4, 9]),
    ],
)


def test_entries_and_batches_come_back_as_they_were():
    rules = Rules(1, 2, 3, "reject-publish", 4, True, True)
    commands = [BATCH, EndBoot("a", "1"), SetRules(rules), DropDeadLettered([1, 2])]
    entry = decode_entry(encode_entry(commands, 99))
    assert (entry.now_ms, entry.commands) == (99, commands)
    assert decode_commands(encode_commands(BATCH)) == BATCH


def test_a_consumers_arguments_may_be_of_every_field_type():
    checkout = Checkout("h", "t", True, False, 1, 0, every_field.values())
    sent = CommandBatch("s", 1, 1, [checkout])
    (batch,) = decode_entry(encode_entry([sent], 99)).commands
    assert batch == decode_commands(encode_commands(sent))
    assert isinstance(batch, CommandBatch)
    (found,) = batch.commands
    assert isinstance(found, Checkout)
    assert found.arguments == plain_table(every_field.values())
    assert found.arguments["timestamp"] == 2**64 - 1


@pytest.mark.parametrize("value", [object(), "\udcff", 1 << 64], ids=["type", "text", "integer"])
def test_what_can_be_encoded_is_told_from_what_can_not(value):
    poison = CommandBatch("s", 1, 1, [Checkout("h", "t", True, False, 1, 0, {"deep": [value]})])
    with pytest.raises(UNENCODABLE):
        encode_entry([BATCH, poison], 99)
    assert encodable([BATCH, poison, DropDeadLettered([1])]) == [BATCH, DropDeadLettered([1])]


def test_garbage_is_a_decode_error():
    with pytest.raises(msgspec.DecodeError):
        decode_entry(b"\xc1nonsense")


def test_an_enqueue_is_as_wide_as_its_messages():
    assert [width(c) for c in (Enqueue([message()] * 3), Skip(5), Purge())] == [3, 5, 1]


def test_names_tell_their_owner():
    assert owner_of(BATCH.session) == ("rabbit@a", "b0")
    assert owner_of("rabbit@a/b0/17/1") == ("rabbit@a", "b0")


@pytest.mark.parametrize(
    "value", [None, 0, 7, GetResult(None, 0), GetResult(Delivery(3, 1, message()), 5)]
)
def test_reply_values_travel(value):
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(pack_value(value)))
    assert unpack_value(packed) == value


def test_a_refusal_travels():
    packed = msgspec.msgpack.decode(
        msgspec.msgpack.encode(pack_value(Refusal(ReplyCode.NOT_FOUND, "no")))
    )
    value = unpack_value(packed)
    assert isinstance(value, Refusal)
    assert (value.code, value.text) == (ReplyCode.NOT_FOUND, "no")


def test_an_unknown_value_is_a_bug():
    with pytest.raises(TypeError):
        pack_value("text")


def test_adjacent_verdicts_are_joined():
    effects = Effects()
    effects.add_verdict("s", 1, 3, ok=True)
    effects.add_verdict("s", 4, 4, ok=True)
    effects.add_verdict("s", 5, 5, ok=False)
    effects.add_verdict("r", 6, 6, ok=False)
    assert effects.verdicts == [
        Verdict("s", 1, 4, True),
        Verdict("s", 5, 5, False),
        Verdict("r", 6, 6, False),
    ]


def test_a_ledger_of_an_earlier_version_is_readable():
    """What an older master sends has no times of its enqueues."""
    data = msgspec.msgpack.encode([1, [[1, [7], [message()], "s", 3, 2]]])
    assert ledger.decode_records(data) == [ledger.Enqueued([7], [message()], "s", 3, 2, 0)]


def test_a_join_state_of_an_earlier_version_is_readable():
    data = msgspec.msgpack.encode([1, 9, [], [("a", "1")], [(2, 3)], True])
    expected = JoinState(1, 9, [], [("a", "1")], [(2, 3)], True, [])
    assert decode_join_state(data) == expected


def test_ledger_records_come_back_from_their_bytes():
    records = [ledger.Enqueued([1], [message()]), ledger.Settled([1]), ledger.Skipped("s", 1, 2)]
    data = msgspec.msgpack.encode(records)
    assert msgspec.msgpack.decode(data, type=list[ledger.LedgerRecord]) == records
