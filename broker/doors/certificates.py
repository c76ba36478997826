"""What a client's certificate says of it, as RabbitMQ writes it. Pure.

    {'subject': ((('organizationName', 'Shop'),), (('commonName', 'till-1'),)),
     'notBefore': 'Jan  1 00:00:00 2026 GMT', ...}    from Python's ssl
    CN=till-1,O=Shop                                  the subject, the last part first (RFC 4514)
    2026-01-01T00:00:00Z - 2027-01-01T00:00:00Z       the validity

Source: rabbit_cert_info.erl (format_rdn_sequence, escape_rdn_value, format_asn1_value).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "pseudonym": "PSEUDONYM",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "surname": "SN",
    "title": "TITLE",
    "userId": "UID",
}
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_TIME: Final = re.compile(r"(\w{3}) +(\d+) (\d\d:\d\d:\d\d) (\d{4}) GMT")
_SPECIAL: Final = re.compile(r'[,+"\\<>;]|^[ #]| $')
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_KINDS: Final = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}

Name = tuple[tuple[tuple[str, str], ...], ...]
"""A distinguished name: relative ones, each of one or more attributes."""


class PeerCertificate(NamedTuple):
    """A client's certificate that was verified.

    Attributes:
        subject: "CN=till-1,O=Shop".
        issuer: Likewise.
        validity: "2026-01-01T00:00:00Z - 2027-01-01T00:00:00Z".
        common_name: "till-1"; several are joined by commas; "": there is none.
        alternative_names: (type, name) of the subject, in the certificate's order; types are
            Python's: "DNS", "IP Address", "email", "URI".
    """

    subject: str
    issuer: str
    validity: str
    common_name: str
    alternative_names: tuple[tuple[str, str], ...] = ()

    def alternative_name(self, kind: str, index: int) -> str:
        """Return one of the subject's alternative names; "": there is none.

        Args:
            kind: "dns", "ip", "email" or "uri".
            index: Which of them, from 0.

        Source:
            rabbit_ssl.erl, peer_cert_auth_name(subject_alternative_name, _).
        """
        found = [name for each, name in self.alternative_names if each == _KINDS[kind]]
        return found[index] if index < len(found) else ""


def peer_certificate(decoded: Mapping[str, Any]) -> PeerCertificate:
    """Read a certificate.

    Args:
        decoded: What `getpeercert()` of Python's ssl returns.
    """
    subject: Name = decoded.get("subject", ())
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    return PeerCertificate(
        distinguished_name(subject),
        distinguished_name(decoded.get("issuer", ())),
        f"{_time(decoded.get('notBefore', ''))} - {_time(decoded.get('notAfter', ''))}",
        ",".join(names),
        tuple(decoded.get("subjectAltName", ())),
    )


def distinguished_name(name: Name) -> str:
    """Write a name as RabbitMQ does: the last part first, special characters escaped.

    Args:
        name: As Python's ssl has it.
    """
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        for part in reversed(name)
    )


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(lambda found: "\\" + found[0], value)
    return _CONTROL.sub(lambda found: f"\\{ord(found[0]):02X}", escaped)


def _time(text: str) -> str:
    found = _TIME.fullmatch(text)
    if found is None or found[1] not in _MONTHS:
        return text
    month, day, clock, year = found.groups()
    return f"{year}-{_MONTHS.index(month) // 3 + 1:02}-{int(day):02}T{clock}Z"
