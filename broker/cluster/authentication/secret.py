"""The cluster's shared secret: which settings are refused, and the one a lone node makes itself.

Whoever knows the secret can join the cluster and read everything in it, so a secret that can be
guessed is as open as none. Nothing off this machine can dial the cluster port unless the secret was
set by an operator and has at least 128 random bits.
"""

from __future__ import annotations

import ipaddress
import math
import os
import secrets
import string
from itertools import pairwise
from pathlib import Path
from typing import Final

from broker.config import Listener, Settings

SECRET_BITS_MIN: Final = 128
"""Off loopback: beyond any search."""

FILE_NAME: Final = "cluster.secret"
_MADE_BYTES: Final = 32
_LOOPBACK: Final = "127.0.0.1"

_DISTINCT_MIN: Final = 8
"""Fewer different characters were typed, not drawn: 32 random hex digits have 14, and 8 or fewer
of them once in ten million times."""

_ALPHABETS: Final = (
    string.digits,
    string.digits + "abcdef",
    string.digits + "ABCDEF",
    string.ascii_uppercase,
    string.ascii_lowercase,
    string.ascii_letters,
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "+/=",
    string.ascii_letters + string.digits + "-_=",
)
_PRINTABLE: Final = 94

_HOW: Final = (
    "put the output of `openssl rand -hex 32` into a file that only the nodes of this cluster "
    "read, and name it on each of them with cluster.secret_file or RABBITMQ_ERLANG_COOKIE_FILE"
)


class SecretUnusable(Exception):
    """The secret a node made for itself can't be read, or can't be written."""


def random_bits(secret: str) -> float:
    """Estimate how many random bits a secret has at most.

    Each character counts as drawn evenly from the smallest usual alphabet that has them all (hex,
    base64, letters, ...); a repeated block counts once, and what counts up or down or has fewer
    than 8 different characters counts nothing. Words are not recognised.

    Args:
        secret: As configured.
    """
    once = _block(secret)
    steps = [ord(b) - ord(a) for a, b in pairwise(once)]
    ordered = sum([abs(step) <= 1 for step in steps])
    if len(set(once)) < _DISTINCT_MIN or ordered * 2 > len(steps):
        return 0.0
    used = set(once)
    sizes = [len(alphabet.rstrip("=")) for alphabet in _ALPHABETS if used <= set(alphabet)]
    return len(once.rstrip("=")) * math.log2(min(sizes, default=_PRINTABLE))


def _block(text: str) -> str:
    """The shortest text that `text` repeats."""
    period = (text + text).find(text, 1)
    return text[:period]


def objection(settings: Settings) -> str | None:
    """Return why a node with these settings must not start, and what to set; None if it may.

    Args:
        settings: All of a node's.
    """
    secret = settings.cluster_secret
    listener = settings.inter_node_listener()
    is_local = is_loopback(listener.host)
    where = f"{listener.host or 'every interface'}, port {listener.port}"
    if not secret:
        others = [peer.node for peer in settings.cluster_peers if peer.node != settings.node_name]
        if others:
            return f"cluster.secret is not set, but {others[0]} is configured as a peer: {_HOW}"
        if settings.cluster_listener is not None and not is_local:
            return (
                f"cluster.listen is off loopback ({where}), but cluster.secret is not set: {_HOW}; "
                "or leave cluster.listen out"
            )
        return None
    bits = random_bits(secret)
    if is_local or bits >= SECRET_BITS_MIN:
        return None
    return (
        f"cluster.secret has at most {bits:.0f} random bits, but the cluster port is off loopback "
        f"({where}), where {SECRET_BITS_MIN} are needed: {_HOW}"
    )


def effective_listener(settings: Settings) -> Listener:
    """Return the address of the cluster port: only loopback until an operator sets a secret.

    Args:
        settings: Ones without `objection`.
    """
    listener = settings.inter_node_listener()
    if settings.cluster_secret or is_loopback(listener.host):
        return listener
    return Listener(_LOOPBACK, listener.port)


def effective_secret(settings: Settings) -> bytes:
    """The secret set by an operator, else this node's own, made when it is first asked for.

    Args:
        settings: Ones without `objection`.

    Raises:
        SecretUnusable: The node's own can't be read or written.
    """
    if settings.cluster_secret:
        return settings.cluster_secret.encode()
    folder = Path(settings.data_dir)
    path = folder / FILE_NAME
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make(path)
        made = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as why:
        raise SecretUnusable(
            f"the node's own secret can't be used: {why}: let the node read and write {path}, or "
            "set cluster.secret_file"
        ) from why
    if random_bits(made) < SECRET_BITS_MIN:
        raise SecretUnusable(f"{path} is damaged: remove it, and the node makes another")
    return made.encode()


def _make(path: Path) -> None:
    """Write a random secret, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    try:
        os.write(descriptor, f"{secrets.token_hex(_MADE_BYTES)}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(path)


def is_loopback(host: str) -> bool:
    """True if only this machine can connect to an address.

    Args:
        host: A host name or address; "" is every interface. Of names only localhost is trusted.
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
