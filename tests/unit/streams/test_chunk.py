"""Chunks: what goes in comes out, no changed bit goes through, and the bytes are those drawn."""

from __future__ import annotations

import random
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.content import Properties, build_message, facts_of, raw_properties
from broker.message import Message
from broker.streams import columns
from broker.streams.chunk import (
    HEAD_SIZE,
    Chunk,
    ChunkDamaged,
    encode_chunk,
    head_may_match,
    read_head,
)
from broker.streams.deliveries import StreamDeliveries
from tests.unit.streams.messages import any_messages, plain, received, said_by, with_filters


def encoded(messages: list[Message], *, first_offset: int = 100, filter_size: int = 16) -> bytes:
    return encode_chunk(
        messages,
        first_offset=first_offset,
        timestamp_ms=1_700_000_000_123,
        term=7,
        filter_size=filter_size,
    )


def own(i: int) -> Properties:
    return Properties(content_type="a/b", headers={"n": i}, message_id=f"id-{i}")


@settings(max_examples=300, deadline=None)
@given(any_messages(), st.integers(16, 255))
def test_messages_come_out_as_they_went_in(messages: list[Message], filter_size: int) -> None:
    messages = received(messages)
    chunk = Chunk.parse(encoded(messages, filter_size=filter_size))
    assert (chunk.first_offset, chunk.count, chunk.term) == (100, len(messages), 7)
    assert (chunk.last_offset, chunk.timestamp_ms) == (99 + len(messages), 1_700_000_000_123)
    for i, message in enumerate(messages):
        found = chunk.message(i)
        assert said_by(found) == said_by(message)
        assert found.channel == 1
        assert (found.persistent, found.ttl_ms, found.priority) == (
            message.persistent,
            message.ttl_ms,
            message.priority,
        )
        assert "x-stream-offset" not in (said_by(found)[2].headers or {})
        facts_of(raw_properties(found))  # a header frame that passes every check


def test_properties_are_kept_byte_for_byte() -> None:
    messages = [build_message("ex", "key", own(i), b"b") for i in range(5)] + plain(5)
    chunk = Chunk.parse(encoded(messages))
    for i, message in enumerate(messages):
        assert raw_properties(chunk.message(i)) == raw_properties(message)


def test_a_message_of_many_megabytes_is_a_chunk_of_its_own() -> None:
    body = random.Random(1).randbytes(40 << 20)
    chunk = Chunk.parse(encoded([build_message("ex", "key", own(1), body)]))
    assert said_by(chunk.message(0)) == ("ex", "key", own(1), body)


@pytest.mark.parametrize(
    "messages",
    [
        plain(4, size=3),
        [build_message("ex", "key", own(i), b"b") for i in range(3)],
        [build_message("ex", f"key.{i}", own(i), b"") for i in range(3)],
        with_filters(["a", None, "b", "a"]),
    ],
    ids=["equal", "own", "whole", "filters"],
)
def test_every_flipped_bit_is_found(messages: list[Message]) -> None:
    good = encoded(messages)
    for position in range(len(good) * 8):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << position % 8
        with pytest.raises(ChunkDamaged):
            Chunk.parse(bytes(bad))


def test_a_chunk_that_is_cut_or_goes_on_is_found() -> None:
    good = encoded(plain(3))
    for bad in [good[:size] for size in range(len(good))] + [good + b"\0", good + good]:
        with pytest.raises(ChunkDamaged):
            Chunk.parse(bad)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_chunk_or_damaged(data: bytes, begins_well: bool) -> None:
    if begins_well:
        data = encoded(plain(1))[:12] + data
    with pytest.raises(ChunkDamaged):
        Chunk.parse(data)


def sealed(data: bytes) -> bytes:
    """A chunk whose checksums are right, whatever else is in it."""
    bloom = data[44]
    at = HEAD_SIZE + bloom
    head = zlib.crc32(data[HEAD_SIZE:at], zlib.crc32(data[36:48], zlib.crc32(data[:32])))
    body = head.to_bytes(4, "little") + data[at + 4 :]
    return data[:32] + zlib.crc32(body).to_bytes(4, "big") + data[36:at] + body


@settings(max_examples=500, deadline=None)
@given(any_messages(max_size=5), st.data())
def test_forged_columns_are_read_or_damaged(messages: list[Message], data: st.DataObject) -> None:
    forged = bytearray(encoded(messages))
    assert sealed(bytes(forged)) == bytes(forged)
    at = HEAD_SIZE + forged[44] + 4
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(at, len(forged) - 1))
        forged[position] = data.draw(st.integers(0, 255))
    try:
        chunk = Chunk.parse(sealed(bytes(forged)))
        chunk.check()
    except ChunkDamaged:
        return
    for i in range(chunk.count):
        chunk.template_of(i)
        chunk.filter_value(i)
    out: list[bytes] = []
    StreamDeliveries(chunk, 0, chunk.count).render(1, b"tag", 1, 4096, out)
    assert len(b"".join(out)) > len(chunk.data[chunk.columns.bodies_at :])


def test_positions_that_go_back_are_found_by_a_check() -> None:
    """Nothing else would: their sum is right, and slices never fail."""
    for messages, column in [
        (plain(3, size=5), 0),
        ([build_message("", "q", own(i), b"") for i in range(3)], 1),
    ]:
        forged = bytearray(encoded(messages))
        at = HEAD_SIZE + 32 + column * 16
        middle = forged[at + 4 : at + 8]
        forged[at + 4 : at + 8] = forged[at + 8 : at + 12]
        forged[at + 8 : at + 12] = middle
        chunk = Chunk.parse(sealed(bytes(forged)))
        with pytest.raises(ChunkDamaged, match="positions go back"):
            chunk.check()


def test_messages_beyond_the_most_templates_are_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "TEMPLATES_MAX", 2)
    messages = [
        build_message("ex", f"key.{i // 4}", own(i // 2 if i % 3 else i), b"%d" % i)
        for i in range(40)
    ]
    chunk = Chunk.parse(encoded(messages))
    assert len(chunk.columns.templates) == 2
    assert [said_by(chunk.message(i)) for i in range(40)] == [said_by(each) for each in messages]


def test_a_chunk_may_have_more_templates_than_numbers_for_them() -> None:
    count = columns.TEMPLATES_MAX + 10
    messages = [build_message("", f"{i // 2:x}", Properties(), b"") for i in range(2 * count)]
    chunk = Chunk.parse(encoded(messages))
    chunk.check()
    assert (chunk.count, len(chunk.columns.templates)) == (2 * count, columns.TEMPLATES_MAX)
    for i in (0, 2 * columns.TEMPLATES_MAX - 1, 2 * columns.TEMPLATES_MAX, 2 * count - 1):
        assert chunk.message(i).routing_key == f"{i // 2:x}"


def test_a_chunk_may_begin_behind_other_bytes() -> None:
    data = b"before" + encoded(with_filters(["a"]))
    chunk = Chunk.parse(data, 6)
    assert said_by(chunk.message(0))[3] == b"0"
    assert chunk.may_match(frozenset("a"), match_unfiltered=False)
    assert not chunk.may_match(frozenset("b"), match_unfiltered=False)
    assert read_head(data, 6).size_bytes == len(data) - 6 == chunk.size_bytes


def test_a_stub_is_never_written_as_an_empty_message() -> None:
    stub = msgspec.structs.replace(plain(1)[0], content=b"")
    with pytest.raises(AssertionError, match="whole messages"):
        encoded([stub])


def test_filters_match_exactly() -> None:
    values = ["a", None, "b", "a", "ü"]
    for more in [{}, {"message_id": "x"}]:
        messages = with_filters(values, **more)
        chunk = Chunk.parse(encoded(messages))
        assert [chunk.filter_value(i) for i in range(5)] == values
        assert chunk.filter_values == {"a", "b", "ü"}
        assert chunk.matches(frozenset("a"), match_unfiltered=False) == [0, 3]
        assert chunk.matches(frozenset("aü"), match_unfiltered=True) == [0, 1, 3, 4]
        assert chunk.matches(frozenset("abü"), match_unfiltered=True) == range(5)
        assert list(chunk.matches(frozenset("c"), match_unfiltered=False)) == []


def test_without_filter_values_only_who_wants_unfiltered_gets_any() -> None:
    data = encoded(plain(3))
    chunk = Chunk.parse(data)
    assert read_head(data).bloom_size == 0
    assert list(chunk.matches(frozenset("a"), match_unfiltered=False)) == []
    assert chunk.matches(frozenset("a"), match_unfiltered=True) == range(3)
    assert not head_may_match(data[:48], frozenset("a"), match_unfiltered=False)
    assert head_may_match(data[:48], frozenset("a"), match_unfiltered=True)


@pytest.mark.parametrize("value", [5, b"\xff", True, None, {"a": 1}])
def test_a_filter_value_that_is_no_text_is_none(value: object) -> None:
    messages = [build_message("", "q", Properties(headers={"x-stream-filter-value": value}), b"")]
    chunk = Chunk.parse(encoded(messages * 2))
    assert chunk.filter_value(0) is None
    assert chunk.filter_values == frozenset()


def test_a_property_that_looks_like_a_filter_value_is_none() -> None:
    properties = Properties(correlation_id="x-stream-filter-value", message_id="m" * ord("S"))
    for count in (1, 2):
        messages = [build_message("", "q", properties, b"")] * count
        chunk = Chunk.parse(encoded(messages))
        assert chunk.filter_values == frozenset()
        assert said_by(chunk.message(0)) == said_by(messages[0])


def test_a_filter_value_deeper_or_inside_of_text_does_not_count() -> None:
    headers: dict[str, object] = {
        "t": {"x-stream-filter-value": "a"},
        "s": "\x15x-stream-filter-valueS\0\0\0\1a",
    }
    for count in (1, 2):
        messages = [build_message("", "q", Properties(headers=headers), b"")] * count
        assert Chunk.parse(encoded(messages)).filter_values == frozenset()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.none() | st.text("abc", min_size=1, max_size=3), min_size=1, max_size=8),
    st.frozensets(st.text("abc", min_size=1, max_size=3), max_size=3),
    st.booleans(),
    st.integers(16, 255),
)
def test_the_bloom_filter_never_hides_a_match(
    values: list[str | None], filters: frozenset[str], match_unfiltered: bool, size: int
) -> None:
    data = encoded(with_filters(values), filter_size=size)
    found = Chunk.parse(data).matches(filters, match_unfiltered=match_unfiltered)
    wanted = [i for i, v in enumerate(values) if (match_unfiltered if v is None else v in filters)]
    assert list(found) == wanted
    if wanted:
        assert head_may_match(data[: HEAD_SIZE + 255], filters, match_unfiltered=match_unfiltered)


def test_the_bloom_filter_tells_most_other_values() -> None:
    data = encoded(with_filters([f"v{i}" for i in range(4)]))
    others = [frozenset({f"other-{i}"}) for i in range(1000)]
    hits = sum(head_may_match(data, each, match_unfiltered=False) for each in others)
    assert hits < 30  # of 1,000 others; 4 values set 8 of 128 bits: (8 / 128) ** 2 * 1000 = 4
