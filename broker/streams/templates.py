"""What many messages of a chunk share: exchange, routing key, and properties or how they begin.

A publisher gives all its messages the same properties, or each of them an id, a time and a trace of
its own; then they still share which properties there are (the flags) and what stands before the
headers (content type and encoding). So a template is of one of two kinds:

    flags 1 | exchange: size 1, bytes | routing key: size 1, bytes | properties: size 4 LE, bytes

    flags bit 0 clear: shared. `properties` are those of each of its messages, whole.
    flags bit 0 set: own. `properties` are the property flags and all that stands before the
        headers; the rest of each message, from the first header on, stands in a column.

Properties are the bytes of a content header from the property flags on. They are cut where a header
can be added without decoding any: behind `before` follow the size of the headers table and `after`,
which begins with its entries. Without a table both may be put there.

    | flags | content type, encoding | table size 4 | entries ... | other properties ... |
      `------------ before --------'                 `----------- after ------------'

A message that has no template is kept whole, `before` as if there were headers:

    size of names 2 LE | size of before 2 LE | exchange, routing key | before | after

Source: amqp0-9-1.extended.xml, class basic (order of the properties).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.amqp import fields

TEMPLATES_MAX: Final = 65_535
"""Most templates of a chunk: their numbers take two bytes, and one number says that a message is
kept whole."""

OFFSET_KEY: Final = b"x-stream-offset"
FILTER_KEY: Final = b"x-stream-filter-value"
OFFSET_MARK: Final = bytes((len(OFFSET_KEY),)) + OFFSET_KEY
FILTER_MARK: Final = bytes((len(FILTER_KEY),)) + FILTER_KEY
"""How the two keys stand in a table. They may stand elsewhere: who finds one looks closer."""

_FILTER_START: Final = FILTER_MARK + b"S"
_FILTER_TEXT: Final = len(_FILTER_START) + 4

HEADERS_BIT: Final = 1 << 5
"""There is a headers table: in the first byte of the property flags."""

_CONTENT_TYPE_BIT: Final = 1 << 7
_CONTENT_ENCODING_BIT: Final = 1 << 6
_OWN: Final = 1
_SIZE: Final = struct.Struct("<I")
WHOLE_SIZES: Final = struct.Struct("<HH")
_TABLE_SIZE: Final = struct.Struct(">I")
_STRING: Final = ord("S")


class Template(NamedTuple):
    """A template of a chunk, read.

    Attributes:
        exchange: The exchange's name on the wire: a size in one byte, then UTF-8.
        routing_key: The routing key, likewise.
        is_own: Its messages have `table_size` and `after` of their own.
        before: Property flags and what stands before the headers table.
        table_size: Size of the headers table's entries in bytes; 0 too where there is none.
        after: The entries and all that follows them.
    """

    exchange: bytes
    routing_key: bytes
    is_own: bool
    before: bytes
    table_size: int = 0
    after: bytes = b""


def table_at(raw: bytes) -> int:
    """Where the headers table stands in properties, or would stand.

    Raises:
        IndexError: For bytes that are no properties.
    """
    pos, flags = 2, raw[0]
    if flags & _CONTENT_TYPE_BIT:
        pos += 1 + raw[pos]
    if flags & _CONTENT_ENCODING_BIT:
        pos += 1 + raw[pos]
    return pos


def split(raw: bytes) -> tuple[bytes, int, bytes]:
    """Cut properties into `before`, `table_size` and `after`.

    Raises:
        IndexError: For bytes that are no properties.
        struct.error: Likewise.
    """
    at = table_at(raw)
    if raw[0] & HEADERS_BIT:
        return raw[:at], _TABLE_SIZE.unpack_from(raw, at)[0], raw[at + 4 :]
    return raw[:at], 0, raw[at:]


def joined(before: bytes, table_size: int, after: bytes) -> bytes:
    """Properties as they were before `split`."""
    if before[0] & HEADERS_BIT:
        return before + _TABLE_SIZE.pack(table_size) + after
    return before + after


def with_headers(before: bytes) -> bytes:
    """`before` as it is where there are headers."""
    return bytes((before[0] | HEADERS_BIT,)) + before[1:]


def name_of(text: str) -> bytes:
    """A name as a template has it: of at most 255 bytes, as a client's frame had it."""
    raw = text.encode("utf-8", "surrogateescape")
    return b"%c%b" % (len(raw), raw)


def text_of(name: bytes) -> str:
    """The name that `name_of` wrote."""
    return name[1:].decode("utf-8", "surrogateescape")


def encode_shared(exchange: str, routing_key: str, raw: bytes) -> bytes:
    """A template of messages with equal properties."""
    return b"\0%b%b%b%b" % (name_of(exchange), name_of(routing_key), _SIZE.pack(len(raw)), raw)


def encode_own(exchange: str, routing_key: str, before: bytes) -> bytes:
    """A template of messages with properties of their own."""
    size = _SIZE.pack(len(before))
    return b"\1%b%b%b%b" % (name_of(exchange), name_of(routing_key), size, before)


def decode_templates(data: bytes, count: int) -> list[Template]:
    """Read the templates of a chunk.

    Args:
        data: All of them, nothing else.
        count: How many there are.

    Raises:
        ValueError: For other bytes.
        IndexError: Likewise.
        struct.error: Likewise.
    """
    found, pos = [], 0
    for _ in range(count):
        exchange_at = pos + 1
        key_at = exchange_at + 1 + data[exchange_at]
        size_at = key_at + 1 + data[key_at]
        raw_at = size_at + 4
        end = raw_at + _SIZE.unpack_from(data, size_at)[0]
        flags, raw = data[pos], data[raw_at:end]
        before, table_size, after = split(raw) if flags == 0 else (raw, 0, b"")
        if (
            end > len(data)
            or flags > _OWN
            or table_size > len(after)
            or len(before) != table_at(raw)
        ):
            raise ValueError("not a template")
        names = data[exchange_at:key_at], data[key_at:size_at]
        found.append(Template(*names, bool(flags), before, table_size, after))
        pos = end
    if pos != len(data):
        raise ValueError("something follows the templates")
    return found


def encode_whole(exchange: str, routing_key: str, raw: bytes) -> tuple[int, bytes]:
    """A message that is kept whole.

    Returns:
        Size of its headers table in bytes, -1 without one; and what is kept.
    """
    at = table_at(raw)
    names = name_of(exchange) + name_of(routing_key)
    sizes = WHOLE_SIZES.pack(len(names), at)
    if raw[0] & HEADERS_BIT:
        size: int = _TABLE_SIZE.unpack_from(raw, at)[0]
        return size, b"%b%b%b%b" % (sizes, names, raw[:at], raw[at + 4 :])
    return -1, b"%b%b%c%b" % (sizes, names, raw[0] | HEADERS_BIT, raw[1:])


def decode_whole(table_size: int, data: bytes) -> Template:
    """What a message says that is kept whole, as a template of its own.

    Raises:
        ValueError: For bytes that `encode_whole` did not write.
        IndexError: Likewise.
        struct.error: Likewise.
    """
    names_size, before_size = WHOLE_SIZES.unpack_from(data)
    names_end = WHOLE_SIZES.size + names_size
    key_at = WHOLE_SIZES.size + 1 + data[WHOLE_SIZES.size]
    after_at = names_end + before_size
    exchange, routing_key = data[WHOLE_SIZES.size : key_at], data[key_at:names_end]
    before, after = data[names_end:after_at], data[after_at:]
    if (
        not -1 <= table_size <= len(after)
        or len(routing_key) != 1 + routing_key[0]
        or table_at(before) != before_size
        or len(before) != before_size
        or not before[0] & HEADERS_BIT
    ):
        raise ValueError("not a whole message")
    if table_size < 0:
        before, table_size = bytes((before[0] ^ HEADERS_BIT,)) + before[1:], 0
    return Template(exchange, routing_key, False, before, table_size, after)


def _entries(table_size: int, after: bytes) -> tuple[bytes, list[tuple[bytes, int, int]]]:
    table = _TABLE_SIZE.pack(table_size) + after[:table_size]
    return table, fields.raw_entries(table)


def without_offset(table_size: int, after: bytes) -> tuple[int, bytes]:
    """The same headers and what follows them, but for an `x-stream-offset` that was brought."""
    table, entries = _entries(table_size, after)
    kept = b"".join([table[start:stop] for key, start, stop in entries if key != OFFSET_KEY])
    return len(kept), kept + after[table_size:]


def filter_value(table_size: int, after: bytes) -> str | None:
    """The filter value among headers: a string that is UTF-8.

    Source: rabbit_stream_queue.erl, filter_value (of other types it knows none).
    """
    if after.startswith(_FILTER_START) and table_size:  # the first header
        end = _FILTER_TEXT + _TABLE_SIZE.unpack_from(after, _FILTER_TEXT - 4)[0]
        return _text(after[_FILTER_TEXT:end])
    table, entries = _entries(table_size, after)
    for key, start, stop in entries:
        if key == FILTER_KEY:
            at = start + 1 + len(key)
            return _text(table[at + 5 : stop]) if table[at] == _STRING else None
    return None


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None
