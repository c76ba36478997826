"""Who `ctl` logs in as where nothing was said: as a user that the node's own settings name.

rabbitmqctl needs no user, for it has the node's cookie. Scripts in containers (`docker exec NODE
rabbitmqctl list_queues`, hooks of Kubernetes) therefore name none. There the settings of the node
are at hand: its environment, or its configuration files if they may be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_LINE: Final = re.compile(r"^\s*(default_user|default_pass)\s*=\s*(.*?)\s*$")
_CONFIG_FILES: Final = ("/etc/rabbitmq/rabbitmq.conf", "/etc/rabbitmq/conf.d")


class Credentials(NamedTuple):
    """A user and its password."""

    user: str
    password: str


GUEST: Final = Credentials("guest", "guest")


def of_node(environ: Mapping[str, str], paths: tuple[str, ...] | None = None) -> Credentials:
    """The default user of the node on this machine.

    Args:
        environ: RABBITMQ_DEFAULT_USER and RABBITMQ_DEFAULT_PASS, each also as `_FILE`, and
            RABBITMQ_CONFIG_FILE.
        paths: Configuration files, and folders of them, in order; later ones count. None: those of
            RabbitMQ's image.

    Returns:
        What is not found is guest's.
    """
    settings = {"default_user": GUEST.user, "default_pass": GUEST.password}
    for path in _files(environ, paths or _CONFIG_FILES):
        for line in _read(path).splitlines():
            found = _LINE.match(line)
            if found is not None:
                settings[found[1]] = _unquoted(found[2])
    return Credentials(
        _variable(environ, "RABBITMQ_DEFAULT_USER") or settings["default_user"],
        _variable(environ, "RABBITMQ_DEFAULT_PASS") or settings["default_pass"],
    )


def _files(environ: Mapping[str, str], paths: tuple[str, ...]) -> list[Path]:
    named = environ.get("RABBITMQ_CONFIG_FILE")
    found: list[Path] = []
    for path in map(Path, [named, *paths[1:]] if named else paths):
        if path.is_dir():
            found += sorted(path.glob("*.conf"))
        else:
            found.append(path if path.suffix == ".conf" else path.with_suffix(".conf"))
    return found


def _read(path: Path) -> str:
    """A file's text; "" for what is not there, or not for us."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] == "'"
    return value[1:-1] if is_quoted else value


def _variable(environ: Mapping[str, str], name: str) -> str:
    file = environ.get(f"{name}_FILE")
    return environ.get(name, "") or (_read(Path(file)).strip() if file else "")
