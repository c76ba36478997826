"""The cluster port: accepts the connections of other nodes, and of strangers.

HTTP/2 counts streams and messages, but it can't tell a stranger from a member: whoever opens enough
connections first has all of them. So until a connection's call has proven the secret (`admit`) it
is a stranger's: it has one of few places (`broker.doors.admission`), a few seconds and a few bytes,
and then it is closed. What it sends beyond those bytes is not even parsed. Members compete for none
of that. The handshake of TLS, where there is TLS, belongs to those few seconds.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from contextlib import suppress
from typing import Final, NamedTuple

from typing_extensions import override

from broker.cluster.authentication import link_tls
from broker.cluster.authentication.link_certificates import LinkCertificates
from broker.cluster.authentication.link_tls import Mode
from broker.cluster.grpc_connection import GrpcConnection
from broker.cluster.grpc_socket import LINGER_S, CallServer, GrpcSocket
from broker.doors.admission import Admission

log = logging.getLogger(__name__)

BACKLOG: Final = 256

ACCEPTS_MAX: Final = 16
"""Connections accepted in one turn of the loop: the rest waits in the kernel."""

NO_DESCRIPTOR_S: Final = 0.1
TICK_S: Final = 0.5
TOLD_S: Final = 1.0

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Longest message of a member; a batch of payloads is little more than 1 MiB."""


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


class ClusterPort:
    """Accepts connections on the cluster port.

    Args:
        limits: Of strangers.
        server: Serves the calls that are opened on them.
        tasks: Owns what takes a moment.
        tls: Certificates; None: there is no TLS.
    """

    def __init__(
        self,
        limits: StrangerLimits,
        server: CallServer,
        tasks: asyncio.TaskGroup,
        tls: LinkCertificates | None = None,
    ) -> None:
        self._limits = limits
        self._tls = tls
        self._server = server
        self._tasks = tasks
        self._places = Admission(limits.places, deadline_ms=limits.time_ms)
        self._accepted: set[AcceptedSocket] = set()
        self._listening: list[socket.socket] = []
        self._sent_away: Counter[str] = Counter()
        self._ticking: asyncio.TimerHandle | None = None
        self._told_at = -TOLD_S
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
        self._listening = _listeners(host, port)
        for each in self._listening:
            each.setblocking(False)
            self._loop.add_reader(each.fileno(), self._accept, each)
        return int(self._listening[0].getsockname()[1])

    def stop(self) -> None:
        """Close the port and every connection."""
        self._close_listeners()
        for connection in list(self._accepted):
            connection.abort()
        if self._ticking is not None:
            self._ticking.cancel()

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
            end.setblocking(False)
            connection = AcceptedSocket(self, self._server, self._limits.received_bytes)
            self._accepted.add(connection)
            if self._places.enter(connection, address[0], _now_ms(self._loop)):
                self._tasks.create_task(self._adopt(connection, end))
            else:
                self._accepted.discard(connection)
                end.close()
            self._tick_soon()

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listening:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    async def _adopt(self, connection: AcceptedSocket, end: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._limits.time_ms / 1000):
                context = None if self._tls is None else await _context(self._tls, end)
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    end,
                    ssl=context,
                    ssl_shutdown_timeout=None if context is None else LINGER_S,
                )
        except _TurnedAway as why:
            self.sent_away(str(why))
        except ssl.SSLCertVerificationError as why:
            self.sent_away(f"TLS: {link_tls.why_not_verified(why)}")
        except ssl.SSLError as why:
            self.sent_away(f"TLS: {link_tls.why_refused(why)}")
        except OSError as why:  # it has hung up meanwhile, or is too late
            log.debug("link.lost", extra={"why": repr(why)})
        finally:
            if not connection.is_connected:
                end.close()
                self.closed(connection)

    # What connections tell

    def is_member_now(self, connection: AcceptedSocket) -> None:
        """A connection has proven the secret: its place is free."""
        self._places.leave(connection)

    def closed(self, connection: AcceptedSocket) -> None:
        """A connection has ended."""
        self._accepted.discard(connection)
        self._places.leave(connection)

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


class AcceptedSocket(GrpcSocket):
    """A connection that was accepted: a stranger's until it is admitted.

    Args:
        port: What accepted it.
        server: Serves its calls.
        received_bytes: What a stranger may send.
    """

    def __init__(self, port: ClusterPort, server: CallServer, received_bytes: int) -> None:
        grpc = GrpcConnection(is_dialler=False, message_bytes_max=MESSAGE_BYTES_MAX)
        super().__init__(grpc, server)
        self._port = port
        self._left_bytes: int | None = received_bytes
        self._is_dropped = False

    @override
    def admit(self) -> None:
        """Lift the limits: the connection is a member's."""
        self._left_bytes = None
        self._port.is_member_now(self)

    @override
    def abort(self) -> None:
        """Drop it now, or as soon as it is there."""
        self._is_dropped = True
        super().abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._is_dropped:
            self.abort()

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._left_bytes is not None:
            self._left_bytes -= nbytes
            if self._left_bytes < 0:
                self._port.sent_away("too long")
                self.abort()
                return
        super().buffer_updated(nbytes)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._port.closed(self)


class _TurnedAway(Exception):
    """A connection is not gone on with; the text says why."""


async def _context(tls: LinkCertificates, end: socket.socket) -> ssl.SSLContext | None:
    """Tell how to go on with a connection: None is without TLS.

    Raises:
        _TurnedAway: It speaks no TLS, and must.
        OSError: It has hung up.
    """
    first = await _first_byte(end)
    if not first:
        raise ConnectionResetError("it ended before its first byte")
    if link_tls.speaks_tls(first):
        return tls.accepting
    if tls.mode is Mode.REQUIRED:
        raise _TurnedAway("no TLS, which cluster.tls.mode = required asks for")
    return None


async def _first_byte(end: socket.socket) -> bytes:
    """Wait for a connection's first byte, and leave it there; b"" is its end."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(BlockingIOError, InterruptedError):
            return end.recv(1, socket.MSG_PEEK)
        came = asyncio.Event()
        loop.add_reader(end.fileno(), came.set)
        try:
            await came.wait()
        finally:
            loop.remove_reader(end.fileno())


def _now_ms(loop: asyncio.AbstractEventLoop) -> int:
    return int(loop.time() * 1000)


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
