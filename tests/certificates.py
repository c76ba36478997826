"""Certificates for tests, made anew by each of them: authorities, servers and clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certfile: Path
    keyfile: Path


class Authority:
    """Signs certificates; an intermediate one if another has signed its own."""

    def __init__(self, folder: Path, name: str, signed_by: Authority | None = None) -> None:
        self.folder = folder
        self.name = _name(name, "Authorities")
        self._key = ec.generate_private_key(ec.SECP256R1())
        signer = signed_by or self
        self.certificate = (
            _builder(self.name, signer.name, self._key, days=(-1, 30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(signer._key, hashes.SHA256())
        )
        self.certfile = folder / f"{name}.pem"
        self.certfile.write_bytes(_pem(self.certificate))

    def pair(
        self,
        name: str,
        *,
        days: tuple[int, int] = (-1, 30),
        password: str = "",
        organization: str = "Shop",
        followed_by: Authority | None = None,
    ) -> Pair:
        """A certificate for a common name, good for this machine, with a key of its own.

        `days` is its validity, from now; `followed_by` is an authority whose certificate follows.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(_name(name, organization), self.name, key, days)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        more = b"" if followed_by is None else _pem(followed_by.certificate)
        return _written(self.folder / name, _pem(certificate) + more, key, password)

    def revoke(self, *pairs: Pair, days: int = 30) -> Path:
        """The list of certificates that this authority has revoked, in the file it always has."""
        now = dt.datetime.now(dt.UTC)
        revoked = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        revoked = revoked.last_update(now - 2 * DAY).next_update(now + days * DAY)
        for pair in pairs:
            number = x509.load_pem_x509_certificate(pair.certfile.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now)
            revoked = revoked.add_revoked_certificate(entry.build())
        signed = revoked.sign(self._key, hashes.SHA256())
        path = self.certfile.with_suffix(".crl")
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return path

    def context(self, pair: Pair | None = None, *others: Authority) -> ssl.SSLContext:
        """A client's TLS: it trusts this authority and others, and shows a certificate or none."""
        trusted = b"".join(_pem(each.certificate) for each in (self, *others))
        context = ssl.create_default_context(cadata=trusted.decode())
        if pair is not None:
            context.load_cert_chain(pair.certfile, pair.keyfile)
        return context


def self_signed(folder: Path, name: str) -> Pair:
    """A certificate that nobody has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, "Shop")
    certificate = _builder(subject, subject, key, (-1, 30)).sign(key, hashes.SHA256())
    return _written(folder / name, _pem(certificate), key, "")


def _written(stem: Path, certificates: bytes, key: ec.EllipticCurvePrivateKey, word: str) -> Pair:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if word:
        encryption = serialization.BestAvailableEncryption(word.encode())
    pair = Pair(stem.with_suffix(".crt"), stem.with_suffix(".key"))
    pair.certfile.write_bytes(certificates)
    pair.keyfile.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
    )


def _name(common: str, organization: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
