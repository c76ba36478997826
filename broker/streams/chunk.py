"""A chunk: some messages of a stream with consecutive offsets, as they lie on disk and travel.

Its envelope is that of RabbitMQ's streams, so that their chunks can stand beside ours in one log.
What is in it is ours (type 16): columns, so that nothing is decoded to find, skip or deliver.

    head     48 bytes, big-endian
     0       magic and version 0x50 | type 1: 16 | entries 2: 1 | messages 4 | timestamp, ms 8
    16       term 8 | first offset 8
    32       crc32 of the data 4 | size of the data 4 | size of the trailer 4: 0
    44       size of the bloom filter 1 | 0 3
    bloom    0, or 16 to 255 bytes: which filter values may be there (`bloom`)
    data     32 bytes, then columns; little-endian
     0       crc32 4 of head and bloom, but for the crc32 of the data: zlib.crc32(bloom,
             crc32(bytes 36 to 47 of the head, crc32(bytes 0 to 31)))
     4       templates 4 | their bytes 4 | own 4 | their bytes 4 | filter values 4 | their bytes 4
    28       0 4
             bodies         int32 [messages + 1]   where each body begins; the last: where all end
             own            int32 [own + 1]        where each message's own begins; if there are any
             table sizes    int32 [own]            how much of it is headers; -1: no table (whole)
             filters        int32 [messages]       filter value of each, from 1; 0: none. If any has
             kinds          uint16 [messages]      template of each; 65535: kept whole
             templates      (`templates`)
             own            one behind the other: all from the first header on, of messages whose
                            template says so; of whole ones all but the body
             filter values  size 4, UTF-8
             bodies         one behind the other, without frames

A message is: template, its own if it has any, body. `x-stream-offset` is never in it.

Invariants: 1. `parse` lets no chunk pass in which a bit is not as it was written. 2. Where the
checksums are right and the columns are not (a peer that lies), `check` raises `ChunkDamaged`. It
is also raised by what reads the columns first, if there would be no reading them.

Source: osiris' osiris_log.erl (chunk format: envelope, type of user chunks, bloom behind the head).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import gt
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from broker.amqp.content import FRAME_MAX_DEFAULT, HEADER_FIXED_SIZE, facts_at
from broker.amqp.frames import FRAME, FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_OVERHEAD
from broker.message import Message
from broker.streams import templates
from broker.streams.bloom import bloom_of, may_hold
from broker.streams.columns import WHOLE, Columns
from broker.streams.templates import Template

TYPE_NATIVE: Final = 16
_MAGIC: Final = 0x50
_HEAD: Final = struct.Struct(">BBHIqQQIIIB3x")
_DATA_HEAD: Final = struct.Struct("<8I")
HEAD_SIZE: Final = _HEAD.size
_CRC_AT: Final = 32
_CRC_SIZE: Final = 4
_TEXT_SIZE: Final = struct.Struct("<I")
_CONTENT: Final = struct.Struct(">HHQ")
_CLASS_BASIC: Final = 60
_INT32_MAX: Final = (1 << 31) - 1
_IS_LITTLE: Final = sys.byteorder == "little"


class ChunkDamaged(Exception):
    """These bytes are no chunk that was written so."""


def _little(values: array[int]) -> bytes:
    if not _IS_LITTLE:
        values.byteswap()
    return values.tobytes()


def _head_crc(head: bytes | memoryview, bloom: bytes | memoryview) -> int:
    return crc32(bloom, crc32(head[_CRC_AT + _CRC_SIZE :], crc32(head[:_CRC_AT])))


def encode_chunk(
    messages: Sequence[Message],
    *,
    first_offset: int,
    timestamp_ms: int,
    term: int,
    filter_size: int,
) -> bytes:
    """Write a chunk.

    Args:
        messages: At least one, as the assembler made them: with content, on any channel.
        first_offset: Offset of the first; the others count on.
        timestamp_ms: When it was written, in milliseconds since the epoch.
        term: The leader's term.
        filter_size: Size of the bloom filter in bytes, if there are filter values; 16 to 255.

    Raises:
        ValueError: For 2 GiB of bodies or more.
    """
    assert messages, "a chunk holds messages"
    columns = Columns(messages)
    count = len(messages)
    bodies, afters = columns.bodies, columns.afters
    ends = list(accumulate(map(len, bodies), initial=0))
    if ends[-1] > _INT32_MAX:
        raise ValueError(f"{ends[-1]} bytes of bodies in a chunk")
    own = b"".join(afters)
    written = b"".join(columns.templates)
    values = b"".join([_text(value) for value in columns.filter_values])
    bloom = b""
    if columns.filter_values:
        bloom = bloom_of(
            columns.filter_values, has_unfiltered=0 in columns.filters, size=filter_size
        )
    parts = [b"", _little(array("i", ends))]
    if afters:
        parts.append(_little(array("i", accumulate(map(len, afters), initial=0))))
        parts.append(_little(array("i", columns.table_sizes)))
    parts += (
        _little(array("i", columns.filters)),
        _little(array("H", columns.kinds)),
        written,
        own,
        values,
        *bodies,
    )
    size = _DATA_HEAD.size + sum(map(len, parts))
    head = _HEAD.pack(
        _MAGIC, TYPE_NATIVE, 1, count, timestamp_ms, term, first_offset, 0, size, 0, len(bloom)
    )
    parts[0] = _DATA_HEAD.pack(
        _head_crc(head, bloom),
        len(columns.templates),
        len(written),
        len(afters),
        len(own),
        len(columns.filter_values),
        len(values),
        0,
    )
    data = b"".join(parts)
    crc = crc32(data).to_bytes(_CRC_SIZE, "big")
    return b"".join((head[:_CRC_AT], crc, head[_CRC_AT + _CRC_SIZE :], bloom, data))


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return _TEXT_SIZE.pack(len(raw)) + raw


class ChunkHead(NamedTuple):
    """What the first bytes of a chunk tell: enough to skip it.

    Attributes:
        messages: How many messages it has.
        timestamp_ms: When it was written, in milliseconds since the epoch.
        term: The leader's term.
        first_offset: Offset of its first message.
        crc: crc32 of the data.
        data_size: Size of the data in bytes.
        bloom_size: Size of the bloom filter in bytes.
    """

    messages: int
    timestamp_ms: int
    term: int
    first_offset: int
    crc: int
    data_size: int
    bloom_size: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole chunk in bytes."""
        return HEAD_SIZE + self.bloom_size + self.data_size


def read_head(data: bytes, start: int = 0) -> ChunkHead:
    """Read a chunk's head. Its checksum is checked only by `Chunk.parse`.

    Args:
        data: Bytes that hold at least the head.
        start: Where the chunk begins.

    Raises:
        ChunkDamaged: For other bytes, and for a chunk of another type.
    """
    try:
        (
            magic,
            kind,
            entries,
            messages,
            timestamp_ms,
            term,
            first_offset,
            crc,
            data_size,
            trailer,
            bloom_size,
        ) = _HEAD.unpack_from(data, start)
    except struct.error:
        raise ChunkDamaged(f"{len(data) - start} bytes are less than a chunk's head") from None
    if magic != _MAGIC or kind != TYPE_NATIVE or entries != 1 or not messages or trailer:
        raise ChunkDamaged(f"head {data[start : start + 8].hex()}, trailer of {trailer} bytes")
    return ChunkHead(messages, timestamp_ms, term, first_offset, crc, data_size, bloom_size)


def head_may_match(
    data: bytes, filters: frozenset[str], *, match_unfiltered: bool, start: int = 0
) -> bool:
    """False if no message of a chunk can be wanted by these filters.

    Args:
        data: Bytes that hold at least head and bloom filter: 303 bytes are enough.
        filters: Filter values that are wanted.
        match_unfiltered: Messages without a filter value are wanted too.
        start: Where the chunk begins.

    Raises:
        ChunkDamaged: As `read_head`.
    """
    head = read_head(data, start)
    at = start + HEAD_SIZE
    bloom = data[at : at + head.bloom_size]
    if len(bloom) < head.bloom_size:
        raise ChunkDamaged(f"{len(bloom)} bytes of a bloom filter of {head.bloom_size}")
    return may_hold(bloom, filters, match_unfiltered=match_unfiltered)


class ChunkColumns:
    """The columns of a chunk, read: their sizes are right, and all that they count is there.

    Attributes:
        bodies: Where each body begins, and where the last one ends, from `bodies_at` on.
        bodies_at: Where bodies begin in the bytes that the columns came in.
        own: Where each message's own begins, and where the last one ends, from `own_at` on; empty
            without any.
        own_at: Where these begin.
        table_sizes: How many bytes of each message's own are headers; -1: no table (`WHOLE`).
        kinds: Number of each message's template, or `WHOLE`.
        templates: What messages share.
        ranks: How many messages with something of their own stand before each; empty where all
            messages have it, or none.
        filters: Number of each message's filter value, from 1; 0 is none. Empty if all are.
        filter_values: The filter values.
    """

    __slots__ = (
        "bodies",
        "bodies_at",
        "filter_values",
        "filters",
        "kinds",
        "own",
        "own_at",
        "ranks",
        "table_sizes",
        "templates",
    )

    def __init__(self, data: bytes, start: int, count: int) -> None:
        _, template_count, template_bytes, own, own_bytes, values, value_bytes, _ = (
            _DATA_HEAD.unpack_from(data, start)
        )
        bodies_at = start + _DATA_HEAD.size
        own_at = bodies_at + 4 * count + 4
        sizes_at = own_at + (4 * own + 4 if own else 0)
        filters_at = sizes_at + 4 * own
        kinds_at = filters_at + (4 * count if values else 0)
        templates_at = kinds_at + 2 * count
        self.own_at = templates_at + template_bytes
        values_at = self.own_at + own_bytes
        self.bodies_at = values_at + value_bytes
        if self.bodies_at > len(data) or own > count:
            raise ValueError("columns are longer than the data")
        self.bodies = _positions(data, bodies_at, count, len(data) - self.bodies_at)
        self.own = _positions(data, own_at, own, own_bytes) if own else array("i")
        self.table_sizes = _column("i", data, sizes_at, own)
        self.filters = _column("i", data, filters_at, count if values else 0)
        self.kinds = _column("H", data, kinds_at, count)
        raw = data[templates_at : templates_at + template_bytes]
        self.templates = templates.decode_templates(raw, template_count)
        self.filter_values = _texts(data[values_at : values_at + value_bytes], values)
        self.ranks = self._ranks(own)

    def _ranks(self, own: int) -> array[int]:
        """Count what is messages' own; every number of a template is looked up."""
        has_own = {kind: each.is_own for kind, each in enumerate(self.templates)}
        has_own[WHOLE] = True
        try:
            if 0 < own < len(self.kinds):
                is_own = [has_own[kind] for kind in self.kinds]
                found = array("i", accumulate(is_own, initial=0))
                if found[-1] == own:
                    return found
            elif all(has_own[kind] == bool(own) for kind in set(self.kinds)):
                return array("i")
        except KeyError:
            pass
        raise ValueError("templates are not those of the messages")

    def check(self, data: bytes) -> None:
        """Look at all that is not looked at when columns are read.

        Args:
            data: What they were read from.

        Raises:
            ValueError: For columns that `encode_chunk` did not write.
            IndexError: Likewise.
            struct.error: Likewise.
        """
        if any(map(gt, self.bodies, self.bodies[1:])) or any(map(gt, self.own, self.own[1:])):
            raise ValueError("positions go back")
        if self.filters and not 0 <= min(self.filters) <= max(self.filters) <= len(
            self.filter_values
        ):
            raise ValueError("no such filter value")
        has_own = [each.is_own for each in self.templates]
        for i, kind in enumerate(self.kinds):
            if kind == WHOLE:
                self.whole(data, i)
            elif has_own[kind]:
                rank = self.rank(i)
                if not 0 <= self.table_sizes[rank] <= self.own[rank + 1] - self.own[rank]:
                    raise ValueError("headers are longer than what is a message's own")

    def rank(self, i: int) -> int:
        """Place of message `i`, which has something of its own, among those that have."""
        return self.ranks[i] if self.ranks else i

    def own_of(self, data: bytes, rank: int) -> bytes:
        """What is the own of the message of a rank."""
        return data[self.own_at + self.own[rank] : self.own_at + self.own[rank + 1]]

    def whole(self, data: bytes, i: int) -> Template:
        """As `templates.decode_whole`, for message `i`.

        Raises:
            ValueError: As `decode_whole`, like the others.
            IndexError: Likewise.
            struct.error: Likewise.
        """
        rank = self.rank(i)
        return templates.decode_whole(self.table_sizes[rank], self.own_of(data, rank))


def _column(typecode: str, data: bytes, at: int, count: int) -> array[int]:
    found: array[int] = array(typecode)
    found.frombytes(data[at : at + count * found.itemsize])
    if not _IS_LITTLE:
        found.byteswap()
    return found


def _positions(data: bytes, at: int, count: int, size: int) -> array[int]:
    """A column of `count` + 1 positions in `size` bytes."""
    found = _column("i", data, at, count + 1)
    if found[0] or found[-1] != size:
        raise ValueError("positions do not go from the beginning to the end")
    return found


def _texts(data: bytes, count: int) -> list[str]:
    found, pos = [], 0
    for _ in range(count):
        end = pos + 4 + _TEXT_SIZE.unpack_from(data, pos)[0]
        if end > len(data):
            raise ValueError("a filter value ends early")
        found.append(data[pos + 4 : end].decode("utf-8", "surrogateescape"))
        pos = end
    if pos != len(data):
        raise ValueError("something follows the filter values")
    return found


class Chunk:
    """A chunk that was read. Made by `parse`.

    Attributes:
        data: Bytes that hold it.
        first_offset: Offset of its first message.
        count: How many messages it has.
        timestamp_ms: When it was written, in milliseconds since the epoch.
        term: The leader's term.
        size_bytes: Its size in bytes.
    """

    __slots__ = (
        "_columns",
        "_data_at",
        "_start",
        "count",
        "data",
        "first_offset",
        "size_bytes",
        "term",
        "timestamp_ms",
    )

    def __init__(self, data: bytes, start: int, head: ChunkHead) -> None:
        self.data = data
        self.first_offset = head.first_offset
        self.count = head.messages
        self.timestamp_ms = head.timestamp_ms
        self.term = head.term
        self.size_bytes = head.size_bytes
        self._start = start
        self._data_at = start + HEAD_SIZE + head.bloom_size
        self._columns: ChunkColumns | None = None

    @classmethod
    def parse(cls, data: bytes, start: int = 0) -> Chunk:
        """Check lengths and checksums. Columns are read when something asks.

        Args:
            data: Bytes that end with the chunk; they are kept.
            start: Where it begins.

        Raises:
            ChunkDamaged: If these are not the bytes that `encode_chunk` wrote.
        """
        head = read_head(data, start)
        chunk = cls(data, start, head)
        at = chunk._data_at
        if start + head.size_bytes != len(data) or head.data_size < _DATA_HEAD.size:
            raise ChunkDamaged(f"{head.size_bytes} bytes announced, {len(data) - start} there")
        view = memoryview(data)
        if crc32(view[at:]) != head.crc:
            raise ChunkDamaged(f"chunk of offset {head.first_offset}: crc32 of the data is wrong")
        bloom_at = start + HEAD_SIZE
        crc = _head_crc(view[start:bloom_at], view[bloom_at:at])
        if crc != int.from_bytes(view[at : at + _CRC_SIZE], "little"):
            raise ChunkDamaged(f"chunk of offset {head.first_offset}: crc32 of the head is wrong")
        return chunk

    @property
    def last_offset(self) -> int:
        """Offset of its last message."""
        return self.first_offset + self.count - 1

    @property
    def columns(self) -> ChunkColumns:
        """Its columns.

        Raises:
            ChunkDamaged: If they can't be right, though their checksum is.
        """
        if self._columns is None:
            try:
                self._columns = ChunkColumns(self.data, self._data_at, self.count)
            except (ValueError, IndexError, OverflowError, struct.error) as error:
                raise self._damaged(error) from None
        return self._columns

    def _damaged(self, error: Exception) -> ChunkDamaged:
        return ChunkDamaged(f"chunk of offset {self.first_offset}: {error}")

    def check(self) -> None:
        """Look at all of it, for a chunk whose checksums prove nothing: they came with it.

        Raises:
            ChunkDamaged: If `encode_chunk` would not write it so.
        """
        columns = self.columns
        try:
            columns.check(self.data)
        except (ValueError, IndexError, struct.error) as error:
            raise self._damaged(error) from None

    def template_of(self, i: int) -> Template:
        """What message `i` (from 0) says beside its body, all of it."""
        columns = self.columns
        kind = columns.kinds[i]
        if kind == WHOLE:
            return columns.whole(self.data, i)
        template = columns.templates[kind]
        if not template.is_own:
            return template
        rank = columns.rank(i)
        after = columns.own_of(self.data, rank)
        return template._replace(table_size=columns.table_sizes[rank], after=after)

    def body(self, i: int) -> bytes:
        """Body of message `i`, from 0."""
        columns = self.columns
        at, bodies = columns.bodies_at, columns.bodies
        return self.data[at + bodies[i] : at + bodies[i + 1]]

    def start_of_body(self, i: int, most: int) -> tuple[bytes, int]:
        """The first `most` bytes of the body of message `i`, and how many it has in all."""
        columns = self.columns
        start, stop = columns.bodies[i], columns.bodies[i + 1]
        at = columns.bodies_at + start
        return self.data[at : at + min(most, stop - start)], stop - start

    def properties(self, i: int) -> tuple[str, str, bytes]:
        """Exchange and routing key of message `i`, and its properties as `facts_of` takes them."""
        exchange, routing_key, _, before, table_size, after = self.template_of(i)
        raw = templates.joined(before, table_size, after)
        return templates.text_of(exchange), templates.text_of(routing_key), raw

    def message(self, i: int, *, more_headers: bytes = b"") -> Message:
        """Message `i`, from 0, on channel 1.

        Args:
            i: Its number in the chunk.
            more_headers: Whole entries, which come first in its headers.
        """
        exchange, routing_key, _, before, table_size, after = self.template_of(i)
        if more_headers:
            before = templates.with_headers(before)
        raw = templates.joined(before, table_size + len(more_headers), more_headers + after)
        return _message(
            templates.text_of(exchange), templates.text_of(routing_key), raw, self.body(i)
        )

    @property
    def filter_values(self) -> frozenset[str]:
        """The filter values of its messages."""
        return frozenset(self.columns.filter_values)

    def filter_value(self, i: int) -> str | None:
        """Filter value of message `i`, from 0."""
        columns = self.columns
        number = columns.filters[i] if columns.filters else 0
        return columns.filter_values[number - 1] if number else None

    def may_match(self, filters: frozenset[str], *, match_unfiltered: bool) -> bool:
        """As `head_may_match`."""
        return head_may_match(
            self.data, filters, match_unfiltered=match_unfiltered, start=self._start
        )

    def matches(self, filters: frozenset[str], *, match_unfiltered: bool) -> list[int] | range:
        """Which messages are wanted by these filters.

        Args:
            filters: Filter values that are wanted.
            match_unfiltered: Messages without a filter value are wanted too.

        Returns:
            Their numbers in the chunk, in order; a range if these are all or none.
        """
        if not self.may_match(filters, match_unfiltered=match_unfiltered):
            return range(0)
        columns = self.columns
        if not columns.filters:
            return range(self.count if match_unfiltered else 0)
        wanted = {i for i, value in enumerate(columns.filter_values, 1) if value in filters}
        if match_unfiltered:
            wanted.add(0)
        found = [i for i, number in enumerate(columns.filters) if number in wanted]
        return range(self.count) if len(found) == self.count else found


def _message(exchange: str, routing_key: str, raw: bytes, body: bytes) -> Message:
    facts = facts_at(raw, 0, len(raw))
    size = HEADER_FIXED_SIZE + len(raw)
    parts = [
        FRAME.pack(FRAME_HEADER, 1, size),
        _CONTENT.pack(_CLASS_BASIC, 0, len(body)),
        raw,
        bytes((FRAME_END,)),
    ]
    room = FRAME_MAX_DEFAULT - FRAME_OVERHEAD
    for start in range(0, len(body), room):
        piece = body[start : start + room]
        parts += (FRAME.pack(FRAME_BODY, 1, len(piece)), piece, b"\xce")
    return Message(
        exchange,
        routing_key,
        b"".join(parts),
        1,
        size,
        len(body),
        facts.persistent,
        facts.ttl_ms,
        facts.priority,
    )
