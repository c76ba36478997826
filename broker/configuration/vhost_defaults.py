"""Keys of what new vhosts get: `default_limits`, `default_policies` and `default_users`. Pure.

Source: rabbit.schema of RabbitMQ 3.13, rabbit_db_vhost_defaults.erl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from broker.config import DefaultLimits, DefaultOperatorPolicy, DefaultUser, VhostDefaults
from broker.configuration import readers

Take = Callable[[str, Callable[[str], Any]], Any]
"""Reads the value of a key."""

LIMITS: Final = "default_limits.vhosts."
POLICIES: Final = "default_policies.operator."
USERS: Final = "default_users."
_ALL: Final = ".*"


def _count(text: str) -> int:
    value = readers.integer(text)
    if value < -1:
        raise ValueError("an integer of at least 0, or -1 for no limit")
    return value


def _ha_params(text: str) -> int | list[str]:
    return int(text) if text.isdigit() else readers.words(text)


_LIMITS: Final[dict[str, Callable[[str], Any]]] = {
    "pattern": readers.pattern,
    "max_connections": _count,
    "max_queues": _count,
}
_POLICIES: Final[dict[str, Callable[[str], Any]]] = {
    "vhost_pattern": readers.pattern,
    "queue_pattern": readers.pattern,
    "expires": readers.duration_ms,
    "message_ttl": readers.duration_ms,
    "max_length": readers.positive,
    "max_length_bytes": readers.size_bytes,
    "max_in_memory_length": readers.positive,
    "max_in_memory_bytes": readers.size_bytes,
    "delivery_limit": readers.natural,
    "classic_queues.ha_mode": str,
    "classic_queues.ha_params": _ha_params,
    "classic_queues.ha_sync_mode": str,
}
_USERS: Final[dict[str, Callable[[str], Any]]] = {
    "vhost_pattern": readers.pattern,
    "password": str,
    "configure": readers.pattern,
    "write": readers.pattern,
    "read": readers.pattern,
    "tags": readers.words,
}
OPTIONS: Final = {LIMITS: _LIMITS, POLICIES: _POLICIES, USERS: _USERS}
"""Family -> what may follow the ID, and its reader."""


def is_one(key: str) -> bool:
    """True for a key of one of the families.

    Args:
        key: "default_users.app.password".
    """
    family = next((each for each in OPTIONS if key.startswith(each)), "")
    name, _, option = key.removeprefix(family).partition(".")
    return bool(family and name) and option in OPTIONS[family]


def read(keys: Iterable[str], take: Take) -> VhostDefaults:
    """Read all keys of the families, in the order of their IDs.

    Args:
        keys: Those for which `is_one` is true.
        take: Reads one; what can't be read is no value, and is told by it.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {family: {} for family in OPTIONS}
    for key in sorted(keys):
        family = next(each for each in OPTIONS if key.startswith(each))
        name, _, option = key.removeprefix(family).partition(".")
        found[family].setdefault(name, {})[option] = take(key, OPTIONS[family][option])
    return VhostDefaults(
        tuple(
            DefaultLimits(name, options.pop("pattern", _ALL), _dashed(options))
            for name, options in found[LIMITS].items()
        ),
        tuple(
            DefaultOperatorPolicy(
                name,
                options.pop("vhost_pattern", _ALL),
                options.pop("queue_pattern", _ALL),
                _dashed(options),
            )
            for name, options in found[POLICIES].items()
        ),
        tuple(_user(name, options) for name, options in found[USERS].items()),
    )


def _user(name: str, options: dict[str, Any]) -> DefaultUser:
    return DefaultUser(
        name,
        options.get("vhost_pattern", _ALL),
        options.get("password"),
        (
            options.get("configure", _ALL),
            options.get("write", _ALL),
            options.get("read", _ALL),
        ),
        tuple(options.get("tags", ())),
    )


def _dashed(options: dict[str, Any]) -> dict[str, Any]:
    """The names that policies and limits have: `max_length` is max-length there."""
    return {
        option.removeprefix("classic_queues.").replace("_", "-"): value
        for option, value in options.items()
    }
