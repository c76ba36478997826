"""TLS at the ports of a node: clients with and without certificates, and what is no TLS."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import ssl
import urllib.error
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aio_pika
import amqpstorm
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError

from broker.cli.ctl.commands import run
from tests.certificates import Authority, Pair, self_signed
from tests.nodes import wait_until
from tests.tls_place import HEADER, TlsPlace, connected, round_trip, shown, started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsPlace]:
    """Clients may have certificates that are not revoked; names come from the common name."""
    folder = tmp_path_factory.mktemp("tls")
    found = started(
        folder,
        "ssl_options.crl_check=peer",
        f"ssl_options.crlfile={folder / 'authority.crl'}",
        "auth_mechanisms.1=PLAIN",
        "auth_mechanisms.2=EXTERNAL",
        "ssl_cert_login_from=common_name",
        "ssl_handshake_timeout=1000",
    )
    try:
        yield found
    finally:
        found.node.end()


def test_pika_speaks_tls_without_a_certificate(place: TlsPlace) -> None:
    """Rows: 1.1 TLS"""
    with place.connect(client_properties={"connection_name": "bare"}) as connection:
        round_trip(connection, bytes(1_500_000))  # several records, and several reads
        item = shown(place, "bare")
        assert (item["ssl"], item["ssl_protocol"], item["port"]) == (True, "tlsv1.3", place.port)
        assert (item["ssl_key_exchange"], item["ssl_hash"]) == ("any", "aead")
        assert item["ssl_cipher"] in ("aes_256_gcm", "chacha20_poly1305", "aes_128_gcm")
        assert (item["peer_cert_subject"], item["peer_cert_validity"]) == (None, None)


def test_pika_speaks_tls_with_a_certificate_whose_subject_is_listed(place: TlsPlace) -> None:
    """Rows: 1.1 TLS"""
    pair = place.authority.pair("till-1")
    with place.connect(pair, client_properties={"connection_name": "till"}) as connection:
        round_trip(connection)
        item = shown(place, "till")
        assert item["peer_cert_subject"] == "CN=till-1,O=Shop"
        assert item["peer_cert_issuer"] == "CN=authority,O=Authorities"
        times = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
        assert re.fullmatch(f"{times} - {times}", item["peer_cert_validity"])
        assert item["auth_mechanism"] == "PLAIN"


def test_aio_pika_and_amqpstorm_speak_tls(place: TlsPlace) -> None:
    """Rows: 1.1 TLS"""
    pair = place.authority.pair("till-2")

    async def ask(context: ssl.SSLContext) -> bytes:
        connection = await aio_pika.connect(
            f"amqps://guest:guest@localhost:{place.port}/", ssl_context=context
        )
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"aio"), queue.name)
            message = await queue.get()
            await message.ack()
            return message.body

    for context in (place.authority.context(), place.authority.context(pair)):
        assert asyncio.run(ask(context)) == b"aio"
    # amqpstorm takes EXTERNAL wherever it is offered: the certificate has to name the user
    context = place.authority.context(place.authority.pair("guest"))
    options = {"context": context, "server_hostname": "localhost"}
    with amqpstorm.Connection(
        "127.0.0.1", "nobody", "nothing", port=place.port, ssl=True, ssl_options=options
    ) as connection:
        assert connection.channel().queue.declare("", exclusive=True)["queue"]


def test_tls_1_2_is_spoken_and_nothing_older_is(place: TlsPlace) -> None:
    context = place.authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        connected(place.port) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        assert encrypted.version() == "TLSv1.2"
        encrypted.sendall(HEADER)
        assert encrypted.recv(1) == b"\1"  # connection.start
    # a ClientHello of TLS 1.1, by hand, for our own OpenSSL may refuse to make one
    body = b"\x03\x02" + bytes(32) + b"\0" + b"\0\x02\xc0\x14" + b"\x01\0"
    hello = b"\x16\x03\x01" + (len(body) + 4).to_bytes(2) + b"\x01" + len(body).to_bytes(3) + body
    with connected(place.port) as plain:
        plain.sendall(hello)
        assert plain.recv(7)[:1] in (b"\x15", b"")  # an alert, or the end
    place.tells("TLS handshake failed: .*the client offers no version of TLS that the node accepts")


def test_external_logs_in_whom_the_certificate_names(place: TlsPlace) -> None:
    """Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"""
    place.node.api("PUT", "/users/till-3", {"password_hash": "", "tags": ""})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    place.node.api("PUT", "/permissions/%2F/till-3", rights)
    pair = place.authority.pair("till-3")
    external = ExternalCredentials()
    with place.connect(
        pair, credentials=external, client_properties={"connection_name": "external"}
    ) as connection:
        round_trip(connection)
        item = shown(place, "external")
        assert (item["user"], item["auth_mechanism"]) == ("till-3", "EXTERNAL")
    stranger = place.authority.pair("till-4")
    with pytest.raises(AMQPConnectionError, match="authentication mechanism EXTERNAL"):
        place.connect(stranger, credentials=external)
    place.tells("EXTERNAL login refused: user 'till-4' - user 'till-4' - invalid credentials")
    with pytest.raises(AMQPConnectionError, match="authentication mechanism EXTERNAL"):
        place.connect(credentials=external)


def test_external_is_not_offered_without_tls(place: TlsPlace) -> None:
    """Rows: 1.1 SASL PLAIN / AMQPLAIN / EXTERNAL / RABBIT-CR-DEMO"""
    with connected(place.node.amqp_port) as plain:
        plain.sendall(HEADER)
        start = plain.recv(4096)
        assert b"PLAIN" in start
        assert b"EXTERNAL" not in start


def test_the_overview_and_the_log_name_the_listeners(place: TlsPlace) -> None:
    found = {
        each["protocol"]: each["port"] for each in place.node.api("GET", "/overview")["listeners"]
    }
    assert (found["amqp"], found["amqp/ssl"]) == (place.node.amqp_port, place.port)
    assert (found["http"], found["https"]) == (place.node.management_port, place.https_port)
    for check in ("protocol-listener/" + quote("amqp/ssl", safe=""), f"port-listener/{place.port}"):
        assert place.node.api("GET", f"/health/checks/{check}")["status"] == "ok"
    place.tells(rf"started TLS \(SSL\) listener on 127\.0\.0\.1:{place.port}")


def https(place: TlsPlace, context: ssl.SSLContext) -> dict[str, Any]:
    with closing(
        http.client.HTTPSConnection("localhost", place.https_port, timeout=15, context=context)
    ) as asked:
        asked.request("GET", "/api/whoami", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        return json.loads(asked.getresponse().read())


def test_the_http_api_speaks_https(place: TlsPlace) -> None:
    assert https(place, place.authority.context())["name"] == "guest"


def test_metrics_are_read_over_https_and_not_over_http(place: TlsPlace) -> None:
    with closing(
        http.client.HTTPSConnection(
            "localhost", place.metrics_port, timeout=15, context=place.authority.context()
        )
    ) as asked:
        asked.request("GET", "/metrics")
        assert b"rabbitmq_connections " in asked.getresponse().read()
    with closing(http.client.HTTPConnection("localhost", place.metrics_port, timeout=15)) as asked:
        asked.request("GET", "/metrics")
        with pytest.raises((OSError, http.client.HTTPException)):
            asked.getresponse()
    place.tells(rf"Prometheus metrics: HTTPS listener started on port {place.metrics_port}")
    place.tells("TLS handshake failed: .*the client speaks HTTP without TLS: use https://")


Said = pytest.CaptureFixture[str]


def ctl(place: TlsPlace, said: Said, *words: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{place.node.management_port}"
    return run(["--url", url, *words], {}), "".join(said.readouterr())


def test_certificates_that_run_out_fail_the_check_in_time(place: TlsPlace, capsys: Said) -> None:
    check = "/health/checks/certificate-expiration"
    assert place.node.api("GET", f"{check}/4/weeks") == {"status": "ok"}
    assert ctl(place, capsys, "check_certificate_expiration") == (
        0,
        f"Checking certificate expiration on node http://127.0.0.1:{place.node.management_port}"
        " ...\nNo certificates are expiring within 4 weeks.\n",
    )
    code, text = ctl(place, capsys, "check_certificate_expiration", "--unit", "years", "--within=1")
    assert code == 69
    assert "Certificates are expiring within 1 year:" in text
    for protocol, port in (
        ("amqp/ssl", place.port),
        ("https", place.https_port),
        ("https/prometheus", place.metrics_port),
    ):
        place_of = f"Interface: 127.0.0.1, port: {port}, protocol: {protocol}"
        assert f"{place_of}: certfile {place.server.certfile}: 20" in text
    more = ["--within", "2", "--unit", "months", "--formatter", "json"]
    code, text = ctl(place, capsys, "check_certificate_expiration", *more)
    found = json.loads(text)
    assert (code, found["result"], len(found["expired"])) == (69, "error", 3)
    assert {each["certfile"] for each in found["expired"]} == {str(place.server.certfile)}
    assert all(each["certfile_expires_on"] for each in found["expired"])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("4/fortnights", "Supported units: days, weeks, months, years."),
        ("x/days", "Invalid expiration value."),
        ("9999999999/years", "Invalid expiration value."),
    ],
)
def test_an_expiration_that_is_none_is_refused(place: TlsPlace, path: str, reason: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        place.node.api("GET", f"/health/checks/certificate-expiration/{path}")
    with caught.value as answer:
        assert answer.code == 400
        assert json.loads(answer.read())["reason"].endswith(reason)


def test_certificates_versions_and_cipher_suites_are_shown(place: TlsPlace, capsys: Said) -> None:
    code, text = ctl(place, capsys, "certificates")
    assert code == 0
    assert f"port: {place.port}, protocol: amqp/ssl\ncertfile:\n-----BEGIN CERTIFICATE" in text
    assert text.count("PRIVATE KEY") == 0
    shown = json.loads(ctl(place, capsys, "certificates", "--formatter", "json")[1])
    (amqp,) = [each for each in shown["certificates"] if each["port"] == place.port]
    assert amqp["certfile"].strip() == place.server.certfile.read_text().strip()
    assert ctl(place, capsys, "-q", "tls_versions") == (0, "tlsv1.3\ntlsv1.2\n")
    versions = json.loads(ctl(place, capsys, "tls_versions", "--formatter", "json")[1])
    assert versions["versions"] == ["tlsv1.3", "tlsv1.2"]
    code, text = ctl(place, capsys, "-q", "cipher_suites", "--format", "openssl")
    names = text.split()
    assert "TLS_AES_256_GCM_SHA384" in names
    every = ctl(place, capsys, "-q", "cipher_suites", "--format=openssl", "--all")[1].split()
    assert set(names) < set(every)
    assert '["TLS_' in ctl(place, capsys, "cipher_suites")[1]
    assert "cipher => aes_256_gcm" in ctl(place, capsys, "cipher_suites", "--format", "map")[1]
    assert ctl(place, capsys, "cipher_suites", "--format", "xml")[0] == 64
    assert ctl(place, capsys, "check_certificate_expiration", "--unit", "hours")[0] == 64


def refused(place: TlsPlace, pair: Pair | None) -> None:
    """The client hears an alert: in TLS 1.3 with its first read."""
    context = place.authority.context(pair)
    with connected(place.port) as plain:
        encrypted = context.wrap_socket(plain, server_hostname="localhost")
        with closing(encrypted), pytest.raises(ssl.SSLError, match="alert"):
            encrypted.recv(100)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("expired", "certificate has expired"),
        ("self-signed", "self-signed certificate"),
        ("wrong authority", "unable to get local issuer certificate"),
    ],
)
def test_bad_client_certificates_are_one_line_each(
    place: TlsPlace, tmp_path: Path, kind: str, line: str
) -> None:
    """Rows: 1.1 TLS"""
    if kind == "expired":
        pair = place.authority.pair("late", days=(-3, -1))
    elif kind == "self-signed":
        pair = self_signed(tmp_path, "alone")
    else:
        pair = Authority(tmp_path, "another").pair("foreign")
    with place.connect() as other:
        refused(place, pair)
        place.tells(f"TLS handshake failed: .*{line}")
        round_trip(other)
    place.serves()


def test_a_revoked_certificate_is_one_line_as_soon_as_the_list_is_there(place: TlsPlace) -> None:
    """Rows: 1.1 TLS"""
    good, lost = place.authority.pair("good"), place.authority.pair("lost")
    with place.connect(lost) as early:
        crlfile = place.authority.revoke(lost)
        told = rf"TLS certificates reloaded: .*{crlfile.name}"
        wait_until(lambda: bool(place.lines(told)), "the list is read", 20)
        refused(place, lost)
        place.tells("TLS handshake failed: .*certificate revoked.*crlfile lists this one")
        round_trip(early)  # connections go on with what they began with
    with place.connect(good) as other:
        round_trip(other)
    place.serves()


def test_a_client_that_expects_another_host_is_one_line(place: TlsPlace) -> None:
    context = place.authority.context()
    with connected(place.port) as plain, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(plain, server_hostname="another.example")
    place.tells("TLS handshake failed: .*does not accept the node's certificate: look at its name")
    place.serves()


def test_what_is_no_tls_is_one_line(place: TlsPlace) -> None:
    with connected(place.port) as plain:
        plain.sendall(HEADER)
        assert plain.recv(100)[:4] != b"AMQP"
    place.tells("TLS handshake failed: .*the client does not speak TLS")
    context = place.authority.context()
    with connected(place.node.amqp_port) as plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")
    place.tells("TLS handshake on a listener without TLS")
    place.serves()


def test_a_proxy_header_where_none_is_expected_is_one_line(place: TlsPlace) -> None:
    line = b"PROXY TCP4 192.0.2.7 192.0.2.1 40000 5672\r\n"
    for header in (line, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"):
        with connected(place.node.amqp_port) as plain:
            plain.sendall(header + HEADER)
            assert plain.recv(100) == HEADER
            own = f"{plain.getsockname()[0]}:"
        place.tells(rf"{own}.*PROXY header on a listener without proxy_protocol = true")
    with connected(place.port) as plain:
        plain.sendall(line)
        assert plain.recv(100)[:4] != b"AMQP"
        own = f"{plain.getsockname()[0]}:"
    place.tells(rf"TLS handshake failed: {own}.*the client does not speak TLS")
    place.serves()


def test_half_a_handshake_ends_at_its_deadline(place: TlsPlace) -> None:
    with place.connect() as other:
        with connected(place.port) as plain:
            plain.sendall(b"\x16\x03\x01\x02\x00\x01")  # a ClientHello that goes on
            assert plain.recv(100) == b""
        place.tells(r"TLS handshake failed: .*not done within 1 s \(ssl_handshake_timeout\)")
        round_trip(other)
    with connected(place.port) as plain:
        assert plain.recv(100) == b""  # says nothing: no line, as for port scans
    assert len(place.lines("not done within 1 s")) == 1


def test_no_place_at_the_door_is_left_taken(place: TlsPlace) -> None:
    def taken() -> int:
        return int(place.node.api("GET", "/nodes")[0]["doors"]["handshakes"]["connections"])

    with connected(place.port):
        wait_until(lambda: taken() == 1, "a stranger has a place", 15)
    wait_until(lambda: taken() == 0, "and leaves it", 15)


def test_certificates_are_reloaded_when_their_files_change(place: TlsPlace, tmp_path: Path) -> None:
    other = Authority(tmp_path, "next")

    old = (place.server.certfile.read_bytes(), place.server.keyfile.read_bytes())
    with place.connect() as stays:
        assert place.issuer(other) == "authority"
        try:
            place.server.keyfile.write_bytes(b"-----BEGIN NONSENSE-----\n")
            wait_until(lambda: bool(place.lines("not reloaded.*ssl_options.keyfile")), "told", 20)
            assert place.issuer(other) == "authority"  # the old one stays in use
            assert len(place.lines("not reloaded.*ssl_options")) == 1
            pair = other.pair("server")
            shutil.copy(pair.certfile, place.server.certfile)
            shutil.copy(pair.keyfile, place.server.keyfile)
            wait_until(lambda: place.issuer(other) == "next", "new handshakes have the new one", 20)
            round_trip(stays)  # nobody was disconnected
        finally:
            place.server.certfile.write_bytes(old[0])
            place.server.keyfile.write_bytes(old[1])
        wait_until(lambda: place.issuer(other) == "authority", "and the old one again", 20)
        round_trip(stays)


def test_only_clients_with_a_certificate_of_the_authority_get_in(tmp_path: Path) -> None:
    """Names come from the whole subject; the key is encrypted; no port is without TLS."""
    place = started(
        tmp_path,
        "listeners.tcp=none",
        "ssl_options.fail_if_no_peer_cert=true",
        "ssl_options.depth=0",
        "ssl_options.versions.1=tlsv1.2",
        "ssl_options.ciphers.1=ECDHE-ECDSA-AES256-GCM-SHA384",
        "auth_mechanisms.1=EXTERNAL",
        f"management.ssl.cacertfile={tmp_path / 'authority.pem'}",
        "management.ssl.verify=verify_peer",
        "management.ssl.fail_if_no_peer_cert=true",
    )
    try:
        place.node.api(
            "PUT", f"/users/{quote('CN=till,O=Shop')}", {"password_hash": "", "tags": ""}
        )
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        user = quote("CN=till,O=Shop")
        place.node.api("PUT", f"/permissions/%2F/{user}", rights)
        pair = place.authority.pair("till")
        more = {"client_properties": {"connection_name": "till"}}
        with place.connect(pair, credentials=ExternalCredentials(), **more) as connection:
            round_trip(connection)
            item = shown(place, "till")
            assert (item["user"], item["ssl_protocol"]) == ("CN=till,O=Shop", "tlsv1.2")
            suite = (item["ssl_key_exchange"], item["ssl_cipher"], item["ssl_hash"])
            assert suite == ("ecdhe_ecdsa", "aes_256_gcm", "aead")
        with pytest.raises((AMQPConnectionError, ssl.SSLError)):
            place.connect()
        place.tells("TLS handshake failed: .*the client has sent no certificate")
        middle = Authority(tmp_path, "middle", place.authority)
        deep = middle.pair("deep", followed_by=middle)
        context = place.authority.context(deep)
        # closed with the end of its handshake: the client hears that with it or right after
        with connected(place.port) as plain, suppress(ssl.SSLError):
            encrypted = context.wrap_socket(plain, server_hostname="localhost")
            with closing(encrypted):
                assert encrypted.recv(1) == b""
        place.tells("TLS handshake failed: .*longer than depth = 0")
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on who is quicker
            https(place, place.authority.context())
        assert https(place, place.authority.context(pair))["name"] == "guest"
    finally:
        place.node.end()
