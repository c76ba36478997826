"""Accepts AMQP clients, keeps the list of connections and closes them in good order."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

from broker.config import Listener, Settings
from broker.doors.proxy_header import Ends
from broker.errors import ReplyCode
from broker.message import Message
from broker.metadata.results import Changes
from broker.server.connection import AmqpConnection
from broker.server.connection_facts import ConnectionInfo
from broker.server.context import ServerContext
from broker.server.entrance.ports import open_port
from broker.server.entrance.proxies import Behind, ProxyPort, TrustedProxies
from broker.server.entrance.tls import TlsFacts, TlsPort
from broker.server.resource_usage import open_files

_log = logging.getLogger(__name__)

TICK_S = 1.0
CLOSE_GRACE_S = 2.0
"""How long clients get to answer connection.close when the node stops."""

FILES_LEFT: Final = 50
"""So few unused file descriptors are an alarm, whoever has the others."""

FILES_FEW: Final = 4096
"""Fewer are warned of at the start."""

FILES_TICKS: Final = 2
"""How often open files are counted, in ticks (file_handle_cache.erl: FILE_HANDLES_CHECK_INTERVAL);
connections are counted as they come."""

TICK_TOGETHER: Final = 16
TICK_SLICES: Final = 64
"""So many connections are ticked in one turn of the loop, or a 64th of all: 200 in one turn took
5 ms, for which messages waited once a second."""

_Accept = Callable[[], asyncio.Protocol]

_STARS: Final = "*" * 68
_SHORT_OF_FILES: Final = (
    "file descriptor limit alarm set.",
    _STARS,
    "*** New connections will not be accepted until this alarm clears ***",
    _STARS,
)


class AmqpListener:
    """The AMQP ports of a node and the connections that came through them.

    Args:
        context: The node.

    While the node is short of file descriptors, or has as many clients as it may
    (`ranch_connection_max`), nobody is accepted: who comes waits in the backlog of the port, and is
    served when there is room again.

    Attributes:
        connections: By connection id.
        ports: Those listened on without TLS, in the order of the settings.
        tls_ports: Those with TLS, likewise.
        is_short_of_files: So many descriptors are in use that nobody is accepted.
        is_full: There are as many clients as `ranch_connection_max` says.
        is_suspended: An operator has closed the ports; connections go on.
    """

    def __init__(self, context: ServerContext) -> None:
        self.connections: dict[int, AmqpConnection] = {}
        self.ports: list[int] = []
        self.tls_ports: list[int] = []
        self._context = context
        self.is_short_of_files = False
        self.is_full = False
        self.is_suspended = False
        self._servers: list[tuple[asyncio.Server, _Accept]] = []
        self._parked: list[tuple[socket.socket, _Accept]] = []  # open and not accepted from
        doors = context.doors
        self._tls: TlsPort | None = None
        if doors.certificates.amqp is not None:
            self._tls = TlsPort(
                doors.certificates.amqp,
                doors.handshakes,
                doors.turns,
                doors.tls_failures,
                context.settings.tls_handshake_timeout_ms,
                self,
            )
        self._proxied: list[ProxyPort] = []
        self._alarms: frozenset[str] = frozenset()  # this node's, as events have told them
        self._ticks = 0
        self._last_id = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def connections_max(self) -> int:
        """The most connections: the node's share of descriptors for clients."""
        return self._context.doors.shares.clients

    @property
    def is_open(self) -> bool:
        """True while clients can connect, if only to wait."""
        return bool(self._servers or self._parked)

    async def open(self) -> None:
        """Listen, unless the listener is suspended.

        Raises:
            OSError: An address is taken or not ours; nothing listens then.
        """
        if self.is_open or self.is_suspended:
            return
        settings = self._context.settings
        self.ports.clear()
        self.tls_ports.clear()
        plain: _Accept = self._accept
        secure: _Accept | None = self._tls
        if settings.proxy_protocol:
            plain = self._behind_proxy(self)
            secure = None if self._tls is None else self._behind_proxy(self._tls)
        try:
            for listener in settings.amqp_listeners:
                at = await self._listen(listener, plain, "listeners.tcp.default")
                self.ports.append(at)
            if secure is not None:
                for listener in settings.amqp_tls_listeners:
                    at = await self._listen(listener, secure, "listeners.ssl.default")
                    self.tls_ports.append(at)
        except OSError:
            self.close_ports()
            raise
        for port in self.ports:
            _log.info("started TCP listener on port %d", port)
        for listener, port in zip(settings.amqp_tls_listeners, self.tls_ports, strict=False):
            _log.info("started TLS (SSL) listener on %s:%d", _bracketed(listener.host), port)
        self._tell_limit()

    def _behind_proxy(self, behind: Behind) -> ProxyPort:
        doors, settings = self._context.doors, self._context.settings
        port = ProxyPort(
            TrustedProxies(settings.proxy_trusted),
            doors.handshakes,
            doors.proxy_failures,
            settings.handshake_timeout_ms,
            behind,
        )
        self._proxied.append(port)
        return port

    async def _listen(self, listener: Listener, accept: _Accept, setting: str) -> int:
        settings = self._context.settings
        server = await open_port(accept, listener, backlog=settings.tcp_backlog, setting=setting)
        self._servers.append((server, accept))
        for listening in server.sockets:
            _set_options(listening, settings)
        return _port(server, listener)

    def _tell_limit(self) -> None:
        """Say how many clients there may be; few are seldom what was meant."""
        files, clients = self._context.doors.shares.files_max, self.connections_max
        if files < FILES_FEW:
            text = "Limiting to %d file handles (%d sockets): raise the limit (ulimit -n) for more"
            _log.warning(text, files, clients)
        else:
            _log.info("Limiting to %d file handles (%d sockets)", files, clients)

    def suspend(self, user: str) -> None:
        """Stop accepting until `unsuspend`; connections go on.

        Args:
            user: Who asks, for the log.

        Source:
            rabbit_networking.erl suspend_all_client_listeners/0.
        """
        if self.is_suspended:
            return
        self.is_suspended = True
        self.close_ports()
        _log.warning(
            "listeners.suspended: no new client connections are accepted",
            extra={"user": user, "connections": len(self.connections)},
        )

    def unsuspend(self, user: str) -> None:
        """Let `open` listen again.

        Args:
            user: Who asks, for the log.
        """
        if self.is_suspended:
            self.is_suspended = False
            _log.warning("listeners.resumed", extra={"user": user})

    def close_ports(self) -> None:
        """Stop accepting; connections go on."""
        for server, _ in self._servers:
            server.close()
        self._servers.clear()
        for parked, _ in self._parked:
            parked.close()
        self._parked.clear()
        if self._tls is not None:
            self._tls.close()
        for port in self._proxied:
            port.close()
        self._proxied.clear()

    async def close_connections(self, text: str) -> None:
        """Tell every client 320 and why, wait a little, then drop what is left.

        Args:
            text: What follows `CONNECTION_FORCED - `.
        """
        for connection in list(self.connections.values()):
            connection.close(ReplyCode.CONNECTION_FORCED, text)
        if self.connections:
            self._is_empty.clear()
            try:
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await self._is_empty.wait()
            except TimeoutError:
                for connection in list(self.connections.values()):
                    connection.abort()

    def follow(self, changes: Changes) -> None:
        """Close the connections of users and vhosts that were deleted (320).

        Source:
            rabbit_connection_tracking.erl handle_cast({user_deleted, _}), ({vhost_deleted, _}).
        """
        if changes.users_removed or changes.vhosts_removed or changes.restored:
            users, vhosts = frozenset(changes.users_removed), frozenset(changes.vhosts_removed)
            is_restored = changes.restored
            # not inside the apply that told it: closing releases what queues hold
            asyncio.get_running_loop().call_soon(
                lambda: self._close_deleted(users, vhosts, is_restored=is_restored)
            )

    def _close_deleted(
        self, users: frozenset[str], vhosts: frozenset[str], *, is_restored: bool
    ) -> None:
        catalogue = self._context.catalogue
        for connection in list(self.connections.values()):
            user, vhost = connection.info.user, connection.info.vhost
            if connection.session is None:
                continue
            if user in users or (is_restored and catalogue.user(user) is None):
                connection.close(ReplyCode.CONNECTION_FORCED, f"user '{user}' is deleted")
            elif vhost in vhosts or (is_restored and catalogue.vhost(vhost) is None):
                connection.close(ReplyCode.CONNECTION_FORCED, f"vhost '{vhost}' is deleted")

    def follow_alarms(self) -> None:
        """Block or free connections, and publish the events of this node's own alarms."""
        for connection in list(self.connections.values()):
            connection.follow_alarms()
        before, self._alarms = self._alarms, self._context.alarms.here
        for key, resources in (
            ("alarm.set", self._alarms - before),
            ("alarm.cleared", before - self._alarms),
        ):
            for resource in sorted(resources):
                headers: dict[str, object] = {"resource": resource, "node": self._context.node}
                self._context.events.publish(key, headers)

    async def tick(self) -> None:
        """Tick every connection, some in each turn of the loop; called every `TICK_S`."""
        if self._ticks % FILES_TICKS == 0:
            await self._count_files()
        self._ticks += 1
        numbers = list(self.connections)
        size = max(TICK_TOGETHER, len(numbers) // TICK_SLICES)
        for start in range(0, len(numbers), size):
            if start:
                await asyncio.sleep(0)
            self._tick(numbers[start : start + size])

    def _tick(self, numbers: list[int]) -> None:
        now_ms = self._context.clock.monotonic_ms()
        for number in numbers:
            connection = self.connections.get(number)
            if connection is None:
                continue  # it has ended since the turn before
            try:
                connection.tick(now_ms)
            except Exception:  # noqa: BLE001 - one connection's bug must not silence the others
                _log.exception("connection.tick_failed")
                connection.abort()

    def deliver_reply(self, connection_id: int, channel: int, key: str, message: Message) -> None:
        """Hand a direct reply to a connection; dropped if it is gone."""
        connection = self.connections.get(connection_id)
        if connection is not None:
            connection.deliver_reply(channel, key, message)

    def welcome(self, tls: TlsFacts, ends: Ends | None) -> AmqpConnection | None:
        """A `broker.server.entrance.tls.Host`."""
        return self._accept(tls, ends) if self.is_open else None

    def introduced(self, ends: Ends | None) -> AmqpConnection | None:
        """A `broker.server.entrance.proxies.Behind`."""
        return self._accept(None, ends) if self.is_open else None

    def _clients(self) -> int:
        """Return the number of clients, with those in a TLS handshake or before their header."""
        strangers = 0 if self._tls is None else len(self._tls.strangers)
        strangers += sum([len(port.strangers) for port in self._proxied])
        return len(self.connections) + strangers

    def _accept(self, tls: TlsFacts | None = None, ends: Ends | None = None) -> AmqpConnection:
        self._last_id += 1
        connection = AmqpConnection(self._context, self._last_id, self._ended, tls, ends)
        self.connections[self._last_id] = connection
        self._context.counts.churn.connection_created += 1
        clients, most = self._clients(), self._context.settings.accept_max
        is_short = clients >= self.connections_max and not self.is_short_of_files
        is_full = most is not None and clients >= most and not self.is_full
        if is_short or is_full:
            self.is_short_of_files |= is_short
            self.is_full |= is_full
            asyncio.get_running_loop().call_soon(self._park)  # the server is at work in this call
        return connection

    async def _count_files(self) -> None:
        """Find out whether there is room for more clients; the limits may be others now."""
        self._context.doors.resize()
        files_max = self._context.doors.shares.files_max
        clients, most = self._clients(), self._context.settings.accept_max
        is_short = clients >= self.connections_max or open_files() >= files_max - FILES_LEFT
        if self.is_short_of_files and not is_short and self._parked:
            _log.warning("file descriptor limit alarm cleared")
        was_short, self.is_short_of_files = self.is_short_of_files, is_short
        was_full, self.is_full = self.is_full, most is not None and clients >= most
        if (is_short and not was_short) or (self.is_full and not was_full):
            self._park()
        elif not (is_short or self.is_full):
            await self._unpark()

    def _park(self) -> None:
        """Accept nobody; the ports stay open, so that nobody is refused."""
        if not (self.is_short_of_files or self.is_full) or self._parked:
            return
        if self.is_short_of_files:
            for line in _SHORT_OF_FILES:
                _log.warning(line)
        else:
            most = self._context.settings.accept_max
            _log.info("ranch_connection_max (%s) is reached: further clients wait", most)
        for server, accept in self._servers:
            for each in server.sockets:
                self._parked.append((socket.socket(fileno=os.dup(each.fileno())), accept))
            server.close()
        self._servers.clear()

    async def _unpark(self) -> None:
        """There is room again."""
        if not self._parked:
            return
        loop = asyncio.get_running_loop()
        backlog = self._context.settings.tcp_backlog
        for parked in list(self._parked):
            listening, accept = parked
            server = await loop.create_server(accept, sock=listening, backlog=backlog)
            if parked in self._parked:
                self._parked.remove(parked)
                self._servers.append((server, accept))
            else:  # the ports were closed meanwhile
                server.close()

    def _tell_closed(self, info: ConnectionInfo) -> None:
        node = self._context.node
        headers: dict[str, object] = {
            "pid": f"<{node}.{info.connection_id}.0>",
            "name": info.name,
            "node": node,
            "client_properties": info.client_properties,
        }
        self._context.events.publish("connection.closed", headers, info.user)

    def _ended(self, connection: AmqpConnection) -> None:
        self.connections.pop(connection.info.connection_id, None)
        info = connection.info
        self._context.counts.connection_ended(
            info.vhost,
            info.received_bytes,
            info.sent_bytes,
            reads=info.reads,
            writes=info.writes,
        )
        if connection.info.vhost and self._context.events.is_watched:
            self._tell_closed(connection.info)
        if self.is_short_of_files or self.is_full:
            self._ticks = 0  # look with the next tick
        if not self.connections:
            self._is_empty.set()


def _set_options(listening: socket.socket, settings: Settings) -> None:
    """Set what accepted sockets inherit from the listening one (Linux: all of these)."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.tcp_nodelay)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, settings.tcp_keepalive)
    if settings.tcp_send_buffer_bytes is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.tcp_send_buffer_bytes)
    if settings.tcp_receive_buffer_bytes is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.tcp_receive_buffer_bytes)


def _bracketed(host: str) -> str:
    """An address as RabbitMQ's log has it: "[::]" is every interface."""
    return f"[{host or '::'}]" if ":" in host or not host else host


def _port(server: asyncio.Server, listener: Listener) -> int:
    for listening in server.sockets:
        return int(listening.getsockname()[1])
    return listener.port
