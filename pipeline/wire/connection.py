"""A connection to one node, or to the first of several that lets us in; its channels and calls.

Everything is done by the caller's thread. Heartbeats are sent while this waits for the broker; who
does something else for minutes may find the connection closed, and opens another one.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from pipeline.wire import deliveries, fields, frames
from pipeline.wire.failures import (
    ChannelClosed,
    ConnectionLost,
    ProtocolBroken,
    Refused,
    Stalled,
    WireError,
)
from pipeline.wire.frames import Frame, Name
from pipeline.wire.urls import Endpoint

OURS: Final = "WarrenMQ"
_RECEIVE: Final = 256 << 10
_REFUSALS: Final = (402, 403, 530)
"""Reply codes of connection.close that another node would answer, too."""

Reader = Callable[[bytes, int], int]
"""Takes data and where a frame begins; returns behind the frames it has taken for itself."""


@dataclass(frozen=True)
class Tls:
    """Files for TLS.

    Attributes:
        cacertfile: Whom to trust; "" for the system's.
        certfile: Our own, for brokers that ask.
        keyfile: Its key.
        is_verified: Whether the broker's certificate and name are looked at.
    """

    cacertfile: str = ""
    certfile: str = ""
    keyfile: str = ""
    is_verified: bool = True

    def context(self) -> ssl.SSLContext:
        """For a client.

        Raises:
            Refused: A file can't be read, or is no certificate or key.
        """
        try:
            context = ssl.create_default_context(cafile=self.cacertfile or None)
            if self.certfile:
                context.load_cert_chain(self.certfile, self.keyfile or None)
        except OSError as error:
            names = ", ".join(n for n in (self.cacertfile, self.certfile, self.keyfile) if n)
            raise Refused(f"the files of tls.* can't be used ({names}): {error}") from None
        if not self.is_verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class Settings:
    """How to connect.

    Attributes:
        tls: For amqps.
        mechanism: PLAIN or EXTERNAL.
        heartbeat_s: Asked for; 0 for none.
        timeout_s: How long connecting, or the answer to a call, may take.
        name: Shown in the broker's list of connections.
    """

    tls: Tls = field(default_factory=Tls)
    mechanism: str = "PLAIN"
    heartbeat_s: int = 60
    timeout_s: float = 30.0
    name: str = "warrenmq pipeline"


class Connection:
    """Logged in, in a vhost.

    Args:
        endpoint: The node.
        settings: How.

    Attributes:
        endpoint: The node.
        server: Its properties.
        frame_max: The largest frame to send.
        is_open: Whether it can be used.

    Raises:
        ConnectionLost: The node can't be reached.
        Refused: It does not let us in.
    """

    def __init__(self, endpoint: Endpoint, settings: Settings) -> None:
        self.endpoint = endpoint
        self._timeout_s = settings.timeout_s
        self.server: Mapping[str, object] = {}
        self.frame_max = frames.FRAME_MAX
        self.is_open = False
        self._data = b""
        self._at = 0
        self._heartbeat_s = 0.0
        self._sent_at = monotonic()
        self._channels: set[int] = set()
        self._blocked = ""
        self._socket = _connected(endpoint, settings)
        try:
            self._log_in(settings)
        except BaseException:
            self._socket.close()
            raise

    @property
    def where(self) -> str:
        """Host and port."""
        return self.endpoint.where

    @property
    def is_ours(self) -> bool:
        """Whether this broker knows named publishers and units."""
        return self.server.get("x-impl") == OURS

    @property
    def blocked(self) -> str:
        """Why the broker takes no messages now; "" if it does."""
        return self._blocked

    def open_channel(self) -> int:
        """Open a channel.

        Returns:
            Its number.
        """
        number = next(n for n in range(1, 1 << 16) if n not in self._channels)
        self._channels.add(number)
        self.send(frames.method(number, frames.CHANNEL_OPEN, b"\0"))
        self.answer(number, frames.CHANNEL_OPEN_OK)
        return number

    def close_channel(self, channel: int) -> None:
        """Close a channel; what is still on its way to it is dropped."""
        if channel not in self._channels or not self.is_open:
            return
        reason = (200).to_bytes(2, "big") + b"\0" + bytes(4)
        self.send(frames.method(channel, frames.CHANNEL_CLOSE, reason))
        self.answer(channel, frames.CHANNEL_CLOSE_OK, is_closing=True)
        self._channels.discard(channel)

    def count_messages(self, channel: int, queue: str) -> int:
        """Look at a queue without declaring it.

        Raises:
            ChannelClosed: 404 if there is none.
        """
        self.send(frames.passive_declare(channel, queue))
        payload = self.answer(channel, frames.DECLARE_OK)
        at = 5 + payload[4]
        return int.from_bytes(payload[at : at + 4], "big")

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionLost: The node is gone.
        """
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self.is_open = False
            raise ConnectionLost(f"{self.where} is gone: {error}") from None
        self._sent_at = monotonic()

    def answer(self, channel: int, name: Name, *, is_closing: bool = False) -> bytes:
        """Wait for a method on a channel; deliveries and the like before it are dropped.

        Args:
            channel: The channel.
            name: The method.
            is_closing: A close of the channel by the broker is an answer, too.

        Returns:
            Its payload.

        Raises:
            ChannelClosed: The broker closed the channel instead.
            Stalled: It did not answer.
        """
        deadline = monotonic() + self._timeout_s
        while True:
            frame = self.next_frame(deadline)
            if frame is None:
                raise Stalled(f"{self.where} did not answer within {self._timeout_s:.0f} s")
            if frame.channel != channel or frame.name is None:
                continue
            if frame.name == name:
                return frame.payload
            if frame.name == frames.CHANNEL_CLOSE:
                self.closed_by(frame, raises=not is_closing)

    def closed_by(self, frame: Frame, *, raises: bool = True) -> None:
        """Answer a channel.close of the broker.

        Raises:
            ChannelClosed: Always, unless told not to.
        """
        self.send(frames.method(frame.channel, frames.CHANNEL_CLOSE_OK))
        self._channels.discard(frame.channel)
        if raises:
            raise ChannelClosed(*frames.reply(frame.payload), self.where)

    def next_frame(self, deadline: float) -> Frame | None:
        """The next frame that is not the connection's own business; None at the deadline.

        Raises:
            ConnectionLost: The node is gone, or closed the connection.
        """
        while True:
            frame = self._taken()
            if frame is not None:
                if not self._is_own(frame):
                    return frame
            elif not self._receive(deadline):
                return None

    def feed(self, reader: Reader, deadline: float) -> Frame | None:
        """Give what comes to a reader, until it takes something or another frame comes.

        Args:
            reader: Takes frames in bulk.
            deadline: By the monotonic clock.

        Returns:
            A frame that the reader did not take; None if it took some, or at the deadline.
        """
        while True:
            before = self._at
            self._at = reader(self._data, self._at)
            if self._at != before:
                return None
            frame = None if deliveries.begins_at(self._data, before) else self._taken()
            if frame is not None:
                if not self._is_own(frame):
                    return frame
            elif not self._receive(deadline):
                return None

    def poll(self) -> None:
        """Handle what has come, without waiting: heartbeats, blocked, a close.

        Raises:
            ConnectionLost: The node is gone.
        """
        while self.next_frame(monotonic()) is not None:
            pass

    def close(self) -> None:
        """Say good-bye and close the socket."""
        if self.is_open:
            self.is_open = False
            reason = (200).to_bytes(2, "big") + b"\0" + bytes(4)
            try:
                self._socket.settimeout(1.0)
                self._socket.sendall(frames.method(0, frames.CLOSE, reason))
                self._socket.recv(_RECEIVE)  # close-ok: what was sent before has arrived
            except OSError:
                pass
        self._socket.close()

    def _taken(self) -> Frame | None:
        frame = frames.frame_at(self._data, self._at)
        if frame is not None:
            self._at += len(frame.payload) + frames.OVERHEAD
        return frame

    def _is_own(self, frame: Frame) -> bool:
        if frame.kind == frames.HEARTBEAT:
            return True
        if frame.channel or frame.name is None:
            return False
        if frame.name == frames.CLOSE:
            self.is_open = False
            code, text = frames.reply(frame.payload)
            kind = Refused if code in _REFUSALS else ConnectionLost
            raise kind(f"{self.where} closed the connection: {code} {text}")
        if frame.name == frames.BLOCKED:
            self._blocked = frame.payload[5 : 5 + frame.payload[4]].decode("utf-8", "replace")
        elif frame.name == frames.UNBLOCKED:
            self._blocked = ""
        else:
            return False
        return True

    def _receive(self, deadline: float) -> bool:
        """Wait for bytes and append them; False at the deadline."""
        wait = deadline - monotonic()
        if wait <= 0 and not self._has_bytes():
            return False
        if self._heartbeat_s:
            if monotonic() - self._sent_at > self._heartbeat_s / 2:
                self.send(frames.HEARTBEAT_FRAME)
            wait = min(wait, self._heartbeat_s / 2)
        parts = [self._data[self._at :]]
        have = len(parts[0])
        need = deliveries.size_at(parts[0], 0) or frames.size_at(parts[0], 0) or 1
        try:
            self._socket.settimeout(max(wait, 0.001))
            while True:  # a large frame is not put together anew with each piece
                part = self._socket.recv(_RECEIVE)
                if not part:
                    self.is_open = False
                    raise ConnectionLost(f"{self.where} closed the connection")
                parts.append(part)
                have += len(part)
                if have >= need or monotonic() >= deadline:
                    break
        except (TimeoutError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self.is_open = False
            raise ConnectionLost(f"{self.where} is gone: {error}") from None
        self._data, self._at = b"".join(parts), 0
        return True

    def _has_bytes(self) -> bool:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], 0)[0])

    def _log_in(self, settings: Settings) -> None:
        self.send(frames.HEADER)
        try:
            start = frames.read_start(self.answer(0, frames.START))
            if settings.mechanism not in start.mechanisms:
                offered = ", ".join(start.mechanisms)
                raise Refused(f"{self.where} has no {settings.mechanism}, but {offered}")
            self.server = start.properties
            self._answer_start(settings)
            tune = self.answer(0, frames.TUNE)
        except ProtocolBroken as error:
            raise ConnectionLost(f"{self.where} does not speak AMQP 0-9-1: {error}") from None
        except Stalled as error:
            raise ConnectionLost(str(error)) from None
        offered_size = int.from_bytes(tune[6:10], "big")
        self.frame_max = min(offered_size or frames.FRAME_MAX, frames.FRAME_MAX)
        offered_s = int.from_bytes(tune[10:12], "big")
        heartbeat_s = min(offered_s, settings.heartbeat_s) if offered_s else settings.heartbeat_s
        self._heartbeat_s = float(heartbeat_s)
        chosen = tune[4:6] + self.frame_max.to_bytes(4, "big") + heartbeat_s.to_bytes(2, "big")
        self.send(frames.method(0, frames.TUNE_OK, chosen))
        vhost = fields.short(self.endpoint.vhost)
        self.send(frames.method(0, frames.OPEN, vhost + b"\0\0"))
        self.answer(0, frames.OPEN_OK)
        self.is_open = True

    def _answer_start(self, settings: Settings) -> None:
        capabilities = {
            "authentication_failure_close": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "basic.nack": True,
            "publisher_confirms": True,
        }
        properties = {
            "product": "WarrenMQ pipeline",
            "connection_name": settings.name,
            "capabilities": capabilities,
        }
        user, password = self.endpoint.user.encode(), self.endpoint.password.encode()
        response = b"" if settings.mechanism == "EXTERNAL" else b"\0" + user + b"\0" + password
        self.send(frames.start_ok(properties, settings.mechanism, response))


def _connected(endpoint: Endpoint, settings: Settings) -> socket.socket:
    context = settings.tls.context() if endpoint.is_tls else None
    try:
        plain = socket.create_connection((endpoint.host, endpoint.port), settings.timeout_s)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConnectionLost(f"{endpoint.where} can't be reached: {error}") from None
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=endpoint.host)
    except ssl.SSLCertVerificationError as error:
        plain.close()
        text = f"the certificate of {endpoint.where} is not accepted: {error.verify_message}"
        raise Refused(f"{text}; tls.cacertfile names who is trusted") from None
    except OSError as error:
        plain.close()
        raise ConnectionLost(f"no TLS with {endpoint.where}: {error}") from None


def connect(endpoints: Sequence[Endpoint], settings: Settings, first: int = 0) -> Connection:
    """Connect to the first of several nodes that can be reached.

    Args:
        endpoints: The nodes.
        settings: How.
        first: Which one to begin with; the others follow in their order, and round.

    Raises:
        ConnectionLost: None can be reached; the text says why, node by node.
        Refused: One of them does not let us in.
    """
    failed: list[str] = []
    for number in range(len(endpoints)):
        endpoint = endpoints[(first + number) % len(endpoints)]
        try:
            return Connection(endpoint, settings)
        except Refused:
            raise
        except WireError as error:
            failed.append(str(error))
    raise ConnectionLost("; ".join(dict.fromkeys(failed)))
