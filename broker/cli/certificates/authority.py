"""An authority that signs the certificates of one cluster's nodes. Draws keys; reads no files."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.cluster.authentication.link_tls import NAMED_BY

_CLOCKS_DIFFER = dt.timedelta(hours=1)
"""Certificates are valid from so long ago on, for nodes whose clocks are behind."""

_COMMON_NAME_MAX = 64
"""RFC 5280, appendix A.1: ub-common-name."""

_PEM = serialization.Encoding.PEM


class Authority:
    """A self-signed certificate and its key.

    Args:
        certificate: Says that it may sign certificates of nodes, and no further authorities.
        key: Its key.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def new(cls, now: dt.datetime, days: int) -> Self:
        """Draw an authority whose name tells it from others.

        Args:
            now: UTC.
            days: How long it is valid.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"WarrenMQ nodes {secrets.token_hex(4)}")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            _builder(name, name, key, now, now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def read(cls, pem: bytes) -> Self:
        """Read what `pem` wrote.

        Raises:
            ValueError: It is something else.
        """
        key = serialization.load_pem_private_key(pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("its key is of another kind")  # noqa: TRY004 - what the caller catches
        return cls(x509.load_pem_x509_certificate(pem), key)

    def pem(self) -> bytes:
        """Its key and its certificate."""
        return _key_pem(self._key) + self.certificate_pem()

    def certificate_pem(self) -> bytes:
        """Its certificate alone: what nodes have."""
        return self.certificate.public_bytes(_PEM)

    def node(self, node: str, now: dt.datetime, days: int) -> bytes:
        """Draw a key for a node and sign its certificate, for both ends of a link.

        Args:
            node: "rabbit@host".
            now: UTC.
            days: How long it is valid, at most as long as the authority.

        Returns:
            PEM: the key and the certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(now + dt.timedelta(days=days), self.certificate.not_valid_after_utc)
        both_ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        names = [x509.UniformResourceIdentifier(NAMED_BY + node)]
        certificate = (
            _builder(_name(node), self.certificate.subject, key, now, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _key_pem(key) + certificate.public_bytes(_PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_COMMON_NAME_MAX])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    ends: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(ends)
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
