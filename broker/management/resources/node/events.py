"""Events of this node as they happen: `/api/node/events`. Ours alone."""

from __future__ import annotations

from aiohttp import web

from broker.management.answers import bad_request, json
from broker.management.call import Call, Endpoint

_DIGITS_MAX = 18


async def show(call: Call) -> web.Response:
    """GET /api/node/events: begins to keep them; `?since=`: those from that number on."""
    text = call.query.get("since")
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise bad_request("since must be the number of an event")
    part = call.serving.context.events.stream.since(None if text is None else int(text))
    return json({"events": part.lines, "next": part.next, "missed": part.missed})


ROUTES = (Endpoint("GET", "/api/node/events", show, "administrator"),)
