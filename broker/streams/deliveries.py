"""Messages of a chunk on their way to one consumer, over AMQP 0-9-1.

A delivery is constant pieces with numbers between them, then the body:

    method frame up to the tag | delivery tag | redelivered, exchange, routing key; content header
    up to the body's size | body size | flags, ... headers up to the value of x-stream-offset |
    offset | other headers and properties, body frame up to its size | body size | body

The pieces depend on channel, consumer tag and template alone. They are made once, and remembered
for the templates of the next chunk, which are mostly the same. So a message is one pack and one
slice; where it has properties of its own, two packs and two slices.

Source: rabbit_stream_queue.erl (x-stream-offset is a long), amqp0-9-1 2.3.5 (frames).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, final, overload

from typing_extensions import override

from broker.amqp.content import HEADER_FIXED_SIZE
from broker.amqp.frames import FRAME, FRAME_BODY, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from broker.message import Delivery
from broker.streams.chunk import Chunk, ChunkColumns
from broker.streams.columns import WHOLE
from broker.streams.templates import OFFSET_MARK, WHOLE_SIZES, Template, with_headers

FRAMINGS_MAX: Final = 4096
"""How many sets of pieces are remembered, each for a consumer and a template."""

FRAMING_SIZE_MAX: Final = 1024
"""Largest template remembered, in bytes of its properties."""

_END: Final = b"\xce"
_KEY: Final = OFFSET_MARK + b"l"
"""The header up to its value, a signed long of 64 bits."""

_OFFSET: Final = struct.Struct(">q")
_OFFSET_SIZE: Final = len(_KEY) + _OFFSET.size
_TABLE_SIZE: Final = struct.Struct(">I")
_BODY_START: Final = struct.Struct(">cBHI")
_HEADER_START: Final = struct.Struct(">cBHI4sQ")
_HEADERS_START: Final = struct.Struct(f">I{len(_KEY)}sq")
_HEADER_SIZE: Final = HEADER_FIXED_SIZE + _HEADERS_START.size
_BASIC: Final = struct.pack(">HH", 60, 0)
_DELIVER: Final = struct.pack(">HH", 60, 60)
_TAG_SIZE: Final = 9
_MESSAGE_OVERHEAD: Final = 150
"""About so many bytes of a delivery are not body, nor properties of its own."""


class _Framing(NamedTuple):
    """The constant pieces of a consumer's deliveries of one template.

    Attributes:
        layout: Puts pieces and numbers together, the end octet of the frame before in front.
        method: Method frame up to the delivery tag.
        header: Then, up to the body's size; of own properties: up to the header frame's size.
        table: Then, up to the offset; of own properties: up to the size of the headers table.
        rest: Then, up to the size of the body frame; of own properties: nothing.
        own_size: What a message's own properties add to, to give the size of the header frame; 0
            for shared properties.
    """

    layout: struct.Struct
    method: bytes
    header: bytes
    table: bytes
    rest: bytes
    own_size: int


_framings: dict[tuple[int, bytes, Template], _Framing] = {}


def _framing(channel: int, consumer_tag: bytes, template: Template) -> _Framing:
    names = (channel, consumer_tag, template)
    found = _framings.get(names)
    if found is None:
        found = _make(channel, consumer_tag, template)
        if len(template.before) + len(template.after) <= FRAMING_SIZE_MAX:
            if len(_framings) >= FRAMINGS_MAX:
                _framings.clear()
            _framings[names] = found
    return found


def _make(channel: int, consumer_tag: bytes, template: Template) -> _Framing:
    exchange, routing_key, is_own, before, table_size, after = template
    size = len(_DELIVER) + 1 + len(consumer_tag) + _TAG_SIZE + len(exchange) + len(routing_key)
    tag = bytes((len(consumer_tag),)) + consumer_tag
    method = FRAME.pack(FRAME_METHOD, channel, size) + _DELIVER + tag
    number = channel.to_bytes(2, "big")
    header = b"\0%b%b\xce\x02%b" % (exchange, routing_key, number)
    table = with_headers(before)
    size = _HEADER_SIZE + len(before) + len(after)
    if is_own:
        layout = f">c{len(method)}sQ{len(header)}sI4sQ{len(table)}sI{len(_KEY)}sq"
        return _Framing(struct.Struct(layout), method, header, table, b"", size)
    header += _TABLE_SIZE.pack(size) + _BASIC
    table += _TABLE_SIZE.pack(table_size + _OFFSET_SIZE) + _KEY
    rest = after + b"\xce\x03" + number
    layout = f">c{len(method)}sQ{len(header)}sQ{len(table)}sq{len(rest)}sI"
    return _Framing(struct.Struct(layout), method, header, table, rest, 0)


@final
class StreamDeliveries(Sequence[Delivery]):
    """Deliveries of one chunk to one consumer, in order; numbers are offsets plus one.

    Args:
        chunk: The chunk.
        start: Number of the first message in the chunk, from 0.
        stop: Number behind the last one.
        picked: Numbers of the messages that a filter lets pass, in order: of these, the ones from
            `start` on and before `stop`. All are without it.
    """

    __slots__ = ("_chunk", "_indices")

    def __init__(
        self, chunk: Chunk, start: int, stop: int, picked: Sequence[int] | None = None
    ) -> None:
        self._chunk = chunk
        self._indices: Sequence[int]
        if picked is None:
            self._indices = range(chunk.count)[start:stop]
        else:
            self._indices = picked[bisect_left(picked, start) : bisect_left(picked, stop)]

    @override
    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...
    @overload
    def __getitem__(self, index: slice) -> StreamDeliveries: ...
    @override
    def __getitem__(self, index: int | slice) -> Delivery | StreamDeliveries:
        if isinstance(index, slice):
            return StreamDeliveries(self._chunk, 0, self._chunk.count, self._indices[index])
        return self._delivery(self._indices[index])

    @override
    def __iter__(self) -> Iterator[Delivery]:
        return map(self._delivery, self._indices)

    def _delivery(self, i: int) -> Delivery:
        offset = self._chunk.first_offset + i
        entry = _KEY + _OFFSET.pack(offset)
        return Delivery(offset + 1, 0, self._chunk.message(i, more_headers=entry))

    @property
    def numbers(self) -> list[int]:
        """The number of each: its offset plus one."""
        first = self._chunk.first_offset + 1
        if isinstance(self._indices, range):
            return list(range(first + self._indices.start, first + self._indices.stop))
        return [first + i for i in self._indices]

    @property
    def size_bytes(self) -> int:
        """About how many bytes they are once they are rendered."""
        chunk, count = self._chunk, len(self._indices)
        return count * _MESSAGE_OVERHEAD + chunk.size_bytes * count // chunk.count

    def render(
        self,
        channel: int,
        consumer_tag: bytes,
        first_delivery_tag: int,
        frame_max: int,
        out: list[bytes],
    ) -> int:
        """Write them: deliver, header and body frames of each, `x-stream-offset` in its headers.

        Args:
            channel: The consumer's channel.
            consumer_tag: Its tag as UTF-8.
            first_delivery_tag: Delivery tag of the first; the others count on.
            frame_max: Largest frame of the connection in bytes, as negotiated. A header that does
                not fit goes out whole: headers cannot be cut.
            out: Receives the bytes, to be joined and written in order.

        Returns:
            The delivery tag after the last one used.

        Raises:
            ChunkDamaged: As `Chunk.columns`.
        """
        if not self._indices:
            return first_delivery_tag
        chunk, columns = self._chunk, self._chunk.columns
        own, own_at, ranks = columns.own, columns.own_at, columns.ranks
        data, first_offset, room = chunk.data, chunk.first_offset, frame_max - FRAME_OVERHEAD
        body_start, last_kind, first_out = _BODY_START.pack, -1, len(out)
        framings: dict[int, _Framing] = {}
        rare: _Rare | None = None
        layout, method, header, table, rest, own_size = _NO_FRAMING
        pack, tag = layout.pack, first_delivery_tag
        for i, kind, start, stop in self._selected(columns):
            size, offset = stop - start, first_offset + i
            if kind == WHOLE or not 0 < size <= room:
                rare = rare or _Rare(chunk, channel, consumer_tag, room)
                out += rare.pieces(i, tag, data[start:stop])
                tag += 1
                continue
            if kind != last_kind:
                last_kind = kind
                framing = framings.get(kind)
                if framing is None:
                    framing = _framing(channel, consumer_tag, columns.templates[kind])
                    framings[kind] = framing
                layout, method, header, table, rest, own_size = framing
                pack = layout.pack
            if own_size:
                rank = ranks[i] if ranks else i
                after = data[own_at + own[rank] : own_at + own[rank + 1]]
                whole, headers = own_size + len(after), columns.table_sizes[rank] + _OFFSET_SIZE
                out += (
                    pack(
                        _END, method, tag, header, whole, _BASIC, size, table, headers, _KEY, offset
                    ),
                    after,
                    body_start(_END, FRAME_BODY, channel, size),
                    data[start:stop],
                )
            else:
                out += (
                    pack(_END, method, tag, header, size, table, offset, rest, size),
                    data[start:stop],
                )
            tag += 1
        out[first_out] = out[first_out][1:]
        out.append(_END)
        return tag

    def _selected(self, columns: ChunkColumns) -> Iterable[tuple[int, int, int, int]]:
        """Number in the chunk, kind, and where the body begins and ends, of each."""
        indices, kinds, bodies, at = self._indices, columns.kinds, columns.bodies, columns.bodies_at
        if isinstance(indices, range):
            positions = [at + each for each in bodies[indices.start : indices.stop + 1]]
            kinds = kinds[indices.start : indices.stop]
            return zip(indices, kinds, positions, positions[1:], strict=False)
        return [(i, kinds[i], at + bodies[i], at + bodies[i + 1]) for i in indices]


_NO_FRAMING: Final = _Framing(struct.Struct(""), b"", b"", b"", b"", 0)


class _Rare:
    """Writes deliveries that have no template, or a body of no frame or of many.

    Args:
        chunk: Where the messages are.
        channel: The consumer's channel.
        consumer_tag: Its tag as UTF-8.
        room: Most bytes of body in a frame.
    """

    __slots__ = ("_channel", "_chunk", "_columns", "_deliver", "_method", "_method_size", "_room")

    def __init__(self, chunk: Chunk, channel: int, consumer_tag: bytes, room: int) -> None:
        self._chunk = chunk
        self._columns = chunk.columns
        self._channel = channel
        self._room = room
        self._deliver = b"%b%c%b" % (_DELIVER, len(consumer_tag), consumer_tag)
        self._method = struct.Struct(f">cBHI{len(self._deliver)}sQB")
        self._method_size = len(self._deliver) + _TAG_SIZE

    def pieces(self, i: int, tag: int, body: bytes) -> list[bytes]:
        """A delivery of message `i`: the end octet of the frame before in front, its own not."""
        chunk, columns, channel = self._chunk, self._columns, self._channel
        if columns.kinds[i] == WHOLE:
            rank, data = columns.ranks[i] if columns.ranks else i, chunk.data
            start = columns.own_at + columns.own[rank]
            names_size, before_size = WHOLE_SIZES.unpack_from(data, start)
            names_at = start + WHOLE_SIZES.size
            before_at = names_at + names_size
            after_at = before_at + before_size
            names, before = data[names_at:before_at], data[before_at:after_at]
            after = data[after_at : columns.own_at + columns.own[rank + 1]]
            table_size = max(0, columns.table_sizes[rank])
        else:
            exchange, routing_key, _, before, table_size, after = chunk.template_of(i)
            names, before = exchange + routing_key, with_headers(before)
        method_size = self._method_size + len(names)
        header_size = _HEADER_SIZE + len(before) + len(after)
        found = [
            self._method.pack(_END, FRAME_METHOD, channel, method_size, self._deliver, tag, 0),
            names,
            _HEADER_START.pack(_END, FRAME_HEADER, channel, header_size, _BASIC, len(body)),
            before,
            _HEADERS_START.pack(table_size + _OFFSET_SIZE, _KEY, chunk.first_offset + i),
            after,
        ]
        if len(body) <= self._room:
            if body:
                found += (_BODY_START.pack(_END, FRAME_BODY, channel, len(body)), body)
            return found
        for at in range(0, len(body), self._room):
            piece = body[at : at + self._room]
            found += (_BODY_START.pack(_END, FRAME_BODY, channel, len(piece)), piece)
        return found
