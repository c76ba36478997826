"""A port behind proxies: each connection begins with a header that says who the client is.

    accepted   a place among strangers, by the proxy's address      `broker.doors.admission`
    its header at most `handshake_timeout`                          `broker.doors.proxy_header`
    passed on  to what serves the port, with or without TLS, which enters it by the client's address

What goes wrong before that is one line in the log, of each address one a second. A connection that
sends nothing (a health check of the proxy) is no line. Ports without `proxy_protocol` pass nothing
of this.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from typing import Protocol, cast

from typing_extensions import override

from broker.doors.admission import Admission
from broker.doors.attempts import FailureLog
from broker.doors.proxy_header import Ends, MalformedHeader, read_header

_log = logging.getLogger(__name__)


class Behind(Protocol):
    """What serves a port."""

    def introduced(self, ends: Ends | None) -> asyncio.Protocol | None:
        """Return what takes the socket of a client; None: nobody is let in.

        Args:
            ends: What the header says of it; None: the socket's own ends count.
        """
        ...


class TrustedProxies:
    """The addresses that may send a header.

    Args:
        networks: "10.0.0.0/8"; empty: every address may.
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(each) for each in networks]

    def __contains__(self, address: object) -> bool:
        """True if this address may send a header."""
        if not self._networks:
            return True
        try:
            found = ipaddress.ip_address(str(address).partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return any(found in each for each in self._networks)


class ProxyPort:
    """The headers of one listener. A protocol factory for `create_server`.

    Args:
        trusted: Who may send one.
        admission: The places of strangers at the listener.
        failures: Which failures have a line in the log.
        timeout_ms: How long a header may take.
        behind: Gets the clients.

    Attributes:
        strangers: Connections whose header is not there yet.
    """

    def __init__(
        self,
        trusted: TrustedProxies,
        admission: Admission,
        failures: FailureLog,
        timeout_ms: int,
        behind: Behind,
    ) -> None:
        self.trusted = trusted
        self.admission = admission
        self.failures = failures
        self.timeout_s = timeout_ms / 1000
        self.behind = behind
        self.strangers: set[HeaderReader] = set()

    def __call__(self) -> asyncio.Protocol:
        """Return what takes a socket that was accepted."""
        return HeaderReader(self)

    def close(self) -> None:
        """Drop who has sent no header yet."""
        for stranger in list(self.strangers):
            stranger.abort()


class HeaderReader(asyncio.Protocol):
    """One connection until its header is there. A `broker.doors.admission.Guest`."""

    def __init__(self, port: ProxyPort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._name = ""
        self._data = b""
        self._deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        own = transport.get_extra_info("sockname") or ("", 0)
        if peer is None:  # gone before it was accepted, as after HAProxy's health checks
            self.abort()
            return
        self._peer, self._name = str(peer[0]), f"{peer[0]}:{peer[1]} -> {own[0]}:{own[1]}"
        port, loop = self._port, asyncio.get_running_loop()
        if not port.admission.enter(self, self._peer, int(loop.time() * 1000)):
            self.abort()
            return
        port.strangers.add(self)
        self._deadline = loop.call_later(port.timeout_s, self._expire)

    @override
    def data_received(self, data: bytes) -> None:
        """Read the header; it is bounded, and so is what one read brings behind it."""
        port, transport = self._port, self._transport
        if transport is None or transport.is_closing():
            return
        if self._peer not in port.trusted:
            self._refuse("its address is none of proxy_protocol.trusted_proxies")
            return
        self._data += data
        try:
            header = read_header(self._data)
        except MalformedHeader as why:
            self._refuse(f"{why}; connect through the proxy, and let it send proxy headers")
            return
        if header is None:
            return
        self._leave()
        found = port.behind.introduced(header.ends)
        if found is None:
            transport.abort()
            return
        transport.set_protocol(found)
        found.connection_made(transport)
        rest = self._data[header.size :]
        if rest and not transport.is_closing():
            found.data_received(rest)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._port.strangers and self._data:
            self._tell("the connection was lost in the middle of it")
        self._leave()

    def abort(self) -> None:
        """Drop the socket now."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def _expire(self) -> None:
        if self._data:
            self._tell(f"it is not whole within {self._port.timeout_s:g} s (handshake_timeout)")
        else:
            _log.debug("PROXY header missing: %s", self._name)
        self.abort()

    def _refuse(self, why: str) -> None:
        self._tell(why)
        self.abort()

    def _tell(self, why: str) -> None:
        if self._port.failures.note(self._peer):
            _log.warning("PROXY header refused: %s: %s", self._name, why)

    def _leave(self) -> None:
        self._port.strangers.discard(self)
        self._port.admission.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
