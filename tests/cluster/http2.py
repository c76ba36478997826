"""A small HTTP/2 client that misuses the protocol: hand-made frames, windows of any size."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LINK_PATH = b"/broker.wire.Node/Link"
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_HEADERS, ACK = 4, 1
INITIAL_WINDOW_SIZE = 4
WINDOW_BYTES, FRAME_BYTES = 65_535, 16_384


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def message(payload: bytes) -> bytes:
    """A gRPC message: not compressed, its length, itself."""
    return b"\0" + len(payload).to_bytes(4, "big") + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


_HEADERS = (
    _literal(b":method", b"POST")
    + _literal(b":scheme", b"http")
    + _literal(b":path", LINK_PATH)
    + _literal(b":authority", b"x")
    + _literal(b"te", b"trailers")
    + _literal(b"content-type", b"application/grpc")
)


class RawLink:
    """A connection to a node's cluster port.

    Args:
        port: The node's.
        window_bytes: How much the node may write to each stream before it is read.
    """

    def __init__(self, port: int, window_bytes: int = WINDOW_BYTES) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        setting = INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window_bytes.to_bytes(4, "big")
        self.socket.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(SETTINGS, 0, 0, setting)
            + frame(SETTINGS, ACK, 0)
        )
        self._unread = b""
        self._may_send = {0: WINDOW_BYTES}  # by stream; 0 is the connection

    def open(self, stream: int, first: bytes) -> None:
        """Call Link on an odd stream and send a first message, short enough for any window."""
        self._may_send[stream] = WINDOW_BYTES
        self.socket.sendall(
            frame(HEADERS, END_HEADERS, stream, _HEADERS) + frame(DATA, 0, stream, message(first))
        )

    def send(self, stream: int, body: bytes, deadline_s: float) -> int:
        """Send a long first message as fast as the node's windows allow.

        Returns:
            How many bytes went out before the end, the node's or the deadline's.
        """
        self._may_send[stream] = WINDOW_BYTES
        sent = 0
        try:
            self.socket.sendall(frame(HEADERS, END_HEADERS, stream, _HEADERS))
            while sent < len(body) and time.monotonic() < deadline_s:
                size = min(FRAME_BYTES, self._may_send[0], self._may_send[stream])
                if size <= 0 or select.select([self.socket], [], [], 0)[0]:
                    self._read()
                    continue
                self.socket.sendall(frame(DATA, 0, stream, body[sent : sent + size]))
                self._may_send[0] -= size
                self._may_send[stream] -= size
                sent += size
        except OSError:
            pass
        return sent

    def _read(self) -> None:
        received = self.socket.recv(65_536)
        if not received:
            raise ConnectionResetError
        self._unread += received
        while len(self._unread) >= 9:
            size = int.from_bytes(self._unread[:3], "big")
            if len(self._unread) < 9 + size:
                return
            kind, flags, stream = (
                self._unread[3],
                self._unread[4],
                int.from_bytes(self._unread[5:9], "big"),
            )
            payload, self._unread = self._unread[9 : 9 + size], self._unread[9 + size :]
            if kind == WINDOW_UPDATE:
                self._may_send[stream] = self._may_send.get(stream, WINDOW_BYTES)
                self._may_send[stream] += int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags & ACK:
                for at in range(0, len(payload), 6):
                    if int.from_bytes(payload[at : at + 2], "big") == INITIAL_WINDOW_SIZE:
                        grown = int.from_bytes(payload[at + 2 : at + 6], "big") - WINDOW_BYTES
                        for each in set(self._may_send) - {0}:
                            self._may_send[each] += grown

    def wait_for_end(self, is_over: threading.Event) -> None:
        """Read until the node closes, or the attack is over."""
        with suppress(ConnectionError):
            while not is_over.is_set():
                if select.select([self.socket], [], [], 0.2)[0] and not self.socket.recv(65_536):
                    return

    def close(self) -> None:
        self.socket.close()


class Attackers:
    """Threads that do one thing, five times a second at most, until they are told to end.

    Args:
        act: Gets the attacker's number, from 0, and what says that the attack is over.
        count: How many.
    """

    def __init__(self, act: Callable[[int, threading.Event], None], count: int) -> None:
        self._is_over = threading.Event()
        self._act = act
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(count)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(10)

    def _run(self, number: int) -> None:
        while not self._is_over.is_set():
            with suppress(OSError):
                self._act(number, self._is_over)
            self._is_over.wait(0.2)
