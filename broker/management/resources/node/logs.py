"""This node's log: `/api/node/log`, `log_level`, `rotate_logs`. Ours alone."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import web

from broker.logs import levels
from broker.management import node_log, request_body
from broker.management.answers import bad_request, json, no_content, unavailable
from broker.management.call import Call, Endpoint

_log = logging.getLogger(__name__)

_LINES: Final = 50
"""rabbitmq-diagnostics log_tail shows so many."""


async def show(call: Call) -> web.Response:
    """GET /api/node/log: the last `?lines=`, or those from line `?since=` on; and where it is."""
    ring = node_log.ring()
    if ring is None:
        raise unavailable("this broker runs inside a program that has the log")
    since = _number(call, "since")
    count = _number(call, "lines")
    tail = ring.last(_LINES if count is None else count) if since is None else ring.since(since)
    settings = call.control.settings.log
    found = [settings.file] if settings.file is not None else []
    found += [settings.audit_file] if settings.audit_file is not None else []
    found += ["<stdout>"] if settings.console else []
    found += [] if settings.syslog is None else [f"syslog:{settings.syslog.host}"]
    found += ["exchange:amq.rabbitmq.log"] if settings.exchange else []
    return json({"lines": tail.lines, "next": tail.next, "locations": found})


def _number(call: Call, name: str) -> int | None:
    text = call.query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(2**63)):
        raise bad_request(f"{name} must be a number of lines")
    return int(text)


async def set_level(call: Call) -> web.Response:
    """PUT /api/node/log_level: `{"level", "category"}`, until the node stops."""
    body = await call.body()
    level = request_body.text(body, "level")
    category = request_body.text(body, "category", "")
    if level not in levels.LEVELS:
        raise bad_request(f"unknown log level; known: {', '.join(levels.LEVELS)}")
    if category and category not in levels.CATEGORIES:
        raise bad_request(f"unknown log category; known: {', '.join(levels.CATEGORIES)}")
    levels.set_level(level, category)
    fields = {"level": level, "category": category or "all", "user": call.user.name}
    _log.warning("log.level", extra=fields)
    return no_content()


async def rotate(call: Call) -> web.Response:
    """POST /api/node/rotate_logs; `{"files"}` says how many logs there are in files."""
    del call
    try:
        count = await asyncio.to_thread(node_log.rotate)
    except OSError as error:
        raise unavailable(f"the log can't be rotated: {error}") from error
    return json({"files": count})


ROUTES = (
    Endpoint("GET", "/api/node/log", show, "administrator"),
    Endpoint("PUT", "/api/node/log_level", set_level, "administrator"),
    Endpoint("POST", "/api/node/rotate_logs", rotate, "administrator"),
)
