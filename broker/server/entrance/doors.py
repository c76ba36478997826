"""Admission at this node's ports: places, turns and logins, as long as the process lives."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from broker.doors.admission import Admission
from broker.doors.attempts import FailureLog
from broker.doors.descriptors import OPERATORS, Shares, shares
from broker.doors.turns import Turns
from broker.server.entrance.certificates import PortCertificates
from broker.server.entrance.logins import Logins
from broker.storage.store import files_max

HANDSHAKES_MAX: Final = 512
"""AMQP connections that may be before connection.open at a time (docs/bad-input.md case 57)."""

_log = logging.getLogger(__name__)


class Doors:
    """The doors of one process. Belongs to its event loop.

    Args:
        certificates: Those of its ports with TLS; None: there are none.

    Attributes:
        shares: How descriptors are divided, as of the last `resize`.
        handshakes: AMQP connections before connection.open.
        management: HTTP connections.
        turns: Steps of handshakes.
        logins: Attempts to log in.
        certificates: As given.
        tls_failures: Which TLS handshakes that failed have a line in the log.
        proxy_failures: Which PROXY headers that were refused have one.
    """

    def __init__(self, certificates: PortCertificates | None = None) -> None:
        self.certificates = certificates or PortCertificates()
        self.tls_failures = FailureLog()
        self.proxy_failures = FailureLog()
        self.shares: Shares = shares(files_max())
        self.handshakes = Admission(HANDSHAKES_MAX)
        self.management = Admission(self.shares.management, own=OPERATORS)
        self.turns = Turns(lambda work: asyncio.get_running_loop().call_soon(work))
        self.logins = Logins()
        self.resize()

    def resize(self) -> None:
        """The process's limit may be another now (prlimit)."""
        self.shares = shares(files_max())
        self.handshakes.most = max(1, min(HANDSHAKES_MAX, self.shares.clients // 2))
        self.management.most = self.shares.management

    def tick(self, now_ms: int) -> None:
        """Tell the log what happened at the doors; called every second."""
        self.resize()
        for name, door in (("amqp", self.handshakes), ("http", self.management)):
            told = door.tick(now_ms)
            if told is not None:
                _log.warning(
                    "%s: %d connections refused for want of places, the last of %s; %d at a time",
                    *(name, told.number, told.address, door.most),
                )
        self.logins.tick()
        for address, count in self.tls_failures.tick():
            _log.warning("%d more TLS handshakes of %s failed within a second", count, address)
        for address, count in self.proxy_failures.tick():
            _log.warning("%d more PROXY headers of %s refused within a second", count, address)

    async def look_at_certificates(self) -> None:
        """Read certificates again that have changed; called every second."""
        for certificates in self.certificates:
            if certificates is not None:
                await certificates.look()

    def facts(self) -> dict[str, Any]:
        """Return the figures that operators see, by door."""
        return {
            "handshakes": _facts(self.handshakes),
            "management": _facts(self.management),
        }


def _facts(door: Admission) -> dict[str, int]:
    return {
        "connections": len(door),
        "limit": door.most,
        "refused": door.refused,
    }
