"""broker.fifo.ledger: payloads for mirrors (P13, P15)."""

from __future__ import annotations

import msgspec
import pytest

from broker.fifo.ledger import (
    PAYLOAD_BYTES_MAX,
    PAYLOAD_MESSAGES_MAX,
    VERSION,
    Cleared,
    Enqueued,
    Opened,
    Rejected,
    Removed,
    Returned,
    Settled,
    Skipped,
    Taken,
    cut_records,
    decode_records,
    encode_records,
)
from broker.message import Message
from tests.model.fifo_model import message

SESSION = "a/1/7/0"
EVERY_KIND = [
    Opened(SESSION),
    Enqueued([4, 5], [message(1), message(2)], SESSION, 7, 3),
    Settled([4]),
    Removed([1, 9]),
    Cleared(10, 1_000_000),
    Rejected(SESSION, 9, 9),
    Skipped(SESSION, 10, 12),
]


def _big(size: int) -> Message:
    return Message("", "q", bytes(size), 1, 14, size, True)


def test_a_payload_brings_every_record_back():
    assert decode_records(encode_records(EVERY_KIND)) == EVERY_KIND


def test_a_payload_of_another_version_is_refused():
    payload = bytearray(encode_records([Opened(SESSION)]))
    assert payload[1] == VERSION
    payload[1] += 1
    with pytest.raises(msgspec.DecodeError, match="expected ledger version 1, found 2"):
        decode_records(bytes(payload))


def test_what_a_mirror_has_no_use_for_is_not_sent():
    """P16: whoever held a message, after a failover it is ready and redelivered."""
    assert list(cut_records([Taken([1]), Returned([1])])) == []
    assert list(cut_records([Taken([1]), Settled([1])])) == [[Settled([1])]]


def test_a_turn_within_the_limits_is_one_payload_of_the_very_records():
    groups = list(cut_records(EVERY_KIND))
    assert groups == [EVERY_KIND]
    assert groups[0][1] is EVERY_KIND[1]


def test_long_enqueues_are_cut_at_a_mebibyte_and_each_part_says_whose_numbers_it_has():
    """P13."""
    third = _big(PAYLOAD_BYTES_MAX // 3)
    record = Enqueued([10, 11, 12, 13, 14], [third] * 5, SESSION, 20, 15)
    groups = list(cut_records([Settled([1]), record, Settled([10])]))
    assert groups == [
        [Settled([1]), Enqueued([10, 11, 12], [third] * 3, SESSION, 20, 15)],
        [Enqueued([13, 14], [third] * 2, SESSION, 23, 15), Settled([10])],
    ]


def test_a_larger_message_goes_alone_and_parts_of_no_session_stay_so():
    small, huge = _big(10), _big(2 * PAYLOAD_BYTES_MAX)
    groups = list(cut_records([Enqueued([1, 2, 3], [small, huge, small])]))
    assert groups == [[Enqueued([n], [m])] for n, m in ((1, small), (2, huge), (3, small))]


def test_a_payload_holds_no_more_messages_than_a_mirror_handles_in_a_turn():
    count = 2 * PAYLOAD_MESSAGES_MAX + 1
    record = Enqueued(list(range(1, count + 1)), [message()] * count, SESSION, 1, 1)
    parts = [part for group in cut_records([record]) for part in group]
    assert [len(part.numbers) for part in parts] == [1000, 1000, 1]
    assert [part.first for part in parts] == [1, 1001, 2001]
    assert [number for part in parts for number in part.numbers] == record.numbers
