"""Deliveries of a stream: what a client reads, for any messages, channels and frame sizes."""

from __future__ import annotations

import pamqp.commands
import pamqp.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp import fields
from broker.amqp.content import Properties, build_message, decode_properties, raw_headers
from broker.amqp.frames import FRAME, encode_deliveries
from broker.message import Message
from broker.streams import deliveries as module
from broker.streams.chunk import Chunk, encode_chunk
from broker.streams.deliveries import StreamDeliveries
from tests.unit.streams.messages import any_messages, plain, said_by, with_filters

FIRST = 1 << 40


def chunk_of(messages: list[Message]) -> Chunk:
    data = encode_chunk(messages, first_offset=FIRST, timestamp_ms=1, term=1, filter_size=16)
    return Chunk.parse(data)


def rendered(
    wanted: StreamDeliveries,
    *,
    channel: int = 5,
    tag: bytes = b"ctag",
    first: int = 40,
    frame_max: int = 131_072,
) -> bytes:
    out = [b"before"]
    assert wanted.render(channel, tag, first, frame_max, out) == first + len(wanted)
    assert out[0] == b"before"
    return b"".join(out[1:])


def read_all(data: bytes, frame_max: int) -> list[tuple[int, str, int, Message]]:
    """Channel, consumer tag, delivery tag and message of each delivery, as a client reads them."""
    found = []
    while data:
        size, channel, method = pamqp.frame.unmarshal(data)
        assert isinstance(method, pamqp.commands.Basic.Deliver)
        assert method.redelivered is False
        data = data[size:]
        kind, number, header_size = FRAME.unpack_from(data)
        assert (kind, number) == (2, channel)
        body_size = int.from_bytes(data[11:19], "big")
        end = header_size + 8
        left = body_size
        while left:
            kind, number, size = FRAME.unpack_from(data, end)
            assert (kind, number) == (3, channel)
            assert 0 < size <= frame_max - 8
            end += size + 8
            assert data[end - 1] == 0xCE
            left -= size
        content, data = data[:end], data[end:]
        message = Message(
            method.exchange, method.routing_key, content, channel, header_size, body_size, False
        )
        found.append((channel, method.consumer_tag, method.delivery_tag, message))
    return found


@settings(max_examples=300, deadline=None)
@given(
    any_messages(),
    st.integers(1, 65535),
    st.sampled_from([b"", b"ctag", b"t" * 255]),
    st.sampled_from([4096, 131_072]),
    st.data(),
)
def test_a_client_reads_what_was_published_and_its_offset(
    messages: list[Message], channel: int, tag: bytes, frame_max: int, data: st.DataObject
) -> None:
    chunk = chunk_of(messages)
    picked = data.draw(st.none() | st.sets(st.integers(0, len(messages) - 1)).map(sorted))
    start = data.draw(st.integers(0, len(messages)))
    stop = data.draw(st.integers(start, len(messages)))
    wanted = StreamDeliveries(chunk, start, stop, picked)
    numbers = [i for i in range(start, stop) if picked is None or i in picked]
    assert wanted.numbers == [FIRST + 1 + i for i in numbers]
    assert len(wanted) == len(numbers)
    got = read_all(rendered(wanted, channel=channel, tag=tag, frame_max=frame_max), frame_max)
    assert [each[:3] for each in got] == [
        (channel, tag.decode(), 40 + at) for at in range(len(numbers))
    ]
    for (*_, message), i in zip(got, numbers, strict=True):
        assert said_by(message) == said_by(with_table(messages[i]))
        assert (decode_properties(message).headers or {})["x-stream-offset"] == FIRST + i


def with_table(message: Message) -> Message:
    """The message with a headers table, as a delivery of a stream always has one."""
    properties = decode_properties(message)
    properties.headers = properties.headers or {}
    return build_message(message.exchange, message.routing_key, properties, said_by(message)[3])


@settings(max_examples=100, deadline=None)
@given(any_messages(), st.sampled_from([4096, 131_072]))
def test_the_slow_way_gives_the_same_bytes(messages: list[Message], frame_max: int) -> None:
    wanted = StreamDeliveries(chunk_of(messages), 0, len(messages))
    out: list[bytes] = []
    encode_deliveries(5, b"ctag", 40, list(wanted), frame_max, out)
    assert rendered(wanted, frame_max=frame_max) == b"".join(out)


@pytest.mark.parametrize("size", [4087, 4088, 4089, 8176, 8177])
@pytest.mark.parametrize("count", [1, 2])
def test_a_body_fills_frames_to_the_last_byte(size: int, count: int) -> None:
    messages = plain(count, size=size)
    data = rendered(StreamDeliveries(chunk_of(messages), 0, count), frame_max=4096)
    got = read_all(data, 4096)
    assert [said_by(message)[3] for *_, message in got] == [said_by(each)[3] for each in messages]
    assert data.count(b"\x03\x00\x05\x00\x00\x0f\xf8") == count * (size // 4088)


def test_the_offset_is_a_long_and_stands_once() -> None:
    brought = Properties(headers={"a": 1, "x-stream-offset": "mine", "b": 2}, message_id="m")
    for messages in [
        [build_message("", "q", brought, b"x")],
        [build_message("", "q", brought, b"x")] * 2,
        [build_message("", f"q{i}", brought, b"x") for i in range(2)],
    ]:
        for *_, message in read_all(rendered(StreamDeliveries(chunk_of(messages), 0, 1)), 131_072):
            table = raw_headers(message)
            entries = [(key, table[a:b]) for key, a, b in fields.raw_entries(table)]
            assert [key for key, _ in entries] == [b"x-stream-offset", b"a", b"b"]
            assert entries[0][1] == b"\x0fx-stream-offsetl" + FIRST.to_bytes(8, "big")


def test_it_is_a_sequence_of_deliveries() -> None:
    wanted = StreamDeliveries(chunk_of(plain(5)), 1, 4)
    each = list(wanted)
    assert [d.number for d in each] == wanted.numbers == [FIRST + 2, FIRST + 3, FIRST + 4]
    assert [d.delivery_count for d in each] == [0, 0, 0]
    assert wanted[-1] == each[2]
    assert list(wanted[1:]) == each[1:]
    assert wanted[:2].numbers == wanted.numbers[:2]
    with pytest.raises(IndexError):
        wanted[3]


def test_a_part_of_what_a_filter_picked() -> None:
    """Where it begins and ends is said by numbers of messages, as without a filter."""
    chunk = chunk_of(with_filters(["a", "b", "a", "b", "a"]))
    picked = chunk.matches(frozenset("a"), match_unfiltered=False)
    assert picked == [0, 2, 4]
    for start, stop in [(1, 5), (2, 5), (2, 9)]:
        wanted = StreamDeliveries(chunk, start, stop, picked)
        assert wanted.numbers == [FIRST + 3, FIRST + 5]
        got = read_all(rendered(wanted), 131_072)
        assert [said_by(message)[3] for *_, message in got] == [b"2", b"4"]
        assert wanted[1:].numbers == [FIRST + 5]
        assert wanted[1].number == FIRST + 5
    assert not StreamDeliveries(chunk, 3, 4, picked)


def test_nothing_is_written_for_none() -> None:
    out: list[bytes] = []
    assert StreamDeliveries(chunk_of(plain(2)), 1, 1).render(1, b"c", 9, 4096, out) == 9
    assert out == []


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_the_size_is_about_right(count: int) -> None:
    wanted = StreamDeliveries(chunk_of(plain(1000)), 0, count)
    assert 0.5 < wanted.size_bytes / len(rendered(wanted)) < 2


def test_no_more_framings_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FRAMINGS_MAX", 3)
    module._framings.clear()
    for i in range(10):
        rendered(StreamDeliveries(chunk_of(plain(1)), 0, 1), tag=b"%d" % i)
        assert len(module._framings) <= 3
    module._framings.clear()
    large = Properties(headers={"a": "b" * 2000})
    rendered(StreamDeliveries(chunk_of([build_message("", "", large, b"x")] * 2), 0, 2))
    assert not module._framings
