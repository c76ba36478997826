"""Frames, outwards: methods, contents, and the fast way for a batch of deliveries.

    0      1         3            7                  7+size
    | type | channel | size (u32) | payload (size) ... | 0xCE |

A message keeps its content as frames (see `broker.message`). To send it, these bytes go out as
they are when the channel number is the consumer's; else two bytes of each frame change; and only
when a frame is larger than the consumer's frame_max is the body cut anew.

Called by session (everything it writes) and connection (methods on channel 0).

Source: amqp0-9-1 2.3.5 (frames).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from broker.amqp import methods, spec
from broker.message import Delivery, Message

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_OVERHEAD: Final = 8
"""Bytes of a frame around its payload: seven in front, the end octet behind."""

FRAME_MIN_SIZE: Final = 4096
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

FRAME: Final = struct.Struct(">BHI")
_DELIVER_IDS: Final = struct.pack(">HH", 60, 60)
_TAG: Final = struct.Struct(">QB")
_ACK: Final = struct.Struct(">BHIIQBB")
_ACK_IDS: Final = 60 << 16 | 80
_ACK_SIZE: Final = 13

TAILS_MAX: Final = 8192
"""How many pairs of exchange and routing key are remembered as basic.deliver ends with them."""

HEADS_MAX: Final = 4096
"""How many of its beginnings, each for a consumer and a size of the end."""

_tails: dict[tuple[str, str], bytes] = {}


def method_frame(channel: int, method: spec.Method) -> bytes:
    """A method as a frame.

    Raises:
        ValueError: As `methods.encode`.
        TypeError: As `methods.encode`.
        struct.error: As `methods.encode`.
    """
    payload = methods.encode(method)
    return b"%b%b\xce" % (FRAME.pack(FRAME_METHOD, channel, len(payload)), payload)


def encode_ack(channel: int, delivery_tag: int, *, multiple: bool) -> bytes:
    """basic.ack as a frame: a publisher confirm."""
    return _ACK.pack(FRAME_METHOD, channel, _ACK_SIZE, _ACK_IDS, delivery_tag, multiple, FRAME_END)


def content_frames(message: Message, channel: int, frame_max: int) -> bytes:
    """A message's header and body frames for one channel of one connection.

    Args:
        message: The message.
        channel: The receiving channel.
        frame_max: Largest frame of that connection in bytes, as negotiated. A header that does not
            fit goes out whole: headers cannot be cut.

    Returns:
        `message.content` itself when nothing has to change.
    """
    content = message.content
    if len(content) > frame_max and _largest_body_frame(message) > frame_max:
        return _cut_anew(message, channel, frame_max)
    if message.channel == channel:
        return content
    number = channel.to_bytes(2, "big")
    patched = bytearray(content)
    patched[1:3] = number
    pos = message.header_size + FRAME_OVERHEAD
    if len(content) == pos + FRAME_OVERHEAD + message.body_size:
        patched[pos + 1 : pos + 3] = number
        return bytes(patched)
    while pos < len(content):
        patched[pos + 1 : pos + 3] = number
        pos += FRAME.unpack_from(content, pos)[2] + FRAME_OVERHEAD
    return bytes(patched)


def _largest_body_frame(message: Message) -> int:
    content, largest = message.content, 0
    pos = message.header_size + FRAME_OVERHEAD
    while pos < len(content):
        size = FRAME.unpack_from(content, pos)[2] + FRAME_OVERHEAD
        largest = max(largest, size)
        pos += size
    return largest


def _cut_anew(message: Message, channel: int, frame_max: int) -> bytes:
    header_end = message.header_size + FRAME_OVERHEAD
    parts = [
        FRAME.pack(FRAME_HEADER, channel, message.header_size),
        message.content[FRAME.size : header_end],
    ]
    body = body_of(message)
    room = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), room):
        piece = body[start : start + room]
        parts += (FRAME.pack(FRAME_BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


def body_of(message: Message) -> bytes:
    """The body of a message without its frames."""
    content = message.content
    pos = FRAME_OVERHEAD + message.header_size
    parts = []
    while pos < len(content):
        size = FRAME.unpack_from(content, pos)[2]
        parts.append(content[pos + FRAME.size : pos + FRAME.size + size])
        pos += size + FRAME_OVERHEAD
    return b"".join(parts)


def start_of_body(message: Message, most: int) -> bytes:
    """The first `most` bytes of a body without its frames; fewer where the content was cut."""
    content = message.content
    pos, parts = FRAME_OVERHEAD + message.header_size, list[bytes]()
    while most > 0 and pos + FRAME.size <= len(content):
        size = FRAME.unpack_from(content, pos)[2]
        parts.append(content[pos + FRAME.size : pos + FRAME.size + min(size, most)])
        most -= size
        pos += size + FRAME_OVERHEAD
    return b"".join(parts)


def encode_deliveries(
    channel: int,
    consumer_tag: bytes,
    first_delivery_tag: int,
    deliveries: Iterable[Delivery],
    frame_max: int,
    out: list[bytes],
) -> int:
    """Write a batch of deliveries to one consumer: deliver, header and body frames of each.

    All that does not change from one message to the next is made once, what names an exchange and
    a routing key for all batches; so a message costs one small pack and two list items. Its content
    is not copied here.

    Args:
        channel: The consumer's channel.
        consumer_tag: Its tag as UTF-8.
        first_delivery_tag: Delivery tag of the first; the others count on.
        deliveries: In order; a delivery count above zero sets redelivered.
        frame_max: Largest frame of the connection in bytes, as negotiated.
        out: Receives the bytes, to be joined and written in order.

    Returns:
        The delivery tag after the last one used.
    """
    exchange: str | None = None
    routing_key = ""
    head = tail = b""
    tag = first_delivery_tag
    append, pack_tag = out.append, _TAG.pack
    header_start = body_start = b""
    for delivery in deliveries:
        message = delivery.message
        # Identity first: the assembler gives equal names the same str, and `is` costs nothing. What
        # was read from disk has its own, and comparing is cheaper than making the parts anew.
        if (message.exchange is not exchange or message.routing_key is not routing_key) and (
            message.routing_key != routing_key or message.exchange != exchange
        ):
            exchange, routing_key = names = message.exchange, message.routing_key
            tail = _tails.get(names) or _deliver_tail(*names)
            head = _deliver_head(channel, consumer_tag, len(tail))
        append(head + pack_tag(tag, delivery.delivery_count > 0) + tail)
        content = message.content
        if message.channel == channel and len(content) <= frame_max:
            append(content)
        else:
            body_at = message.header_size + FRAME_OVERHEAD
            if len(content) == body_at + FRAME_OVERHEAD + message.body_size <= frame_max:
                if not header_start:
                    number = channel.to_bytes(2, "big")
                    header_start, body_start = b"\x02" + number, b"\x03" + number
                append(header_start + content[3:body_at] + body_start + content[body_at + 3 :])
            else:
                append(content_frames(message, channel, frame_max))
        tag += 1
    return tag


def drop_deliveries(out: list[bytes], channel: int, consumer_tag: bytes) -> None:
    """Take one consumer's deliveries out of what is not written yet.

    Args:
        out: As `encode_deliveries` left it, and whatever others wrote between: changed in place.
        channel: The consumer's channel.
        consumer_tag: Its tag as UTF-8.
    """
    who = b"%b%c%b" % (_DELIVER_IDS, len(consumer_tag), consumer_tag)
    frame = b"\x01" + channel.to_bytes(2, "big")
    items, out[:] = iter(out[:]), []
    for item in items:
        if item.startswith(frame) and item.startswith(who, FRAME.size):
            next(items)  # its content
        else:
            out.append(item)


@lru_cache(maxsize=HEADS_MAX)
def _deliver_head(channel: int, consumer_tag: bytes, tail_size: int) -> bytes:
    """basic.deliver before delivery tag and redelivered, for a tail of so many bytes."""
    size = len(_DELIVER_IDS) + 1 + len(consumer_tag) + _TAG.size + tail_size - 1
    start = FRAME.pack(FRAME_METHOD, channel, size)
    return b"%b%b%c%b" % (start, _DELIVER_IDS, len(consumer_tag), consumer_tag)


def _deliver_tail(exchange: str, routing_key: str) -> bytes:
    """basic.deliver behind delivery tag and redelivered, end octet included; remembers it."""
    names = (
        exchange.encode("utf-8", "surrogateescape"),
        routing_key.encode("utf-8", "surrogateescape"),
    )
    tail = b"%c%b%c%b\xce" % (len(names[0]), names[0], len(names[1]), names[1])
    if len(_tails) >= TAILS_MAX:
        _tails.clear()
    _tails[exchange, routing_key] = tail
    return tail
