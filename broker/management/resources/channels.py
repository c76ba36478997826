"""Channels of the whole cluster: `/api/channels`."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.management import paging
from broker.management.answers import json, not_found
from broker.management.call import Call, Route
from broker.management.reports import CHANNELS, CONSUMERS


async def _all(call: Call) -> list[dict[str, Any]]:
    reports = await call.reports.gather(CHANNELS)
    sees_all = call.has_tag("monitoring")
    return [
        item
        for report in reports.values()
        for item in report.channels
        if sees_all or item["user"] == call.user.name
    ]


async def show_all(call: Call) -> web.Response:
    """GET /api/channels."""
    return json(paging.arranged(await _all(call), call.query))


async def show_vhost(call: Call) -> web.Response:
    """GET /api/vhosts/VHOST/channels."""
    vhost = call.vhost()
    found = [item for item in await _all(call) if item["vhost"] == vhost]
    return json(paging.arranged(found, call.query))


async def show(call: Call) -> web.Response:
    """GET /api/channels/NAME, "127.0.0.1:40000 -> 127.0.0.1:5672 (1)"."""
    name = call.name("name")
    for item in await _all(call):
        if item["name"] == name:
            break
    else:
        raise not_found()
    reports = await call.reports.gather(CONSUMERS)
    item["consumer_details"] = [
        consumer
        for report in reports.values()
        for consumer in report.consumers
        if consumer["channel_details"]["name"] == name
    ]
    return json(paging.only_columns(item, call.query))


ROUTES = (
    Route("GET", "/api/channels", show_all),
    Route("GET", "/api/channels/{name}", show),
    Route("GET", "/api/vhosts/{vhost}/channels", show_vhost),
)
