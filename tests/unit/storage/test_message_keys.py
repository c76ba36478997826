"""broker.storage.message_keys: the drawn bytes, and what damage does to them."""

from __future__ import annotations

import zlib

import msgspec
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


KEY = keys.index_key(7, 1)


def test_an_embedded_record_as_drawn() -> None:
    record = keys.embedded_record(KEY, message())
    rest = b"\x9c\xa4logs\xa3a.b\xc4\x07content\x03\x0e\x07\xc3\xff\x00\x00\x90\xa0"
    assert record[:6] == b"\x02\x00\x00\x00\x00\x07"
    assert record[10:] == rest
    start = zlib.crc32(KEY, zlib.crc32(b"\x02\x00") ^ 7)
    assert record[6:10] == zlib.crc32(rest, start).to_bytes(4, "big")
    assert keys.parse_record(KEY, record) == (message(), None)
    assert keys.peek(record) == (7, False, None)


def test_a_message_from_before_ttl_and_priority_is_read() -> None:
    rest = b"\x97\xa4logs\xa3a.b\xc4\x07content\x03\x0e\x07\xc3"
    checksum = zlib.crc32(rest, zlib.crc32(KEY, zlib.crc32(b"\x02\x00") ^ 7))
    record = b"\x02\x00\x00\x00\x00\x07" + checksum.to_bytes(4, "big") + rest
    assert keys.parse_record(KEY, record) == (message(), None)


def test_an_external_record_as_drawn() -> None:
    record = keys.external_record(KEY, message(), keys.BodyAddress(9, 7, 0xABCD))
    assert record[:6] == b"\x02\x01\x00\x00\x00\x07"
    assert record[10:30] == b"\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x07\0\0\xab\xcd"
    assert keys.peek(record) == (7, False, (9, 7, 0xABCD))
    stub, body = keys.parse_record(KEY, record)
    assert body == (9, 7, 0xABCD)
    assert stub.content == b""
    assert stub.routing_key == "a.b"


def test_the_head_tells_of_a_message_that_expires() -> None:
    timed = msgspec.structs.replace(message(), expires_ms=5)
    assert keys.peek(keys.embedded_record(KEY, timed)) == (7, True, None)
    address = keys.BodyAddress(9, 7, 1)
    assert keys.peek(keys.external_record(KEY, timed, address)) == (7, True, address)


@given(st.data(), st.booleans())
def test_a_flipped_bit_anywhere_is_noticed(data: st.DataObject, is_external: bool) -> None:
    if is_external:
        record = keys.external_record(KEY, message(), keys.BodyAddress(9, 7, 1))
    else:
        record = keys.embedded_record(KEY, message())
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    damaged = bytearray(record)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(keys.RecordDamaged):
        keys.parse_record(KEY, bytes(damaged))


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_record_under_another_key_is_noticed(uid: int, number: int) -> None:
    key = keys.index_key(uid, number)
    if key != KEY:
        with pytest.raises(keys.RecordDamaged, match="checksum"):
            keys.parse_record(key, keys.embedded_record(KEY, message()))


def fill(stub: Message, body: keys.BodyAddress) -> Message:
    return msgspec.structs.replace(stub, content=b"body %d" % body.body_id)


def run_of(messages: list[Message]) -> list[bytes]:
    """Records of neighbours from number 1023 on, those with a long routing key external."""
    return [
        keys.embedded_record(keys.index_key(7, number), each)
        if len(each.routing_key) < 5
        else keys.external_record(
            keys.index_key(7, number), each, keys.BodyAddress(number, 7, 0xABCD)
        )
        for number, each in enumerate(messages, 1023)
    ]


@given(st.lists(st.tuples(st.sampled_from(["a.b", "far away"]), st.integers(0, 3)), max_size=9))
def test_a_run_is_read_as_its_records_are(drawn: list[tuple[str, int]]) -> None:
    messages = [
        msgspec.structs.replace(message(b"content %d" % ms), routing_key=key, expires_ms=ms)
        for key, ms in drawn
    ]
    expected = []
    for number, record in enumerate(run_of(messages), 1023):
        each, body = keys.parse_record(keys.index_key(7, number), record)
        expected.append((number, each if body is None else fill(each, body)))
    assert keys.parse_run(7, 1023, run_of(messages), fill) == expected


@given(st.lists(st.integers(0, 2**63), unique=True, max_size=5), st.integers(0, 1))
def test_a_run_is_written_as_its_records_are(numbers: list[int], expires_ms: int) -> None:
    each = msgspec.structs.replace(message(), expires_ms=expires_ms)
    expected = [
        (key, keys.embedded_record(key, each))
        for key in (keys.index_key(7, number) for number in numbers)
    ]
    assert keys.embedded_run(7, [(number, each) for number in numbers]) == expected


@given(st.data())
def test_a_flipped_bit_anywhere_in_a_run_is_noticed(data: st.DataObject) -> None:
    far = msgspec.structs.replace(message(), routing_key="far away")
    records = run_of([message(), far, message()])
    at = data.draw(st.integers(0, 2))
    bit = data.draw(st.integers(0, 8 * len(records[at]) - 1))
    damaged = bytearray(records[at])
    damaged[bit // 8] ^= 1 << bit % 8
    records[at] = bytes(damaged)
    with pytest.raises(keys.RecordDamaged):
        keys.parse_run(7, 1023, records, fill)


@pytest.mark.parametrize("records", [[b"\x02"], [b""], run_of([message()] * 3)[::2]])
def test_a_run_with_a_gap_or_a_short_record_is_noticed(records: list[bytes]) -> None:
    with pytest.raises(keys.RecordDamaged):
        keys.parse_run(7, 1023, records, fill)


@pytest.mark.parametrize("size", range(30))
def test_a_short_record_is_noticed(size: int) -> None:
    record = keys.external_record(KEY, message(), keys.BodyAddress(9, 7, 1))
    with pytest.raises(keys.RecordDamaged):
        keys.parse_record(KEY, record[:size])


@pytest.mark.parametrize(
    ("size", "parts"),
    [(1, 1), (keys.PART_BYTES_MAX, 1), (keys.PART_BYTES_MAX + 1, 2), (3 * keys.PART_BYTES_MAX, 3)],
)
def test_a_body_is_cut_into_parts_of_at_most_a_mebibyte(size: int, parts: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    values = keys.cut_body(content)
    body = keys.BodyAddress(1, size, keys.body_checksum(1, content))
    assert len(values) == parts == body.parts
    assert max(map(len, values)) <= keys.PART_BYTES_MAX
    assert keys.join_body(body, values) == content


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [(b"contenT", "checksum"), (b"conten", "6 bytes, expected 7"), (b"", "0 bytes")],
)
def test_a_damaged_body_is_noticed(damaged: bytes, reason: str) -> None:
    body = keys.BodyAddress(1, 7, keys.body_checksum(1, b"content"))
    with pytest.raises(keys.RecordDamaged, match=reason):
        keys.join_body(body, [damaged])
    with pytest.raises(keys.RecordDamaged, match="checksum"):
        keys.join_body(body._replace(body_id=2), [b"content"])


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
