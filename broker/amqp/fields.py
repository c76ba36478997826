"""Field tables: AMQP's typed dictionaries, to Python values and back.

A table on the wire is a four-byte size and then entries of a short-string key, a type octet and a
value. The types and what they become here:

    t bool          -> bool          b B s u I i l L  integers -> int
    d double        -> float         f float                 -> Float32
    S long string   -> str, or bytes when it is not UTF-8
    x byte array    -> Binary        T timestamp             -> Timestamp
    D decimal       -> Decimal       V void                  -> None
    F table         -> dict          A array                 -> list

Integers lose their width: encoding takes `I` where it fits and `l` elsewhere, as RabbitMQ's
management and clients do, and `l` for a `Long`. Everything else comes back with the type it went in
with. Who changes somebody else's table keeps the bytes of its other entries (`raw_entries`).
Timestamps stay integers: 2^64-1 is legal and no datetime. Keys that are not UTF-8 survive by
surrogates in messages; in methods they are refused.

Bounds: 32 levels, 16,384 entries in one table with all that is nested in it, so neither the stack
nor a frame full of empty values can be made to hurt. Of doubled keys the first counts.

Called by `methods` for arguments and by `content` for headers. What goes on to queues, other nodes
and logs is plain (`plain_table`).

Source: rabbit_binary_parser.erl and rabbit_binary_generator.erl (type octets).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import msgspec

from broker.errors import AmqpError, ReplyCode

DEPTH_MAX: Final = 32
ENTRIES_MAX: Final = 16_384
_SIZE: Final = struct.Struct(">I")
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_SHORTSTR_MAX: Final = 255
_unpack_size: Final = _SIZE.unpack_from


class Timestamp(int):
    """Seconds since the epoch as the client sent them, 0 to 2^64-1."""

    __slots__ = ()


class Long(int):
    """An integer that is written as a signed 64-bit one (`l`), however small."""

    __slots__ = ()


class Binary(bytes):
    """A byte array (`x`), apart from a long string that happens not to be UTF-8."""

    __slots__ = ()


class Float32(float):
    """A single-precision float (`f`)."""

    __slots__ = ()


class Decimal(msgspec.Struct, frozen=True):
    """A decimal `value * 10**-scale`, kept as it came.

    Attributes:
        scale: Digits after the point, 0 to 255.
        value: Unscaled value, 0 to 2^32-1.
    """

    scale: int
    value: int


def plain_value(value: object) -> object:
    """Take the mark of its wire type off a value: an `enc_hook` of msgspec, which knows no marks.

    Raises:
        TypeError: For a value that has no AMQP type.
    """
    match value:
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes():
            return bytes(value)
        case _:
            raise _no_field(value)


def plain_table(table: dict[str, object]) -> dict[str, object]:
    """A table as every encoder and every node knows it, however deep the marks lie.

    A timestamp becomes an integer, a byte array bytes, a decimal a table of `scale` and `value`.

    Raises:
        TypeError: For a value that has no AMQP type.
    """
    found: dict[str, object] = msgspec.to_builtins(
        table, builtin_types=(bytes,), enc_hook=plain_value
    )
    return found


_FIXED: Final[dict[int, tuple[struct.Struct, Callable[..., object] | None]]] = {
    ord("b"): (struct.Struct(">b"), None),
    ord("B"): (struct.Struct(">B"), None),
    ord("s"): (struct.Struct(">h"), None),
    ord("u"): (struct.Struct(">H"), None),
    ord("I"): (struct.Struct(">i"), None),
    ord("i"): (struct.Struct(">I"), None),
    ord("l"): (struct.Struct(">q"), None),
    ord("L"): (struct.Struct(">q"), None),  # as the specification has it, and py-amqp writes it
    ord("d"): (struct.Struct(">d"), None),
    ord("f"): (struct.Struct(">f"), Float32),
    ord("T"): (struct.Struct(">Q"), Timestamp),
    ord("D"): (struct.Struct(">BI"), Decimal),
    ord("t"): (struct.Struct(">B"), bool),
    ord("V"): (struct.Struct(""), lambda: None),
}
_TABLE, _ARRAY, _STRING, _BINARY = ord("F"), ord("A"), ord("S"), ord("x")


def _cut() -> AmqpError:
    return AmqpError(ReplyCode.FRAME_ERROR, "cannot decode field table: it ends early")


def _too_deep() -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"field tables nested deeper than {DEPTH_MAX}")


def _unknown_type(kind: int) -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"unknown field type {kind} in a table")


class _Reader:
    """Reads one table; counts entries and depth over all that is nested in it."""

    __slots__ = ("_errors", "data", "entries")

    def __init__(self, data: bytes, *, is_text: bool = False) -> None:
        self.data = data
        self.entries = 0
        self._errors = "strict" if is_text else "surrogateescape"

    def size(self, pos: int, end: int) -> tuple[int, int]:
        """Read a four-byte size; returns where its bytes start and end."""
        if pos + 4 > end:
            raise _cut()
        start = pos + 4
        stop: int = start + _SIZE.unpack_from(self.data, pos)[0]
        if stop > end:
            raise _cut()
        return start, stop

    def count(self) -> None:
        """Count one entry."""
        self.entries += 1
        if self.entries > ENTRIES_MAX:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, f"more than {ENTRIES_MAX} entries in a table")

    def table(self, pos: int, end: int, depth: int) -> dict[str, object]:
        """Read the entries in [pos, end)."""
        if depth > DEPTH_MAX:
            raise _too_deep()
        found: dict[str, object] = {}
        while pos < end:
            self.count()
            value_at = pos + 1 + self.data[pos]
            if value_at >= end:
                raise _cut()
            try:
                key = self.data[pos + 1 : value_at].decode("utf-8", self._errors)
            except UnicodeDecodeError:
                text = "Malformed UTF-8 in shortstr"
                raise AmqpError(ReplyCode.FRAME_ERROR, text) from None
            value, pos = self.value(value_at, end, depth)
            found.setdefault(key, value)
        return found

    def array(self, pos: int, end: int, depth: int) -> list[object]:
        """Read the values in [pos, end)."""
        if depth > DEPTH_MAX:
            raise _too_deep()
        found: list[object] = []
        while pos < end:
            self.count()
            value, pos = self.value(pos, end, depth)
            found.append(value)
        return found

    def value(self, pos: int, end: int, depth: int) -> tuple[object, int]:
        """Read a type octet and its value; returns the value and where the next thing starts."""
        kind = self.data[pos]
        pos += 1
        fixed = _FIXED.get(kind)
        if fixed is not None:
            layout, make = fixed
            stop = pos + layout.size
            if stop > end:
                raise _cut()
            parts = layout.unpack_from(self.data, pos)
            return (parts[0] if make is None else make(*parts)), stop
        if kind not in (_TABLE, _ARRAY, _STRING, _BINARY):
            raise _unknown_type(kind)
        start, stop = self.size(pos, end)
        if kind == _STRING:
            return _text(self.data[start:stop]), stop
        if kind == _BINARY:
            return Binary(self.data[start:stop]), stop
        if kind == _TABLE:
            return self.table(start, stop, depth + 1), stop
        return self.array(start, stop, depth + 1), stop


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def decode_table(
    data: bytes, pos: int = 0, end: int | None = None, *, is_text: bool = False
) -> tuple[dict[str, object], int]:
    """Read a table with its size in front.

    Args:
        data: Bytes that hold the table.
        pos: Where its size starts.
        end: Where it must have ended; the end of `data` by default.
        is_text: Refuse keys that are not UTF-8: for tables that are stored or shown.

    Returns:
        The table and the position after it.

    Raises:
        AmqpError: 501 when something is cut short or no text, 502 for an unknown type or a bound
            exceeded.
    """
    reader = _Reader(data, is_text=is_text)
    start, stop = reader.size(pos, len(data) if end is None else end)
    return reader.table(start, stop, 1), stop


def decode_entries(data: bytes) -> dict[str, object]:
    """Read a table without its size, as AMQPLAIN's response is one.

    Raises:
        AmqpError: As `decode_table`.
    """
    return _Reader(data).table(0, len(data), 1)


def check_table(data: bytes, pos: int, end: int) -> int:
    """Walk a table without building it; what passes here will decode later.

    Messages pass through the broker with their headers unread; this refuses broken ones at the
    door for a third of a decode's price.

    Args:
        data: Bytes that hold the table.
        pos: Where its size starts.
        end: Where it must have ended.

    Returns:
        The position after it.

    Raises:
        AmqpError: Exactly when `decode_table` without `is_text` would.
    """
    reader = _Reader(data)
    pos, stop = reader.size(pos, end)
    open_until = [(stop, True)]
    while open_until:
        stop, is_table = open_until[-1]
        if pos >= stop:
            open_until.pop()
            continue
        reader.count()
        if is_table:
            pos += 1 + data[pos]
            if pos >= stop:
                raise _cut()
        kind = data[pos]
        pos += 1
        fixed = _FIXED.get(kind)
        if fixed is not None:
            pos += fixed[0].size
            if pos > stop:
                raise _cut()
        elif kind in (_STRING, _BINARY):
            pos = reader.size(pos, stop)[1]
        elif kind in (_TABLE, _ARRAY):
            pos, inner = reader.size(pos, stop)
            open_until.append((inner, kind == _TABLE))
            if len(open_until) > DEPTH_MAX:
                raise _too_deep()
        else:
            raise _unknown_type(kind)
    return stop


_NOWHERE: Final = 1 << 62
_VALUE_SIZES: Final = [0] * 256
"""Octets of a value with its type in front; 0 where the value itself tells."""

for _kind, (_layout, _) in _FIXED.items():
    _VALUE_SIZES[_kind] = 1 + _layout.size


def end_of_table(data: bytes, pos: int, depth: int = 1) -> tuple[int, int]:
    """Find the end of a table by its sizes, a few times as fast as `check_table`.

    It may read on in what follows the table, and takes no table in which there may be more than
    `ENTRIES_MAX` entries.

    Args:
        data: Bytes that hold the table.
        pos: Where its size starts.
        depth: How many tables and arrays it lies in, itself included.

    Returns:
        The position after it, one beyond all bytes where `check_table` is to be asked; and the size
        of its shortest key in octets, 255 without any.

    Raises:
        IndexError: Where `check_table` is to be asked, too.
        struct.error: Likewise.
    """
    size: int = _unpack_size(data, pos)[0]
    if size > ENTRIES_MAX or depth > DEPTH_MAX:
        return _NOWHERE, 0
    pos += 4
    stop = pos + size
    shortest = 255
    while pos < stop:
        size = data[pos]
        if size < shortest:  # noqa: PLR1730 - a call costs as much as all else here
            shortest = size
        pos += 1 + size
        kind = data[pos]
        if kind == _STRING:
            pos += 5 + _unpack_size(data, pos + 1)[0]
        else:
            size = _VALUE_SIZES[kind]
            pos = pos + size if size else _end_of_value(data, pos, depth)
    return (pos if pos == stop else _NOWHERE), shortest


def _end_of_array(data: bytes, pos: int, depth: int) -> int:
    if depth > DEPTH_MAX:
        return _NOWHERE
    stop: int = pos + 4 + _unpack_size(data, pos)[0]
    pos += 4
    while pos < stop:
        size = _VALUE_SIZES[data[pos]]
        pos = pos + size if size else _end_of_value(data, pos, depth)
    return pos if pos == stop else _NOWHERE


def _end_of_value(data: bytes, pos: int, depth: int) -> int:
    """Find the end of a value of a type that has no fixed size."""
    kind = data[pos]
    if kind in (_STRING, _BINARY):
        end: int = pos + 5 + _unpack_size(data, pos + 1)[0]
        return end
    if kind == _TABLE:
        return end_of_table(data, pos + 1, depth + 1)[0]
    if kind == _ARRAY:
        return _end_of_array(data, pos + 1, depth + 1)
    return _NOWHERE


def raw_entries(data: bytes) -> list[tuple[bytes, int, int]]:
    """Cut a table into its entries.

    Args:
        data: The table with its size in front, as `check_table` lets it pass.

    Returns:
        (key, start, stop) of each, in order: `data[start:stop]` is the whole entry; doubled keys
        come twice.
    """
    reader = _Reader(data)
    pos, end = reader.size(0, len(data))
    found = []
    while pos < end:
        start, value_at = pos, pos + 1 + data[pos]
        _, pos = reader.value(value_at, end, 1)
        found.append((data[start + 1 : value_at], start, pos))
    return found


def free_spans(data: bytes) -> list[tuple[int, int]]:
    """Where in a table the values lie that say nothing of its structure: numbers, texts, bytes.

    Args:
        data: As `raw_entries` takes it.

    Returns:
        (start, end) of each, in order, without its type and size.
    """
    found = []
    for key, start, stop in raw_entries(data):
        at = start + 1 + len(key)
        kind = data[at]
        if kind in (_STRING, _BINARY):
            found.append((at + 5, stop))
        elif kind not in (_TABLE, _ARRAY):
            found.append((at + 1, stop))
    return found


def join_entries(entries: list[bytes]) -> bytes:
    """Make a table of whole entries."""
    return _sized(b"".join(entries))


def encode_entry(key: str, value: object) -> bytes:
    """Write one entry of a table.

    Raises:
        ValueError: As `encode_table`.
        TypeError: As `encode_table`.
    """
    return encode_shortstr(key) + _encode_value(value)


def encode_table(table: dict[str, object]) -> bytes:
    """Write a table with its size in front.

    Raises:
        ValueError: For a key over 255 bytes or an integer wider than 64 bits.
        TypeError: For a value that has no AMQP type.
    """
    return join_entries([encode_entry(key, value) for key, value in table.items()])


def encode_shortstr(text: str) -> bytes:
    """Write a short string: one octet of size, then UTF-8.

    Raises:
        ValueError: When it is longer than 255 bytes.
    """
    raw = text.encode("utf-8", "surrogateescape")
    if len(raw) > _SHORTSTR_MAX:
        raise ValueError(f"short string of {len(raw)} bytes, at most {_SHORTSTR_MAX} go")
    return bytes((len(raw),)) + raw


def _sized(raw: bytes) -> bytes:
    return _SIZE.pack(len(raw)) + raw


def _encode_int(value: int) -> bytes:
    if _INT32_MIN <= value <= _INT32_MAX:
        return struct.pack(">ci", b"I", value)
    if _INT64_MIN <= value <= _INT64_MAX:
        return struct.pack(">cq", b"l", value)
    raise ValueError(f"{value} is wider than 64 bits")


def _encode_array(value: list[object]) -> bytes:
    return b"A" + _sized(b"".join(map(_encode_value, value)))


_ENCODERS: Final[dict[type, Callable[..., bytes]]] = {
    bool: lambda v: b"t\x01" if v else b"t\x00",
    int: _encode_int,
    str: lambda v: b"S" + _sized(v.encode("utf-8", "surrogateescape")),
    bytes: lambda v: b"S" + _sized(v),
    dict: lambda v: b"F" + encode_table(v),
    list: _encode_array,
    tuple: _encode_array,
    float: lambda v: struct.pack(">cd", b"d", v),
    type(None): lambda _: b"V",
    Long: lambda v: struct.pack(">cq", b"l", v),
    Timestamp: lambda v: struct.pack(">cQ", b"T", v),
    Binary: lambda v: b"x" + _sized(v),
    Float32: lambda v: struct.pack(">cf", b"f", v),
    Decimal: lambda v: struct.pack(">cBI", b"D", v.scale, v.value),
}


def _encode_value(value: object) -> bytes:
    encode = _ENCODERS.get(type(value))
    if encode is None:
        raise _no_field(value)
    return encode(value)


def _no_field(value: object) -> TypeError:
    return TypeError(f"{type(value).__name__} has no AMQP field type")


def valid_text(value: str) -> str:
    """Return a string without surrogates, which stand for bytes that are not UTF-8."""
    if value.isascii():  # nearly all names are, and there are many
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
