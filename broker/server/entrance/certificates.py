"""The certificates of one listener with TLS, which are read again when their files change.

A handshake uses what was read last; connections keep what they began with. Files are looked at once
a second in a thread. What has changed is read when it has not changed for a second more, because a
certificate and its key are seldom replaced in one step. Files that can't be used change nothing,
and are one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.config import Settings, TlsSettings
from broker.server.entrance.handshakes import WatchedContext

_log = logging.getLogger(__name__)

AMQP: Final = "ssl_options"
MANAGEMENT: Final = "management.ssl"
METRICS: Final = "prometheus.ssl"

_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}
_KEY_OF_ANOTHER: Final = "KEY_VALUES_MISMATCH"

_Signature = tuple[tuple[int, int, int] | None, ...]


class TlsUnusable(Exception):
    """Certificates or cipher suites that can't be used; the text says what to do."""


class Certificates:
    """The TLS context of one listener.

    Args:
        family: The keys of rabbitmq.conf that it is configured by: "ssl_options".
        settings: Where the files are, and what clients must prove.

    Attributes:
        settings: As given.
        context: For the next handshake.

    Raises:
        TlsUnusable: A file can't be read, or they do not belong together.
    """

    def __init__(self, family: str, settings: TlsSettings) -> None:
        self.settings = settings
        self._family = family
        named = (settings.certfile, settings.keyfile, settings.cacertfile, settings.crlfile)
        self._paths = [Path(each) for each in named if each]
        self._used = self._seen = _signature(self._paths)
        self.context = tls_context(family, settings)

    async def look(self) -> None:
        """Read the files again if they have changed; called every second."""
        found = await asyncio.to_thread(_signature, self._paths)
        is_settled, self._seen = found == self._seen, found
        if found == self._used or not is_settled:
            return
        self._used = found
        try:
            self.context = await asyncio.to_thread(tls_context, self._family, self.settings)
        except TlsUnusable as why:
            _log.error("TLS certificates are not reloaded, those read before stay in use: %s", why)
        else:
            _log.info("TLS certificates reloaded: %s", ", ".join(map(str, self._paths)))


class PortCertificates(NamedTuple):
    """The certificates of a node's ports for clients; None where there is no TLS.

    Attributes:
        amqp: Those of `ssl_options.*`.
        management: Those of `management.ssl.*`.
        metrics: Those of `prometheus.ssl.*`.
    """

    amqp: Certificates | None = None
    management: Certificates | None = None
    metrics: Certificates | None = None


def certificates_of(settings: Settings) -> PortCertificates:
    """Read the certificates of a node's listeners.

    Args:
        settings: The node's.

    Raises:
        TlsUnusable: One of them can't be used.
    """
    amqp = management = metrics = None
    if settings.amqp_tls is not None and settings.amqp_tls_listeners:
        amqp = Certificates(AMQP, settings.amqp_tls)
    if settings.management_tls is not None and settings.management_tls_listener is not None:
        management = Certificates(MANAGEMENT, settings.management_tls)
    if settings.metrics_tls is not None and settings.metrics_tls_listener is not None:
        metrics = Certificates(METRICS, settings.metrics_tls)
    return PortCertificates(amqp, management, metrics)


def tls_context(family: str, settings: TlsSettings) -> WatchedContext:
    """Read the files of a listener.

    Args:
        family: "ssl_options".
        settings: Where the files are, and what clients must prove.

    Raises:
        TlsUnusable: A file can't be read, or they do not belong together.
    """
    context = WatchedContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[each] for each in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Without tickets: a client that comes back proves itself against the authorities of the moment.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if not settings.honor_cipher_order:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_ciphers(context, family, settings.ciphers)
    _load_own(context, family, settings)
    if settings.is_verified:
        _load_authorities(context, f"{family}.cacertfile", settings.cacertfile)
        context.verify_mode = ssl.CERT_REQUIRED if settings.is_required else ssl.CERT_OPTIONAL
    if settings.crl_check:
        _load_revoked(context, f"{family}.crlfile", settings)
    return context


def _set_ciphers(context: ssl.SSLContext, family: str, ciphers: Sequence[str]) -> None:
    for each in ciphers:
        try:
            context.set_ciphers(each)
            is_known = any(found["name"] == each for found in context.get_ciphers())
        except ssl.SSLError:
            is_known = False
        if not is_known:
            raise TlsUnusable(
                f"{family}.ciphers: OpenSSL has no cipher suite {each}; 'openssl ciphers -s "
                "-tls1_2' lists those there are"
            )
    if ciphers:
        context.set_ciphers(":".join(ciphers))


def _load_own(context: ssl.SSLContext, family: str, settings: TlsSettings) -> None:
    keyfile = settings.keyfile or settings.certfile
    _require_readable(f"{family}.certfile", settings.certfile)
    _require_readable(f"{family}.keyfile", keyfile)
    try:
        # A password, even an empty one: without any OpenSSL asks the terminal for it.
        context.load_cert_chain(settings.certfile, keyfile, settings.password)
    except ssl.SSLError as error:
        if error.reason == _KEY_OF_ANOTHER:
            raise TlsUnusable(
                f"the key of {keyfile} ({family}.keyfile) does not belong to the certificate of "
                f"{settings.certfile} ({family}.certfile); put both of one pair there"
            ) from error
        raise TlsUnusable(
            f"{settings.certfile} ({family}.certfile) and {keyfile} ({family}.keyfile) can't be "
            f"used ({error.reason or error}); put a certificate and its key there as PEM, and the "
            f"key's password, if it has one, into {family}.password"
        ) from error


def _load_authorities(context: ssl.SSLContext, key: str, path: str) -> None:
    _require_readable(key, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise TlsUnusable(
            f"{path} ({key}) can't be used ({error.reason or error}); put the certificates of the "
            "authorities there that sign clients' certificates, as PEM"
        ) from error


def _load_revoked(context: ssl.SSLContext, key: str, settings: TlsSettings) -> None:
    _require_readable(key, settings.crlfile)
    before = context.cert_store_stats()["crl"]
    try:
        context.load_verify_locations(settings.crlfile)
    except ssl.SSLError as error:
        raise TlsUnusable(_no_lists(key, settings.crlfile, error.reason or str(error))) from error
    if context.cert_store_stats()["crl"] == before:
        raise TlsUnusable(_no_lists(key, settings.crlfile, "there is no list in it"))
    is_chain = settings.crl_check == "true"
    flag = ssl.VERIFY_CRL_CHECK_CHAIN if is_chain else ssl.VERIFY_CRL_CHECK_LEAF
    context.verify_flags |= flag


def _no_lists(key: str, path: str, why: str) -> str:
    return (
        f"{path} ({key}) can't be used ({why}); put the lists of revoked certificates (CRL) there"
        " of the authorities that sign clients' certificates, as PEM"
    )


def _require_readable(key: str, path: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise TlsUnusable(
            f"{path} ({key}) can't be read: {error.strerror}; let the user the node runs as read it"
        ) from error


def _signature(paths: Sequence[Path]) -> _Signature:
    """What changes when a file does; links are followed. None for a file that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            stat = path.stat()
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)
