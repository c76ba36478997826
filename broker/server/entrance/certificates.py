"""The certificates of the node's ports (`broker.tls.files`)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.cluster.authentication.link_certificates import LinkCertificates, link_certificates
from broker.config import Settings, TlsSettings
from broker.server.entrance.handshakes import WatchedContext
from broker.tls.files import Reloaded, TlsUnusable, load_authorities, load_own, require_readable

AMQP: Final = "ssl_options"
MANAGEMENT: Final = "management.ssl"
METRICS: Final = "prometheus.ssl"

_VERSIONS: Final = {"tlsv1.2": ssl.TLSVersion.TLSv1_2, "tlsv1.3": ssl.TLSVersion.TLSv1_3}


class Certificates:
    """The TLS context of one listener.

    Args:
        family: The keys of rabbitmq.conf that it is configured by: "ssl_options".
        settings: Where the files are, and what clients must prove.

    Attributes:
        settings: As given.

    Raises:
        TlsUnusable: A file can't be read, or they do not belong together.
    """

    def __init__(self, family: str, settings: TlsSettings) -> None:
        self.settings = settings
        named = (settings.certfile, settings.keyfile, settings.cacertfile, settings.crlfile)
        self._read = Reloaded(named, lambda: tls_context(family, settings))

    @property
    def context(self) -> WatchedContext:
        """For the next handshake."""
        return self._read.value

    async def look(self) -> None:
        """Read the files again if they have changed; called every second."""
        await self._read.look()


class PortCertificates(NamedTuple):
    """The certificates of a node's ports; None where there is no TLS.

    Attributes:
        amqp: Those of `ssl_options.*`.
        management: Those of `management.ssl.*`.
        metrics: Those of `prometheus.ssl.*`.
        links: Those of `cluster.tls.*`.
    """

    amqp: Certificates | None = None
    management: Certificates | None = None
    metrics: Certificates | None = None
    links: LinkCertificates | None = None


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
    return PortCertificates(amqp, management, metrics, link_certificates(settings))


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
    load_own(context, family, settings.certfile, settings.keyfile, settings.password)
    if settings.is_verified:
        load_authorities(context, family, settings.cacertfile, "clients'")
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


def _load_revoked(context: ssl.SSLContext, key: str, settings: TlsSettings) -> None:
    require_readable(key, settings.crlfile)
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
