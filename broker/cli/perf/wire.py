"""The few AMQP frames a load generator sends, as bytes. Pure.

frame:   type(1) channel(2) size(4) payload end(1)=0xCE
publish: method frame 60.40, header frame, body frames of at most frame_max - 8 bytes
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"
FRAME_OVERHEAD = 8

CONNECTION_START = (10, 10)
CONNECTION_TUNE = (10, 30)
CONNECTION_OPEN_OK = (10, 41)
CONNECTION_CLOSE = (10, 50)
CONNECTION_CLOSE_OK = (10, 51)
CHANNEL_OPEN_OK = (20, 11)
CHANNEL_CLOSE = (20, 40)
EXCHANGE_DECLARE_OK = (40, 11)
QUEUE_DECLARE_OK = (50, 11)
QUEUE_BIND_OK = (50, 21)
QUEUE_PURGE_OK = (50, 31)
QUEUE_DELETE_OK = (50, 41)
BASIC_QOS_OK = (60, 11)
BASIC_CONSUME_OK = (60, 21)
BASIC_RETURN = (60, 50)
CONFIRM_SELECT_OK = (85, 11)
TX_SELECT_OK = (90, 11)
TX_COMMIT_OK = (90, 21)

STAMP = struct.Struct(">Q")
STAMP_BYTES = STAMP.size
_ACK_HEAD = struct.pack(">BHIHH", METHOD, 1, 13, 60, 80)
_ACK_TAIL = b"\0" + FRAME_END
_INT_MAX = 2**31 - 1
_CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """One method frame."""
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def short(text: str) -> bytes:
    """A short string, at most 255 bytes."""
    raw = text.encode()
    return bytes([len(raw)]) + raw


def long(raw: bytes) -> bytes:
    """A long string."""
    return struct.pack(">I", len(raw)) + raw


def table(fields: Mapping[str, object]) -> bytes:
    """A field table of strings, integers, booleans, times and tables."""
    body = b""
    for key, value in fields.items():
        body += short(key)
        if isinstance(value, bool):
            body += b"t" + bytes([value])
        elif isinstance(value, int):
            is_small = -_INT_MAX <= value <= _INT_MAX
            body += b"I" + struct.pack(">i", value) if is_small else b"l" + struct.pack(">q", value)
        elif isinstance(value, Mapping):
            body += b"F" + table(value)
        elif isinstance(value, datetime):
            body += b"T" + struct.pack(">Q", int(value.timestamp()))
        else:
            body += b"S" + long(str(value).encode())
    return long(body)


def start_ok(user: str, password: str, name: str) -> bytes:
    """connection.start-ok with PLAIN."""
    properties = {
        "product": "warrenmq perf",
        "connection_name": name,
        "capabilities": _CAPABILITIES,
    }
    response = long(f"\0{user}\0{password}".encode())
    return method(0, 10, 11, table(properties) + short("PLAIN") + response + short("en_US"))


def tune_ok(channel_max: int, frame_max: int) -> bytes:
    """connection.tune-ok without heartbeats."""
    return method(0, 10, 31, struct.pack(">HIH", channel_max, frame_max, 0))


def connection_open(vhost: str) -> bytes:
    """connection.open."""
    return method(0, 10, 40, short(vhost) + b"\0\0")


def exchange_declare(name: str, kind: str, *, durable: bool) -> bytes:
    """exchange.declare."""
    return method(
        1, 40, 10, b"\0\0" + short(name) + short(kind) + bytes([durable << 1]) + table({})
    )


def queue_declare(
    name: str, *, durable: bool, auto_delete: bool, passive: bool, arguments: Mapping[str, object]
) -> bytes:
    """queue.declare."""
    bits = bytes([passive | durable << 1 | auto_delete << 3])
    return method(1, 50, 10, b"\0\0" + short(name) + bits + table(arguments))


def queue_bind(queue: str, exchange: str, key: str) -> bytes:
    """queue.bind."""
    names = short(queue) + short(exchange) + short(key)
    return method(1, 50, 20, b"\0\0" + names + b"\0" + table({}))


def qos(prefetch: int) -> bytes:
    """basic.qos for each consumer."""
    return method(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0))


def consume(queue: str, *, no_ack: bool, arguments: Mapping[str, object]) -> bytes:
    """basic.consume."""
    bits = bytes([no_ack << 1])
    return method(1, 60, 20, b"\0\0" + short(queue) + short("") + bits + table(arguments))


def tx_select() -> bytes:
    """tx.select."""
    return method(1, 90, 10)


def tx_commit() -> bytes:
    """tx.commit."""
    return method(1, 90, 20)


def confirm_select() -> bytes:
    """confirm.select."""
    return method(1, 85, 10, b"\0")


def ack(delivery_tag: int) -> bytes:
    """basic.ack of everything up to a tag."""
    return method(1, 60, 80, struct.pack(">QB", delivery_tag, 1))


def ack_one(delivery_tag: int) -> bytes:
    """basic.ack of one tag."""
    return _ACK_HEAD + STAMP.pack(delivery_tag) + _ACK_TAIL


def queue_purge(queue: str) -> bytes:
    """queue.purge."""
    return method(1, 50, 30, b"\0\0" + short(queue) + b"\0")


def queue_delete(queue: str) -> bytes:
    """queue.delete, whatever is in it."""
    return method(1, 50, 40, b"\0\0" + short(queue) + b"\0")


class Template:
    """One publish with a hole for the time stamp.

    Args:
        exchange: Where to publish.
        routing_key: With which key.
        size_bytes: Body size; below 8 there is no room for a stamp.
        frame_max: Negotiated frame size.
        persistent: delivery_mode 2.
        mandatory: Sets the bit.
    """

    def __init__(
        self, exchange: str, routing_key: str, size_bytes: int, frame_max: int, *,
        persistent: bool, mandatory: bool,
    ) -> None:  # fmt: skip
        names = short(exchange) + short(routing_key)
        publish = method(1, 60, 40, b"\0\0" + names + bytes([mandatory]))
        header = struct.pack(">HHQ", 60, 0, size_bytes) + (
            struct.pack(">HB", 0x1000, 2) if persistent else b"\0\0"
        )
        piece = frame_max - FRAME_OVERHEAD
        body = b"x" * size_bytes
        frames = b"".join(
            frame(BODY, 1, body[at : at + piece]) for at in range(0, size_bytes, piece)
        )
        whole = publish + frame(HEADER, 1, header)
        self._has_stamp = size_bytes >= STAMP_BYTES
        self._head = whole + frames[:7]
        self._tail = frames[7 + STAMP_BYTES :] if self._has_stamp else frames[7:]

    def message(self, now_ns: int) -> bytes:
        """The frames of one message sent at `now_ns`."""
        return self._head + (STAMP.pack(now_ns) if self._has_stamp else b"") + self._tail

    def batch(self, now_ns: int, count: int) -> bytes:
        """Copies of one message, sent at `now_ns`."""
        return self.message(now_ns) * count
