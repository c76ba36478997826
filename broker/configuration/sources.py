"""Reads a node's configuration: rabbitmq.conf, conf.d, advanced.config, the environment, --set.

Precedence: file, then conf.d in name order, then advanced.config, then environment, then --set; the
later wins. All problems are found before any is told. What a key means stands in
`broker.configuration.keys`. Called by `broker.cli.server` and by tests.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.configuration import erlang, rabbitmq, safety
from broker.configuration.keys import OUR_KEYS, ConfigError, Entry, Outcome, read_settings

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
_ADVANCED = "advanced.config"


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
        ConfigError: Files that can't be read, unknown keys, values that do not fit, promises that
            can't be kept: all of them.
    """
    environ = environ or {}
    warnings: list[str] = []
    problems: list[str] = []
    entries: list[Entry] = []
    for path in _files(conf, environ):
        entries += _collected(_read(path, environ, problems), problems)
    advanced = _advanced_file(conf, environ, warnings)
    if advanced is not None:
        entries = _with_advanced(entries, advanced, warnings, problems)
    entries += _collected(_from_environment(environ, problems), problems)
    entries += _tls_entries(environ, {entry.key for entry in entries})
    entries += _collected([_override(text, problems) for text in overrides], problems)
    host = socket.gethostname().partition(".")[0] or "localhost"
    try:
        outcome = read_settings(entries, node_name=f"rabbit@{host}")
    except ConfigError as error:
        raise ConfigError(*problems, *error.problems) from None
    if problems:
        raise ConfigError(*problems)
    return Outcome(outcome.settings, warnings + outcome.warnings)


def _read(path: Path, environ: Mapping[str, str], problems: list[str]) -> list[Entry]:
    text = _text_of(path, problems)
    if text is None:
        return []
    if erlang.looks_like_terms(text):
        problems.append(_erlang_refusal(path, text))
        return []
    return _parsed(text, str(path), environ, problems)


def _text_of(path: Path, problems: list[str]) -> str | None:
    try:
        if path.stat().st_size > _FILE_SIZE_MAX_BYTES:
            problems.append(f"{path}: larger than {_FILE_SIZE_MAX_BYTES} bytes")
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path}: can't be read: {error}")
        return None


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
    problems: list[str] = []
    entries = _parsed(text, name, environ or {}, problems)
    if problems:
        raise ConfigError(*problems)
    return entries


def _parsed(text: str, name: str, environ: Mapping[str, str], problems: list[str]) -> list[Entry]:
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, equals, value = stripped.partition("=")
        key = key.strip()
        if not equals or not key or " " in key:
            problems.append(f"{name}:{number}: expected `key = value`, found {stripped!r}")
            continue
        try:
            value = _filled_in(_unquoted(value.strip()), environ)
        except KeyError as unset:
            what = f"{key} names $({unset.args[0]}), which is not set in the environment"
            problems.append(f"{name}:{number}: {what}")
            continue
        if value:
            entries.append(Entry(key, value, f"{name}:{number}"))
        else:
            problems.append(f"{name}:{number}: {key} has no value")
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


def _from_environment(environ: Mapping[str, str], problems: list[str]) -> list[Entry]:
    """The entries that RabbitMQ's environment variables stand for.

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
            value = _secret(path, f"{variable}_FILE", problems)
            entries.append(Entry(key, value, f"{variable}_FILE"))
    entries += _listener_entries(environ)
    entries += _derived_entries(environ)
    for name in sorted(environ):
        found = safety.variable_verdict(name, environ[name])
        if isinstance(found, safety.Refused):
            problems.append(f"{name} is refused: {found.advice}")
    return [entry for entry in entries if entry.value]


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


def _tls_entries(environ: Mapping[str, str], configured: set[str]) -> list[Entry]:
    """The entries of RABBITMQ_SSL_* and RABBITMQ_MANAGEMENT_SSL_*; a port where none is configured.

    Source:
        docker-entrypoint.sh of the official image up to 3.8.
    """
    entries = []
    for variable, family, port in (
        ("RABBITMQ_SSL_", "ssl_options", "listeners.ssl.default"),
        ("RABBITMQ_MANAGEMENT_SSL_", "management.ssl", "management.ssl.port"),
    ):
        names = {option: variable + option.upper() for option in sorted(safety.TLS_OPTIONS)}
        found = [
            Entry(f"{family}.{option}", environ[name], name)
            for option, name in names.items()
            if environ.get(name)
        ]
        entries += found
        listener = port.removesuffix(".default")
        if found and not any(_is_of(key, listener) for key in configured):
            number = "5671" if family == "ssl_options" else "15671"
            entries.append(Entry(port, number, variable + "*"))
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
    for word in levels:
        category, _, level = word.rpartition("=")
        if level and level[0] not in "+-":
            key = f"log.{category}.level" if category else "log.level"
            entries.append(Entry(key, level, "RABBITMQ_LOG"))
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


def _advanced_file(
    conf: str | None, environ: Mapping[str, str], warnings: list[str]
) -> Path | None:
    """The advanced.config beside the main file, or the one the environment names."""
    named = environ.get("RABBITMQ_ADVANCED_CONFIG_FILE")
    if named:
        for path in (Path(named), Path(f"{named}.config")):
            if path.is_file():
                return path
        warnings.append(f"RABBITMQ_ADVANCED_CONFIG_FILE: there is no {named}")
        return None
    main = conf or environ.get("RABBITMQ_CONFIG_FILE")
    if not main:
        return None
    beside = (Path(main) if Path(main).is_dir() else Path(main).parent) / _ADVANCED
    return beside if beside.is_file() else None


def _with_advanced(
    entries: list[Entry], path: Path, warnings: list[str], problems: list[str]
) -> list[Entry]:
    """The entries with those of an advanced.config, whose every term replaces a key or a family.

    Source:
        cuttlefish_advanced.erl, overlay/2.
    """
    text = _text_of(path, problems)
    try:
        terms = erlang.read_terms(text or "")
    except erlang.NotATerm as error:
        problems.append(
            f"{path}: these Erlang terms can't be read: {error}; write rabbitmq.conf instead"
        )
        return entries
    for term in terms:
        source = f"{path}:{term.line}"
        if term.is_encrypted:
            problems.append(
                f"{source}: {{{term.name}}} is refused: encrypted values can't be read;"
                " write the value as $(VARIABLE) in rabbitmq.conf"
            )
            continue
        found = [Entry(key, value, source) for key, value in term.entries if _has_meaning(key)]
        problems += [f"{source}: {each.key} has no value" for each in found if not each.value]
        if len(found) < len(term.entries):
            warnings.append(f"{source}: {{{term.name}}} is not supported: no effect")
        entries = [entry for entry in entries if not _is_of(entry.key, term.key)] + found
    return entries


def _has_meaning(key: str) -> bool:
    is_ours = any(_is_of(key, known.removesuffix(".")) for known in OUR_KEYS)
    return is_ours or rabbitmq.is_known(key)


def _is_of(key: str, family: str) -> bool:
    return key == family or key.startswith(f"{family}.")


def _override(text: str, problems: list[str]) -> Entry:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        problems.append(f"--set: expected KEY=VALUE, found {text!r}")
    return Entry(key, value, "--set")


def _unquoted(value: str) -> str:
    found = _QUOTED.match(value)
    return found[1].replace("''", "'") if found else value.partition("#")[0].strip()


def _filled_in(value: str, environ: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: environ[found[1]] if found[1] else "$", value)


def _collected(entries: list[Entry], problems: list[str]) -> list[Entry]:
    """Entries with the secret in the place of its file, less those that are no entries."""
    found = [
        Entry("cluster.secret", _secret(Path(entry.value), entry.source, problems), entry.source)
        if entry.key == "cluster.secret_file"
        else entry
        for entry in entries
    ]
    return [entry for entry in found if entry.key and entry.value]


def _secret(path: Path, source: str, problems: list[str]) -> str:
    """The secret in a file; "", and a problem more, if there is none."""
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{source}: {path} can't be read: {error}")
        return ""
    if not value:
        problems.append(f"{source}: {path} is empty")
    return value


def _erlang_refusal(path: Path, text: str) -> str:
    head = f"{path}:1: Erlang terms (the classic rabbitmq.config) are not read"
    try:
        lines = erlang.as_conf_lines(text)
    except erlang.NotATerm as error:
        return f"{head}; write it in rabbitmq.conf syntax ({error})"
    return f"{head}. The same in rabbitmq.conf syntax:\n" + "\n".join(lines)
