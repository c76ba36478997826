"""Deliveries into columns, however their bytes are cut."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pamqp.body
import pamqp.commands
import pamqp.frame
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.wire import frames
from pipeline.wire.deliveries import Deliveries, Rows, size_at
from pipeline.wire.failures import ProtocolBroken

BODY_MAX = 64


class Message(NamedTuple):
    offset: int
    body: bytes
    exchange: str = ""
    key: str = "s"
    properties: Mapping[str, Any] = MappingProxyType({})


def delivery(message: Message, tag: int, headers: dict[str, Any] | None = None) -> bytes:
    given = dict(message.properties)
    own = given.pop("headers", {})
    offset = {"x-stream-offset": 1 << 40 | message.offset}  # wide: pamqp writes a long for it
    given["headers"] = headers or {**offset, **own}  # pamqp sorts them
    method = pamqp.commands.Basic.Deliver("c", tag, False, message.exchange, message.key)
    properties = pamqp.commands.Basic.Properties(**given)
    content = pamqp.header.ContentHeader(0, len(message.body), properties)
    data = pamqp.frame.marshal(method, 1) + pamqp.frame.marshal(content, 1)
    for at in range(0, len(message.body), BODY_MAX):
        piece = message.body[at : at + BODY_MAX]
        data += pamqp.frame.marshal(pamqp.body.ContentBody(piece), 1)
    return data


def read(data: bytes, cuts: list[int] | None = None) -> Rows:
    """Feed data piece by piece, as a socket brings it."""
    rows, reader = Rows(), Deliveries()
    held = b""
    at = 0
    for end in [*sorted(cuts or []), len(data)]:
        held += data[at:end]
        at = end
        held = held[reader.read(held, 0, rows) :]
    assert held == b""
    return rows


def columns(rows: Rows) -> list[tuple[int, bytes, str, str, dict[str, Any]]]:
    shapes = [shape for count, shape in rows.shapes for _ in range(count)]
    return [
        (offset & ~(1 << 40), body, shape.exchange, shape.routing_key, shape.properties)
        for offset, body, shape in zip(rows.offsets, rows.bodies, shapes, strict=True)
    ]


MESSAGES = st.lists(
    st.builds(
        Message,
        offset=st.just(0),
        body=st.binary(max_size=200) | st.just(b"x" * 20),
        exchange=st.sampled_from(["", "ex"]),
        key=st.sampled_from(["s", "a.b"]),
        properties=st.sampled_from(
            [
                {},
                {"message_id": "m1", "content_type": "text/plain"},
                {"message_id": "m2", "content_type": "text/plain"},
                {"headers": {"a": "b", "z": {"x": 1}}, "priority": 3, "content_encoding": "z"},
            ]
        ),
    ),
    max_size=20,
)


@given(MESSAGES, st.data())
def test_every_message_is_read_whole_wherever_the_bytes_are_cut(messages, data):
    given = [m._replace(offset=number) for number, m in enumerate(messages)]
    stream = b"".join(delivery(m, number) for number, m in enumerate(given, 1))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    rows = read(stream, cuts)
    found = columns(rows)
    for message, row in zip(given, found, strict=True):
        expected = {"headers": {}, **message.properties}
        assert row == (message.offset, message.body, message.exchange, message.key, expected)
    assert rows.size == sum(len(m.body) for m in given)
    assert rows.tag == len(given)


def test_messages_alike_share_what_they_have_in_common():
    same = [Message(n, b"%03d" % n, properties={"message_id": "m"}) for n in range(50)]
    rows = read(b"".join(delivery(m, n) for n, m in enumerate(same, 1)))
    assert [count for count, _ in rows.shapes] == [1, 49]
    assert rows.shapes[0][1] is rows.shapes[1][1]


def test_what_differs_only_in_a_property_is_told_apart():
    rows = read(
        delivery(Message(0, b"x", properties={"message_id": "a"}), 1)
        + delivery(Message(1, b"x", properties={"message_id": "b"}), 2)
        + delivery(Message(2, b"x", properties={"message_id": "a"}), 3)
    )
    assert [row[4]["message_id"] for row in columns(rows)] == ["a", "b", "a"]


def test_it_stops_at_other_frames():
    cancel = frames.method(1, frames.CANCEL, b"\1c\0")
    data = delivery(Message(0, b"x"), 1)
    rows = Rows()
    assert Deliveries().read(data + cancel, 0, rows) == len(data)
    assert len(rows) == 1


def test_a_header_whose_value_looks_like_the_offset_is_not_taken_for_it():
    forged = "\x0fx-stream-offsetl" + "\0" * 8
    message = Message(5, b"x", properties={"headers": {"h": forged}})
    assert columns(read(delivery(message, 1)))[0][0] == 5


@pytest.mark.parametrize("headers", [{}, {"x": 1}])
def test_a_queue_that_is_no_stream_is_refused(headers):
    with pytest.raises(ProtocolBroken, match="the queue is no stream"):
        read(delivery(Message(0, b"x"), 1, headers=headers or {"y": "z"}))


@pytest.mark.parametrize("flip", [1, 2, 4, 5, 8, 16, 32, 64, 128, 255])
def test_a_flipped_byte_never_ends_in_another_error(flip):
    messages = [Message(n, b"body%d" % n, properties={"message_id": "m"}) for n in range(3)]
    stream = b"".join(delivery(m, n) for n, m in enumerate(messages, 1))
    for place in range(len(stream)):
        flipped, rows = bytearray(stream), Rows()
        flipped[place] ^= flip
        try:
            Deliveries().read(bytes(flipped), 0, rows)
            for _, shape in rows.shapes:
                assert isinstance(shape.properties, dict)
        except ProtocolBroken:
            pass


def test_how_much_is_to_come_is_seen_from_the_content_header():
    data = delivery(Message(0, b"x" * 6400), 1)
    head = len(data) - 6400 - 100 * 8
    assert size_at(data[:20], 0) == 0
    assert 6400 < size_at(data[:head], 0) <= len(data)


@given(st.integers(0, 12), st.integers(0, 12))
def test_rows_are_clipped_with_their_shapes(start, stop):
    given = [Message(n, b"%d" % n, properties={"message_id": f"m{n // 3}"}) for n in range(10)]
    rows = read(b"".join(delivery(m, n) for n, m in enumerate(given, 1)))
    rows.clip(start | 1 << 40, stop | 1 << 40)
    expected = [m for m in given if start <= m.offset < stop]
    assert [(r[0], r[1], r[4]["message_id"]) for r in columns(rows)] == [
        (m.offset, m.body, m.properties["message_id"]) for m in expected
    ]
    assert rows.size == sum(len(m.body) for m in expected)
