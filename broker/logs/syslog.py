"""Sends the log to a syslog server: over UDP, TCP or TLS.

A thread sends, from a queue with an end: who logs never waits for the server. While it is away the
first `WAITING_MAX` lines wait, later ones are dropped and counted. What a TCP server had not read
when it went is lost: syslog has no acknowledgements.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import ssl
import threading
from datetime import datetime
from queue import Full, Queue
from typing import Final

from broker.config import SyslogSettings
from broker.logs.formatting import JsonFormatter, message, traceback
from broker.logs.syslog_message import (
    FACILITIES,
    Sender,
    datagram,
    framed,
    rfc3164,
    rfc5424,
)

_log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Lines that wait for the server."""

TIMEOUT_S: Final = 5.0
"""How long a connection, or one line, may take."""

CLOSE_S: Final = 1.0
"""How long the end of the process may wait for the last lines."""

RETRY_S: Final = 1.0
RETRY_S_MAX: Final = 5.0
_PORT: Final = 514
_TLS_PORT: Final = 6514
_SEVERITIES: Final = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7


class SyslogHandler(logging.Handler):
    """An output of the log.

    Args:
        settings: The server, and what messages look like.

    Raises:
        OSError: A file of TLS can't be used.
    """

    def __init__(self, settings: SyslogSettings) -> None:
        super().__init__()
        self._settings = settings
        identity, facility = settings.identity, FACILITIES[settings.facility]
        self._sender = Sender(socket.gethostname() or "-", identity, os.getpid(), facility)
        self._tls = _tls(settings) if settings.transport == "tls" else None
        self._waiting: Queue[bytes | None] = Queue(WAITING_MAX)
        self._dropped = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Put a line into the queue; dropped if that is full."""
        try:
            self._put(self._written(record))
        except Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001 - as the library's handlers do
            self.handleError(record)

    def close(self) -> None:
        """Send what waits, for at most `CLOSE_S`."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                self._waiting.put_nowait(None)
            except Full:
                self._ending.set()
            thread.join(CLOSE_S)
            self._ending.set()
        super().close()

    def _put(self, line: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="syslog", daemon=True)
            self._thread.start()
        self._waiting.put_nowait(line)

    def _written(self, record: logging.LogRecord) -> bytes:
        used = self.formatter or logging.Formatter()
        if isinstance(used, JsonFormatter):
            text = used.format(record)
        else:
            text = "\\n  ".join((message(record), *traceback(used, record)))
        severity = next((each for low, each in _SEVERITIES if record.levelno >= low), _DEBUG)
        at = datetime.fromtimestamp(record.created).astimezone()
        write = rfc5424 if self._settings.protocol == "rfc5424" else rfc3164
        line = write(self._sender, severity, at, text)
        if self._settings.transport == "udp":
            return datagram(line)
        return framed(line, is_counted=self._settings.protocol == "rfc5424")

    # The thread

    def _run(self) -> None:
        server: _Server | None = None
        retry_s = RETRY_S
        while (line := self._waiting.get()) is not None:
            while True:
                try:
                    if server is None:
                        server = _Server(self._settings, self._tls)
                    server.send(line)
                    break
                except OSError as why:
                    if server is not None:
                        server.close()
                        server = None
                    if retry_s == RETRY_S:
                        _log.warning("syslog.away: %s: lines wait for it", why)
                    if self._ending.wait(retry_s):
                        return
                    retry_s = min(RETRY_S_MAX, 2 * retry_s)
            if retry_s > RETRY_S:
                retry_s = RETRY_S
                self._tell_back()
        if server is not None:
            server.close()

    def _tell_back(self) -> None:
        dropped, self._dropped = self._dropped, 0
        _log.warning("syslog.back: %d lines were dropped meanwhile", dropped)


class _Server:
    """A way to the server."""

    def __init__(self, settings: SyslogSettings, tls: ssl.SSLContext | None) -> None:
        port = settings.port or (_PORT if tls is None else _TLS_PORT)
        self._is_plain = tls is None
        self._address: tuple[object, ...] | None = None
        if settings.transport == "udp":
            # Not connected: a server that is away is no error of the next line.
            found = socket.getaddrinfo(settings.host, port, type=socket.SOCK_DGRAM)[0]
            self._socket = socket.socket(found[0], socket.SOCK_DGRAM)
            self._address = found[4]
            return
        plain = socket.create_connection((settings.host, port), TIMEOUT_S)
        try:
            self._socket = (
                plain if tls is None else tls.wrap_socket(plain, server_hostname=settings.host)
            )
        except OSError:
            plain.close()
            raise

    def send(self, line: bytes) -> None:
        """Send one line.

        Raises:
            OSError: It can't.
        """
        if self._address is not None:
            self._socket.sendto(line, self._address)
            return
        if self._is_plain and self._has_ended():
            raise ConnectionResetError("the server has closed the connection")
        self._socket.sendall(line)

    def _has_ended(self) -> bool:
        """Servers say nothing, so what can be read is the end of the connection."""
        is_readable = bool(select.select([self._socket], [], [], 0)[0])
        return is_readable and not self._socket.recv(4096)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def _tls(settings: SyslogSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.cacertfile or None)
    if not settings.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.certfile:
        context.load_cert_chain(settings.certfile, settings.keyfile or None)
    return context
