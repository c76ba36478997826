"""Reads a node's configuration: rabbitmq.conf and conf.d, the environment, --set.

Precedence: file, then conf.d in name order, then environment, then --set; the later wins. What a
key means stands in `broker.config_keys`. Called by `broker.cli.server` and by tests.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from broker import config_erlang
from broker.config_keys import ConfigError, Entry, Outcome, read_settings

_FILE_SIZE_MAX_BYTES = 4 * 1024 * 1024
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_VARIABLE = re.compile(r"\$\(([^()]*)\)")

# Environment variables that are one key each.
_VARIABLES = {
    "RABBITMQ_DEFAULT_USER": "default_user",
    "RABBITMQ_DEFAULT_PASS": "default_pass",
    "RABBITMQ_DEFAULT_VHOST": "default_vhost",
    "RABBITMQ_NODENAME": "node.name",
    "RABBITMQ_ERLANG_COOKIE": "cluster.secret",
    "RABBITMQ_MNESIA_DIR": "data_dir",
    "RABBITMQ_PID_FILE": "pid_file",
    "RABBITMQ_LOG_BASE": "log.dir",
}
# May also be given as NAME_FILE, the path of a file that holds the value (container secrets).
_WITH_FILE = ("RABBITMQ_DEFAULT_USER", "RABBITMQ_DEFAULT_PASS", "RABBITMQ_ERLANG_COOKIE")
_TLS_PREFIXES = ("RABBITMQ_SSL_", "RABBITMQ_MANAGEMENT_SSL_")


def load(
    conf: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> Outcome:
    """Read everything that configures a node.

    Args:
        conf: Path of a file in rabbitmq.conf syntax; None takes RABBITMQ_CONFIG_FILE, else none.
        environ: The process environment, or a part of it in tests; None is empty.
        overrides: "KEY=VALUE" texts of --set.

    Returns:
        The settings and the warnings to print.

    Raises:
        ConfigError: A file that can't be read, an unknown key, a value that does not fit.
    """
    environ = environ or {}
    warnings: list[str] = []
    entries: list[Entry] = []
    for path in _files(conf, environ):
        entries += _resolve_secret_file(read_file(path, environ))
    entries += _resolve_secret_file(from_environment(environ, warnings))
    entries += _resolve_secret_file([_override(text) for text in overrides])
    host = socket.gethostname().partition(".")[0] or "localhost"
    outcome = read_settings(entries, node_name=f"rabbit@{host}")
    return Outcome(outcome.settings, warnings + outcome.warnings)


def read_file(path: Path, environ: Mapping[str, str]) -> list[Entry]:
    """The entries of one file in rabbitmq.conf syntax.

    Args:
        path: The file.
        environ: What its values may take from.

    Raises:
        ConfigError: It can't be read, a line is not `key = value`, or it holds Erlang terms.
    """
    try:
        if path.stat().st_size > _FILE_SIZE_MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_FILE_SIZE_MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {error}") from error
    if config_erlang.looks_like_terms(text):
        raise ConfigError(_erlang_refusal(path, text))
    return parse(text, str(path), environ)


def parse(text: str, name: str, environ: Mapping[str, str] | None = None) -> list[Entry]:
    """The entries of a text in rabbitmq.conf syntax.

    A comment begins at a `#`; a value in single quotes may hold one, and a quote as two of them.
    `$(NAME)` is a variable of the environment, in quotes too, and `$()` is a `$`.

    Args:
        text: Lines `key = value`.
        name: What to call it in errors, "rabbitmq.conf".
        environ: The environment; None is empty.

    Raises:
        ConfigError: A line is neither empty nor `key = value`, or names a variable that is not set.

    Source:
        conf_parse.peg and cuttlefish_generator.erl, value_sub/3, of cuttlefish: a value is unquoted
        first. `''` is an error and `$()` nothing there: they are ours.
    """
    environ = environ or {}
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        key = key.strip()
        if not equals or not key or " " in key:
            raise ConfigError(f"{name}:{number}: expected `key = value`, found {stripped!r}")
        try:
            value = _filled_in(_unquoted(value.strip()), environ)
        except KeyError as unset:
            what = f"{key} names $({unset.args[0]}), which is not set in the environment"
            raise ConfigError(f"{name}:{number}: {what}") from None
        if not value:
            raise ConfigError(f"{name}:{number}: {key} has no value")
        entries.append(Entry(key, value, f"{name}:{number}"))
    return entries


def quoted(value: str) -> str:
    """A value as `parse` reads it back, in quotes where it needs them.

    Args:
        value: Any text.

    Raises:
        ValueError: It has several lines.
    """
    if value and value.splitlines() != [value]:
        raise ValueError("a value must stand in one line")
    is_plain = "#" not in value and not value.startswith("'") and value == value.strip()
    value = value.replace("$(", "$()(")
    return value if is_plain else "'" + value.replace("'", "''") + "'"


def from_environment(environ: Mapping[str, str], warnings: list[str]) -> list[Entry]:
    """The entries that RabbitMQ's environment variables stand for.

    Args:
        environ: The environment.
        warnings: Takes a sentence for each variable without effect.

    Raises:
        ConfigError: A *_FILE that can't be read.

    Source:
        rabbit_env.erl 3.13; the *_FILE, SSL and watermark variables are those that the official
        image once took and now refuses.
    """
    entries: list[Entry] = []
    for variable, key in _VARIABLES.items():
        if environ.get(variable):
            entries.append(Entry(key, environ[variable], variable))
        elif variable in _WITH_FILE and environ.get(f"{variable}_FILE"):
            path = Path(environ[f"{variable}_FILE"])
            entries.append(Entry(key, _secret(path, f"{variable}_FILE"), f"{variable}_FILE"))
    entries += _listener_entries(environ)
    entries += _derived_entries(environ)
    ssl = sorted(name for name in environ if name.startswith(_TLS_PREFIXES))
    if ssl:
        warnings.append(f"{', '.join(ssl)}: TLS listeners are not supported yet: no effect")
    return entries


def _listener_entries(environ: Mapping[str, str]) -> list[Entry]:
    entries = []
    address = environ.get("RABBITMQ_NODE_IP_ADDRESS", "")
    port = environ.get("RABBITMQ_NODE_PORT", "")
    if address or port:
        source = "RABBITMQ_NODE_PORT" if port else "RABBITMQ_NODE_IP_ADDRESS"
        value = f"{address}:{port or 5672}" if address else port
        entries.append(Entry("listeners.tcp.default", value, source))
    if environ.get("RABBITMQ_DIST_PORT"):
        value = f"{address}:{environ['RABBITMQ_DIST_PORT']}"
        entries.append(Entry("cluster.listen", value, "RABBITMQ_DIST_PORT"))
    return entries


def _derived_entries(environ: Mapping[str, str]) -> list[Entry]:
    entries = []
    base = environ.get("RABBITMQ_MNESIA_BASE")
    if base and not environ.get("RABBITMQ_MNESIA_DIR"):
        name = environ.get("RABBITMQ_NODENAME", "node")
        entries.append(Entry("data_dir", f"{base}/{name}", "RABBITMQ_MNESIA_BASE"))
    logs = environ.get("RABBITMQ_LOGS")
    if logs == "-":
        entries.append(Entry("log.console", "true", "RABBITMQ_LOGS"))
    elif logs:
        entries.append(Entry("log.file", logs, "RABBITMQ_LOGS"))
    levels = (environ.get("RABBITMQ_LOG") or "").split(",")
    entries += [
        Entry("log.level", w, "RABBITMQ_LOG")
        for w in levels
        if w and "=" not in w and w[0] not in "+-"
    ]
    watermark = environ.get("RABBITMQ_VM_MEMORY_HIGH_WATERMARK", "")
    if watermark.endswith("%"):
        share = str(float(watermark[:-1]) / 100) if watermark[:-1].isdigit() else watermark
        key, watermark = "vm_memory_high_watermark.relative", share
    else:
        is_share = watermark.replace(".", "", 1).isdigit() and float(watermark) <= 1
        key = "vm_memory_high_watermark." + ("relative" if is_share else "absolute")
    if watermark:
        entries.append(Entry(key, watermark, "RABBITMQ_VM_MEMORY_HIGH_WATERMARK"))
    return entries


def _files(conf: str | None, environ: Mapping[str, str]) -> list[Path]:
    if conf is None:
        named = environ.get("RABBITMQ_CONFIG_FILE", "")
        # RabbitMQ takes the name with or without its ending, and goes on without the file.
        found = [p for p in (Path(named), Path(f"{named}.conf")) if named and p.is_file()]
        main = found[:1]
        more = environ.get("RABBITMQ_CONFIG_FILES")
        return main + _directory(
            Path(more) if more else (main[0].parent / "conf.d" if main else None)
        )
    path = Path(conf)
    if path.is_dir():
        return _directory(path)
    return [path, *_directory(path.parent / "conf.d")]


def _directory(path: Path | None) -> list[Path]:
    return sorted(path.glob("*.conf")) if path is not None and path.is_dir() else []


def _override(text: str) -> Entry:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise ConfigError(f"--set: expected KEY=VALUE, found {text!r}")
    return Entry(key.strip(), value.strip(), "--set")


def _unquoted(value: str) -> str:
    found = _QUOTED.match(value)
    return found[1].replace("''", "'") if found else value.partition("#")[0].strip()


def _filled_in(value: str, environ: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: environ[found[1]] if found[1] else "$", value)


def _resolve_secret_file(entries: list[Entry]) -> list[Entry]:
    return [
        Entry("cluster.secret", _secret(Path(entry.value), entry.source), entry.source)
        if entry.key == "cluster.secret_file"
        else entry
        for entry in entries
    ]


def _secret(path: Path, source: str) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: {path} can't be read: {error}") from error
    if not value:
        raise ConfigError(f"{source}: {path} is empty")
    return value


def _erlang_refusal(path: Path, text: str) -> str:
    head = f"{path}:1: Erlang terms (the classic rabbitmq.config) are not read"
    try:
        lines = config_erlang.as_conf_lines(text)
    except config_erlang.NotATerm as error:
        return f"{head}; write it in rabbitmq.conf syntax ({error})"
    return f"{head}. The same in rabbitmq.conf syntax:\n" + "\n".join(lines)
