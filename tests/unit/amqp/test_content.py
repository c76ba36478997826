"""Content headers, with pamqp as the oracle.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import datetime as dt

import msgspec
import pamqp.commands
import pamqp.frame
import pamqp.header
import pytest

from broker.amqp import content, fields
from broker.amqp.content import Properties, PropertyFacts
from broker.amqp.frames import body_of
from broker.errors import AmqpError, ReplyCode

ALL = Properties(
    content_type="text/plain",
    content_encoding="gzip",
    headers={"a": 1, "CC": ["x", "y"]},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=1_700_000_000,
    type="t",
    user_id="guest",
    app_id="app",
    cluster_id="cl",
)


def test_pamqp_reads_all_properties() -> None:
    message = content.build_message("", "", ALL, b"hello", channel=3)
    size, channel, header = pamqp.frame.unmarshal(message.content)
    assert (size, channel, header.body_size) == (message.header_size + 8, 3, 5)
    theirs = header.properties
    for name in [
        "content_type",
        "content_encoding",
        "headers",
        "delivery_mode",
        "priority",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "user_id",
        "app_id",
        "cluster_id",
    ]:
        assert getattr(theirs, name) == getattr(ALL, name)
    assert theirs.message_type == "t"
    assert theirs.timestamp == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)


def test_properties_of_pamqp_are_read() -> None:
    theirs = pamqp.commands.Basic.Properties(
        content_type="a/b", headers={"h": "v"}, delivery_mode=1, priority=4, app_id="x"
    )
    raw = pamqp.frame.marshal(pamqp.header.ContentHeader(0, 5, theirs), 1)
    built = content.build_message("", "", Properties(), b"")
    message = type(built)("", "", raw, 1, len(raw) - 8, 5, False)
    assert content.decode_properties(message) == Properties(
        content_type="a/b", headers={"h": "v"}, delivery_mode=1, priority=4, app_id="x"
    )


def test_all_properties_round_trip() -> None:
    assert content.decode_properties(content.build_message("", "", ALL, b"")) == ALL


def test_facts_hold_what_publishing_asks() -> None:
    facts = content.facts_of(content.encode_properties(ALL))
    assert facts == PropertyFacts(
        is_plain=False,
        persistent=True,
        expiration="60000",
        priority=9,
        ttl_ms=60_000,
        user_id="guest",
        has_routing_headers=True,
    )
    assert content.facts_of(b"\x00\x00") == PropertyFacts()


@pytest.mark.parametrize(
    ("asked", "is_plain"),
    [
        (Properties(), True),
        (Properties(delivery_mode=2, priority=3, message_id="1", timestamp=7, reply_to="q"), True),
        (Properties(headers={"traceparent": "\x02CC", "a": {"CC": ["x"]}, "b": ["BCC"]}), True),
        (Properties(expiration="60000"), True),
        (Properties(expiration="1 day"), False),
        (Properties(expiration=str(content.EXPIRATION_MAX_MS + 1)), False),
        (Properties(user_id="guest"), False),
        (Properties(reply_to=content.DIRECT_REPLY_TO), False),
        (Properties(headers={"BCC": []}), False),
        (Properties(headers={"a": 1, "CC": ["x"]}), False),
    ],
)
def test_what_has_to_be_looked_at_is_not_plain(asked: Properties, is_plain: bool) -> None:
    raw = content.encode_properties(asked)
    assert content.facts_of(raw).is_plain is is_plain
    assert content.facts_at(b"\xce" + raw + b"\xce", 1, 1 + len(raw)) == content.facts_of(raw)


def test_properties_that_decide_nothing_make_no_facts() -> None:
    """A message-id of its own costs a message neither time nor memory."""
    found = set()
    for number in range(10):
        asked = Properties(headers={"traceparent": str(number)}, message_id=str(number) * number)
        raw = content.encode_properties(asked)
        found.add(id(content.facts_at(raw, 0, len(raw))))
    assert len(found) == 1


def test_facts_are_remembered_within_bounds() -> None:
    for number in range(content.FACTS_MAX + 10):
        raw = content.encode_properties(Properties(expiration=str(number)))
        assert content.facts_at(raw, 0, len(raw)).ttl_ms == number
    assert content._facts.cache_info().currsize == content.FACTS_MAX


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", ReplyCode.FRAME_ERROR),
        (b"\x80", ReplyCode.FRAME_ERROR),
        (b"\x00\x01", ReplyCode.FRAME_ERROR),
        (b"\x00\x02", ReplyCode.FRAME_ERROR),
        (b"\x80\x00\x05ab", ReplyCode.FRAME_ERROR),
        (b"\x80\x00", ReplyCode.FRAME_ERROR),
        (b"\x10\x00", ReplyCode.FRAME_ERROR),
        (b"\x00\x40\x00", ReplyCode.FRAME_ERROR),
        (b"\x20\x00\x00\x00", ReplyCode.FRAME_ERROR),
        (b"\x20\x00\x00\x00\x00\x09ab", ReplyCode.FRAME_ERROR),
        (b"\x20\x00\x00\x00\x00\x03\x01aZ", ReplyCode.SYNTAX_ERROR),
        (b"\x10\x00\x02extra", ReplyCode.FRAME_ERROR),
    ],
)
def test_broken_properties_are_refused(raw: bytes, code: ReplyCode) -> None:
    """Case 34, and 20 to 27 for headers."""
    with pytest.raises(AmqpError) as caught:
        content.facts_of(raw)
    assert caught.value.code is code
    with pytest.raises(AmqpError) as again:
        content.facts_at(raw + b"\xce", 0, len(raw))
    assert (again.value.code, again.value.text) == (code, caught.value.text)


def test_strings_that_are_not_utf8_pass_through() -> None:
    raw = b"\x01\x00\x02\xff\xfe"
    assert content.facts_of(raw).expiration == "\udcff\udcfe"


def test_other_properties_keep_the_body() -> None:
    message = content.build_message("e", "k", ALL, bytes(10_000), channel=2, frame_max=4096)
    changed = content.with_properties(message, Properties(delivery_mode=1))
    assert content.decode_properties(changed) == Properties(delivery_mode=1)
    assert (changed.exchange, changed.routing_key, changed.channel) == ("e", "k", 2)
    assert (message.persistent, changed.persistent) == (True, False)
    assert body_of(changed) == bytes(10_000)


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 9000])
def test_bodies_are_cut_to_frame_max(size: int) -> None:
    body = bytes(range(256)) * 40
    message = content.build_message("", "", Properties(), body[:size], frame_max=4096)
    assert body_of(message) == body[:size]
    rest, sizes = message.content, []
    while rest:
        used, _, _ = pamqp.frame.unmarshal(rest)
        sizes.append(used)
        rest = rest[used:]
    assert max(sizes) <= 4096
    assert len(sizes) == 1 + -(-size // 4088)


def test_other_headers_leave_every_other_byte_as_it_came() -> None:
    message = content.build_message("e", "k", ALL, b"hello" * 100, frame_max=100)
    table = content.raw_headers(message)
    assert table == fields.encode_table(ALL.headers)
    other = content.with_raw_headers(
        message, fields.encode_table({"b": 2}), without_expiration=False
    )
    assert content.decode_properties(other) == msgspec.structs.replace(ALL, headers={"b": 2})
    assert content.with_raw_headers(other, table, without_expiration=False) == message
    assert content.facts_of(content.raw_properties(other)).ttl_ms == other.ttl_ms == 60_000
    assert body_of(other) == b"hello" * 100


def test_a_message_without_headers_gets_some_and_loses_its_expiration() -> None:
    message = content.build_message("e", "k", Properties(priority=3, expiration="7"), b"x")
    assert content.raw_headers(message) == b""
    other = content.with_raw_headers(message, b"\0\0\0\0", without_expiration=True)
    assert content.decode_properties(other) == Properties(headers={}, priority=3)
    assert (message.ttl_ms, other.ttl_ms, other.priority) == (7, -1, 3)
