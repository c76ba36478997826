"""Deliveries out of large pieces of bytes, into columns.

A delivery is three frames: method, content header, body. Those of one stream differ in delivery
tag, offset, size and body, and often in nothing else. What lies between them is compared as a
whole with the delivery before: one unpack, four comparisons and one slice a message. Where it
differs, the frames are walked, and what they say is looked up by its bytes, so that properties
which come again are decoded once.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from typing import Any, Final, NamedTuple

from pipeline.wire import fields, frames
from pipeline.wire.failures import ProtocolBroken

OFFSET_HEADER: Final = "x-stream-offset"
_OFFSET_KEY: Final = fields.short(OFFSET_HEADER) + b"l"
_U32: Final = struct.Struct(">I")
_Q: Final = struct.Struct(">q")
_DELIVER_START: Final = struct.pack(">HH", *frames.DELIVER)
_HEADER_FIXED: Final = 14
"""Class, weight, size of the body, flags: the part of a content header that is always there."""

_HEADERS_FLAG: Final = 1 << 13
_MORE_FLAGS: Final = 1
_SHAPES_MAX: Final = 4096

PROPERTIES: Final = (
    ("content_type", "s"),
    ("content_encoding", "s"),
    ("headers", "F"),
    ("delivery_mode", "o"),
    ("priority", "o"),
    ("correlation_id", "s"),
    ("reply_to", "s"),
    ("expiration", "s"),
    ("message_id", "s"),
    ("timestamp", "T"),
    ("type", "s"),
    ("user_id", "s"),
    ("app_id", "s"),
    ("cluster_id", "s"),
)
"""In the order of their flags, from bit 15 down."""


class Shape:
    """What deliveries have in common: exchange, routing key and properties, decoded when asked for.

    Args:
        exchange: As it came.
        routing_key: As it came.
        content: Payload of the content header.
    """

    __slots__ = ("_content", "_properties", "exchange", "routing_key")

    def __init__(self, exchange: bytes, routing_key: bytes, content: bytes) -> None:
        self.exchange = exchange.decode("utf-8", "replace")
        self.routing_key = routing_key.decode("utf-8", "replace")
        self._content = content
        self._properties: dict[str, Any] | None = None

    @property
    def properties(self) -> dict[str, Any]:
        """By name; `headers` without the offset, which is another one in each message.

        Raises:
            ProtocolBroken: They can't be read.
        """
        if self._properties is None:
            self._properties = read_properties(self._content)
        return self._properties


class Rows:
    """Messages as columns, in the order of their offsets.

    Attributes:
        offsets: Theirs.
        bodies: Theirs.
        shapes: (how many, what they have in common), one behind the other.
        size: Bytes of the bodies.
        tag: The newest delivery tag.
    """

    __slots__ = ("bodies", "offsets", "shapes", "size", "tag")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.bodies: list[bytes] = []
        self.shapes: list[tuple[int, Shape]] = []
        self.size = 0
        self.tag = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def clip(self, start: int, stop: int) -> None:
        """Drop what is below `start`, and what is not below `stop`."""
        low, high = bisect_left(self.offsets, start), bisect_left(self.offsets, stop)
        if low == 0 and high == len(self.offsets):
            return
        kept: list[tuple[int, Shape]] = []
        at = 0
        for count, shape in self.shapes:
            inside = min(at + count, high) - max(at, low)
            if inside > 0:
                kept.append((inside, shape))
            at += count
        self.shapes = kept
        self.offsets = self.offsets[low:high]
        self.bodies = self.bodies[low:high]
        self.size = sum(map(len, self.bodies))


class _Mould(NamedTuple):
    """The bytes between the numbers of a delivery, to compare the next one with."""

    layout: struct.Struct
    method: bytes
    header: bytes
    before: bytes
    after: bytes
    shape: Shape


class _Found(NamedTuple):
    """One delivery that was walked; `mould` is None for a body of none or several frames."""

    end: int
    tag: int
    offset: int
    body: bytes
    shape: Shape
    mould: _Mould | None


class Deliveries:
    """Reads the deliveries of one consumer; one object a consumer."""

    def __init__(self) -> None:
        self._mould: _Mould | None = None
        self._shapes: dict[tuple[bytes, bytes, bytes, bytes], Shape] = {}

    def read(self, data: bytes, at: int, rows: Rows) -> int:
        """Append all whole deliveries at the front.

        Args:
            data: What came.
            at: Where a frame begins.
            rows: Where they go.

        Returns:
            Where it stopped: at a frame of another kind, or at a delivery that is not there whole.

        Raises:
            ProtocolBroken: It is no delivery of a stream.
        """
        while True:
            if self._mould is not None:
                at = self._read_alike(self._mould, data, at, rows)
            found = self._walk(data, at)
            if found is None:
                return at
            rows.offsets.append(found.offset)
            rows.bodies.append(found.body)
            rows.size += len(found.body)
            rows.shapes.append((1, found.shape))
            rows.tag = found.tag
            self._mould = found.mould
            at = found.end

    @staticmethod
    def _read_alike(mould: _Mould, data: bytes, at: int, rows: Rows) -> int:
        """Deliveries that are like the one before; stops at the first that is not."""
        layout, method, header, before, after, shape = mould
        unpack, size = layout.unpack_from, layout.size
        last = len(data) - size - 1
        add_offset, add_body = rows.offsets.append, rows.bodies.append
        tag, first, start = rows.tag, len(rows.offsets), at
        while at <= last:
            a, new_tag, b, length, c, offset, d, framed = unpack(data, at)
            body = at + size
            end = body + length
            if (
                a != method
                or d != after
                or c != before
                or b != header
                or framed != length
                or end >= len(data)
            ):
                break
            add_offset(offset)
            add_body(data[body:end])
            tag = new_tag
            at = end + 1
        count = len(rows.offsets) - first
        if count:
            rows.tag = tag
            rows.size += at - start - count * (size + 1)
            rows.shapes.append((count, shape))
        return at

    def _walk(self, data: bytes, at: int) -> _Found | None:
        """Read one delivery frame by frame; None if there is none here, or not whole."""
        size = frames.size_at(data, at)
        if not size or not begins_at(data, at):
            return None
        content = at + size
        header_size = frames.size_at(data, content)
        header_end = content + header_size
        if not header_size or len(data) < header_end:
            return None
        payload = data[content + frames.FRAME.size : header_end - 1]
        if data[content] != frames.CONTENT_HEADER or len(payload) < _HEADER_FIXED:
            raise ProtocolBroken("a delivery has no content header")
        length = int.from_bytes(payload[4:12], "big")
        body, end, is_one = _body(data, header_end, length)
        if body is None:
            return None
        try:
            place = _offset_place(payload)
        except (IndexError, struct.error):
            raise ProtocolBroken("the headers of a delivery can't be read") from None
        tag_at = at + 12 + data[at + 11]
        return self._found(
            data, (at, tag_at, content, header_end, end), payload, place, body, is_one
        )

    def _found(
        self,
        data: bytes,
        places: tuple[int, int, int, int, int],
        payload: bytes,
        place: int,
        body: bytes,
        is_one: bool,  # noqa: FBT001  a fact found, no choice of behaviour
    ) -> _Found:
        at, tag_at, content, header_end, end = places
        payload_at = content + frames.FRAME.size
        offset_at = payload_at + place
        length_at = payload_at + 4
        method, header = data[at:tag_at], data[tag_at + 8 : length_at]
        before = data[length_at + 8 : offset_at]
        after = data[offset_at + 8 : header_end]
        key = (method, header, before, after)
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(*_source(data[tag_at + 9 : content - 1]), payload)
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            self._shapes[key] = shape
        mould = None
        if is_one:
            after = data[offset_at + 8 : header_end + 3]
            layout = f">{len(method)}sQ{len(header)}sQ{len(before)}sq{len(after)}sI"
            mould = _Mould(struct.Struct(layout), method, header, before, after, shape)
        tag = int.from_bytes(data[tag_at : tag_at + 8], "big")
        (offset,) = _Q.unpack_from(payload, place)
        return _Found(end, tag, offset, body, shape, mould)


def _source(words: bytes) -> tuple[bytes, bytes]:
    """The exchange and the routing key at the end of a basic.deliver."""
    key_at = 1 + words[0] if words else 0
    if not 0 < key_at < len(words) or len(words) != key_at + 1 + words[key_at]:
        raise ProtocolBroken("the exchange and the key of a delivery can't be read")
    return words[1:key_at], words[key_at + 1 :]


def begins_at(data: bytes, at: int) -> bool:
    """Whether a delivery begins here: its frames belong together."""
    return data[at : at + 1] == b"\1" and data[at + 7 : at + 11] == _DELIVER_START


def size_at(data: bytes, at: int) -> int:
    """About how many bytes the delivery that begins here has; 0 if that can't be seen yet."""
    if not begins_at(data, at):
        return 0
    size = frames.size_at(data, at)
    length_at = at + size + frames.FRAME.size + 4
    if len(data) < length_at + 8:
        return 0
    return size + int.from_bytes(data[length_at : length_at + 8], "big")


def _body(data: bytes, at: int, length: int) -> tuple[bytes | None, int, bool]:
    """A body's frames: the body, where they end, whether it was one frame; None: not there."""
    parts: list[bytes] = []
    left = length
    while left > 0:
        size = frames.size_at(data, at)
        if not size or len(data) < at + size:
            return None, at, False
        if data[at] != frames.BODY or size - frames.OVERHEAD > left:
            raise ProtocolBroken("a delivery's body is not as long as it says")
        parts.append(data[at + frames.FRAME.size : at + size - 1])
        left -= size - frames.OVERHEAD
        at += size
    return b"".join(parts), at, len(parts) == 1


def _offset_place(payload: bytes) -> int:
    """Where the value of x-stream-offset is in a content header.

    Raises:
        ProtocolBroken: It is not there: this is no stream.
    """
    flags = int.from_bytes(payload[12:14], "big")
    if not flags & _HEADERS_FLAG or flags & _MORE_FLAGS:
        raise ProtocolBroken("a delivery has no x-stream-offset: the queue is no stream")
    at = _HEADER_FIXED
    for bit in (15, 14):  # the two short strings before the headers
        if flags & 1 << bit:
            at += 1 + payload[at]
    end = at + 4 + _U32.unpack_from(payload, at)[0]
    at += 4
    while at < end:
        if payload.startswith(_OFFSET_KEY, at):
            return at + len(_OFFSET_KEY)
        at = fields.skip_value(payload, at + 1 + payload[at])
    raise ProtocolBroken("a delivery has no x-stream-offset: the queue is no stream")


def read_properties(payload: bytes) -> dict[str, Any]:
    """Decode the properties of a content header; `headers` without the offset.

    Raises:
        ProtocolBroken: They can't be read.
    """
    flags = int.from_bytes(payload[12:14], "big")
    at = _HEADER_FIXED
    found: dict[str, Any] = {}
    try:
        for number, (name, kind) in enumerate(PROPERTIES):
            if not flags & 1 << (15 - number):
                continue
            if kind == "F":
                found[name], at = fields.read_table(payload, at)
                found[name].pop(OFFSET_HEADER, None)
            elif kind == "o":
                found[name] = payload[at]
                at += 1
            elif kind == "T":
                found[name] = int.from_bytes(payload[at : at + 8], "big")
                at += 8
            else:
                end = at + 1 + payload[at]
                found[name] = payload[at + 1 : end].decode("utf-8", "replace")
                at = end
    except IndexError:
        raise ProtocolBroken("properties of a message end in the middle") from None
    return found
