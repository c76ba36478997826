"""Puts the outputs of a node's log together: standard output, a rotated file, the last lines."""

from __future__ import annotations

import logging
import sys

from broker.audit import trail
from broker.config import LogSettings
from broker.logs import levels, rotation_dates
from broker.logs.files import LogFile
from broker.logs.formatting import formatter
from broker.logs.syslog import SyslogHandler
from broker.management.node_log import LogRing


def configure(settings: LogSettings) -> None:
    """Replace the root logger's handlers by those of the settings.

    Args:
        settings: Where to write, what, and when to rotate.

    Raises:
        OSError: A file can't be opened.
    """
    outputs: list[tuple[str, logging.Handler]] = []
    if settings.console:
        outputs.append(("console", logging.StreamHandler(sys.stdout)))
    if settings.file is not None:
        outputs.append(("file", _file(settings.file, settings)))
    if settings.syslog is not None:
        outputs.append(("syslog", SyslogHandler(settings.syslog)))
    outputs.append(("last lines", LogRing()))
    for name, handler in outputs:
        handler.setFormatter(formatter(settings.formats.get(name, "plain")))
    logging.getLogger().handlers[:] = [handler for _, handler in outputs]
    levels.install(outputs, settings.level, settings.categories, settings.levels)
    _configure_audit(settings)


def _configure_audit(settings: LogSettings) -> None:
    """Keep an audit log, or none; its lines come whole from `broker.audit.trail`."""
    logger = logging.getLogger(trail.LOGGER)
    if settings.audit_file is None:
        logger.handlers[:] = []
        logger.setLevel(levels.LEVELS["none"])
        return
    handler = _file(settings.audit_file, settings)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)


def _file(path: str, settings: LogSettings) -> LogFile:
    date = rotation_dates.parse(settings.rotation_date) if settings.rotation_date else None
    return LogFile(path, settings.rotation_size_bytes, settings.rotation_count, date)
