"""Keys of RabbitMQ that promise safety and are not supported: they refuse the start. Pure.

A warning is not enough where an operator counts on a setting: encryption, who may log in, where a
port listens, what is limited, who is there at the first start. A value that asks for nothing, which
is RabbitMQ's default, is accepted. Every other key that RabbitMQ knows and WarrenMQ does not is a
warning (`broker.configuration.rabbitmq`).

Source: rabbit.schema and the plugins' schemas of RabbitMQ 3.10.8 and 3.13.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

_OFF = frozenset(("false", "off", "no"))
_ON = frozenset(("true", "on", "yes"))
_NONE = frozenset(("none",))
_INTERNAL = frozenset(("internal", "rabbit_auth_backend_internal"))
_LOCAL_FILES = frozenset(
    (
        "local",
        "local_filesystem",
        "rabbit_definitions_import_local_filesystem",
        "rabbitmq_definitions_import_local_filesystem",
    )
)
HTTPS_BACKENDS = frozenset(
    ("https", "http", "rabbit_definitions_import_https", "rabbitmq_definitions_import_https")
)
_NODES_LISTED = frozenset(
    ("classic", "classic_config", "config", "rabbit_peer_discovery_classic_config")
)
_NOTHING: frozenset[str] = frozenset()

_TLS_OPTION = "this option of TLS is not supported; remove it"
_TLS_FILES = "certificates and keys are read from files; write certfile, keyfile and cacertfile"
_OLD_LISTENER = "this old form is not supported; write management.ssl.port and management.ssl.*"
_LOGIN_FROM = frozenset(("distinguished_name", "common_name", "subject_alternative_name"))
_LOGIN = "names are not taken from there; write distinguished_name, common_name or"
_LOGIN += " subject_alternative_name"
_SAN = "names of this kind are not read; write dns, ip, email or uri"
_MECHANISMS = (
    "only PLAIN, AMQPLAIN and EXTERNAL are supported (ANONYMOUS is RabbitMQ 4's); remove it"
)
_DEFINITIONS = (
    "definitions are imported from local files and over HTTPS; write local_filesystem or https"
)
_UNVERIFIED = "the server's certificate is always checked; write definitions.tls.cacertfile"
_TOKENS = "logins with tokens are not supported; remove it, and use names and passwords"
_BASIC = "nobody could log in, for there are no tokens; write management.tcp.port = none instead"


class Verdict(Enum):
    """The promise of a RabbitMQ key."""

    NO_PROMISE = "promises no safety"
    NOTHING_ASKED = "promises safety elsewhere, and asks for none with this value"


class Refused(NamedTuple):
    """A promise that can't be kept.

    Attributes:
        advice: What is missing and what to do, without the key and the value.
    """

    advice: str


# Pattern of keys -> values that ask for nothing, and what to do about others. A `$` is one or more
# parts; the first pattern that matches counts.
_PROMISES: tuple[tuple[str, frozenset[str], str], ...] = (
    ("ssl_options", _NONE, _TLS_OPTION),
    *(
        (f"{family}.{name}", kept, advice)
        for family in ("ssl_options", "management.ssl", "prometheus.ssl")
        for name, kept, advice in (
            ("key.$", _NOTHING, _TLS_FILES),
            ("cert", _NOTHING, _TLS_FILES),
            ("cacerts.$", _NOTHING, _TLS_FILES),
            ("client_renegotiation", _OFF, _TLS_OPTION),
            ("secure_renegotiate", _ON, _TLS_OPTION),
            ("$", _NOTHING, _TLS_OPTION),
        )
    ),
    ("ssl_cert_login_from", _LOGIN_FROM, _LOGIN),
    ("ssl_cert_login_san_type", frozenset(("dns", "ip", "email", "uri")), _SAN),
    ("management.listener.ssl", _OFF, _OLD_LISTENER),
    ("management.listener.ssl_opts", _NONE, _OLD_LISTENER),
    ("management.listener.ssl_opts.$", _NOTHING, _OLD_LISTENER),
    (
        "auth_backends.$",
        _INTERNAL,
        "only the internal backend is supported; remove it, and make the users with"
        " 'warrenmq ctl add_user'",
    ),
    ("auth_mechanisms.$", frozenset(("PLAIN", "AMQPLAIN", "EXTERNAL")), _MECHANISMS),
    ("definitions.import_backend", _LOCAL_FILES | HTTPS_BACKENDS, _DEFINITIONS),
    *(
        (f"definitions.{family}.{name}", kept, advice)
        for family in ("tls", "ssl", "ssl_options")
        for name, kept, advice in (
            ("verify", frozenset(("verify_peer",)), _UNVERIFIED),
            ("$", _NOTHING, _TLS_OPTION),
        )
    ),
    (
        "cluster_formation.peer_discovery_backend",
        _NODES_LISTED,
        "only classic_config is supported; list the nodes in"
        " cluster_formation.classic_config.nodes.N or cluster.peers.NODE",
    ),
    ("management.disable_basic_auth", _OFF, _BASIC),
    ("management.oauth_enabled", _OFF, _TOKENS),
    ("management.enable_uaa", _OFF, _TOKENS),
    (
        "distribution.listener.interface",
        _NOTHING,
        "it has no effect on the port for other nodes; write cluster.listen = HOST:PORT",
    ),
)
_SPLIT = tuple((tuple(key.split(".")), kept, advice) for key, kept, advice in _PROMISES)

KEYS = tuple(key.removesuffix(".$") for key, _, _ in _PROMISES)
"""Keys and families that promise safety."""

TLS_OPTIONS = frozenset(
    (
        "cacertfile",
        "certfile",
        "crl_check",
        "crlfile",
        "depth",
        "fail_if_no_peer_cert",
        "honor_cipher_order",
        "honor_ecc_order",
        "keyfile",
        "password",
        "verify",
    )
)
"""Options that work in each family of keys of TLS, beside `versions` and `ciphers`."""

_WEB_FAMILIES = ("management.ssl.", "prometheus.ssl.")

CLIENT_TLS_OPTIONS = frozenset(("cacertfile", "certfile", "keyfile", "password"))
"""Options of TLS that work where this node is a client."""

_DEFINITIONS_TLS = ("definitions.tls.", "definitions.ssl.", "definitions.ssl_options.")

_TLS_FAMILIES = ("versions", "ciphers")
_TLS_WITHOUT_EFFECT = frozenset(
    (
        "backlog",
        "bypass_pem_cache",
        "compress",
        "hostname_verification",
        "idle_timeout",
        "inactivity_timeout",
        "log_alert",
        "log_level",
        "max_keepalive",
        "request_timeout",
        "reuse_session",
        "reuse_sessions",
        "shutdown_timeout",
        "sni",
    )
)
"""They promise nothing: caches, logs, what only clients look at, limits of HTTP (ours count)."""

_VARIABLES = ("RABBITMQ_SSL_", "RABBITMQ_MANAGEMENT_SSL_")
_ERLANG_ARGUMENTS = ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "RABBITMQ_SERVER_START_ARGS")
_ERLANG_PROMISES = ("inet_tls", "ssl_dist", "inet_dist_use_interface", "-rabbit")


def _is_read(key: str) -> bool:
    return key.startswith(_DEFINITIONS_TLS) and key.rpartition(".")[2] in CLIENT_TLS_OPTIONS


def verdict(key: str, value: str) -> Verdict | Refused:
    """Say whether a key promises what WarrenMQ does not keep.

    Args:
        key: A key of rabbitmq.conf, "auth_backends.1".
        value: As written.
    """
    if _is_tls_option(key) or _is_read(key):
        return Verdict.NO_PROMISE
    parts = tuple(key.split("."))
    for pattern, kept, advice in _SPLIT:
        if not _matches(pattern, parts):
            continue
        return Verdict.NOTHING_ASKED if value in kept else Refused(advice)
    return Verdict.NO_PROMISE


def _is_tls_option(key: str) -> bool:
    """True for a key of TLS that is read, or is a warning as others are."""
    if key.startswith("ssl_options."):
        option = key.removeprefix("ssl_options.")
    elif key.startswith(_WEB_FAMILIES):
        option = key.split(".", 2)[2]
        if option in ("port", "ip"):
            return True
    else:
        return False
    is_of_family = option.partition(".")[0] in _TLS_FAMILIES and "." in option
    return is_of_family or option in TLS_OPTIONS or option in _TLS_WITHOUT_EFFECT


def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    if pattern[-1] != "$":
        return parts == pattern
    fixed = pattern[:-1]
    return len(parts) > len(fixed) and parts[: len(fixed)] == fixed


def variable_verdict(name: str, value: str) -> Verdict | Refused:
    """Say the same of a variable of the environment.

    Args:
        name: "RABBITMQ_SSL_CERTFILE".
        value: Its value; "" asks for nothing.
    """
    if not value:
        return Verdict.NOTHING_ASKED
    if name.startswith(_VARIABLES) and name.rpartition("_SSL_")[2].lower() not in TLS_OPTIONS:
        return Refused(_TLS_OPTION)
    if name in _ERLANG_ARGUMENTS and any(word in value for word in _ERLANG_PROMISES):
        return Refused("there is no Erlang here to take arguments; write settings in rabbitmq.conf")
    return Verdict.NO_PROMISE
