"""A folder with an authority and the certificates of nodes, each file written whole or not at all.

FOLDER/NODE/node.pem          a node's key and certificate
FOLDER/NODE/authorities.pem   the certificates of all authorities that the node has to know
AUTHORITY/authority.pem       the authority's key and certificate: signs, and goes to no node
AUTHORITY/next.pem            the next authority, while it takes the other's place
AUTHORITY/former.pem          the certificate of the one before, until all nodes have new ones

An authority is replaced in three steps, and every node has to have taken one in before the next:
first all nodes learn to know the next authority, then all get certificates of it, then all forget
the former one. At each moment any two nodes accept each other, whichever of two steps each is at.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

from broker.cli.certificates.authority import Authority
from broker.cluster.authentication.link_tls import AUTHORITIES_FILE, NODE_FILE

DAYS: Final = 365
AUTHORITY_DAYS: Final = 3650
RENEWED_DAYS: Final = 30
"""A certificate that has less left is made anew where one is asked for."""

STEPS: Final = 3
_PRIVATE, _PUBLIC = 0o600, 0o644


class FolderError(Exception):
    """The folder can't be used; the text says what to do."""


class Validity(NamedTuple):
    """How long a file's certificate is valid.

    Attributes:
        path: The file.
        name: Whose certificate it is.
        ends: UTC.
    """

    path: Path
    name: str
    ends: dt.datetime


class CertificateFolder:
    """The certificates of one cluster.

    Args:
        path: Of the folder; it need not be there before `make`.
        now: UTC.
        authority: The folder of the authority's files; None: the same.
    """

    def __init__(self, path: Path, now: dt.datetime, authority: Path | None = None) -> None:
        self.path = path
        self._now = now
        own = authority or path
        self._authority = own / "authority.pem"
        self._next = own / "next.pem"
        self._former = own / "former.pem"

    def nodes(self) -> list[str]:
        """The nodes that have certificates here, sorted."""
        return sorted(found.parent.name for found in self.path.glob(f"*/{NODE_FILE}"))

    def make(self, nodes: Sequence[str], days: int = DAYS) -> list[str]:
        """Make an authority if there is none, and certificates of nodes that have none.

        Args:
            nodes: Full names.
            days: How long the certificates are valid.

        Returns:
            The nodes that got one: they had none, or one that runs out within `RENEWED_DAYS`.

        Raises:
            FolderError: A name can't be a node's, or the folder can't be read or written.
        """
        for node in nodes:
            name, _, host = node.partition("@")
            if not name or not host or "/" in node or not node.isprintable():
                raise FolderError(f"{node!r} is no node's full name, which is NAME@HOST")
        if not self._authority.exists():
            _write(self._authority, Authority.new(self._now, AUTHORITY_DAYS).pem(), _PRIVATE)
        due = [node for node in dict.fromkeys(nodes) if not self._is_good(node)]
        self._sign(due, days)
        return due

    def renew(self, nodes: Sequence[str], days: int = DAYS) -> list[str]:
        """Make new keys and certificates for nodes that have some.

        Args:
            nodes: Full names; none: all.
            days: How long the certificates are valid.

        Returns:
            The nodes.

        Raises:
            FolderError: A node has none, or the folder can't be read or written.
        """
        known = self.nodes()
        for node in nodes:
            if node not in known:
                raise FolderError(f"{node} has no certificate in {self.path}: make one first")
        renewed = list(nodes) or known
        self._sign(renewed, days)
        return renewed

    def rotate(self, days: int = DAYS) -> int:
        """Go one step on in replacing the authority.

        Args:
            days: How long certificates of nodes are valid.

        Returns:
            The step that was taken: 1, 2 or 3. One that was interrupted is taken again.

        Raises:
            FolderError: The folder can't be read or written.
        """
        current = self._read(self._authority)
        if self._next.exists():
            # The former's certificate is kept before anything else: it ends this state as the last.
            if not self._former.exists():
                _write(self._former, current.certificate_pem(), _PUBLIC)
            self._sign(self.nodes(), days, by=self._read(self._next))
            self._rename(self._next, self._authority)
            return 2
        if self._former.exists():
            self._remove(self._former)
            self._trust(self.nodes())
            return STEPS
        _write(self._next, Authority.new(self._now, AUTHORITY_DAYS).pem(), _PRIVATE)
        self._trust(self.nodes())
        return 1

    def validity(self) -> list[Validity]:
        """How long each certificate is valid, the authorities' first.

        Raises:
            FolderError: One can't be read.
        """
        own = [each for each in (self._authority, self._next, self._former) if each.exists()]
        found = []
        for path in own + [self.path / node / NODE_FILE for node in self.nodes()]:
            certificate = _certificate(path)
            name = certificate.subject.rfc4514_string().removeprefix("CN=")
            found.append(Validity(path, name, certificate.not_valid_after_utc))
        return found

    def _is_good(self, node: str) -> bool:
        path = self.path / node / NODE_FILE
        if not path.exists():
            return False
        return _certificate(path).not_valid_after_utc > self._now + dt.timedelta(days=RENEWED_DAYS)

    def _sign(self, nodes: Sequence[str], days: int, by: Authority | None = None) -> None:
        authority = by or self._read(self._authority)
        self._trust(nodes)
        for node in nodes:
            _write(self.path / node / NODE_FILE, authority.node(node, self._now, days), _PRIVATE)

    def _trust(self, nodes: Sequence[str]) -> None:
        """Give nodes the certificates of all authorities of the moment."""
        known = [self._read(self._authority).certificate_pem()]
        if self._next.exists():
            known.append(self._read(self._next).certificate_pem())
        if self._former.exists():
            known.append(_bytes(self._former))
        bundle = b"".join(dict.fromkeys(known))
        for node in nodes:
            _write(self.path / node / AUTHORITIES_FILE, bundle, _PUBLIC)

    def _read(self, path: Path) -> Authority:
        try:
            return Authority.read(_bytes(path))
        except ValueError as why:
            raise FolderError(f"{path} is no authority ({why}): restore it, or begin anew") from why

    def _rename(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        except OSError as why:
            raise FolderError(f"{target} can't be written: {why.strerror}") from why

    def _remove(self, path: Path) -> None:
        try:
            path.unlink()
        except OSError as why:
            raise FolderError(f"{path} can't be removed: {why.strerror}") from why


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as why:
        raise FolderError(f"{path} can't be read: {why.strerror}") from why


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_bytes(path))
    except ValueError as why:
        raise FolderError(f"{path} holds no certificate: remove it, and make one again") from why


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole, synced, or not at all."""
    temporary = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        temporary.rename(path)
    except OSError as why:
        raise FolderError(f"{path} can't be written: {why.strerror}") from why
