"""gRPC's wire protocol on one connection: bytes in, messages out. Pure.

HTTP/2 (frames, header compression, windows) is h2's, a library without IO. This module adds what
gRPC puts on top of it: the headers of a call, messages with a length in front, a status at the end
("gRPC over HTTP2", in the documents of grpc/grpc). Any gRPC implementation can be the other end.

DATA frames of open calls are read and written here, and h2 gets all others: it copies a frame's
bytes six times each way and prints them for a log that nobody reads, which was a third of the loop
of a Raft follower. Of a frame that is written h2 is only told what it takes of the windows.

Messages are framed as they are written: what the peer's windows do not allow yet waits here, in
order, and leaves as soon as they open. Our own windows are as large as HTTP/2 allows: what a member
sends is always read (P14), and `ClusterPort` limits strangers before anything comes here.
"""

from __future__ import annotations

import struct
from collections import deque
from contextlib import suppress
from typing import Final, NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, ProtocolError
from h2.settings import SettingCodes, Settings

LINK_METHOD: Final = b"/broker.wire.Node/Link"
"""The only method there is (`proto/broker/wire/node.proto`)."""

WINDOW_BYTES: Final = 2**31 - 1
FRAME_BYTES: Final = 2 << 20
"""Frames as large as a batch of payloads, so that one message is one frame."""

READ_BYTES: Final = 256 << 10
"""Room for what is read at once; it grows to the largest frame that came."""

HEADERS_BYTES_MAX: Final = 8192
CALLS_MAX: Final = 4
"""Calls of one connection; a node opens one."""

_DEFAULT_WINDOW_BYTES: Final = 65_535
_GRANT_BYTES: Final = WINDOW_BYTES // 2
"""After so many bytes the peer is granted as many again (RFC 9113, 6.9)."""

_PREFACE_BYTES: Final = 24
"""What a dialler sends before its first frame (RFC 9113, 3.4)."""

_FRAME_START: Final = struct.Struct(">HBBBI")  # length (in 24 bits), type, flags, stream (4.1)
_DATA: Final = 0
_WINDOW_UPDATE: Final = struct.Struct(">HBBBII")
_WINDOW_UPDATE_TYPE: Final = 8
_PREFIX_BYTES: Final = 5
_UNIMPLEMENTED: Final = b"12"

_Headers = list[tuple[bytes, bytes]]
_RESPONSE: Final = [(b":status", b"200"), (b"content-type", b"application/grpc")]


class CallOpened(NamedTuple):
    """The peer has called our method."""

    stream: int


class MessageReceived(NamedTuple):
    """A message came, whole."""

    stream: int
    message: memoryview


class CallEnded(NamedTuple):
    """The peer sends nothing more in this call."""

    stream: int


GrpcEvent = CallOpened | MessageReceived | CallEnded


class GrpcFault(Exception):
    """The peer breaks the protocol, sends too long a message, or ends the connection.

    Close the connection: nothing can be sent on it any more.
    """


class _Incoming:
    """What came in a call: the beginning of a message, and bytes that were not granted again."""

    __slots__ = ("begun", "ungranted_bytes")

    def __init__(self) -> None:
        self.begun = bytearray()
        self.ungranted_bytes = 0


class GrpcConnection:
    """One end of a connection.

    Args:
        is_dialler: True at the end that calls.
        message_bytes_max: Longest message that the peer may send.
    """

    def __init__(self, *, is_dialler: bool, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._calls: dict[int, _Incoming] = {}  # by stream
        self._preface_bytes = 0 if is_dialler else _PREFACE_BYTES  # still to come
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._start = self._end = 0  # between them is what came, and was not taken yet
        self._needed_bytes = 0  # by the frame that begins there
        self._ungranted_bytes = 0
        self._grants = bytearray()
        self._output: list[bytes] = []
        self._unsent: dict[int, deque[memoryview]] = {}  # by stream: beyond the peer's window
        self._ending: set[int] = set()  # streams that end when what is unsent has left
        self._http2 = http2 = H2Connection(
            H2Configuration(client_side=is_dialler, header_encoding=None)
        )
        http2.local_settings = Settings(
            client=is_dialler,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: FRAME_BYTES,
                SettingCodes.MAX_CONCURRENT_STREAMS: CALLS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADERS_BYTES_MAX,
            },
        )
        http2.max_inbound_frame_size = FRAME_BYTES
        http2.initiate_connection()
        http2.increment_flow_control_window(WINDOW_BYTES - _DEFAULT_WINDOW_BYTES)

    def call(self, authority: str) -> int:
        """Open a call to the peer, which is "host:port". Returns the number of its stream."""
        stream = self._http2.get_next_available_stream_id()
        headers: _Headers = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", LINK_METHOD),
            (b":authority", authority.encode()),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        ]
        self._http2.send_headers(stream, headers)
        self._calls[stream] = _Incoming()
        return stream

    def room(self) -> memoryview:
        """Where the next bytes of the socket belong; `received` takes them from there."""
        start, end = self._start, self._end
        self._start, self._end = 0, end - start
        if start < end and (start or end == len(self._buffer)):  # a frame is not complete
            begun = self._buffer[start:end]
            if len(begun) == len(self._buffer):
                size = min(self._needed_bytes, 2 * len(begun))
                self._buffer = memoryview(bytearray(size))
            self._buffer[: len(begun)] = begun
        return self._buffer[self._end :]

    def received(self, count: int) -> list[GrpcEvent]:
        """Take bytes that were put into `room`; `take_output` may have an answer afterwards.

        Messages are views, which the next call of `room` makes void.

        Raises:
            GrpcFault: The connection must be closed.
        """
        found: list[GrpcEvent] = []
        self._end += count
        try:
            if self._preface_bytes:
                size = min(self._preface_bytes, self._end - self._start)
                self._preface_bytes -= size
                self._http2.receive_data(bytes(self._buffer[self._start : self._start + size]))
                self._start += size
            self._walk(found)
        except H2Error as why:
            raise GrpcFault(str(why) or type(why).__name__) from why
        return found

    def _walk(self, found: list[GrpcEvent]) -> None:
        """Take whole frames."""
        data, position, data_end = self._buffer, self._start, self._end
        while data_end - position >= _FRAME_START.size:
            high, low, kind, flags, stream = _FRAME_START.unpack_from(data, position)
            size = high << 8 | low
            if size > FRAME_BYTES:
                raise GrpcFault(f"a frame of {size} bytes")
            start = position + _FRAME_START.size
            end = start + size
            if end > data_end:
                self._needed_bytes = end - position
                break
            incoming = self._calls.get(stream)
            if kind == _DATA and not flags and incoming is not None:
                self._grant(incoming, stream, size)
                self._take_data(stream, incoming, data[start:end], found)
            else:
                self._give_to_h2(bytes(data[position:end]), found)
            position = end
        self._start = position

    def _give_to_h2(self, frame: bytes, found: list[GrpcEvent]) -> None:
        for event in self._http2.receive_data(frame):
            if type(event) is DataReceived:  # padded, or the last of its stream
                stream = event.stream_id
                self._http2.acknowledge_received_data(event.flow_controlled_length, stream)
                incoming = self._calls.get(stream)
                if incoming is not None:  # else of a call that was refused, or that we have ended
                    self._take_data(stream, incoming, memoryview(event.data), found)
            else:
                self._take(event, found)

    def _grant(self, incoming: _Incoming, stream: int, size: int) -> None:
        """Let the peer send as much again, in the call and on the connection, now and then."""
        incoming.ungranted_bytes += size
        if incoming.ungranted_bytes >= _GRANT_BYTES:
            self._grants += _window_update(stream, incoming.ungranted_bytes)
            incoming.ungranted_bytes = 0
        self._ungranted_bytes += size
        if self._ungranted_bytes >= _GRANT_BYTES:
            self._grants += _window_update(0, self._ungranted_bytes)
            self._ungranted_bytes = 0

    def _take_data(
        self,
        stream: int,
        incoming: _Incoming,
        data: memoryview,
        found: list[GrpcEvent],
    ) -> None:
        """Take the messages that lie in the data, and keep the beginning of one."""
        begun = incoming.begun
        if begun:
            begun += data
            data = memoryview(bytes(begun))
            begun.clear()
        position, end = 0, len(data)
        while end - position >= _PREFIX_BYTES:
            start = position + _PREFIX_BYTES
            size = int.from_bytes(data[position + 1 : start], "big")
            if data[position] or size > self._message_bytes_max:
                raise GrpcFault(f"a message of {size} bytes, or a compressed one")
            if end - start < size:
                break
            position = start + size
            found.append(MessageReceived(stream, data[start:position]))
        begun += data[position:end]

    def _take(self, event: Event, found: list[GrpcEvent]) -> None:
        if isinstance(event, RequestReceived):
            self._opened(event.stream_id, dict(event.headers), found)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            for stream in list(self._unsent):
                self._send_unsent(stream)
        elif isinstance(event, StreamEnded | StreamReset):
            if isinstance(event, StreamReset):
                self._unsent.pop(event.stream_id, None)
            if self._calls.pop(event.stream_id, None) is not None:
                found.append(CallEnded(event.stream_id))
        elif isinstance(event, ConnectionTerminated):
            raise GrpcFault(f"the peer closes the connection, code {event.error_code}")
        # Nothing is to be done about the others: h2 answers settings and pings itself.

    def _opened(self, stream: int, headers: dict[bytes, bytes], found: list[GrpcEvent]) -> None:
        if headers.get(b":path") != LINK_METHOD or headers.get(b":method") != b"POST":
            status = (b"grpc-status", _UNIMPLEMENTED)
            self._http2.send_headers(stream, [*_RESPONSE, status], end_stream=True)
            return
        self._http2.send_headers(stream, _RESPONSE)
        self._calls[stream] = _Incoming()
        found.append(CallOpened(stream))

    def send(self, stream: int, *message: bytes) -> None:
        """Send a message, given in pieces, in a call that has not ended."""
        size = sum(map(len, message))
        prefix = b"\0" + size.to_bytes(4, "big")
        size += _PREFIX_BYTES
        http2 = self._http2
        if stream not in self._unsent:
            room = http2.local_flow_control_window(stream)
            if size <= room and size <= http2.max_outbound_frame_size:
                http2.outbound_flow_control_window -= size
                http2.streams[stream].outbound_flow_control_window -= size
                self._take_from_h2()  # what it wrote before
                head = _FRAME_START.pack(size >> 8, size & 0xFF, _DATA, 0, stream)
                self._output += (head + prefix, *message)
                return
        data = b"".join((prefix, *message))
        self._unsent.setdefault(stream, deque()).append(memoryview(data))
        self._send_unsent(stream)

    def _send_unsent(self, stream: int) -> None:
        http2, unsent = self._http2, self._unsent[stream]
        while unsent:
            data = unsent[0]
            room = min(
                http2.local_flow_control_window(stream), http2.max_outbound_frame_size, len(data)
            )
            if room <= 0:
                return
            http2.send_data(stream, data[:room])
            if room < len(data):
                unsent[0] = data[room:]
            else:
                unsent.popleft()
        del self._unsent[stream]
        if stream in self._ending:
            self.end(stream)

    def end(self, stream: int) -> None:
        """End a call that the peer opened, in good order, when all that was sent has left."""
        self._calls.pop(stream, None)
        if stream in self._unsent:
            self._ending.add(stream)
            return
        self._ending.discard(stream)
        with suppress(ProtocolError):  # the peer has ended it
            self._http2.send_headers(stream, [(b"grpc-status", b"0")], end_stream=True)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait until the peer opens its windows."""
        return sum(len(data) for unsent in self._unsent.values() for data in unsent)

    def take_output(self) -> list[bytes]:
        """Return what is to be written to the socket now, in order; it is given out once."""
        self._take_from_h2()
        if self._grants:
            self._output.append(bytes(self._grants))
            self._grants.clear()
        output, self._output = self._output, []
        return output

    def _take_from_h2(self) -> None:
        written = self._http2.data_to_send()
        if written:
            self._output.append(written)


def _window_update(stream: int, size: int) -> bytes:
    """Return a frame that grants `size` bytes more; stream 0 is the connection (RFC 9113, 6.9)."""
    return _WINDOW_UPDATE.pack(0, 4, _WINDOW_UPDATE_TYPE, 0, stream, size)
