"""The cluster port: TCP connections on their way to gRPC, which has no limits of this kind.

gRPC counts streams and messages, but it can't tell a stranger from a member: whoever opens enough
connections or streams first has all of them, and a stream that its peer does not read ends only
with its connection. So this node accepts connections itself and carries their bytes to gRPC's
server, which listens on a socket that nobody else can find.

Until its RPC has proven the secret (`admit`) a connection is a stranger's: it has one of few places
(`broker.doors.admission`), a few seconds and a few bytes, and then it is closed.
Members compete for none of that. gRPC hears of a connection when something was sent on it.

Bytes are carried by plain `recv` and `send` as soon as they are there, 256 KiB at a time; what
can't be sent on stops the reading of its side.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from broker.doors.admission import Admission

log = logging.getLogger(__name__)

BUFFER_BYTES: Final = 256 << 10
BACKLOG: Final = 256

ACCEPTS_MAX: Final = 16
"""Connections accepted in one turn of the loop: the rest waits in the kernel."""

NO_DESCRIPTOR_S: Final = 0.1
TICK_S: Final = 0.5
TOLD_S: Final = 1.0

_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A member whose machine vanished is noticed by heartbeats; its descriptors go after a minute."""


class StrangerLimits(NamedTuple):
    """Limits for connections that have not proven the secret yet.

    Attributes:
        places: Most of them at a time.
        time_ms: From accept to proof.
        received_bytes: From accept to proof: the handshake takes less than 2 KiB with HTTP/2's
            preface and headers, and 4 KiB for each of its messages is all that any may have.
    """

    places: int = 64
    time_ms: int = 3_500
    received_bytes: int = 16 << 10


class Upstream:
    """The socket of gRPC's server; it has a name in the file system until the server has taken it.

    Attributes:
        target: For `add_insecure_port`.
    """

    def __init__(self) -> None:
        self._folder: str | None = tempfile.mkdtemp(prefix="warrenmq-")  # mode 0700
        self._path = str(Path(self._folder) / "links")
        self._descriptor: int | None = None
        self.target = f"unix:{self._path}"

    def hide(self) -> None:
        """Take the socket's name away, now that the server listens; a killed node leaves nothing.

        Raises:
            OSError: There is no socket.
        """
        if not hasattr(os, "O_PATH") or not Path("/proc/self/fd").exists():
            return  # not on Linux: the name stays until `close`
        self._descriptor = os.open(self._path, os.O_PATH)
        self._path = f"/proc/self/fd/{self._descriptor}"
        self._remove_folder()

    def connect(self) -> tuple[socket.socket, str]:
        """Connect to gRPC's server.

        Returns:
            The socket, and how gRPC calls its other end (`ServicerContext.peer`).

        Raises:
            OSError: The server is gone or busy.
        """
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            end.setblocking(False)
            end.bind("")  # Linux draws an abstract name that nobody else has
            end.connect(self._path)
            name = end.getsockname()
        except OSError:
            end.close()
            raise
        return end, f"unix-abstract:{name[1:].decode()}" if isinstance(name, bytes) else ""

    def close(self) -> None:
        """Forget the socket."""
        self._remove_folder()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


class Front:
    """Accepts connections on the cluster port.

    Args:
        limits: Of strangers.

    Attributes:
        upstream: Where gRPC's server has to listen.
        buffer: For bytes on their way, within one call.
    """

    def __init__(self, limits: StrangerLimits) -> None:
        self.upstream = Upstream()
        self._limits = limits
        self._places = Admission(limits.places, deadline_ms=limits.time_ms)
        self._passages: set[_Passage] = set()
        self._by_name: dict[str, _Passage] = {}
        self._listening: list[socket.socket] = []
        self._sent_away: Counter[str] = Counter()
        self._ticking: asyncio.TimerHandle | None = None
        self._told_at = -TOLD_S
        self.buffer = memoryview(bytearray(BUFFER_BYTES))
        self._loop = asyncio.get_running_loop()

    @property
    def strangers(self) -> int:
        """Number of connections that have not proven the secret."""
        return len(self._places)

    def listen(self, host: str, port: int) -> int:
        """Accept connections from now on.

        Args:
            host: Name or address; "" or "::" is every interface, of both families.
            port: 0 draws a free one.

        Returns:
            The port.

        Raises:
            OSError: The address is taken, or is none of this machine's.
        """
        self.upstream.hide()
        self._listening = _listeners(host, port)
        for each in self._listening:
            each.setblocking(False)
            self._loop.add_reader(each.fileno(), self._accept, each)
        return int(self._listening[0].getsockname()[1])

    def admit(self, peer: str) -> None:
        """The connection that gRPC calls `peer` has proven the secret: no limits any more."""
        passage = self._by_name.get(peer)
        if passage is not None:
            passage.admit()

    def drop(self, peer: str) -> None:
        """Close the connection that gRPC calls `peer`."""
        passage = self._by_name.get(peer)
        if passage is not None:
            passage.abort()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._close_listeners()
        for passage in list(self._passages):
            passage.abort()
        if self._ticking is not None:
            self._ticking.cancel()
        self.upstream.close()

    def _close_listeners(self) -> None:
        for each in self._listening:
            self._loop.remove_reader(each.fileno())
            each.close()
        self._listening.clear()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                end, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as why:  # no descriptors, no memory: try again when some are free
                self.sent_away(f"not accepted: {why.strerror}")
                self._loop.remove_reader(listener.fileno())
                self._loop.call_later(NO_DESCRIPTOR_S, self._resume, listener)
                return
            passage = _Passage(self, end, self._limits.received_bytes)
            self._passages.add(passage)
            if not self._places.enter(passage, address[0], _now_ms(self._loop)):
                passage.abort()
            self._tick_soon()

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listening:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    # What passages tell

    def connect(self, passage: _Passage) -> socket.socket:
        """A connection to gRPC for a stranger that has begun to speak.

        Raises:
            OSError: There is none.
        """
        end, passage.name = self.upstream.connect()
        self._by_name[passage.name] = passage
        return end

    def is_member_now(self, passage: _Passage) -> None:
        """A passage's place is free."""
        self._places.leave(passage)

    def closed(self, passage: _Passage) -> None:
        """A passage has ended."""
        self._passages.discard(passage)
        self._by_name.pop(passage.name, None)
        self._places.leave(passage)

    def sent_away(self, why: str) -> None:
        """Count a stranger that was closed, or not accepted; told once a second."""
        self._sent_away[why] += 1
        self._tick_soon()

    def _tick_soon(self) -> None:
        if self._ticking is None:
            self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        overdue = self._places.overdue
        refused = self._places.tick(_now_ms(self._loop))
        self._sent_away["too late"] += self._places.overdue - overdue
        now = self._loop.time()
        if refused is not None:
            self._sent_away["too many"] += refused.number
        if self._sent_away.total() and now - self._told_at >= TOLD_S:
            self._told_at = now
            log.warning("link.strangers_closed", extra={"why": dict(+self._sent_away)})
            self._sent_away.clear()
        if self._sent_away.total() or len(self._places):
            self._tick_soon()


class _Passage:
    """One connection, to and fro.

    Args:
        front: What accepted it.
        end: The accepted socket.
        received_bytes: What a stranger may send.

    Attributes:
        name: How gRPC calls it; "" until it has sent something.
    """

    __slots__ = ("_end", "_forth", "_front", "_loop", "_upstream", "name")

    def __init__(self, front: Front, end: socket.socket, received_bytes: int) -> None:
        self.name = ""
        self._front = front
        self._end = end
        self._upstream: socket.socket | None = None
        self._forth: _Half | None = None
        self._loop = asyncio.get_running_loop()
        _prepare(end)
        self._loop.add_reader(end.fileno(), self._begin, received_bytes)

    def admit(self) -> None:
        """Lift the limits: the connection is a member's."""
        if self._forth is not None:
            self._forth.left_bytes = None
        self._front.is_member_now(self)

    def send_away(self, why: str) -> None:
        """Close it, and count it."""
        self._front.sent_away(why)
        self.abort()

    def abort(self) -> None:
        """End both halves; what was not sent on is lost."""
        if self._end.fileno() < 0:
            return
        for end in (self._end, self._upstream):
            if end is not None:
                self._loop.remove_reader(end.fileno())
                self._loop.remove_writer(end.fileno())
                end.close()
        self._front.closed(self)

    def _begin(self, received_bytes: int) -> None:
        """The first bytes, or the end of one that only probed."""
        try:
            if not self._end.recv(1, socket.MSG_PEEK):
                self.abort()
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        try:
            self._upstream = upstream = self._front.connect(self)
        except OSError:
            self.send_away("no way on")
            return
        self._forth = _Half(self, self._end, upstream, self._front.buffer, received_bytes)
        _Half(self, upstream, self._end, self._front.buffer, None)


class _Half:
    """One direction of a passage. It lives as long as its sockets are watched.

    Args:
        passage: What ends when either end does.
        source: Bytes come from here.
        target: They go there.
        buffer: Everybody's, used within one call.
        left_bytes: A stranger may send so many more; None for no limit.
    """

    __slots__ = ("_buffer", "_loop", "_passage", "_source", "_target", "left_bytes")

    def __init__(
        self,
        passage: _Passage,
        source: socket.socket,
        target: socket.socket,
        buffer: memoryview,
        left_bytes: int | None,
    ) -> None:
        self.left_bytes = left_bytes
        self._passage = passage
        self._source = source
        self._target = target
        self._buffer = buffer
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(source.fileno(), self._carry)

    def _carry(self) -> None:
        """Carry what is there, once."""
        left = self.left_bytes
        buffer = self._buffer if left is None else self._buffer[: left + 1]
        try:
            received = self._source.recv_into(buffer)
            if not received:
                self._passage.abort()
                return
            if left is not None:
                self.left_bytes = left - received
                if received > left:
                    self._passage.send_away("too long")
                    return
            sent = _send(self._target, buffer[:received])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._passage.abort()
            return
        if sent < received:
            self._loop.remove_reader(self._source.fileno())
            rest = memoryview(bytes(buffer[sent:received]))
            self._loop.add_writer(self._target.fileno(), self._send_rest, rest)

    def _send_rest(self, rest: memoryview) -> None:
        try:
            sent = _send(self._target, rest)
        except OSError:
            self._passage.abort()
            return
        if sent < len(rest):
            self._loop.add_writer(self._target.fileno(), self._send_rest, rest[sent:])
            return
        self._loop.remove_writer(self._target.fileno())
        self._loop.add_reader(self._source.fileno(), self._carry)


def _send(target: socket.socket, data: memoryview) -> int:
    """Send; return the number of bytes that the socket took at once.

    Raises:
        OSError: The other end is gone.
    """
    try:
        return target.send(data)
    except (BlockingIOError, InterruptedError):
        return 0


def _now_ms(loop: asyncio.AbstractEventLoop) -> int:
    return int(loop.time() * 1000)


def _prepare(end: socket.socket) -> None:
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _listeners(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address a host has here, all on one port.

    Raises:
        OSError: One can't be had.
    """
    if host in {"", "*", "::", "[::]"}:
        with suppress(ValueError, OSError):  # no IPv6 here; a port that is taken fails again below
            return [
                socket.create_server(
                    ("::", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
                )
            ]
        host = "0.0.0.0"  # noqa: S104 - what was asked for
    found = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[socket.socket] = []
    try:
        for family, address in {(each[0], each[4][0]): None for each in found}:
            made = socket.create_server((str(address), port), family=family, backlog=BACKLOG)
            listeners.append(made)
            port = made.getsockname()[1]
    except OSError:
        for made in listeners:
            made.close()
        raise
    return listeners
