"""TLS between nodes: whether a node needs it, whom a certificate names, and what went wrong. Pure.

Both ends of a link show a certificate that an authority of `cluster.tls.cacertfile` has signed and
that names their node. The proof of the cluster's secret (`handshake`) follows inside: a certificate
alone lets nobody in, and neither does the secret alone.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from broker.cluster.authentication.secret import effective_listener, is_loopback
from broker.config import Settings

NODE_FILE: Final = "node.pem"
AUTHORITIES_FILE: Final = "authorities.pem"
"""Names in a folder that `warrenmq cluster certificates` makes, in each node's own folder."""

NAMED_BY: Final = "urn:warrenmq:node:"
"""What stands before a node's name in the alternative name (a URI) of a certificate made for it."""

_HANDSHAKE_BYTE: Final = b"\x16"

_HOW: Final = (
    "make certificates with 'warrenmq cluster certificates make NODE...' and name their folder with"
    " cluster.tls.folder on each node"
)

_EXPIRED, _NOT_YET = 10, 9
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)

_REFUSED_BY_PEER: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of this node's certificate: give both"
    " nodes the same authorities (cluster.tls.cacertfile)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this node's certificate has expired: renew it with"
    " 'warrenmq cluster certificates renew'",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this node's certificate: its log says why",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept this node's certificate: its log says"
    " why",
}


class Mode(StrEnum):
    """What a node asks of its links.

    OPTIONAL is a step between the others: it accepts both, and dials with TLS whoever speaks it.
    """

    OFF = "off"
    OPTIONAL = "optional"
    REQUIRED = "required"


class LinkFiles(NamedTuple):
    """Paths of PEM files.

    Attributes:
        certfile: This node's certificate, followed by intermediate ones.
        keyfile: Its private key; "": it stands in `certfile`.
        password: Decrypts the key; "": it is not encrypted.
        cacertfile: The authorities that sign nodes' certificates.
    """

    certfile: str
    keyfile: str
    password: str
    cacertfile: str


def mode(settings: Settings) -> Mode:
    """Return what is set; else REQUIRED off loopback or with certificates, OFF otherwise.

    Args:
        settings: All of a node's.
    """
    if settings.cluster_tls.mode:
        return Mode(settings.cluster_tls.mode)
    is_local = is_loopback(effective_listener(settings).host)
    return Mode.OFF if is_local and files(settings) is None else Mode.REQUIRED


def files(settings: Settings) -> LinkFiles | None:
    """Return where this node's certificates are: those that are named, else those of the folder.

    Args:
        settings: All of a node's.
    """
    tls = settings.cluster_tls
    if tls.certfile or tls.cacertfile:
        return LinkFiles(tls.certfile, tls.keyfile, tls.password, tls.cacertfile)
    if not tls.folder:
        return None
    own = PurePath(tls.folder) / settings.node_name
    return LinkFiles(str(own / NODE_FILE), "", "", str(own / AUTHORITIES_FILE))


def objection(settings: Settings) -> str | None:
    """Return why a node with these settings must not start, and what to set; None if it may.

    Args:
        settings: All of a node's.
    """
    found = files(settings)
    if found is not None and not (found.certfile and found.cacertfile):
        return (
            "cluster.tls.certfile and cluster.tls.cacertfile belong together: set both, or "
            "cluster.tls.folder alone"
        )
    wanted = mode(settings)
    if wanted is Mode.OFF or found is not None:
        return None
    if settings.cluster_tls.mode:
        return f"cluster.tls.mode is {wanted}, but there are no certificates: {_HOW}"
    listener = effective_listener(settings)
    return (
        f"the cluster port is off loopback ({listener.host or 'every interface'}, port "
        f"{listener.port}), where nodes need TLS between them: {_HOW}; or set "
        "cluster.tls.mode = off if nobody else can read or write on that network"
    )


def speaks_tls(first: bytes) -> bool:
    """Whether a connection begins with TLS.

    Args:
        first: Its first byte.
    """
    return first == _HANDSHAKE_BYTE


def names(certificate: Mapping[str, Any], node: str) -> bool:
    """Whether a certificate is a node's.

    Args:
        certificate: As `ssl.SSLSocket.getpeercert` returns it.
        node: "rabbit@host".

    Returns:
        True if it names the node (`NAMED_BY`). One that names no node at all, as other makers of
        certificates write them, counts for every node on the hosts that it names, by DNS name
        (also "*.domain") or address.
    """
    alternatives = certificate.get("subjectAltName", ())
    named = [value for kind, value in alternatives if kind == "URI" and value.startswith(NAMED_BY)]
    if named:
        return NAMED_BY + node in named
    host = node.partition("@")[2].lower()
    wildcard = "*." + host.partition(".")[2]
    for kind, value in alternatives:
        is_host = kind == "DNS" and value.lower() in (host, wildcard)
        if is_host or (kind == "IP Address" and value.lower() == host):
            return True
    return False


def whose(certificate: Mapping[str, Any]) -> str:
    """Say for whom a certificate was made.

    Args:
        certificate: As for `names`.
    """
    found = [value.removeprefix(NAMED_BY) for _, value in certificate.get("subjectAltName", ())]
    return ", ".join(found) or "nobody"


def why_not_verified(error: ssl.SSLCertVerificationError) -> str:
    """Say why this node does not accept the other end's certificate, and what to do.

    Args:
        error: What the handshake raised.
    """
    code = error.verify_code
    if code in _UNKNOWN_AUTHORITY:
        return (
            "its certificate is of an authority that this node does not know: give both nodes the "
            "same authorities (cluster.tls.cacertfile)"
        )
    if code == _EXPIRED:
        return "its certificate has expired: renew it with 'warrenmq cluster certificates renew'"
    if code == _NOT_YET:
        return "its certificate is not valid yet: set the clocks"
    return f"its certificate is not accepted ({error.verify_message}): make another"


def why_refused(error: BaseException | None) -> str:
    """Say why the other end does not accept this node's certificate; "" if it does not say so.

    Args:
        error: What ended the connection, None for its plain end.
    """
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = error.reason or str(error)
    return _REFUSED_BY_PEER.get(reason, f"TLS with it failed: {reason}")
