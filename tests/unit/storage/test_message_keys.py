"""broker.storage.message_keys: the drawn bytes, and what damage does to them."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.message import Message
from broker.storage import message_keys as keys


def message(content: bytes = b"content", persistent: bool = True) -> Message:
    return Message("logs", "a.b", content, 3, 14, len(content), persistent)


@given(
    st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)),
    st.tuples(st.integers(0, 2**63), st.integers(0, 2**63)),
)
def test_index_keys_sort_as_queue_and_number(left: tuple[int, int], right: tuple[int, int]) -> None:
    assert (keys.index_key(*left) < keys.index_key(*right)) == (left < right)
    assert keys.parse_index_key(keys.index_key(*left)) == left


def test_an_embedded_record_as_drawn() -> None:
    record = keys.embedded_record(message())
    assert record[:2] == b"\x01\x00"
    assert record[6:] == (b"\x9c\xa4logs\xa3a.b\xc4\x07content\x03\x0e\x07\xc3\xff\x00\x00\x90\xa0")
    assert keys.parse_record(record) == (message(), None)


def test_a_record_from_before_ttl_and_priority_is_read() -> None:
    rest = b"\x97\xa4logs\xa3a.b\xc4\x07content\x03\x0e\x07\xc3"
    checksum = zlib.crc32(rest, zlib.crc32(b"\x01\x00"))
    record = b"\x01\x00" + checksum.to_bytes(4, "big") + rest
    assert keys.parse_record(record) == (message(), None)


def test_an_external_record_as_drawn() -> None:
    record = keys.external_record(message(), keys.BodyAddress(9, 7))
    assert record[:2] == b"\x01\x01"
    assert record[6:22] == b"\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x07"
    assert keys.peek_body(record) == (9, 7)
    stub, body = keys.parse_record(record)
    assert body == (9, 7)
    assert stub.content == b""
    assert stub.routing_key == "a.b"


@given(st.data())
def test_a_flipped_bit_anywhere_is_noticed(data: st.DataObject) -> None:
    record = keys.external_record(message(), keys.BodyAddress(9, 7))
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    damaged = bytearray(record)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(keys.RecordDamaged):
        keys.parse_record(bytes(damaged))


@pytest.mark.parametrize("size", range(22))
def test_a_short_record_is_noticed(size: int) -> None:
    record = keys.external_record(message(), keys.BodyAddress(9, 7))
    with pytest.raises(keys.RecordDamaged):
        keys.parse_record(record[:size])


@pytest.mark.parametrize(
    ("size", "parts"),
    [(1, 1), (keys.PART_BYTES_MAX, 1), (keys.PART_BYTES_MAX + 1, 2), (3 * keys.PART_BYTES_MAX, 3)],
)
def test_a_body_is_cut_into_parts_of_at_most_a_mebibyte(size: int, parts: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    values = keys.cut_body(content)
    assert len(values) == parts == keys.BodyAddress(1, size).parts
    assert max(map(len, values)) <= keys.PART_BYTES_MAX + 4
    assert b"".join(map(keys.parse_body_part, values)) == content


def test_a_damaged_part_is_noticed() -> None:
    (value,) = keys.cut_body(b"content")
    with pytest.raises(keys.RecordDamaged, match="checksum"):
        keys.parse_body_part(value[:-1] + b"T")


def test_a_copys_note_and_its_key() -> None:
    assert keys.parse_copy_key(keys.copy_key(7)) == 7
    start, end = keys.copy_range()
    assert start <= keys.copy_key(0) < keys.copy_key(1 << 63) < end
    assert not start <= keys.number_key(7) < end
    note = keys.copy_note(b"member")
    assert keys.parse_copy_note(note) == b"member"
    for damaged in (b"", note[:-1], note + b"x"):
        with pytest.raises(keys.RecordDamaged):
            keys.parse_copy_note(damaged)
