"""Frames and the methods that this client sends and reads."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from pipeline.wire import fields
from pipeline.wire.failures import ProtocolBroken

HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD: Final = 1
CONTENT_HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = b"\xce"
OVERHEAD: Final = 8
FRAME: Final = struct.Struct(">BHI")
HEARTBEAT_FRAME: Final = FRAME.pack(HEARTBEAT, 0, 0) + END
FRAME_MAX: Final = 128 << 10
SIZE_MAX: Final = 256 << 20
"""Nobody sends larger frames: something else is at the other end."""

Name = tuple[int, int]
START: Final[Name] = (10, 10)
START_OK: Final[Name] = (10, 11)
TUNE: Final[Name] = (10, 30)
TUNE_OK: Final[Name] = (10, 31)
OPEN: Final[Name] = (10, 40)
OPEN_OK: Final[Name] = (10, 41)
CLOSE: Final[Name] = (10, 50)
CLOSE_OK: Final[Name] = (10, 51)
BLOCKED: Final[Name] = (10, 60)
UNBLOCKED: Final[Name] = (10, 61)
CHANNEL_OPEN: Final[Name] = (20, 10)
CHANNEL_OPEN_OK: Final[Name] = (20, 11)
CHANNEL_CLOSE: Final[Name] = (20, 40)
CHANNEL_CLOSE_OK: Final[Name] = (20, 41)
DECLARE: Final[Name] = (50, 10)
DECLARE_OK: Final[Name] = (50, 11)
QOS: Final[Name] = (60, 10)
QOS_OK: Final[Name] = (60, 11)
CONSUME: Final[Name] = (60, 20)
CONSUME_OK: Final[Name] = (60, 21)
CANCEL: Final[Name] = (60, 30)
CANCEL_OK: Final[Name] = (60, 31)
PUBLISH: Final[Name] = (60, 40)
RETURN: Final[Name] = (60, 50)
DELIVER: Final[Name] = (60, 60)
ACK: Final[Name] = (60, 80)
NACK: Final[Name] = (60, 120)
CONFIRM: Final[Name] = (85, 10)
CONFIRM_OK: Final[Name] = (85, 11)
TX_SELECT: Final[Name] = (90, 10)
TX_SELECT_OK: Final[Name] = (90, 11)
TX_COMMIT: Final[Name] = (90, 20)
TX_COMMIT_OK: Final[Name] = (90, 21)

_NAME: Final = struct.Struct(">HH")
_ACK: Final = struct.Struct(">BHIHHQBc")
_ACK_SIZE: Final = 13


class Frame(NamedTuple):
    """A whole frame.

    Attributes:
        kind: Its type.
        channel: Its channel.
        payload: What it holds.
    """

    kind: int
    channel: int
    payload: bytes

    @property
    def name(self) -> Name | None:
        """Class and method; None if it is no method."""
        if self.kind != METHOD or len(self.payload) < _NAME.size:
            return None
        return _NAME.unpack_from(self.payload)


def method(channel: int, name: Name, arguments: bytes = b"") -> bytes:
    """A method's frame."""
    payload = _NAME.pack(*name) + arguments
    return FRAME.pack(METHOD, channel, len(payload)) + payload + END


def ack(channel: int, tag: int) -> bytes:
    """Acknowledge all up to a delivery tag."""
    return _ACK.pack(METHOD, channel, _ACK_SIZE, *ACK, tag, 1, END)


def size_at(data: bytes, at: int) -> int:
    """Whole size of the frame that begins here; 0 if its head is not there yet.

    Raises:
        ProtocolBroken: No frame begins here.
    """
    if len(data) - at < FRAME.size:
        return 0
    kind, _, size = FRAME.unpack_from(data, at)
    if kind not in (METHOD, CONTENT_HEADER, BODY, HEARTBEAT) or size > SIZE_MAX:
        raise ProtocolBroken("what came is no frame of AMQP 0-9-1")
    return int(size) + OVERHEAD


def frame_at(data: bytes, at: int) -> Frame | None:
    """The frame that begins here; None if it is not there whole.

    Raises:
        ProtocolBroken: No frame begins here.
    """
    size = size_at(data, at)
    if not size or len(data) - at < size:
        return None
    kind, channel, _ = FRAME.unpack_from(data, at)
    end = at + size
    if data[end - 1 : end] != END:
        raise ProtocolBroken("a frame does not end where it says")
    return Frame(kind, channel, data[at + FRAME.size : end - 1])


def reply(payload: bytes) -> tuple[int, str]:
    """Code and text of a close or return."""
    code = int.from_bytes(payload[4:6], "big")
    return code, payload[7 : 7 + payload[6]].decode("utf-8", "replace")


class Start(NamedTuple):
    """Connection.start.

    Attributes:
        properties: The server's.
        mechanisms: How it lets clients log in.
    """

    properties: dict[str, object]
    mechanisms: list[str]


def read_start(payload: bytes) -> Start:
    """Read connection.start."""
    properties, at = fields.read_table(payload, 6)
    size = int.from_bytes(payload[at : at + 4], "big")
    return Start(properties, payload[at + 4 : at + 4 + size].decode().split())


def start_ok(properties: Mapping[str, object], mechanism: str, response: bytes) -> bytes:
    """Connection.start-ok."""
    arguments = fields.table(properties) + fields.short(mechanism)
    return method(0, START_OK, arguments + fields.long(response) + fields.short("en_US"))


def consume(channel: int, queue: str, tag: str, arguments: Mapping[str, object]) -> bytes:
    """Basic.consume with acknowledgements."""
    names = b"\0\0" + fields.short(queue) + fields.short(tag)
    return method(channel, CONSUME, names + b"\0" + fields.table(arguments))


def passive_declare(channel: int, queue: str) -> bytes:
    """Queue.declare that only looks."""
    return method(channel, DECLARE, b"\0\0" + fields.short(queue) + b"\1" + fields.table({}))
