"""Field tables: values of headers and arguments as bytes, and back."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from pipeline.wire.failures import ProtocolBroken

SHORT_MAX: Final = 255
_U32: Final = struct.Struct(">I")
_NUMBERS: Final = {
    b"t": struct.Struct(">?"),
    b"b": struct.Struct(">b"),
    b"B": struct.Struct(">B"),
    b"s": struct.Struct(">h"),
    b"U": struct.Struct(">h"),
    b"u": struct.Struct(">H"),
    b"I": struct.Struct(">i"),
    b"i": struct.Struct(">I"),
    b"l": struct.Struct(">q"),
    b"L": struct.Struct(">q"),
    b"f": struct.Struct(">f"),
    b"d": struct.Struct(">d"),
    b"T": struct.Struct(">Q"),
}
_DECIMAL: Final = struct.Struct(">Bi")
_LONG_MAX: Final = 1 << 63
_DEPTH_MAX: Final = 64


def short(text: str | bytes) -> bytes:
    """A short string.

    Raises:
        ValueError: It has more than 255 bytes.
    """
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > SHORT_MAX:
        raise ValueError(f"{text[:40]!r}... has {len(raw)} bytes, at most 255 are possible")
    return bytes((len(raw),)) + raw


def long(raw: bytes) -> bytes:
    """A long string."""
    return _U32.pack(len(raw)) + raw


def table(values: Mapping[str, object]) -> bytes:
    """A field table.

    Raises:
        ValueError: A key is too long, or a value has no form in AMQP.
    """
    return long(b"".join(short(key) + _value(value) for key, value in values.items()))


def _value(value: object) -> bytes:
    match value:
        case bool():
            return b"t" + bytes((value,))
        case int() if -_LONG_MAX <= value < _LONG_MAX:
            return b"l" + value.to_bytes(8, "big", signed=True)
        case float():
            return b"d" + struct.pack(">d", value)
        case str() | bytes():
            return b"x" + long(value) if isinstance(value, bytes) else b"S" + long(value.encode())
        case datetime():
            return b"T" + int(value.timestamp()).to_bytes(8, "big")
        case Mapping():
            return b"F" + table(value)
        case list() | tuple():
            return b"A" + long(b"".join(_value(item) for item in value))
        case None:
            return b"V"
    raise ValueError(f"{value!r} is no value of a field table")


def read_table(data: bytes, start: int, depth: int = 0) -> tuple[dict[str, Any], int]:
    """Read a table with its size in front.

    Returns:
        What it holds, and where it ends.

    Raises:
        ProtocolBroken: It can't be read.
    """
    found: dict[str, Any] = {}
    try:
        (size,) = _U32.unpack_from(data, start)
        at = start + 4
        end = at + size
        while at < end:
            stop = at + 1 + data[at]
            key = data[at + 1 : stop].decode("utf-8", "replace")
            found[key], at = read_value(data, stop, depth)
    except (IndexError, struct.error):
        raise ProtocolBroken("a table of headers ends in the middle") from None
    if at != end or end > len(data):
        raise ProtocolBroken("a table of headers is not as long as it says")
    return found, end


def read_value(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """Read a value with its type in front.

    Returns:
        The value and where it ends. Strings that are not UTF-8 are bytes.

    Raises:
        ProtocolBroken: Its type is unknown, or it is nested too deeply.
    """
    if depth > _DEPTH_MAX:
        raise ProtocolBroken("a table of headers is nested too deeply")
    kind = data[at : at + 1]
    at += 1
    number = _NUMBERS.get(kind)
    if number is not None:
        value = number.unpack_from(data, at)[0]
        return (_time(value) if kind == b"T" else value), at + number.size
    if kind == b"V":
        return None, at
    if kind == b"F":
        return read_table(data, at, depth + 1)
    if kind == b"D":
        scale, digits = _DECIMAL.unpack_from(data, at)
        return Decimal(digits).scaleb(-scale), at + _DECIMAL.size
    if kind not in (b"S", b"x", b"A"):
        raise ProtocolBroken(f"a header has the unknown type {kind!r}")
    end = at + 4 + _U32.unpack_from(data, at)[0]
    if kind == b"A":
        items = []
        at += 4
        while at < end:
            item, at = read_value(data, at, depth + 1)
            items.append(item)
        return items, end
    raw = data[at + 4 : end]
    return (_text(raw) if kind == b"S" else raw), end


def skip_value(data: bytes, at: int) -> int:
    """Where a value with its type in front ends; what it holds is not looked at.

    Raises:
        ProtocolBroken: Its type is unknown.
    """
    kind = data[at : at + 1]
    number = _NUMBERS.get(kind)
    if number is not None:
        return at + 1 + number.size
    if kind in (b"S", b"x", b"A", b"F"):
        return at + 5 + int(_U32.unpack_from(data, at + 1)[0])
    if kind == b"V":
        return at + 1
    if kind == b"D":
        return at + 1 + _DECIMAL.size
    raise ProtocolBroken(f"a header has the unknown type {kind!r}")


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _time(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return seconds  # a year that Python does not know
