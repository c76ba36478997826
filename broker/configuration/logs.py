"""Keys of the log: `log.*`. Pure.

Source: rabbit.schema of RabbitMQ 3.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from broker.config import LogSettings, SyslogSettings
from broker.configuration import readers
from broker.logs import rotation_dates
from broker.logs.levels import CATEGORIES
from broker.logs.syslog_message import FACILITIES

Take = Callable[[str, Callable[[str], Any]], Any]
"""Reads the value of a key."""

OUTPUTS: Final = ("console", "file", "syslog", "exchange")
_FILE: Final = "warrenmq.log"
_IDENTITY: Final = re.compile(r"[!-~]{1,48}")


def _format(text: str) -> str:
    return readers.one_of("plain", "plaintext", "json")(text).replace("plaintext", "plain")


def _date(text: str) -> str:
    rotation_dates.parse(text)
    return text


def _transport(text: str) -> str:
    return readers.one_of("udp", "tcp", "tls", "ssl")(text).replace("ssl", "tls")


def _verify(text: str) -> bool:
    return readers.one_of("verify_peer", "verify_none")(text) == "verify_peer"


def _identity(text: str) -> str:
    if not _IDENTITY.fullmatch(text):
        raise ValueError("1 to 48 printable ASCII characters without spaces")
    return text


_FIELDS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "log.level": ("level", readers.level),
    "log.default.level": ("level", readers.level),
    "log.console": ("console", readers.flag),
    "log.exchange": ("exchange", readers.flag),
    "log.file.rotation.size": ("rotation_size_bytes", readers.size_bytes),
    "log.file.rotation.count": ("rotation_count", readers.natural),
    "log.file.rotation.date": ("rotation_date", _date),
}
SYSLOG: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "log.syslog.transport": ("transport", _transport),
    "log.syslog.protocol": ("protocol", readers.one_of("rfc3164", "rfc5424")),
    "log.syslog.host": ("host", str),
    "log.syslog.ip": ("host", str),
    "log.syslog.port": ("port", readers.port),
    "log.syslog.identity": ("identity", _identity),
    "log.syslog.facility": ("facility", readers.one_of(*FACILITIES)),
    "log.syslog.ssl_options.cacertfile": ("cacertfile", str),
    "log.syslog.ssl_options.certfile": ("certfile", str),
    "log.syslog.ssl_options.keyfile": ("keyfile", str),
    "log.syslog.ssl_options.verify": ("is_verified", _verify),
}
_SWITCH: Final = "log.syslog"
_LEVELS: Final = {f"log.{name}.level": name for name in OUTPUTS}
_FORMATS: Final = {f"log.{name}.formatter": name for name in OUTPUTS}
_CATEGORIES: Final = {f"log.{name}.level": name for name in CATEGORIES if name != "default"}
_PATHS: Final = ("log.dir", "log.file", "log.audit.file")

KEYS: Final = (*_FIELDS, _SWITCH, *SYSLOG, *_LEVELS, *_FORMATS, *_CATEGORIES, *_PATHS)
"""All keys that are read here."""


def read(given: Iterable[str], take: Take) -> LogSettings:
    """Read all keys of the log.

    Args:
        given: Those of `KEYS` that have a value, in order of precedence.
        take: Reads one; what can't be read is no value, and is told by it.
    """
    fields: dict[str, Any] = {}
    levels, formats, categories = {}, {}, {}
    paths: dict[str, str] = {}
    syslog: dict[str, Any] = {}
    is_sent = False
    for key in given:
        if key in _FIELDS:
            name, reader = _FIELDS[key]
            fields[name] = take(key, reader)
        elif key == _SWITCH:
            is_sent = take(key, readers.flag)
        elif key in SYSLOG:
            name, reader = SYSLOG[key]
            syslog[name] = take(key, reader)
        elif key in _LEVELS:
            levels[_LEVELS[key]] = take(key, readers.level)
        elif key in _FORMATS:
            formats[_FORMATS[key]] = take(key, _format)
        elif key in _CATEGORIES:
            categories[_CATEGORIES[key]] = take(key, readers.level)
        else:
            paths[key] = take(key, str)
    fields |= _files(paths)
    if is_sent is True:
        fields["syslog"] = SyslogSettings(**syslog)
    settings = LogSettings(levels=levels, formats=formats, categories=categories)
    return msgspec.structs.replace(settings, **fields)


def _files(paths: dict[str, str]) -> dict[str, str]:
    """The paths of files: a bare name lies in `log.dir`, which alone has a file of our name."""
    directory, found = paths.get("log.dir"), {}
    for key, field in (("log.file", "file"), ("log.audit.file", "audit_file")):
        name = paths.get(key, "true")
        if name not in ("true", "false"):
            found[field] = name if "/" in name or directory is None else f"{directory}/{name}"
    if directory is not None and paths.get("log.file", "true") == "true":
        found["file"] = f"{directory}/{_FILE}"
    return found
