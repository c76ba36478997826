"""A raw AMQP client: sends any frames, valid or not, over a bare socket."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from broker.amqp import methods, spec
from broker.amqp.frames import method_frame
from tests.reference import HOST, VHOST

HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, CONTENT_HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
PATIENCE_S = 60.0
CAPABILITIES: dict[str, object] = {
    "authentication_failure_close": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
}
FRAME_MAX, CHANNEL_MAX = 131_072, 2_047

M = TypeVar("M", bound=spec.Method)


class Frame(NamedTuple):
    """A frame as it came."""

    kind: int
    channel: int
    payload: bytes

    @property
    def method(self) -> spec.Method:
        assert self.kind == METHOD, self
        return methods.decode(self.payload)


def frame(kind: int, channel: int, payload: bytes, *, end: bytes = b"\xce") -> bytes:
    """A frame with any of its parts wrong."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def call(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """A method frame of any numbers and arguments."""
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes((len(text),)) + text


def long(data: bytes) -> bytes:
    """A long string, or a table or an array of these entries."""
    return struct.pack(">I", len(data)) + data


def content_header(
    channel: int, size: int, *, class_id: int = 60, weight: int = 0, properties: bytes = b"\0\0"
) -> bytes:
    """A content header frame."""
    payload = struct.pack(">HHQ", class_id, weight, size) + properties
    return frame(CONTENT_HEADER, channel, payload)


def publish(channel: int, routing_key: str, exchange: str = "") -> bytes:
    """basic.publish alone; its content is to follow."""
    return method_frame(channel, spec.BasicPublish(exchange, routing_key))


def plain(user: str = "guest", password: str = "guest") -> bytes:
    """A response for SASL PLAIN."""
    return b"\0" + user.encode() + b"\0" + password.encode()


def start_ok(
    response: bytes | None = None,
    *,
    mechanism: str = "PLAIN",
    capabilities: dict[str, object] = CAPABILITIES,
    **properties: object,
) -> bytes:
    """connection.start-ok as a frame."""
    table: dict[str, object] = {"product": "raw", "capabilities": capabilities, **properties}
    answer = plain() if response is None else response
    return method_frame(0, spec.ConnectionStartOk(table, mechanism, answer, "en_US"))


def tune_ok(
    channel_max: int = CHANNEL_MAX, frame_max: int = FRAME_MAX, heartbeat: int = 0
) -> bytes:
    """connection.tune-ok as a frame."""
    return method_frame(0, spec.ConnectionTuneOk(channel_max, frame_max, heartbeat))


def open_vhost(vhost: str = VHOST) -> bytes:
    """connection.open as a frame."""
    return method_frame(0, spec.ConnectionOpen(vhost))


class Raw:
    """One connection.

    Args:
        port: Of the node, on 127.0.0.1, or of the broker of `tests.reference` on its host.
        user: Whom to log in as; the password is the name.
    """

    def __init__(self, port: int, user: str = "guest") -> None:
        self.socket = socket.create_connection((HOST, port), PATIENCE_S)
        self.user = user
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    # Sending

    def send(self, *pieces: bytes) -> None:
        """Send; a peer that has hung up already is found out by reading."""
        with suppress(ConnectionResetError, BrokenPipeError):
            self.socket.sendall(b"".join(pieces))

    def call(self, channel: int, method: spec.Method, answer: type[M]) -> M:
        """Send a method and read its answer."""
        self.send(method_frame(channel, method))
        return self.expect(answer)

    # Receiving

    def _fill(self, size: int) -> bool:
        """Have `size` bytes in the buffer; False when the peer hung up before."""
        while len(self._buffer) < size:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return False
            self._buffer += data
        return True

    def read(self) -> Frame | None:
        """The next frame that is no heartbeat; None when the peer hung up."""
        while self._fill(7):
            kind, channel, size = struct.unpack_from(">BHI", self._buffer)
            if not self._fill(size + 8):
                return None
            payload, self._buffer = self._buffer[7 : size + 7], self._buffer[size + 8 :]
            if kind != HEARTBEAT:
                return Frame(kind, channel, payload)
        return None

    def expect(self, kind: type[M]) -> M:
        """The next frame, which must be this method."""
        found = self.read()
        assert found is not None, f"hung up instead of {kind.__name__}"
        method = found.method
        assert isinstance(method, kind), f"{method} instead of {kind.__name__}"
        return method

    def rest(self) -> bytes:
        """All that still comes until the peer hangs up."""
        while self._fill(len(self._buffer) + 1):
            pass
        return self._buffer

    def channel_closed(self, code: int, text: str, channel: int = 1) -> None:
        """The next frame must be channel.close with this; then the number is used again."""
        close = self.expect(spec.ChannelClose)
        assert (close.reply_code, close.reply_text) == (code, text)
        self.send(method_frame(channel, spec.ChannelCloseOk()))
        self.open_channel(channel)

    def connection_closed(self, code: int, text: str) -> None:
        """The next frame must be connection.close with this; then the peer hangs up."""
        close = self.expect(spec.ConnectionClose)
        assert (close.reply_code, close.reply_text) == (code, text)
        self.send(method_frame(0, spec.ConnectionCloseOk()))
        assert self.read() is None

    # The way to a channel

    def to_starting(self) -> Self:
        """Until connection.start is here."""
        self.send(HEADER)
        self.expect(spec.ConnectionStart)
        return self

    def to_tuning(self) -> Self:
        """Until connection.tune is here."""
        self.to_starting().send(start_ok(plain(self.user, self.user)))
        self.expect(spec.ConnectionTune)
        return self

    def to_opening(self, **tune: int) -> Self:
        """Until tune-ok was sent."""
        self.to_tuning().send(tune_ok(**tune))
        return self

    def to_running(self, **tune: int) -> Self:
        """Until connection.open-ok is here."""
        self.to_opening(**tune).send(open_vhost())
        self.expect(spec.ConnectionOpenOk)
        return self

    def to_channel(self, number: int = 1, **tune: int) -> Self:
        """Until a channel is open."""
        self.to_running(**tune)
        self.open_channel(number)
        return self

    def open_channel(self, number: int) -> None:
        """One more channel."""
        self.call(number, spec.ChannelOpen(), spec.ChannelOpenOk)

    def drain_get(self, queue: str, channel: int = 1) -> tuple[bytes, bytes]:
        """basic.get without ack: the payload of the content header, and the body."""
        self.call(channel, spec.BasicGet(queue, no_ack=True), spec.BasicGetOk)
        header = self.read()
        assert header is not None
        size = struct.unpack_from(">HHQ", header.payload)[2]
        body = b""
        while len(body) < size:
            piece = self.read()
            assert piece is not None
            body += piece.payload
        return header.payload, body
