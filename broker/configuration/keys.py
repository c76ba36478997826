"""The meaning of each configuration key: from `key = value` entries to `Settings`. Pure.

Entries come in order of precedence, the last one for a key wins (`broker.configuration.sources`
orders file, environment and --set). Every complaint names where its entry came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from broker.config import (
    ClientTlsSettings,
    LinkTlsSettings,
    Listener,
    Origin,
    Peer,
    Settings,
    TlsSettings,
    full_node_name,
)
from broker.configuration import logs, rabbitmq, readers, safety, vhost_defaults
from broker.configuration.tls import LINKS, chosen_suites, cipher, crl_check, network
from broker.passwords import PasswordRule, may_have_password

DEFAULT_PEER_PORT = 25_672


class ConfigError(Exception):
    """A configuration that can't be used.

    Attributes:
        problems: All that is wrong, at least one; each names file and line and what to do.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Entry(NamedTuple):
    """One configured value.

    Attributes:
        key: Dotted key, "listeners.tcp.default".
        value: The text as written, quotes removed and variables filled in.
        source: Where it stands: "rabbitmq.conf:12", "RABBITMQ_NODE_PORT", "--set".
    """

    key: str
    value: str
    source: str


class Outcome(NamedTuple):
    """The result of a set of entries.

    Attributes:
        settings: The settings.
        warnings: One sentence for each key that has no effect or another one than written.
    """

    settings: Settings
    warnings: list[str]


# key of the management plugin -> HTTP header
HEADERS = {
    "management.csp.policy": "Content-Security-Policy",
    "management.hsts.policy": "Strict-Transport-Security",
    "management.headers.content_type_options": "X-Content-Type-Options",
    "management.headers.xss_protection": "X-XSS-Protection",
    "management.headers.frame_options": "X-Frame-Options",
}
_HASHES = {
    "sha": "sha1",
    "sha224": "sha224",
    "sha256": "sha256",
    "sha384": "sha384",
    "sha512": "sha512",
}
_hash = readers.one_of(*_HASHES)
DEFINITIONS = (
    "load_definitions",
    "definitions.local.path",
    "definitions.local_path",  # of advanced.config
    "management.load_definitions",
)
DEFINITIONS_URL = ("definitions.https.url", "definitions.url")  # the last of advanced.config
_LOCATOR = readers.one_of("client-local", "balanced", "min-masters", "random")
_REPAIR = "quorum_queue.continuous_membership_reconciliation"
DAY_MS = 86_400_000

# key -> (field of Settings, reader)
SIMPLE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "node.name": ("node_name", full_node_name),
    "data_dir": ("data_dir", str),
    "pid_file": ("pid_file", str),
    "management.tcp.max_connections": ("management_connections_max", readers.limit),
    "management.path_prefix": ("management_path_prefix", readers.path_prefix),
    "management.login_session_timeout": ("management_session_timeout_min", readers.positive),
    "management.http.max_body_size": ("management_max_body_bytes", readers.natural),
    "management.restrictions.operator_policy_changes.disabled": (
        "management_denies_operator_policies",
        readers.flag,
    ),
    "management.restrictions.quorum_queue_replica_operations.disabled": (
        "management_denies_replica_operations",
        readers.flag,
    ),
    "management.cors.max_age": ("management_cors_max_age_s", readers.natural),
    "cluster.listen": ("cluster_listener", readers.listener),
    "cluster.secret": ("cluster_secret", str),
    "cluster.disconnect_after": ("cluster_disconnect_after_ms", readers.natural),
    "cluster.formation_timeout": ("cluster_formation_timeout_ms", readers.natural),
    "cluster_name": ("cluster_name", str),
    "heartbeat": ("heartbeat_s", readers.natural),
    "frame_max": ("frame_max_bytes", readers.binary_size),
    "initial_frame_max": ("initial_frame_max_bytes", readers.binary_size),
    "channel_max": ("channel_max", readers.natural),
    "channel_max_per_node": ("channel_max_per_node", lambda text: readers.unlimited(text) or 0),
    "consumer_max_per_channel": ("consumer_max_per_channel", readers.unlimited),
    "cluster_queue_limit": ("cluster_queue_limit", readers.limit),
    "cluster_exchange_limit": ("cluster_exchange_limit", readers.limit),
    "vhost_max": ("vhost_max", readers.limit),
    "ranch_connection_max": ("accept_max", readers.limit),
    "prometheus.authentication.enabled": ("metrics_authentication", readers.flag),
    "connection_max": ("connection_max", readers.unlimited),
    "max_message_size": ("max_message_size_bytes", readers.size_bytes),
    "handshake_timeout": (
        "handshake_timeout_ms",
        lambda text: DAY_MS if text == "infinity" else readers.natural(text),
    ),
    "ssl_handshake_timeout": (
        "tls_handshake_timeout_ms",
        lambda text: readers.limit(text) or DAY_MS,
    ),
    "ssl_cert_login_from": ("certificate_login", str),
    "ssl_cert_login_san_type": ("certificate_login_san_type", str),
    "ssl_cert_login_san_index": ("certificate_login_san_index", readers.natural),
    "proxy_protocol": ("proxy_protocol", readers.flag),
    "consumer_timeout": ("consumer_timeout_ms", readers.unlimited),
    "tcp_listen_options.backlog": ("tcp_backlog", readers.natural),
    "event_exchange.vhost": ("events_vhost", str),
    "collect_statistics_interval": ("statistics_interval_ms", readers.interval),
    "prometheus.return_per_object_metrics": ("metrics_per_object", readers.flag),
    "prometheus.warrenmq_queues_max": ("metrics_queues_max", readers.natural),
    "tcp_listen_options.nodelay": ("tcp_nodelay", readers.flag),
    "tcp_listen_options.keepalive": ("tcp_keepalive", readers.flag),
    "tcp_listen_options.sndbuf": ("tcp_send_buffer_bytes", readers.size_bytes),
    "tcp_listen_options.recbuf": ("tcp_receive_buffer_bytes", readers.size_bytes),
    "default_user": ("default_user", str),
    "default_pass": ("default_password", str),
    "default_vhost": ("default_vhost", str),
    "password_hashing_module": ("password_hashing", readers.password_hashing),
    "credential_validator.validation_backend": ("password_rule", readers.password_rule),
    "credential_validator.min_length": ("password_length_min", readers.natural),
    "credential_validator.regexp": ("password_regexp", readers.pattern),
    "definitions.skip_if_unchanged": ("definitions_skip_if_unchanged", readers.flag),
    "definitions.hashing.algorithm": ("definitions_hashing", lambda text: _HASHES[_hash(text)]),
    "default_queue_type": ("default_queue_type", readers.queue_type),
    "classic_queue.default_version": (
        "classic_queue_default_version",
        lambda text: int(readers.one_of("1", "2")(text)),
    ),
    "queue_leader_locator": ("queue_leader_locator", _LOCATOR),
    "queue_master_locator": ("queue_leader_locator", _LOCATOR),
    "quorum_cluster_size": ("quorum_initial_group_size", readers.natural),
    f"{_REPAIR}.enabled": ("quorum_repair_enabled", readers.flag),
    f"{_REPAIR}.auto_remove": ("quorum_repair_auto_remove", readers.flag),
    f"{_REPAIR}.replace_after": ("quorum_repair_replace_after_ms", readers.natural),
    f"{_REPAIR}.interval": ("quorum_repair_interval_ms", readers.natural),
    f"{_REPAIR}.trigger_interval": ("quorum_repair_trigger_interval_ms", readers.natural),
    f"{_REPAIR}.target_group_size": ("quorum_target_group_size", readers.natural),
    "compat.quorum_global_qos": ("quorum_global_qos", readers.flag),
    "vm_memory_high_watermark.relative": ("vm_memory_high_watermark", readers.ratio),
    "vm_memory_high_watermark.absolute": ("vm_memory_high_watermark_bytes", readers.size_bytes),
    "vm_memory_high_watermark_paging_ratio": (
        "vm_memory_high_watermark_paging_ratio",
        readers.fraction,
    ),
    "total_memory_available_override_value": ("total_memory_available_bytes", readers.size_bytes),
    "disk_free_limit.absolute": ("disk_free_limit_bytes", readers.size_bytes),
    "disk_free_limit.relative": ("disk_free_limit_relative", readers.ratio),
    "compat.product": ("compat_product", str),
    "compat.version": ("compat_version", str),
}
# Keys of which only one value means anything here -> (reader, that value, how it is written)
_FIXED: dict[str, tuple[Callable[[str], Any], Any, str]] = {
    "cluster_partition_handling": (
        readers.one_of("ignore", "pause_minority", "autoheal", "pause_if_all_down"),
        "pause_minority",
        "pause_minority",
    ),
    "memory_monitor_interval": (readers.natural, 2_500, "2500"),
    "queue_index_embed_msgs_below": (readers.binary_size, 4_096, "4096"),
    "vm_memory_calculation_strategy": (
        readers.one_of("rss", "erlang", "allocated", "legacy"),
        "rss",
        "rss",
    ),
}
_MECHANISMS = "auth_mechanisms."
_PROXIES = "proxy_protocol.trusted_proxies."
_ALSO_READ = (_MECHANISMS, "ssl_cert_login_")
"""Keys whose accepted values are settings, not only requests for nothing."""

_VERIFY = readers.one_of("verify_none", "verify_peer")
TLS_PREFIXES = ("ssl_options", "management.ssl", "prometheus.ssl")
TLS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "certfile": ("certfile", str),
    "keyfile": ("keyfile", str),
    "password": ("password", str),
    "cacertfile": ("cacertfile", str),
    "verify": ("is_verified", lambda text: _VERIFY(text) == "verify_peer"),
    "fail_if_no_peer_cert": ("is_required", readers.flag),
    "depth": ("depth", readers.natural),
    "honor_cipher_order": ("honor_cipher_order", readers.flag),
    "honor_ecc_order": ("honor_ecc_order", readers.flag),
    "crl_check": ("crl_check", crl_check),
    "crlfile": ("crlfile", str),
}
# keys of TLS at an HTTP port -> (its default port, field of Settings, keys of HTTP without TLS)
_WEB_TLS: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "management.ssl": (15_671, "management", ("management.tcp.", "management.listener.")),
    "prometheus.ssl": (15_691, "metrics", ("prometheus.tcp.",)),
}
_TLS_VERSION = readers.one_of("tlsv1.2", "tlsv1.3")
_LIMITS = ("vm_memory_high_watermark", "disk_free_limit")
# Keys this module reads that are not in SIMPLE, for "nearest known key".
_GROUPED = (
    "cluster.peers.",
    *(f"cluster.tls.{name}" for name in LINKS),
    "cluster.secret_file",
    *logs.KEYS,
    "loopback_users",
    *DEFINITIONS,
    *DEFINITIONS_URL,
    *(f"definitions.tls.{name}" for name in sorted(safety.CLIENT_TLS_OPTIONS)),
    "listeners.tcp.default",
    "listeners.ssl.default",
    *(f"{family}.{name}" for family in TLS_PREFIXES for name in TLS),
    _PROXIES,
    "management.ssl.port",
    "management.ssl.ip",
    "management.tcp.port",
    "management.tcp.ip",
    "management.cors.allow_origins",
    "management.listener.port",
    "management.listener.ip",
    *HEADERS,
    "prometheus.tcp.port",
    "prometheus.tcp.ip",
    "prometheus.ssl.port",
    "prometheus.ssl.ip",
    *safety.KEYS,
    *(f"{family}1.{name}" for family, names in vhost_defaults.OPTIONS.items() for name in names),
    "default_permissions.configure",
    "default_permissions.read",
    "default_permissions.write",
)
OUR_KEYS = (*SIMPLE, *_FIXED, *_GROUPED)
_SECRET = re.compile(r"(^|[._])(secret|pass|password|key|cookie)($|\.)|(^|\.)key\.")
_UNUSABLE = object()
"""What stands for a value that does not fit, until all problems are found."""


def is_secret(key: str) -> bool:
    """True if a key's value must not be shown to anybody.

    Args:
        key: A key of rabbitmq.conf, "ssl_options.password".
    """
    return _SECRET.search(key) is not None


def read_settings(entries: Iterable[Entry], node_name: str = "rabbit@localhost") -> Outcome:
    """Turn entries into settings.

    Args:
        entries: In order of precedence; of several for one key the last counts.
        node_name: Name of the node where no entry names it.

    Returns:
        The settings and what to warn of.

    Raises:
        ConfigError: Unknown keys, values that do not fit, promises that can't be kept; each with
            its source, and the nearest key.
    """
    by_key: dict[str, Entry] = {}
    for entry in entries:
        by_key.pop(entry.key, None)  # the last one wins and stands where it was said
        by_key[entry.key] = entry
    reader = _Reader(by_key, node_name)
    return Outcome(reader.settings(), reader.warnings)


class _Reader:
    """One pass over the entries: each key is taken by exactly one group."""

    def __init__(self, entries: dict[str, Entry], node_name: str) -> None:
        self.entries = entries
        self.left = dict(entries)
        self.taken: set[Entry] = set()
        self.warnings: list[str] = []
        self.problems: list[str] = []
        self.values: dict[str, Any] = {"node_name": node_name}

    def settings(self) -> Settings:
        self._promises()
        self._one_limit_each()
        for key in list(self.left):
            if key in SIMPLE:
                field, read = SIMPLE[key]
                self.values[field] = self.take(key, read)
            elif key in _FIXED:
                self._fixed(key)
        given = [key for key in self.left if key in logs.KEYS]
        self.values["log"] = logs.read(given, self.take)
        self._listeners()
        self._tls()
        self._proxies()
        self._management()
        self._users()
        keys = [key for key in self.left if vhost_defaults.is_one(key)]
        self.values["vhost_defaults"] = vhost_defaults.read(keys, self.take)
        self._definitions()
        self._cluster()
        self._complain()
        if self.problems:
            raise ConfigError(*self.problems)
        origins = (Origin(*entry[::2]) for entry in self.entries.values() if entry in self.taken)
        return Settings(**self.values, origins=tuple(origins))

    def take(self, key: str, read: Callable[[str], Any]) -> Any:
        """Read and remove one entry; `_UNUSABLE`, and a problem more, if its value does not fit."""
        entry = self.left.pop(key)
        self.taken.add(entry)
        try:
            return read(entry.value)
        except ValueError as error:
            is_hidden = is_secret(key) or key in DEFINITIONS_URL
            shown = "" if is_hidden else f", found {entry.value!r}"
            self.problems.append(f"{entry.source}: {key} must be {error}{shown}")
            return _UNUSABLE

    def family(self, prefix: str) -> list[str]:
        """Keys that begin with `prefix`, `prefix.2` before `prefix.10`."""
        keys = [key for key in self.left if key.startswith(prefix)]
        return sorted(keys, key=lambda key: (_order(key.removeprefix(prefix)), key))

    def _family_or_none(self, name: str) -> tuple[bool, list[str]]:
        """Whether a family is `none` as a whole, which wins as in rabbit.schema; else its keys."""
        keys = self.family(f"{name}.")
        if name not in self.left:
            return False, keys
        self.take(name, readers.one_of("none"))
        for key in keys:
            self.warn(self.left.pop(key), f"{key} has no effect beside {name} = none")
        return True, []

    def warn(self, entry: Entry, text: str) -> None:
        self.warnings.append(f"{entry.source}: {text}")

    def _promises(self) -> None:
        """Refuse keys that promise safety and are not supported; forget those that ask for none."""
        for key, entry in list(self.left.items()):
            found = safety.verdict(key, entry.value)
            if isinstance(found, safety.Refused):
                del self.left[key]
                self.problems.append(f"{entry.source}: {key} is refused: {found.advice}")
            elif found is safety.Verdict.NOTHING_ASKED and not key.startswith(_ALSO_READ):
                del self.left[key]

    def _one_limit_each(self) -> None:
        """Keep one of two forms of a limit: the later source's; in one source the absolute one."""
        order = list(self.left)
        for name in _LIMITS:
            absolute, relative = f"{name}.absolute", f"{name}.relative"
            if absolute not in self.left or relative not in self.left:
                continue
            sources = [self.left[key].source.partition(":")[0] for key in (absolute, relative)]
            if sources[0] == sources[1]:
                text = f"both {absolute} and {relative} are configured: {absolute} counts"
                self.warn(self.left.pop(relative), text)
            else:
                del self.left[min(absolute, relative, key=order.index)]

    def _fixed(self, key: str) -> None:
        entry = self.left[key]
        read, ours, shown = _FIXED[key]
        if self.take(key, read) != ours:
            self.taken.discard(entry)
            self.warn(entry, f"{key} = {entry.value} acts as {shown}")

    def _listeners(self) -> None:
        is_none, keys = self._family_or_none("listeners.tcp")
        if is_none or keys:
            found = [self.take(key, readers.listener) for key in keys]
            self.values["amqp_listeners"] = tuple(dict.fromkeys(found))
        for part in ("ip", "port"):  # how the listener was written before RabbitMQ 3.7.9
            old = f"management.listener.{part}"
            if old in self.left:
                entry = self.left.pop(old)
                self.left.setdefault(f"management.tcp.{part}", entry)
        for prefix, field in (
            ("management.tcp", "management_listener"),
            ("prometheus.tcp", "metrics_listener"),
        ):
            at: Listener | None = getattr(Settings(), field)
            host = self.take(f"{prefix}.ip", str) if f"{prefix}.ip" in self.left else ""
            if f"{prefix}.port" in self.left:
                port = self.take(
                    f"{prefix}.port", lambda t: None if t == "none" else readers.port(t)
                )
                at = None if port is None else Listener(host, port)
            elif at is not None:
                at = Listener(host, at.port)
            self.values[field] = at

    def _tls(self) -> None:
        """Read `listeners.ssl.*`, `ssl_options.*`, and TLS of HTTP ports."""
        _, keys = self._family_or_none("listeners.ssl")
        first = self.left[keys[0]] if keys else None
        found = [self.take(key, readers.listener) for key in keys]
        self.values["amqp_tls_listeners"] = tuple(dict.fromkeys(found))
        self.values["amqp_tls"] = tls = self._tls_options("ssl_options", first)
        external = [key for key in self.family(_MECHANISMS) if self.left[key].value == "EXTERNAL"]
        if external and not (keys and tls is not None and tls.is_verified):
            self._needs(
                self.left[external[0]], "listeners.ssl.default and ssl_options.verify = verify_peer"
            )
        for prefix in _WEB_TLS:
            self._web_tls(prefix)

    def _web_tls(self, prefix: str) -> None:
        """Read the keys of TLS of one HTTP port, which replaces HTTP unless that is configured."""
        port, field, plain = _WEB_TLS[prefix]
        keys = self.family(f"{prefix}.")
        if not keys:
            return
        first, host = self.left[keys[0]], ""
        if f"{prefix}.port" in self.left:
            port = self.take(f"{prefix}.port", readers.port)
        if f"{prefix}.ip" in self.left:
            host = self.take(f"{prefix}.ip", str)
        self.values[f"{field}_tls"] = self._tls_options(prefix, first)
        self.values[f"{field}_tls_listener"] = Listener(host, port)
        if not any(key.startswith(plain) for key in self.entries):
            self.values[f"{field}_listener"] = None

    def _proxies(self) -> None:
        """Read who may send a header of the PROXY protocol."""
        is_on = bool(self.values.get("proxy_protocol"))
        keys = self.family(_PROXIES)
        if keys and not is_on:
            text = f"{keys[0]} has no effect without proxy_protocol = true"
            self.warn(self.left[keys[0]], text)
        elif is_on and not keys:
            text = "any client may claim any address: name the proxies in " + _PROXIES + "N"
            self.warn(self.entries["proxy_protocol"], f"proxy_protocol = true: {text}")
        self.values["proxy_trusted"] = tuple(self.take(key, network) for key in keys)

    def _tls_options(self, prefix: str, asked_by: Entry | None) -> TlsSettings | None:
        """Read one family of options of TLS.

        Args:
            prefix: "ssl_options".
            asked_by: An entry that needs a certificate; None: there is no listener.
        """
        keys = [key for key in self.left if key.startswith(f"{prefix}.")]
        entries = {key.removeprefix(f"{prefix}."): self.left[key] for key in keys}
        known = {name for name in entries if name in safety.TLS_OPTIONS}
        values = {
            TLS[name][0]: self.take(f"{prefix}.{name}", TLS[name][1]) for name in sorted(known)
        }
        values.pop("honor_ecc_order", None)  # OpenSSL has one option for both orders
        versions = self._listed(f"{prefix}.versions.", _TLS_VERSION)
        ciphers = self._listed(f"{prefix}.ciphers.", cipher)
        if not (values or versions or ciphers) and asked_by is None:
            return None
        if "certfile" not in values:
            needs = asked_by or next(iter(entries.values()))
            self._needs(needs, f"{prefix}.certfile and {prefix}.keyfile")
            return None
        if values.get("is_verified") and "cacertfile" not in values:
            self._needs(entries["verify"], f"{prefix}.cacertfile")
        if values.get("is_required") and not values.get("is_verified"):
            self._needs(entries["fail_if_no_peer_cert"], f"{prefix}.verify = verify_peer")
        self._revocation(prefix, entries, values)
        if asked_by is None:
            text = f"{prefix}.certfile has no effect without listeners.ssl.default"
            self.warn(entries["certfile"], text)
        if _UNUSABLE in (*values.values(), *versions, *ciphers):
            return None
        chosen = chosen_suites(versions or TlsSettings(certfile="").versions, ciphers)
        if isinstance(chosen, str):
            at = next(each for name, each in entries.items() if name.startswith("ciphers."))
            self.problems.append(f"{at.source}: {prefix}.ciphers {chosen}")
            return None
        return TlsSettings(**values, versions=chosen[0], ciphers=chosen[1])

    def _revocation(self, prefix: str, entries: dict[str, Entry], values: dict[str, Any]) -> None:
        """Check that a list of revoked certificates is there and is looked at."""
        asked, is_listed = values.get("crl_check"), bool(values.get("crlfile"))
        if asked is _UNUSABLE:
            return
        if asked and not values.get("is_verified"):
            self._needs(entries["crl_check"], f"{prefix}.verify = verify_peer")
        if asked and not is_listed:
            self._needs(entries["crl_check"], f"{prefix}.crlfile, a file of lists of revoked ones")
        if is_listed and not asked:
            self._needs(entries["crlfile"], f"{prefix}.crl_check = peer")

    def _listed(self, prefix: str, read: Callable[[str], Any]) -> tuple[Any, ...]:
        return tuple(self.take(key, read) for key in self.family(prefix))

    def _needs(self, entry: Entry, what: str) -> None:
        shown = "" if is_secret(entry.key) else f" = {entry.value}"
        self.problems.append(f"{entry.source}: {entry.key}{shown} needs {what}")

    def _management(self) -> None:
        is_none, keys = self._family_or_none("management.cors.allow_origins")
        if not is_none:
            self.values["management_cors_origins"] = tuple(
                self.take(key, readers.origin) for key in keys
            )
        self.values["management_browse_masked"] = self._listed("management.browse.masked.", str)
        self.values["management_headers"] = tuple(
            (header, self.take(key, readers.header_value))
            for key, header in HEADERS.items()
            if key in self.left
        )

    def _users(self) -> None:
        is_none, keys = self._family_or_none("loopback_users")
        loopback = set() if is_none else set(Settings().loopback_users)
        for key in keys:
            name = key.removeprefix("loopback_users.")
            (loopback.add if self.take(key, readers.flag) else loopback.discard)(name)
        self.values["loopback_users"] = frozenset(loopback)
        tags = self.family("default_user_tags.")
        if tags:
            chosen = [
                k.removeprefix("default_user_tags.") for k in tags if self.take(k, readers.flag)
            ]
            self.values["default_user_tags"] = tuple(chosen)
        permissions = dict(
            zip(("configure", "write", "read"), Settings().default_permissions, strict=True)
        )
        for kind in permissions:
            if f"default_permissions.{kind}" in self.left:
                permissions[kind] = self.take(f"default_permissions.{kind}", str)
        self.values["default_permissions"] = tuple(permissions.values())
        self._check_default_password()
        mechanisms = self.family(_MECHANISMS)
        if mechanisms:
            self.values["auth_mechanisms"] = tuple(self.take(key, str) for key in mechanisms)

    def _check_default_password(self) -> None:
        """Tell of a default password that no new user could have."""
        rule = self.entries.get("credential_validator.validation_backend")
        names = ("password_rule", "password_length_min", "password_regexp", "default_password")
        values = [self.values.get(name, getattr(Settings(), name)) for name in names]
        if rule is None or _UNUSABLE in values:
            return
        if values[0] == "password_regexp" and not values[2]:
            self._needs(rule, "credential_validator.regexp")
            return
        text = "does not satisfy credential_validator; write another"
        for key, entry in self.entries.items():
            is_users = key.startswith(vhost_defaults.USERS) and key.endswith(".password")
            if is_users and not may_have_password(entry.value, PasswordRule(*values[:3])):
                self.problems.append(f"{entry.source}: {key} {text}")
        if may_have_password(values[3], PasswordRule(*values[:3])):
            return
        if "default_pass" in self.entries:
            self.problems.append(f"{self.entries['default_pass'].source}: default_pass {text}")
        elif not any(key in self.entries for key in DEFINITIONS):
            self.warn(rule, f"the default_pass of a new cluster {text}")

    def _definitions(self) -> None:
        """Take the files and the URL of definitions; `none` names none."""
        named = [self.take(key, str) for key in DEFINITIONS if key in self.left]
        paths = tuple(dict.fromkeys(path for path in named if path != "none"))
        backend = self.entries.get("definitions.import_backend")
        if backend is not None and backend.value in safety.HTTPS_BACKENDS:
            paths += self._definitions_url(backend)
        for key in DEFINITIONS_URL:
            if key in self.left:
                self.problems.append(
                    f"{self.left.pop(key).source}: {key} needs definitions.import_backend = https"
                )
        self.values["definitions_paths"] = paths
        if backend is not None and not paths:
            found = safety.verdict(*backend[:2])
            if found is safety.Verdict.NOTHING_ASKED and not self.problems:
                text = "is refused: it names no file; set definitions.local.path"
                self.problems.append(f"{backend.source}: {backend.key} {text}")
        for key in ("default_user", "default_vhost"):
            entry = self.entries.get(key)
            if entry is not None and paths:
                self.warn(entry, f"{key} has no effect beside definitions, which say who is there")

    def _definitions_url(self, backend: Entry) -> tuple[str, ...]:
        """Take the URL of definitions, and TLS for it."""
        urls = [self.take(key, readers.https_url) for key in DEFINITIONS_URL if key in self.left]
        if not urls:
            text = "is refused: it names no URL; set definitions.https.url"
            self.problems.append(f"{backend.source}: {backend.key} {text}")
        tls = {
            key.rpartition(".")[2]: self.take(key, str)
            for family in ("tls", "ssl", "ssl_options")
            for key in self.family(f"definitions.{family}.")
        }
        self.values["definitions_tls"] = ClientTlsSettings(**tls)
        return tuple(urls)

    def _cluster(self) -> None:
        peers: dict[str, Peer] = {}
        for key in self.family("cluster_formation.classic_config.nodes."):
            name = self.take(key, full_node_name)
            peers[name] = Peer(name, name.partition("@")[2], DEFAULT_PEER_PORT)
        for key in self.family("cluster.peers."):
            name = full_node_name(key.removeprefix("cluster.peers."))
            at = self.take(key, readers.peer_address)
            if isinstance(at, Listener):
                peers[name] = Peer(name, at.host, at.port)
        self.values["cluster_peers"] = tuple(peers.values())
        keys = self.family("cluster.tls.")
        tls = {key.removeprefix("cluster.tls."): key for key in keys}
        found = {name: self.take(key, LINKS[name]) for name, key in tls.items() if name in LINKS}
        self.values["cluster_tls"] = LinkTlsSettings(**found)

    def _complain(self) -> None:
        for key, entry in self.left.items():
            if not rabbitmq.is_known(key):
                near = rabbitmq.nearest(key, OUR_KEYS)
                self.problems.append(f"{entry.source}: unknown key {key}; did you mean {near}?")
                continue
            self.warn(entry, f"{key} is RabbitMQ's, WarrenMQ does not support it: no effect")


def _order(tail: str) -> int:
    return int(tail) if tail.isdigit() else -1
