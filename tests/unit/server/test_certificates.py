"""A node's certificates: what can't be used says what to do, and what changes is read again."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from broker.config import Settings, TlsSettings
from broker.doors.certificates import PeerCertificate
from broker.server.entrance.certificates import Certificates, TlsUnusable, tls_context
from broker.server.entrance.tls import TlsFacts, certified_name
from tests.certificates import Authority


def test_a_key_with_a_password_needs_it(tmp_path: Path):
    pair = Authority(tmp_path, "authority").pair("server", password="hush")
    settings = TlsSettings(certfile=str(pair.certfile), keyfile=str(pair.keyfile), password="hush")
    assert tls_context("ssl_options", settings).minimum_version.name == "TLSv1_2"
    for wrong in ("", "other"):
        settings = TlsSettings(
            certfile=str(pair.certfile), keyfile=str(pair.keyfile), password=wrong
        )
        with pytest.raises(TlsUnusable, match=r"into ssl_options\.password"):
            tls_context("ssl_options", settings)


def test_files_that_cannot_be_used_say_which_and_why(tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    one, two = authority.pair("one"), authority.pair("two")
    for settings, text in (
        (TlsSettings(certfile="/none"), r"/none \(ssl_options\.certfile\) can't be read: No such"),
        (
            TlsSettings(certfile=str(one.certfile), keyfile=str(two.keyfile)),
            "does not belong to the certificate",
        ),
        (TlsSettings(certfile=str(one.certfile)), "put a certificate and its key there as PEM"),
        (
            TlsSettings(
                certfile=str(one.certfile),
                keyfile=str(one.keyfile),
                is_verified=True,
                cacertfile=str(one.keyfile),
            ),
            r"\(ssl_options\.cacertfile\) can't be used",
        ),
        (
            TlsSettings(
                certfile=str(one.certfile), keyfile=str(one.keyfile), ciphers=("NO-SUCH-SUITE",)
            ),
            "OpenSSL has no cipher suite NO-SUCH-SUITE",
        ),
    ):
        with pytest.raises(TlsUnusable, match=text):
            tls_context("ssl_options", settings)


@pytest.mark.asyncio
async def test_files_are_read_when_they_have_stood_still_and_bad_ones_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    authority = Authority(tmp_path, "authority")
    one, two = authority.pair("one"), authority.pair("other")
    found = Certificates(
        "ssl_options", TlsSettings(certfile=str(one.certfile), keyfile=str(one.keyfile))
    )
    first = found.context
    await found.look()
    assert found.context is first
    one.certfile.write_bytes(two.certfile.read_bytes())
    for _ in range(4):  # seen, read once, and not read again
        await found.look()
    assert found.context is first
    (told,) = caplog.messages
    assert "not reloaded" in told
    assert "does not belong" in told
    one.keyfile.write_bytes(two.keyfile.read_bytes())
    await found.look()
    assert found.context is first
    await found.look()
    assert found.context is not first
    assert "TLS certificates reloaded" in caplog.messages[-1]


def test_external_takes_the_name_that_the_settings_say():
    names = (("DNS", "a.example"), ("IP Address", "10.0.0.7"), ("DNS", "b.example"), ("URI", "u:1"))
    peer = PeerCertificate("CN=a,O=b", "", "", "a", names)
    tls = TlsFacts("tlsv1.3", "any", "aes_256_gcm", "aead", peer)
    whole, common = Settings(), Settings(certificate_login="common_name")
    assert certified_name(tls, whole) == ("CN=a,O=b", "")
    assert certified_name(tls, common) == ("a", "")
    nameless = tls._replace(peer=peer._replace(common_name=""))
    assert certified_name(nameless, common) == ("", "no name found")
    for none in (None, tls._replace(peer=None)):
        text = "connection peer presented no TLS (x.509) certificate"
        assert certified_name(none, common) == ("", text)
    for kind, index, name in (
        ("dns", 0, "a.example"),
        ("dns", 1, "b.example"),
        ("ip", 0, "10.0.0.7"),
        ("uri", 0, "u:1"),
        ("dns", 2, ""),
        ("email", 0, ""),
    ):
        found = certified_name(
            tls,
            Settings(
                certificate_login="subject_alternative_name",
                certificate_login_san_type=kind,
                certificate_login_san_index=index,
            ),
        )
        assert found == (name, "" if name else "no name found")


def test_a_list_of_revoked_certificates_must_be_one(tmp_path: Path):
    authority = Authority(tmp_path, "authority")
    pair = authority.pair("server")

    def settings(crlfile: Path) -> TlsSettings:
        return TlsSettings(
            certfile=str(pair.certfile),
            keyfile=str(pair.keyfile),
            cacertfile=str(authority.certfile),
            is_verified=True,
            crl_check="peer",
            crlfile=str(crlfile),
        )

    context = tls_context("ssl_options", settings(authority.revoke(pair)))
    assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    for wrong, text in (
        (tmp_path / "none.crl", r"none\.crl \(ssl_options\.crlfile\) can't be read"),
        (authority.certfile, r"\(ssl_options\.crlfile\) can't be used \(there is no list in it\)"),
        (pair.keyfile, r"\(ssl_options\.crlfile\) can't be used"),
    ):
        with pytest.raises(TlsUnusable, match=text):
            tls_context("ssl_options", settings(wrong))
