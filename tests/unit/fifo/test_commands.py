from __future__ import annotations

import msgspec
import pytest

from broker.amqp.fields import plain_table
from broker.errors import Refusal, ReplyCode
from broker.fifo import ledger
from broker.fifo.commands import (
    UNENCODABLE,
    Checkout,
    Drop,
    DropDeadLettered,
    EndBoot,
    Enqueue,
    Offer,
    Purge,
    SetRules,
    Settle,
    Skip,
    decode_batch,
    decode_offer,
    encodable,
    encode_batch,
    encode_offer,
    owner_of,
    session_name,
    width,
)
from broker.fifo.effects import Effects, Verdict, pack_value, unpack_value
from broker.fifo.handshake import Handshake, decode_handshake
from broker.fifo.limits import Rules
from broker.message import Delivery
from broker.ports import GetResult
from tests.model.fifo_model import message
from tests.wire import every_field

OFFER = Offer(
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


def test_batches_and_offers_come_back_as_they_were():
    rules = Rules(1, 2, 3, "reject-publish", 4, True, True)
    commands = [OFFER, EndBoot("a", "1"), SetRules(rules), DropDeadLettered([1, 2])]
    batch = decode_batch(encode_batch(commands, 99))
    assert (batch.now_ms, batch.commands) == (99, commands)
    assert decode_offer(encode_offer(OFFER)) == OFFER


def test_a_consumers_arguments_may_be_of_every_field_type():
    checkout = Checkout("h", "t", True, False, 1, 0, every_field.values())
    offered = Offer("s", 1, 1, [checkout])
    (offer,) = decode_batch(encode_batch([offered], 99)).commands
    assert offer == decode_offer(encode_offer(offered))
    assert isinstance(offer, Offer)
    (found,) = offer.commands
    assert isinstance(found, Checkout)
    assert found.arguments == plain_table(every_field.values())
    assert found.arguments["timestamp"] == 2**64 - 1


@pytest.mark.parametrize("value", [object(), "\udcff", 1 << 64], ids=["type", "text", "integer"])
def test_what_can_be_encoded_is_told_from_what_can_not(value):
    poison = Offer("s", 1, 1, [Checkout("h", "t", True, False, 1, 0, {"deep": [value]})])
    with pytest.raises(UNENCODABLE):
        encode_batch([OFFER, poison], 99)
    assert encodable([OFFER, poison, DropDeadLettered([1])]) == [OFFER, DropDeadLettered([1])]


def test_garbage_is_a_decode_error():
    with pytest.raises(msgspec.DecodeError):
        decode_batch(b"\xc1nonsense")


def test_an_enqueue_is_as_wide_as_its_messages():
    assert [width(c) for c in (Enqueue([message()] * 3), Skip(5), Purge())] == [3, 5, 1]


def test_names_tell_their_owner():
    assert owner_of(OFFER.session) == ("rabbit@a", "b0")
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


def test_a_handshake_of_an_earlier_version_is_readable():
    data = msgspec.msgpack.encode([1, 9, [], [("a", "1")], [(2, 3)], True])
    expected = Handshake(1, 9, [], [("a", "1")], [(2, 3)], True, [])
    assert decode_handshake(data) == expected


def test_ledger_records_come_back_from_their_bytes():
    records = [ledger.Enqueued([1], [message()]), ledger.Settled([1]), ledger.Skipped("s", 1, 2)]
    data = msgspec.msgpack.encode(records)
    assert msgspec.msgpack.decode(data, type=list[ledger.LedgerRecord]) == records
