"""Field tables: every type, every bound; pamqp as the oracle where it has the type.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Iterator

import pamqp.decode
import pamqp.encode
import pytest

from broker.amqp import fields
from broker.errors import AmqpError, ReplyCode
from tests.wire import every_field


def table_of(*entries: bytes) -> bytes:
    raw = b"".join(entries)
    return len(raw).to_bytes(4, "big") + raw


def nested(kind: bytes, levels: int) -> bytes:
    """A table that holds `levels` tables or arrays, one in the other."""
    inner = b""
    for level in range(levels):
        key = b"" if kind == b"A" and level < levels - 1 else b"\x01k"
        inner = key + kind + len(inner).to_bytes(4, "big") + inner
    return table_of(inner)


def code_of(raw: bytes) -> ReplyCode:
    with pytest.raises(AmqpError) as decoding:
        fields.decode_table(raw)
    with pytest.raises(AmqpError) as walking:
        fields.check_table(raw, 0, len(raw))
    assert decoding.value.code == walking.value.code
    return decoding.value.code


@pytest.mark.parametrize(
    ("wire", "value"),
    [
        (b"t\x01", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 0xFFFFFFFF),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"d" + struct.pack(">d", 1.5), 1.5),
        (b"f" + struct.pack(">f", 1.5), fields.Float32(1.5)),
        (b"T" + b"\xff" * 8, fields.Timestamp(2**64 - 1)),
        (b"D\xff\x00\x00\x00\x07", fields.Decimal(255, 7)),
        (b"V", None),
        (b"S\x00\x00\x00\x02hi", "hi"),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
        (b"x\x00\x00\x00\x01\xff", fields.Binary(b"\xff")),
        (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
        (b"A\x00\x00\x00\x03Vt\x00", [None, False]),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_every_type_decodes(wire: bytes, value: object) -> None:
    raw = table_of(b"\x01k", wire)
    table, end = fields.decode_table(raw)
    assert table == {"k": value}
    assert type(table["k"]) is type(value)
    assert end == fields.check_table(raw, 0, len(raw)) == len(raw)


@pytest.mark.parametrize(
    "wire",
    [
        b"d\x7f\xf8\x00\x00\x00\x00\x00\x01",
        b"f\x7f\xc0\x00\x00",
        b"d\x7f\xf0\x00\x00\x00\x00\x00\x00",
        b"T" + b"\xff" * 8,
        b"D\xff\xff\xff\xff\xff",
        b"V",
        b"x\x00\x00\x00\x02\xff\x00",
        b"S\x00\x00\x00\x01\xff",
        b"I\x80\x00\x00\x00",
        b"l\x7f" + b"\xff" * 7,
    ],
    ids=lambda wire: repr(wire)[:12],
)
def test_odd_values_round_trip_byte_for_byte(wire: bytes) -> None:
    """Case 28."""
    raw = table_of(b"\x01k", wire)
    assert fields.encode_table(fields.decode_table(raw)[0]) == raw


def test_pamqp_agrees() -> None:
    table = {
        "int": 5,
        "long": 1 << 40,
        "negative": -7,
        "text": "räksmörgås",
        "yes": True,
        "no": False,
        "none": None,
        "inner": {"list": [1, "two", {"three": 3}]},
    }
    assert pamqp.decode.field_table(fields.encode_table(table))[1] == table
    assert fields.decode_table(pamqp.encode.field_table(table))[0] == table
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
    theirs = pamqp.encode.field_table({"when": moment})
    assert fields.decode_table(theirs)[0] == {"when": int(moment.timestamp())}


def test_integers_take_the_smallest_of_two_widths() -> None:
    assert fields.encode_table({"": 2**31 - 1})[5:6] == b"I"
    assert fields.encode_table({"": 2**31})[5:6] == b"l"
    assert fields.encode_table({"": -(2**31)})[5:6] == b"I"
    with pytest.raises(ValueError, match="wider than 64 bits"):
        fields.encode_table({"": 2**63})


def test_what_has_no_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="set has no AMQP field type"):
        fields.encode_table({"k": set()})
    with pytest.raises(ValueError, match="short string of 256 bytes"):
        fields.encode_table({"k" * 256: 1})


def test_the_table_of_every_field_has_every_type() -> None:
    octets = {value[0] for value in every_field.EVERY.values()}
    assert octets == {*fields._FIXED, *b"FASx"}


def test_plain_tables_have_no_marks_left_however_deep() -> None:
    plain = fields.plain_table(every_field.values())
    assert {*types_in(plain)} <= {bool, int, float, str, bytes, type(None), dict, list}
    assert plain["decimal"] == {"scale": 255, "value": 2**32 - 1}
    assert plain["timestamp"] == 2**64 - 1
    assert (plain["bytes"], plain["float"]) == (b"\xff\x00", 1.5)
    assert fields.plain_table(plain) == plain


def types_in(value: object) -> Iterator[type]:
    yield type(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    for each in inner:
        yield from types_in(each)


def test_first_of_doubled_keys_wins_and_order_stays() -> None:
    """Case 26."""
    raw = table_of(b"\x01bt\x01", b"\x01at\x00", b"\x01bt\x00")
    assert list(fields.decode_table(raw)[0].items()) == [("b", True), ("a", False)]


def test_keys_that_are_not_utf8_survive() -> None:
    raw = table_of(b"\x02\xff\xfeV")
    assert fields.encode_table(fields.decode_table(raw)[0]) == raw


def test_unknown_type_is_a_syntax_error() -> None:
    """Case 22."""
    assert code_of(table_of(b"\x01kZ")) is ReplyCode.SYNTAX_ERROR


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x00",
        b"\x00\x00\x00\x05\x01k",
        table_of(b"\x09k"),
        table_of(b"\x01k"),
        table_of(b"\x01kI\x00\x00"),
        table_of(b"\x01kS\x00\x00\x00\x02a"),
        table_of(b"\x01kF\x00\x00\x00\x09\x01aV"),
        table_of(b"\x01kA\xff\xff\xff\xffV"),
        table_of(b"\x01kS\x00"),
    ],
)
def test_cut_tables_are_frame_errors(raw: bytes) -> None:
    """Case 23."""
    assert code_of(raw) is ReplyCode.FRAME_ERROR


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_nesting_is_bounded(kind: bytes) -> None:
    """Case 24."""
    fields.decode_table(nested(kind, fields.DEPTH_MAX - 1))
    fields.check_table(raw := nested(kind, fields.DEPTH_MAX - 1), 0, len(raw))
    assert code_of(nested(kind, fields.DEPTH_MAX)) is ReplyCode.SYNTAX_ERROR
    assert code_of(nested(kind, 20_000)) is ReplyCode.SYNTAX_ERROR


def test_entries_are_bounded() -> None:
    """Cases 25 and 27."""
    assert len(fields.decode_table(table_of(*[b"\x00V"] * fields.ENTRIES_MAX))[0]) == 1
    assert code_of(table_of(*[b"\x00V"] * (fields.ENTRIES_MAX + 1))) is ReplyCode.SYNTAX_ERROR
    voids = b"V" * 65_536
    spam = table_of(b"\x01kA" + len(voids).to_bytes(4, "big") + voids)
    assert code_of(spam) is ReplyCode.SYNTAX_ERROR


def test_a_table_must_end_where_it_was_told_to() -> None:
    raw = table_of(b"\x01kV")
    with pytest.raises(AmqpError):
        fields.decode_table(raw, 0, len(raw) - 1)


def test_nan_stays_a_nan() -> None:
    value = fields.decode_table(table_of(b"\x01kd\x7f\xf8\x00\x00\x00\x00\x00\x00"))[0]["k"]
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize("value", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_a_long_is_64_bits_wide_however_small(value: int) -> None:
    raw = fields.encode_table({"n": fields.Long(value)})
    assert raw[4:] == b"\x01n" + struct.pack(">cq", b"l", value)
    assert fields.decode_table(raw)[0] == {"n": value}


def test_a_table_is_its_entries() -> None:
    entries = [b"\x01al" + bytes(8), b"\x00V", b"\x01aF\x00\x00\x00\x02\x00V", b"\x01\xfft\x01"]
    raw = table_of(*entries)
    cut = fields.raw_entries(raw)
    assert [key for key, _, _ in cut] == [b"a", b"", b"a", b"\xff"]
    assert [raw[start:stop] for _, start, stop in cut] == entries
    assert fields.join_entries([raw[start:stop] for _, start, stop in cut]) == raw
    assert fields.raw_entries(b"\0\0\0\0") == []
