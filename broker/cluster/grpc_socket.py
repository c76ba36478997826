"""A TCP connection that speaks gRPC: sockets on one side, calls on the other.

What is written leaves at once, or waits in the socket's buffer; a call `is_full` while that is
above `HIGH_BYTES`, and its owner keeps what comes then. What is received goes to the owner within
the read that brought it, without a task or a future for each message (invariant 4 of
ARCHITECTURE.md).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from typing_extensions import override

from broker.cluster.grpc_connection import (
    CallEnded,
    CallOpened,
    GrpcConnection,
    GrpcEvent,
    GrpcFault,
)

log = logging.getLogger(__name__)

HIGH_BYTES: Final = 1 << 20
LOW_BYTES: Final = 256 << 10
"""A call is full above the first, until no more than the second waits for the peer to read."""

PIECE_BYTES: Final = 4 << 10
"""Pieces that are smaller on average are joined: that costs less than the kernel's list of them."""

UNREAD_MAX: Final = 16
"""Messages that wait for `GrpcCall.read`: a handshake has two."""

LINGER_S: Final = 1.0
"""How long what was written before `close` may take to leave."""

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A peer whose machine vanished is noticed by heartbeats; its descriptors go after a minute."""


class CallOwner(Protocol):
    """Who a call belongs to after its handshake."""

    def call_received(self, message: bytes | memoryview) -> None:
        """A message came; who keeps it copies it. An exception closes the connection."""
        ...

    def call_drained(self) -> None:
        """The call was full and has room again."""
        ...


class CallServer(Protocol):
    """Who serves the calls that a peer opens."""

    def serve(self, call: GrpcCall) -> None:
        """A peer has opened a call."""
        ...


class GrpcCall:
    """One call: messages both ways.

    Args:
        connection: Carries it.
        stream: Its number there.

    Attributes:
        ended: Set when the peer has ended it, or the connection is gone.
    """

    def __init__(self, connection: GrpcSocket, stream: int) -> None:
        self.connection = connection
        self.stream = stream
        self.ended = asyncio.Event()
        self._owner: CallOwner | None = None
        self._unread: deque[bytes] = deque()
        self._came = asyncio.Event()

    async def read(self) -> bytes | None:
        """Return the next message of a call that has no owner yet; None at its end."""
        while not self._unread and not self.ended.is_set():
            self._came.clear()
            await self._came.wait()
        return self._unread.popleft() if self._unread else None

    def write(self, *message: bytes) -> None:
        """Send a message, given in pieces; a no-op when the call has ended."""
        if not self.ended.is_set():
            self.connection.send(self.stream, *message)

    def end(self) -> None:
        """End a call that the peer opened, when all that was written has left."""
        self.connection.end(self.stream)

    def hand_to(self, owner: CallOwner) -> None:
        """Give every message from now on, and those that wait, to `owner`."""
        self._owner = owner
        while self._unread and not self.connection.is_closed:
            owner.call_received(self._unread.popleft())

    @property
    def is_full(self) -> bool:
        """True while more should wait at its owner."""
        return self.connection.is_full

    # What the connection tells

    def received(self, message: memoryview) -> None:
        """A message came.

        Raises:
            GrpcFault: Nobody reads what the peer sends.
        """
        if self._owner is not None:
            self._owner.call_received(message)
            return
        if len(self._unread) >= UNREAD_MAX:
            raise GrpcFault("more messages than a handshake has")
        self._unread.append(bytes(message))
        self._came.set()

    def drained(self) -> None:
        """The connection has room again."""
        if self._owner is not None:
            self._owner.call_drained()

    def over(self) -> None:
        """Nothing comes any more."""
        self.ended.set()
        self._came.set()


class GrpcSocket(asyncio.BufferedProtocol):
    """One connection.

    Args:
        grpc: Its protocol, new.
        server: Serves what the peer calls; None at the end that calls.

    Attributes:
        is_closed: True once this end has closed it: calls get nothing more, also of what was read.
        certificate: The peer's, as `ssl.SSLSocket.getpeercert` returns it; None without TLS.
        lost_by: What ended the connection; None for its plain end, and before.
    """

    def __init__(self, grpc: GrpcConnection, server: CallServer | None = None) -> None:
        self._grpc = grpc
        self._server = server
        self._calls: dict[int, GrpcCall] = {}
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._written_bytes = 0
        self.is_closed = False
        self.certificate: Mapping[str, Any] | None = None
        self.lost_by: Exception | None = None

    def open_call(self, authority: str) -> GrpcCall:
        """Call the peer; it is "host:port" for `authority`."""
        call = GrpcCall(self, self._grpc.call(authority))
        self._calls[call.stream] = call
        self._write()
        return call

    def admit(self) -> None:
        """The peer has proven the secret."""

    def send(self, stream: int, *message: bytes) -> None:
        """Send a message, given in pieces, in a call."""
        self._grpc.send(stream, *message)
        self._write()

    def end(self, stream: int) -> None:
        """End a call of the peer's in good order."""
        self._grpc.end(stream)
        self._calls.pop(stream, None)
        self._write()

    @property
    def is_connected(self) -> bool:
        """True from its handshakes, of TCP and of TLS, until its end."""
        return self._transport is not None

    @property
    def is_full(self) -> bool:
        """True while the peer takes less than it is sent."""
        return self._is_paused or self._grpc.unsent_bytes > HIGH_BYTES

    def progress(self) -> tuple[int, int]:
        """Return how many bytes the peer, or the kernel for it, has taken, and how many not yet."""
        transport = self._transport
        in_buffer = 0 if transport is None else transport.get_write_buffer_size()
        return self._written_bytes - in_buffer, in_buffer + self._grpc.unsent_bytes

    def close(self) -> None:
        """Close it; what was written before has a moment to leave."""
        transport = self._transport
        self.is_closed = True
        if transport is not None and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        """Drop the connection now."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    # asyncio.BufferedProtocol

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_BYTES, low=LOW_BYTES)
        self.certificate = transport.get_extra_info("peercert")
        _keep_alive(transport.get_extra_info("socket"))
        self._write()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._grpc.room()

    @override
    def buffer_updated(self, nbytes: int) -> None:
        was_full = self._grpc.unsent_bytes > HIGH_BYTES
        try:
            for event in self._grpc.received(nbytes):
                self._handle(event)
                if self.is_closed:
                    return
            if was_full and not self.is_full:
                self._drained()
        except GrpcFault as why:
            log.debug("link.fault", extra={"why": str(why)})
            self._write()  # the last word says what was wrong
            self._end_calls()  # now: what they wrote until the socket is gone could not be sent
            self.close()
        except Exception:  # outermost frame of this connection
            log.exception("link.failed")
            self.abort()
        else:
            self._write()

    def _handle(self, event: GrpcEvent) -> None:
        if isinstance(event, CallOpened):
            if self._server is not None:
                call = self._calls[event.stream] = GrpcCall(self, event.stream)
                self._server.serve(call)
            return
        call_or_none = self._calls.get(event.stream)
        if call_or_none is None:
            return
        if isinstance(event, CallEnded):
            del self._calls[event.stream]
            call_or_none.over()
        else:
            call_or_none.received(event.message)

    @override
    def pause_writing(self) -> None:
        self._is_paused = True

    @override
    def resume_writing(self) -> None:
        self._is_paused = False
        self._drained()

    def _drained(self) -> None:
        for call in list(self._calls.values()):
            call.drained()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost_by = exc
        self._end_calls()

    def _end_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.over()

    def _write(self) -> None:
        output = self._grpc.take_output()
        if not output or self._transport is None:
            return
        size = sum(map(len, output))
        self._written_bytes += size
        if size < PIECE_BYTES * len(output):
            self._transport.write(b"".join(output))
        else:
            self._transport.writelines(output)


def _keep_alive(end: socket.socket | None) -> None:
    if end is None:
        return
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
