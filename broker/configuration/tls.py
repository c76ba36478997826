"""Values of the settings of TLS and proxies: cipher suites, revocation, networks. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final

_CIPHER: Final = re.compile(r"[A-Z0-9_-]+")
_TLS13_SUITES: Final = frozenset(
    ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
)
"""The cipher suites of TLS 1.3, all of which OpenSSL offers; Python's ssl can't choose of them."""

_LINK_MODES: Final = ("off", "optional", "required")


def _link_mode(text: str) -> str:
    if text not in _LINK_MODES:
        raise ValueError("one of " + ", ".join(_LINK_MODES))
    return text


LINKS: Final[Mapping[str, Callable[[str], str]]] = {
    "mode": _link_mode,
    "folder": str,
    "certfile": str,
    "keyfile": str,
    "password": str,
    "cacertfile": str,
}
"""What follows `cluster.tls.` in a key, a field of `LinkTlsSettings`, and how its value is read."""


def chosen_suites(
    versions: tuple[str, ...], ciphers: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]] | str:
    """Tell which versions of TLS a list of cipher suites leaves, and their suites of TLS 1.2.

    Returns:
        Both; or what is wrong with the list, and what to do.
    """
    if not ciphers:
        return versions, ()
    newer = _TLS13_SUITES.intersection(ciphers)
    older = tuple(each for each in ciphers if each not in _TLS13_SUITES)
    if newer and newer != _TLS13_SUITES:
        return (
            "must list all three suites of TLS 1.3 or none, for Python's ssl can't choose of them: "
            + ", ".join(sorted(_TLS13_SUITES))
        )
    left = {"tlsv1.3": bool(newer), "tlsv1.2": bool(older)}
    kept = tuple(each for each in versions if left[each])
    if not kept:
        return f"has no suite of {', '.join(versions)}: add some, or change versions"
    return kept, older


def cipher(text: str) -> str:
    """Read OpenSSL's name of a cipher suite.

    Args:
        text: "ECDHE-RSA-AES256-GCM-SHA384".

    Raises:
        ValueError: It is a list of several, or a class of them.
    """
    if _CIPHER.fullmatch(text) is None:
        raise ValueError("one name of a cipher suite such as ECDHE-RSA-AES256-GCM-SHA384")
    return text


def crl_check(text: str) -> str:
    """Read `crl_check`.

    Args:
        text: As written.

    Returns:
        "peer": clients' certificates are looked up in lists of revoked ones; "true": those of the
        authorities between, too; "": none.

    Raises:
        ValueError: Another value. OpenSSL has no "best_effort": it refuses a certificate about
            whose authority it has no list, or accepts all of them.
    """
    word = {"off": "false", "no": "false", "on": "true", "yes": "true"}.get(text, text)
    if word not in ("false", "true", "peer"):
        raise ValueError("one of false, peer, true (OpenSSL has no best_effort)")
    return "" if word == "false" else word


def network(text: str) -> str:
    """Read an address, or a network of addresses.

    Args:
        text: "10.0.0.7", "10.0.0.0/8", "fd00::/8".

    Raises:
        ValueError: It is none.
    """
    try:
        return str(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError:
        raise ValueError("an address such as 10.0.0.7, or a network such as 10.0.0.0/8") from None
