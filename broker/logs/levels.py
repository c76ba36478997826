"""Levels of the log: their names, categories of lines, and which records an output takes.

A category with a level of its own takes that instead of the general one, everywhere; an output with
a level of its own takes nothing below it, and of all other categories everything above it.

Source: rabbit_prelaunch_logging.erl (names of categories), logger.hrl (names of levels).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}
"""RabbitMQ's names of levels; Python has fewer."""

CATEGORIES: Final = {
    "connection": "broker.server",
    "channel": "broker.session",
    "queue": "broker.queues",
    "mirroring": "broker.queues.mirrored",
    "ra": "raft",
    "cluster": "broker.cluster",
    "feature_flags": "broker.cluster.feature_gate",
    "metadata_store": "broker.cluster.metadata_group",
    "storage": "broker.storage",
    "management": "broker.management",
    "federation": "broker.federation",
    "ldap": "broker.ldap",
    "prelaunch": "broker.prelaunch",
    "shovel": "broker.shovel",
    "upgrade": "broker.upgrade",
    "default": "",
}
"""Categories with the loggers that they stand for; some of RabbitMQ's have no lines here."""


class _General(logging.Filter):
    """Takes what is not below the general level, and what a category's own level has let pass."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether an output takes a record."""
        return record.levelno >= self._level or _has_own_level(record.name)


def install(
    outputs: Iterable[tuple[str, logging.Handler]],
    general: str,
    categories: Mapping[str, str],
    own: Mapping[str, str],
) -> None:
    """Set all levels.

    Args:
        outputs: Each with its name.
        general: The level of lines whose category has none.
        categories: Those that have one.
        own: By name of an output: its own level.
    """
    root, lowest = logging.getLogger(), LEVELS[general]
    for level in own.values():
        lowest = min(lowest, LEVELS[level])
    for name, logger in CATEGORIES.items():
        number = LEVELS[categories[name]] if name in categories else logging.NOTSET
        logging.getLogger(logger).setLevel(number)
    root.setLevel(lowest)
    for name, handler in outputs:
        limit(handler, general, own.get(name))


def limit(handler: logging.Handler, general: str, own: str | None) -> None:
    """Set the level of one output.

    Args:
        handler: The output.
        general: The level of lines whose category has none.
        own: The output's; None: it has none.
    """
    if own is None:
        handler.addFilter(_General(LEVELS[general]))
    else:
        handler.setLevel(LEVELS[own])


def set_level(level: str, category: str = "") -> None:
    """Change what is logged from now on, until the node stops.

    Args:
        level: One of `LEVELS`.
        category: One of `CATEGORIES`; "" for all, and for all outputs, whatever was set apart.
    """
    if category:
        logging.getLogger(CATEGORIES[category]).setLevel(LEVELS[level])
        if not CATEGORIES[category]:
            _forget_outputs()
        return
    for name in CATEGORIES.values():
        logging.getLogger(name).setLevel(LEVELS[level] if not name else logging.NOTSET)
    _forget_outputs()


def _forget_outputs() -> None:
    """From now on each output takes what its logger lets pass."""
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.NOTSET)
        for each in [found for found in handler.filters if isinstance(found, _General)]:
            handler.removeFilter(each)


def _has_own_level(name: str) -> bool:
    return any(
        logger and logging.getLogger(logger).level and (name + ".").startswith(logger + ".")
        for logger in CATEGORIES.values()
    )
