"""Consumers of the whole cluster: `/api/consumers`."""

from __future__ import annotations

from aiohttp import web

from broker.management import paging
from broker.management.answers import json
from broker.management.call import Call, Route
from broker.management.reports import CONSUMERS


async def show_all(call: Call) -> web.Response:
    """GET /api/consumers."""
    reports = await call.reports.gather(CONSUMERS)
    found = [
        item
        for report in reports.values()
        for item in report.consumers
        if call.sees(item["queue"]["vhost"])
    ]
    return json(paging.arranged(found, call.query))


async def show_vhost(call: Call) -> web.Response:
    """GET /api/consumers/VHOST."""
    vhost = call.vhost()
    reports = await call.reports.gather(CONSUMERS)
    found = [
        item
        for report in reports.values()
        for item in report.consumers
        if item["queue"]["vhost"] == vhost
    ]
    return json(paging.arranged(found, call.query))


ROUTES = (
    Route("GET", "/api/consumers", show_all),
    Route("GET", "/api/consumers/{vhost}", show_vhost),
)
