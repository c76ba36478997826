"""Keys of the log: `log.*`. Pure.

Source: rabbit.schema of RabbitMQ 3.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from broker.config import LogSettings
from broker.configuration import readers
from broker.logs import rotation_dates
from broker.logs.levels import CATEGORIES

Take = Callable[[str, Callable[[str], Any]], Any]
"""Reads the value of a key."""

OUTPUTS: Final = ("console", "file")
_FILE: Final = "warrenmq.log"


def _format(text: str) -> str:
    return readers.one_of("plain", "plaintext", "json")(text).replace("plaintext", "plain")


def _date(text: str) -> str:
    rotation_dates.parse(text)
    return text


_FIELDS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "log.level": ("level", readers.level),
    "log.default.level": ("level", readers.level),
    "log.console": ("console", readers.flag),
    "log.file.rotation.size": ("rotation_size_bytes", readers.size_bytes),
    "log.file.rotation.count": ("rotation_count", readers.natural),
    "log.file.rotation.date": ("rotation_date", _date),
}
_LEVELS: Final = {f"log.{name}.level": name for name in OUTPUTS}
_FORMATS: Final = {f"log.{name}.formatter": name for name in OUTPUTS}
_CATEGORIES: Final = {f"log.{name}.level": name for name in CATEGORIES if name != "default"}
_PATHS: Final = ("log.dir", "log.file", "log.audit.file")

KEYS: Final = (*_FIELDS, *_LEVELS, *_FORMATS, *_CATEGORIES, *_PATHS)
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
    for key in given:
        if key in _FIELDS:
            name, reader = _FIELDS[key]
            fields[name] = take(key, reader)
        elif key in _LEVELS:
            levels[_LEVELS[key]] = take(key, readers.level)
        elif key in _FORMATS:
            formats[_FORMATS[key]] = take(key, _format)
        elif key in _CATEGORIES:
            categories[_CATEGORIES[key]] = take(key, readers.level)
        else:
            paths[key] = take(key, str)
    fields |= _files(paths)
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
