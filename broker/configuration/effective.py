"""The settings that act on a node: each with its value and where that came from. Pure.

`GET /api/config/effective` and `warrenmq ctl environment` show them. A value reads as rabbitmq.conf
would have it, with sizes and times as plain numbers; a secret is "***".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from broker.config import Listener, LogSettings, Origin, Settings, SyslogSettings, TlsSettings
from broker.configuration import logs, urls, vhost_defaults
from broker.configuration.keys import DEFINITIONS, DEFINITIONS_URL, HEADERS, SIMPLE, TLS, is_secret
from broker.configuration.safety import CLIENT_TLS_OPTIONS
from broker.configuration.tls import LINKS

HIDDEN: Final = "***"
"""What stands for a secret."""

_DEFAULTS: Final = Settings()
_DEFAULT_SYSLOG: Final = SyslogSettings()
_COMMAND_LINE: Final = "--set"
_SET_BY: Final = "warrenmq ctl"
_PERMISSIONS: Final = ("configure", "write", "read")
# Another name of a key.
_ALIASES: Final = {"queue_leader_locator": "queue_master_locator"}
# A port without TLS -> the keys of TLS that switch it off
_REPLACED_BY: Final = {"management.tcp": "management.ssl.", "prometheus.tcp": "prometheus.ssl."}
# field -> the field that acts in its stead while it has a value
_RIVALS: Final = {
    "vm_memory_high_watermark": "vm_memory_high_watermark_bytes",
    "disk_free_limit_bytes": "disk_free_limit_relative",
}
_OF_A_NEW_CLUSTER: Final = frozenset(
    (
        "default_user",
        "default_password",
        "default_vhost",
        "default_user_tags",
        "default_permissions",
    )
)
"""They do not act beside definitions, which say who is there."""


class Setting(NamedTuple):
    """One setting that acts.

    Attributes:
        key: Its key in rabbitmq.conf; of a family the family, "listeners.tcp".
        value: What acts: a number, text, flag, list or object; None: off, or without a limit.
        source: "default", "file", "conf.d", "advanced.config", "environment", "command line",
            "ctl" (set on the running node, until it restarts), or "program": the one that runs an
            embedded node.
        at: "/etc/warrenmq/rabbitmq.conf:12", "RABBITMQ_NODE_PORT"; empty for a default.
    """

    key: str
    value: Any
    source: str
    at: tuple[str, ...]


class Row(NamedTuple):
    """One setting, before its origin is looked up.

    Attributes:
        key: As `Setting.key`.
        value: Its value, for JSON.
        default: The same of a node without configuration.
        keys: The keys that it may be written as; one that ends with a dot is a family.
        fields: The fields of `Settings` that it shows.
    """

    key: str
    value: Any
    default: Any
    keys: tuple[str, ...]
    fields: tuple[str, ...]


def effective(settings: Settings, changed: Mapping[str, Any] | None = None) -> list[Setting]:
    """Tell what configures a node, in the order of keys.

    Args:
        settings: The node's.
        changed: Key -> value of what was set since the node started; none of them a secret.
    """
    changed = changed or {}
    forms = {_without_form(key) for key in changed}
    found = [
        _setting(row, settings.origins)
        for row in rows(settings)
        if _acts(row, settings) and _without_form(row.key) not in forms
    ]
    found += [Setting(key, value, "ctl", (_SET_BY,)) for key, value in changed.items()]
    return sorted(found, key=lambda each: each.key)


def _without_form(key: str) -> str:
    """A limit's name: of its absolute and its relative form one acts."""
    return key.removesuffix(".relative").removesuffix(".absolute")


def _acts(row: Row, settings: Settings) -> bool:
    (field, *_) = row.fields
    if field in _RIVALS:
        return getattr(settings, _RIVALS[field]) is None
    if field in _RIVALS.values():
        return getattr(settings, field) is not None
    return not (settings.definitions_paths and field in _OF_A_NEW_CLUSTER)


def _setting(row: Row, origins: Sequence[Origin]) -> Setting:
    families = tuple(key for key in row.keys if key.endswith("."))
    written = [each for each in origins if each.key in row.keys or each.key.startswith(families)]
    if not families:
        written = written[-1:]  # of several names of one value the last counts
    value = HIDDEN if is_secret(row.key) and row.value else row.value
    if not written:
        return Setting(row.key, value, "default" if row.value == row.default else "program", ())
    at = tuple(dict.fromkeys(each.source for each in written))
    return Setting(row.key, value, _kind(at[-1]), at)


def _kind(source: str) -> str:
    path, _, line = source.rpartition(":")
    if source == _COMMAND_LINE:
        return "command line"
    if not path or not line.isdigit():
        return "environment"
    if path.endswith(".config"):
        return "advanced.config"
    return "conf.d" if path.rpartition("/")[0].endswith("conf.d") else "file"


def rows(settings: Settings) -> Iterator[Row]:
    """All settings, those included that do not act beside others.

    Args:
        settings: The node's.
    """
    yield from _simple(settings)
    for key, field, shown, keys in _GROUPED:
        value, default = shown(getattr(settings, field)), shown(getattr(_DEFAULTS, field))
        replaced = (_REPLACED_BY[key],) if key in _REPLACED_BY and value is None else ()
        yield Row(key, value, default, keys + replaced, (field,))
    permissions, defaults = settings.default_permissions, _DEFAULTS.default_permissions
    for kind, value, default in zip(_PERMISSIONS, permissions, defaults, strict=True):
        key = f"default_permissions.{kind}"
        yield Row(key, value, default, (key,), ("default_permissions",))
    values = dict(settings.management_headers)
    for key, header in HEADERS.items():
        if header in values:  # the API's own ones are no settings
            yield Row(key, values[header], None, (key,), ("management_headers",))
    yield from _log(settings.log)
    for key in LINKS:
        value = getattr(settings.cluster_tls, key)
        name = f"cluster.tls.{key}"
        yield Row(name, value, getattr(_DEFAULTS.cluster_tls, key), (name,), ("cluster_tls",))
    for key in sorted(CLIENT_TLS_OPTIONS):
        name = f"definitions.tls.{key}"
        keys = (name, f"definitions.ssl.{key}", f"definitions.ssl_options.{key}")
        yield Row(name, getattr(settings.definitions_tls, key), "", keys, ("definitions_tls",))
    for prefix, field in _TLS.items():
        yield from _tls(prefix, field, getattr(settings, field))


def _log(log: LogSettings) -> Iterator[Row]:
    for key, name, keys in _LOG:
        value, default = getattr(log, name), getattr(_DEFAULTS.log, name)
        yield Row(key, value, default, keys, ("log",))
    for name, level in (log.categories | log.levels).items():
        yield Row(f"log.{name}.level", level, None, (f"log.{name}.level",), ("log",))
    syslog = SyslogSettings() if log.syslog is None else log.syslog
    yield Row("log.syslog", log.syslog is not None, False, ("log.syslog",), ("log",))
    for key, (name, _) in logs.SYSLOG.items():
        value, default = getattr(syslog, name), getattr(_DEFAULT_SYSLOG, name)
        yield Row(key, value, default, (key,), ("log",))
    for name in logs.OUTPUTS:
        key, form = f"log.{name}.formatter", log.formats.get(name, "plain")
        yield Row(key, form, "plain", (key,), ("log",))


def _simple(settings: Settings) -> Iterator[Row]:
    for key, (field, _) in SIMPLE.items():
        if key in _ALIASES.values():
            continue
        value, default = getattr(settings, field), getattr(_DEFAULTS, field)
        if key == "node.name":
            default = value  # of its host
        elif key == "cluster.listen":
            value = _address(settings.inter_node_listener())
            default = value if settings.cluster_listener is None else None
        keys = (key, _ALIASES[key]) if key in _ALIASES else (key,)
        yield Row(key, value, default, keys, (field,))


def _tls(prefix: str, field: str, tls: TlsSettings | None) -> Iterator[Row]:
    if tls is None:
        return
    for name, (attribute, _) in TLS.items():
        if name == "honor_ecc_order":
            continue  # OpenSSL has one option for both orders
        value = getattr(tls, attribute, None)
        if name == "verify":
            value = "verify_peer" if value else "verify_none"
        keys = [f"{prefix}.{name}"]
        keys += [f"{prefix}.honor_ecc_order"] if name == "honor_cipher_order" else []
        yield Row(keys[0], value, value, tuple(keys), (field,))
    for name in ("versions", "ciphers"):
        listed = list(getattr(tls, name))
        yield Row(f"{prefix}.{name}", listed, listed, (f"{prefix}.{name}.",), (field,))


def _without_name(record: msgspec.Struct) -> dict[str, Any]:
    found = msgspec.structs.asdict(record)
    del found["name"]
    return found


def _address(at: Listener | None) -> str | None:
    """A listener as `readers.listener` reads it back."""
    if at is None:
        return None
    if not at.host:
        return str(at.port)
    return f"[{at.host}]:{at.port}" if ":" in at.host else f"{at.host}:{at.port}"


def _addresses(found: Sequence[Listener]) -> list[str | None]:
    return [_address(each) for each in found]


# key, field of Settings, how its value is shown, the keys that it is written as
_GROUPED: Final[tuple[tuple[str, str, Callable[[Any], Any], tuple[str, ...]], ...]] = (
    ("listeners.tcp", "amqp_listeners", _addresses, ("listeners.tcp", "listeners.tcp.")),
    ("listeners.ssl", "amqp_tls_listeners", _addresses, ("listeners.ssl", "listeners.ssl.")),
    (
        "management.tcp",
        "management_listener",
        _address,
        ("management.tcp.", "management.listener."),
    ),
    (
        "management.ssl",
        "management_tls_listener",
        _address,
        ("management.ssl.port", "management.ssl.ip"),
    ),
    ("prometheus.tcp", "metrics_listener", _address, ("prometheus.tcp.",)),
    (
        "prometheus.ssl",
        "metrics_tls_listener",
        _address,
        ("prometheus.ssl.port", "prometheus.ssl.ip"),
    ),
    ("proxy_protocol.trusted_proxies", "proxy_trusted", list, ("proxy_protocol.trusted_proxies.",)),
    (
        "management.browse.masked",
        "management_browse_masked",
        list,
        ("management.browse.masked.",),
    ),
    (
        "management.cors.allow_origins",
        "management_cors_origins",
        list,
        ("management.cors.allow_origins", "management.cors.allow_origins."),
    ),
    (
        "cluster.peers",
        "cluster_peers",
        lambda peers: {each.node: _address(Listener(each.host, each.port)) for each in peers},
        ("cluster.peers.", "cluster_formation.classic_config.nodes."),
    ),
    (
        "cluster_partition_handling",
        "cluster_partition_handling",
        str,
        ("cluster_partition_handling",),
    ),
    ("auth_mechanisms", "auth_mechanisms", list, ("auth_mechanisms.",)),
    ("loopback_users", "loopback_users", sorted, ("loopback_users", "loopback_users.")),
    ("default_user_tags", "default_user_tags", list, ("default_user_tags.",)),
    (
        "load_definitions",
        "definitions_paths",
        lambda paths: [urls.shown(path) for path in paths],
        DEFINITIONS + DEFINITIONS_URL,
    ),
    (
        "default_limits.vhosts",
        "vhost_defaults",
        lambda found: {
            each.name: {"pattern": each.pattern, **each.limits} for each in found.limits
        },
        (vhost_defaults.LIMITS,),
    ),
    (
        "default_policies.operator",
        "vhost_defaults",
        lambda found: {each.name: _without_name(each) for each in found.operator_policies},
        (vhost_defaults.POLICIES,),
    ),
    (
        "default_users",
        "vhost_defaults",
        lambda found: {
            each.name: _without_name(each) | {"password": HIDDEN if each.password else None}
            for each in found.users
        },
        (vhost_defaults.USERS,),
    ),
)
# key, attribute of LogSettings, the keys that it is written as
_LOG: Final = (
    ("log.level", "level", ("log.level", "log.default.level")),
    ("log.console", "console", ("log.console",)),
    ("log.exchange", "exchange", ("log.exchange",)),
    ("log.file", "file", ("log.file", "log.dir")),
    ("log.file.rotation.size", "rotation_size_bytes", ("log.file.rotation.size",)),
    ("log.file.rotation.count", "rotation_count", ("log.file.rotation.count",)),
    ("log.file.rotation.date", "rotation_date", ("log.file.rotation.date",)),
    ("log.audit.file", "audit_file", ("log.audit.file", "log.dir")),
)
_TLS: Final = {
    "ssl_options": "amqp_tls",
    "management.ssl": "management_tls",
    "prometheus.ssl": "metrics_tls",
}
