"""What listings and logins say of a client's certificate."""

from __future__ import annotations

from broker.doors.certificates import distinguished_name, peer_certificate


def test_a_name_begins_with_its_last_part_and_escapes_what_is_special():
    name = (
        (("countryName", "DE"),),
        (("organizationName", 'A, "B" + C'),),
        (("commonName", " x;y "), ("userId", "7")),
        (("1.2.3", "#z\n"),),
    )
    assert distinguished_name(name) == (
        '1.2.3=\\#z\\0A,CN=\\ x\\;y\\ +UID=7,O=A\\, \\"B\\" \\+ C,C=DE'
    )


def test_a_certificate_is_read():
    found = peer_certificate(
        {
            "subject": ((("commonName", "a"),), (("commonName", "b"),)),
            "issuer": ((("organizationName", "O"),),),
            "notBefore": "Jan  2 03:04:05 2026 GMT",
            "notAfter": "Dec 31 23:59:59 2049 GMT",
        }
    )
    assert found.subject == "CN=b,CN=a"
    assert (found.issuer, found.common_name) == ("O=O", "a,b")
    assert found.validity == "2026-01-02T03:04:05Z - 2049-12-31T23:59:59Z"
    assert peer_certificate({"subject": ()}).common_name == ""
