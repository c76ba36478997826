"""One connection with one channel of the load generator: handshake, then raw counting.

After the handshake nothing here awaits per message: `data_received` walks the chunk once.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import unquote, urlsplit

from broker.cli.perf import wire
from broker.cli.perf.answers import Answers
from broker.server.sockets.socket_io import Reads, Room

_FRAME = struct.Struct(">BHI")
_IDS = struct.Struct(">HH")
_DELIVER = (60, 60)
_ACK = (60, 80)
_NACK = (60, 120)
_SAMPLE_ALL_BYTES = 8_192
_SAMPLE_EVERY = 16
_ANSWER_TIMEOUT_S = 15.0
_room = Room()  # of the one event loop of a load generator


class PerfError(Exception):
    """The broker closed, refused or did not answer; the text says which."""


class Address:
    """An AMQP URI taken apart: amqp://user:password@host:port/vhost, or amqps:// with TLS."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        if parts.scheme not in ("amqp", "amqps"):
            raise PerfError(f"expected amqp://HOST:PORT or amqps://HOST:PORT, found {uri!r}")
        self.is_encrypted = parts.scheme == "amqps"
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (5671 if self.is_encrypted else 5672)
        self.user = unquote(parts.username or "guest")
        self.password = unquote(parts.password or "guest")
        self.vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "/"


def tls_context(
    *, verifies: bool = False, cacertfile: str = "", certfile: str = "", keyfile: str = ""
) -> ssl.SSLContext:
    """Make the TLS of a client.

    Args:
        verifies: The broker's certificate must be good for the host, and signed by an authority of
            the system's.
        cacertfile: Path of authorities, PEM, instead of the system's; "": the system's.
        certfile: Path of the client's certificate, PEM; "": none.
        keyfile: Path of its key; "": it stands in `certfile`.

    Raises:
        PerfError: A file can't be used.
    """
    try:
        context = ssl.create_default_context(cafile=cacertfile or None)
        if not (verifies or cacertfile):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certfile:
            context.load_cert_chain(certfile, keyfile or None)
    except OSError as error:
        named = ", ".join(each for each in (cacertfile, certfile, keyfile) if each)
        raise PerfError(f"{named} can't be used: {error}") from error
    return context


class PerfConnection(asyncio.Protocol):
    """One socket.

    Attributes:
        received: Messages delivered so far.
        confirmed: Publishes acked so far.
        nacked: Publishes nacked so far.
        returned: Mandatory publishes that came back.
        latencies_ns: Sampled delivery latencies since the owner last took them.
        confirm_latencies_ns: The same for confirms, one a batch: of its last message.
        failure: Why the connection ended, None while it is well.

    Args:
        ack_every: So many deliveries are acknowledged at once; 0 for none.
        on_progress: Called after each read.
        acks_singly: Each delivery is acknowledged by itself, and `ack_every` has no effect.
    """

    def __init__(
        self,
        ack_every: int = 0,
        on_progress: Callable[[], None] | None = None,
        *,
        acks_singly: bool = False,
    ) -> None:
        self.received = 0
        self.published = 0
        self.confirmed = 0
        self.nacked = 0
        self.returned = 0
        self.latencies_ns: list[int] = []
        self.confirm_latencies_ns: list[int] = []
        self.failure: str | None = None
        self.frame_max = 131_072
        self.is_closing = False
        self._ack_every = 0 if acks_singly else ack_every
        self._single_tags: list[int] | None = [] if acks_singly else None
        self._acked_tag = 0
        self._tag = 0
        self._on_progress = on_progress
        self._left = b""
        self._body_left = 0
        self._is_first_body = False
        self._is_last_missing = False  # of the delivery that came last not even its header is here
        self._answers: asyncio.Queue[tuple[tuple[int, int], bytes]] = asyncio.Queue()
        self._publishes = Answers()
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.moved = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def open(self, address: Address, name: str, tls: ssl.SSLContext | None = None) -> None:
        """Connect, log in, open channel 1.

        Args:
            address: Where.
            name: The connection's.
            tls: For amqps://; None checks no certificate, as perf-test does.

        Raises:
            PerfError: The broker can't be reached or refuses.
        """
        loop = asyncio.get_running_loop()
        try:
            context = (tls or tls_context()) if address.is_encrypted else None
            await loop.create_connection(lambda: self, address.host, address.port, ssl=context)
        except OSError as error:
            raise PerfError(f"{address.host}:{address.port}: {error}") from error
        await self.call(wire.PROTOCOL_HEADER, wire.CONNECTION_START)
        start_ok = wire.start_ok(address.user, address.password, name)
        tune = await self.call(start_ok, wire.CONNECTION_TUNE)
        channel_max, frame_max = struct.unpack_from(">HI", tune)
        self.frame_max = min(frame_max or self.frame_max, self.frame_max)
        self.write(wire.tune_ok(channel_max, self.frame_max))
        await self.call(wire.connection_open(address.vhost), wire.CONNECTION_OPEN_OK)
        await self.call(wire.method(1, 20, 10, b"\0"), wire.CHANNEL_OPEN_OK)

    async def call(self, request: bytes, answer: tuple[int, int]) -> bytes:
        """Send a method and wait for its answer's arguments.

        Raises:
            PerfError: The broker closed or did not answer in 15 s.
        """
        self.write(request)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):  # wait_for may lose a cancellation
                while True:
                    ids, arguments = await self._answers.get()
                    if self.failure:
                        raise PerfError(self.failure)
                    if ids == answer:
                        return arguments
        except TimeoutError:
            raise PerfError(f"no answer {answer} within {_ANSWER_TIMEOUT_S:.0f} s") from None

    def write(self, data: bytes) -> None:
        """Send bytes now."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def published_batch(self, count: int, now_ns: int) -> None:
        """Note a batch just written, to tell how long its confirms took."""
        self.published += count
        self._publishes.sent(self.published, now_ns)

    def committed(self, now_ns: int) -> None:
        """A transaction with all that was published came to its end."""
        latencies_ns = self.confirm_latencies_ns
        self.confirmed += self._publishes.upto(self.published, now_ns, latencies_ns)

    async def close(self) -> None:
        """Close politely, within a second."""
        if self.failure or self._transport is None:
            return
        self.is_closing = True
        if self._tag > self._acked_tag and self._ack_every:
            self.write(wire.ack(self._tag))
        self.write(wire.method(0, 10, 50, struct.pack(">H", 200) + wire.short("bye") + b"\0" * 4))
        try:
            async with asyncio.timeout(1.0):
                while (await self._answers.get())[0] != wire.CONNECTION_CLOSE_OK:
                    pass
        except TimeoutError:
            pass
        self._transport.close()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        if transport.get_extra_info("ssl_object") is not None:
            reads = Reads(self, _room, is_encrypted=True)
            reads.is_gathering = True
            self._transport.set_protocol(reads)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the waiting task."""
        if not self.is_closing and self.failure is None:
            self.failure = f"connection lost: {exc or 'closed by the broker'}"
        self._answers.put_nowait(((0, 0), b""))
        self.can_write.set()
        self._progress()

    def pause_writing(self) -> None:
        """The socket is full."""
        self.can_write.clear()

    def resume_writing(self) -> None:
        """The socket has room."""
        self.can_write.set()

    def data_received(self, data: bytes) -> None:
        """Walk the frames of a chunk."""
        now_ns = time.perf_counter_ns()
        buffer = self._left + data if self._left else data
        sampling = 1 if len(buffer) < _SAMPLE_ALL_BYTES else _SAMPLE_EVERY
        at, end = 0, len(buffer)
        while end - at >= wire.FRAME_OVERHEAD:
            kind, _, size = _FRAME.unpack_from(buffer, at)
            after = at + size + wire.FRAME_OVERHEAD
            if after > end:
                break
            if kind == wire.BODY:
                self._body(buffer, at + 7, size, now_ns, sampling)
            elif kind == wire.HEADER:
                (self._body_left,) = wire.STAMP.unpack_from(buffer, at + 11)
                self._is_first_body = True
                self._is_last_missing = False
                if not self._body_left:
                    self.received += 1
            elif kind == wire.METHOD:
                self._method(buffer, at + 7, after - 1, now_ns)
            at = after
        self._left = buffer[at:] if at < end else b""
        if (
            self._ack_every
            and self._tag - self._acked_tag >= self._ack_every
            and not self._body_left
        ):
            self._acked_tag = self._tag
            self.write(wire.ack(self._tag))
        if self._single_tags:
            self._ack_singly(self._single_tags)
        self._progress()

    def _ack_singly(self, tags: list[int]) -> None:
        """Acknowledge what has arrived whole; the last one may not have."""
        whole = len(tags) - (self._is_last_missing or self._body_left > 0)
        self.write(b"".join(map(wire.ack_one, tags[:whole])))
        del tags[:whole]

    def _body(self, buffer: bytes, at: int, size: int, now_ns: int, sampling: int) -> None:
        if self._is_first_body:
            self._is_first_body = False
            if size >= wire.STAMP_BYTES and self.received % sampling == 0:
                self.latencies_ns.append(now_ns - wire.STAMP.unpack_from(buffer, at)[0])
        self._body_left -= size
        if not self._body_left:
            self.received += 1

    def _method(self, buffer: bytes, at: int, end: int, now_ns: int) -> None:
        ids = _IDS.unpack_from(buffer, at)
        if ids == _DELIVER:
            (self._tag,) = wire.STAMP.unpack_from(buffer, at + 5 + buffer[at + 4])
            if self._single_tags is not None:
                self._single_tags.append(self._tag)
                self._is_last_missing = True
        elif ids in (_ACK, _NACK):
            self._verdict(buffer, at, now_ns, is_ack=ids == _ACK)
        elif ids == wire.BASIC_RETURN:
            self.returned += 1
            self.received -= 1  # its content comes like a delivery's
        elif ids in (wire.CONNECTION_CLOSE, wire.CHANNEL_CLOSE):
            (code,) = struct.unpack_from(">H", buffer, at + 4)
            text = buffer[at + 7 : at + 7 + buffer[at + 6]].decode(errors="replace")
            self.failure = f"closed by the broker: {code} {text}"
            self._answers.put_nowait((ids, b""))
        else:
            self._answers.put_nowait((ids, buffer[at + 4 : end]))

    def _verdict(self, buffer: bytes, at: int, now_ns: int, *, is_ack: bool) -> None:
        (tag,) = wire.STAMP.unpack_from(buffer, at + 4)
        answer = self._publishes.upto if buffer[at + 12] & 1 else self._publishes.one
        count = answer(tag, now_ns, self.confirm_latencies_ns)
        if is_ack:
            self.confirmed += count
        else:
            self.nacked += count

    def _progress(self) -> None:
        self.moved.set()
        if self._on_progress is not None:
            self._on_progress()
