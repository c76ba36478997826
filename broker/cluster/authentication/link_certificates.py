"""This node's certificate for its links, and the authorities that sign those of other nodes.

TLS 1.3 alone: both ends are nodes of this broker. Without tickets: a node that dials again proves
itself against the authorities of the moment.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from broker.cluster.authentication import link_tls
from broker.cluster.authentication.link_tls import LinkFiles, Mode
from broker.config import Settings
from broker.tls.files import Reloaded, load_authorities, load_own

FAMILY = "cluster.tls"


class LinkContexts(NamedTuple):
    """TLS contexts of both ends.

    Attributes:
        accepting: For connections that other nodes dial.
        dialling: For those that this node dials.
    """

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext


class LinkCertificates:
    """TLS contexts, read again when the files change.

    Args:
        mode: OPTIONAL or REQUIRED.
        files: The certificates.

    Attributes:
        mode: As given.

    Raises:
        TlsUnusable: A file can't be read, or they do not belong together.
    """

    def __init__(self, mode: Mode, files: LinkFiles) -> None:
        self.mode = mode
        paths = (files.certfile, files.keyfile, files.cacertfile)
        self._read = Reloaded(paths, lambda: _contexts(files))

    @property
    def accepting(self) -> ssl.SSLContext:
        """For the next connection that another node dials."""
        return self._read.value.accepting

    @property
    def dialling(self) -> ssl.SSLContext:
        """For the next connection that this node dials."""
        return self._read.value.dialling

    async def look(self) -> None:
        """Read the files again if they have changed; called every second."""
        await self._read.look()


def link_certificates(settings: Settings) -> LinkCertificates | None:
    """Read the certificates of a node's links; None where there is no TLS.

    Args:
        settings: All of a node's, ones without `link_tls.objection`.

    Raises:
        TlsUnusable: They can't be used.
    """
    mode, files = link_tls.mode(settings), link_tls.files(settings)
    return None if mode is Mode.OFF or files is None else LinkCertificates(mode, files)


def _contexts(files: LinkFiles) -> LinkContexts:
    return LinkContexts(
        _context(ssl.PROTOCOL_TLS_SERVER, files), _context(ssl.PROTOCOL_TLS_CLIENT, files)
    )


def _context(protocol: int, files: LinkFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False  # what a certificate must name is a node: `link_tls.names`
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= ssl.OP_NO_TICKET
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    load_own(context, FAMILY, files.certfile, files.keyfile, files.password)
    load_authorities(context, FAMILY, files.cacertfile, "nodes'")
    return context
