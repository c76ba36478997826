"""The settings of TLS: what they become, and what does not fit together."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli.server import command
from broker.config import Listener, Settings, TlsSettings
from broker.configuration import sources
from broker.configuration.effective import effective
from broker.configuration.keys import ConfigError, Outcome, read_settings

FILES = "ssl_options.certfile = /c\nssl_options.keyfile = /k\nssl_options.cacertfile = /ca\n"
BASE = f"listeners.ssl.default = 5671\n{FILES}"


def outcome_of(text: str) -> Outcome:
    return read_settings(sources.parse(text, "rabbitmq.conf"))


def amqp_tls(text: str) -> TlsSettings:
    found = outcome_of(text).settings.amqp_tls
    assert found is not None
    return found


def test_without_a_word_of_it_there_is_no_tls():
    settings = outcome_of("").settings
    assert (settings.amqp_tls_listeners, settings.amqp_tls, settings.management_tls) == (
        (),
        None,
        None,
    )


def test_every_option_is_read():
    settings = outcome_of(
        BASE + "listeners.ssl.2 = 127.0.0.1:5673\nssl_options.password = hush\n"
        "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
        "ssl_options.depth = 2\nssl_options.honor_cipher_order = false\n"
        "ssl_options.honor_ecc_order = true\nssl_options.versions.1 = tlsv1.2\n"
        "ssl_options.ciphers.1 = ECDHE-RSA-AES256-GCM-SHA384\nssl_handshake_timeout = 9000\n"
        "auth_mechanisms.1 = EXTERNAL\nssl_cert_login_from = common_name\n"
    ).settings
    assert settings.amqp_tls_listeners == (Listener("", 5671), Listener("127.0.0.1", 5673))
    assert settings.amqp_tls == TlsSettings(
        certfile="/c",
        keyfile="/k",
        cacertfile="/ca",
        password="hush",
        is_verified=True,
        is_required=True,
        depth=2,
        honor_cipher_order=False,
        versions=("tlsv1.2",),
        ciphers=("ECDHE-RSA-AES256-GCM-SHA384",),
    )
    assert (settings.tls_handshake_timeout_ms, settings.certificate_login) == (9000, "common_name")
    assert settings.auth_mechanisms == ("EXTERNAL",)
    assert "hush" not in str(effective(settings))


def test_https_is_the_only_listener_of_the_api_unless_http_is_configured():
    text = "management.ssl.certfile = /c\nmanagement.ssl.ip = ::1\n"
    settings = outcome_of(text).settings
    assert settings.management_tls == TlsSettings(certfile="/c")
    assert settings.management_tls_listener == Listener("::1", 15671)
    assert settings.management_listener is None
    both = outcome_of(text + "management.tcp.port = 15672\n").settings
    assert both.management_listener == Listener("", 15672)


def test_metrics_have_tls_of_their_own_instead_of_http():
    settings = outcome_of("prometheus.ssl.certfile = /c\nprometheus.ssl.port = 25691\n").settings
    assert settings.metrics_tls == TlsSettings(certfile="/c")
    assert settings.metrics_tls_listener == Listener("", 25691)
    assert settings.metrics_listener is None
    both = outcome_of("prometheus.ssl.certfile = /c\nprometheus.tcp.port = 15692\n").settings
    assert both.metrics_tls_listener == Listener("", 15691)
    assert both.metrics_listener == Listener("", 15692)
    assert "https://localhost:15691/metrics" in both.urls()


def test_names_of_the_subject_alternative_name_are_chosen_by_type_and_index():
    settings = outcome_of(
        "ssl_cert_login_from = subject_alternative_name\nssl_cert_login_san_type = uri\n"
        "ssl_cert_login_san_index = 2\n"
    ).settings
    assert settings.certificate_login == "subject_alternative_name"
    assert settings.certificate_login_san_type == "uri"
    assert settings.certificate_login_san_index == 2


VERIFIED = BASE + "ssl_options.verify = verify_peer\n"


@pytest.mark.parametrize(("written", "read"), [("true", "true"), ("peer", "peer"), ("off", "")])
def test_lists_of_revoked_certificates_are_looked_at_as_crl_check_says(written: str, read: str):
    lists = "ssl_options.crlfile = /r\n" if read else ""
    tls = amqp_tls(f"{VERIFIED}{lists}ssl_options.crl_check = {written}")
    assert (tls.crl_check, tls.crlfile) == (read, "/r" if read else "")


def test_any_address_may_send_a_proxy_header_unless_proxies_are_named():
    settings, warnings = outcome_of("proxy_protocol = true")
    assert (settings.proxy_protocol, settings.proxy_trusted) == (True, ())
    (warning,) = warnings
    assert "any client may claim any address: name the proxies in" in warning
    named = "proxy_protocol.trusted_proxies"
    settings, warnings = outcome_of(
        f"proxy_protocol = true\n{named}.1 = 10.1.2.3/8\n{named}.2 = ::1\n"
    )
    assert (settings.proxy_trusted, warnings) == (("10.0.0.0/8", "::1/128"), [])
    (warning,) = outcome_of(f"{named}.1 = 10.0.0.1").warnings
    assert "has no effect without proxy_protocol = true" in warning


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listeners.ssl.default = 5671", "listeners.ssl.default = 5671 needs ssl_options.certfile"),
        (
            BASE + "ssl_options.fail_if_no_peer_cert = true",
            "needs ssl_options.verify =",
        ),
        (
            "ssl_options.certfile = /c\nssl_options.verify = verify_peer",
            "needs ssl_options.cacertfile",
        ),
        (BASE + "ssl_options.versions.1 = tlsv1.1", "must be one of tlsv1.2, tlsv1.3"),
        (BASE + "ssl_options.ciphers.1 = HIGH:!aNULL", "must be one name of a cipher suite"),
        (BASE + "ssl_options.ciphers.1 = TLS_AES_128_GCM_SHA256", "must list all three suites"),
        (
            BASE + "ssl_options.versions.1 = tlsv1.3\nssl_options.ciphers.1 = AES128-SHA",
            "has no suite of tlsv1.3",
        ),
        (BASE + "auth_mechanisms.1 = EXTERNAL", "EXTERNAL needs listeners.ssl.default and"),
        ("management.ssl.port = 15671", "needs management.ssl.certfile"),
        ("prometheus.ssl.port = 15691", "needs prometheus.ssl.certfile"),
        (VERIFIED + "ssl_options.crl_check = peer", "needs ssl_options.crlfile"),
        (VERIFIED + "ssl_options.crlfile = /r", "needs ssl_options.crl_check = peer"),
        (BASE + "ssl_options.crl_check = best_effort", "OpenSSL has no best_effort"),
        (
            BASE + "ssl_options.crlfile = /r\nssl_options.crl_check = true",
            "needs ssl_options.verify = verify_peer",
        ),
        ("proxy_protocol = true\nproxy_protocol.trusted_proxies.1 = lb", "a network such as"),
        (BASE + "ssl_handshake_timeout = 0", "must be an integer of at least 1"),
    ],
)
def test_what_does_not_fit_together_refuses_the_start(text: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        outcome_of(text)
    (told,) = caught.value.problems
    assert problem in told
    assert told.startswith("rabbitmq.conf:")


def test_cipher_suites_of_one_version_leave_only_that_version():
    assert amqp_tls(BASE + "ssl_options.ciphers.1 = AES128-SHA").versions == ("tlsv1.2",)
    suites = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
    newer = "".join(f"ssl_options.ciphers.{n} = {name}\n" for n, name in enumerate(suites))
    assert amqp_tls(BASE + newer).versions == ("tlsv1.3",)
    assert amqp_tls(BASE + newer).ciphers == ()


def test_options_without_a_listener_are_a_warning():
    assert [w.partition(": ")[2] for w in outcome_of(FILES).warnings] == [
        "ssl_options.certfile has no effect without listeners.ssl.default"
    ]
    (warning,) = outcome_of(BASE + "ssl_options.reuse_sessions = true").warnings
    assert "ssl_options.reuse_sessions is RabbitMQ's" in warning


def settings_of(environ: dict[str, str]) -> Settings:
    return sources.load(None, environ).settings


def test_variables_of_the_official_image_set_it_up():
    settings = settings_of(
        {
            "RABBITMQ_SSL_CERTFILE": "/c",
            "RABBITMQ_SSL_CACERTFILE": "/ca",
            "RABBITMQ_SSL_VERIFY": "verify_peer",
            "RABBITMQ_MANAGEMENT_SSL_CERTFILE": "/m",
        }
    )
    assert settings.amqp_tls_listeners == (Listener("", 5671),)
    assert settings.amqp_tls == TlsSettings(certfile="/c", cacertfile="/ca", is_verified=True)
    assert settings.management_tls_listener == Listener("", 15671)


def test_advanced_config_sets_it_up(tmp_path: Path):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("heartbeat = 5\n")
    (tmp_path / "advanced.config").write_text(
        '[{rabbit, [{ssl_listeners, [5671]}, {ssl_options, [{certfile, "/c"}, {keyfile, "/k"},'
        " {versions, ['tlsv1.3']}, {verify, verify_none}]}]}]."
    )
    settings = sources.load(str(conf)).settings
    assert settings.amqp_tls_listeners == (Listener("", 5671),)
    assert settings.amqp_tls == TlsSettings(certfile="/c", keyfile="/k", versions=("tlsv1.3",))


def test_check_reads_the_certificates(tmp_path: Path):
    arguments = [f"ssl_options.certfile={tmp_path / 'none.pem'}", "listeners.ssl.default=5671"]
    run = CliRunner().invoke(command, ["--check", *(f"--set={each}" for each in arguments)])
    assert run.exit_code == 78
    assert "none.pem (ssl_options.certfile) can't be read" in run.stderr
