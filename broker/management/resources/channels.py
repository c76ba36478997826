"""Channels of the whole cluster: `/api/channels`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from broker.management import paging
from broker.management.answers import json, not_found
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.pace import kept
from broker.management.report import CHANNELS, CONSUMERS, FLOWS
from broker.management.statistics import flows

Item = dict[str, Any]


async def _all(
    call: Call, is_wanted: Callable[[Item], bool] = lambda _item: True, connection: str = ""
) -> list[Item]:
    """The channels that the caller may see.

    Args:
        call: The request.
        is_wanted: Which of them.
        connection: Only this connection's; "" for all.
    """
    reports = await call.reports.gather(CHANNELS, connection=connection, ages=call.ages())
    sees_all = call.has_tag("monitoring")
    every = (item for report in reports.values() for item in report.channels)
    return await call.reports.pace.run(
        kept(every, lambda item: is_wanted(item) and (sees_all or item["user"] == call.user.name))
    )


async def show_all(call: Call) -> Parts:
    """GET /api/channels."""
    return await call.listed_items(await _all(call))


async def show_vhost(call: Call) -> Parts:
    """GET /api/vhosts/VHOST/channels."""
    vhost = call.vhost()
    found = await _all(call, lambda item: bool(item["vhost"] == vhost))
    return await call.listed_items(found)


async def show(call: Call) -> web.Response:
    """GET /api/channels/NAME, "127.0.0.1:40000 -> 127.0.0.1:5672 (1)"."""
    name = call.name("name")
    connection = name.rpartition(" (")[0]
    if not connection:
        raise not_found()
    found = await _all(call, lambda item: bool(item["name"] == name), connection)
    if not found:
        raise not_found()
    reports = await call.reports.gather(
        *(CONSUMERS, FLOWS), connection=connection, flows=flows.Asked(connection=connection)
    )
    item = dict(found[0])
    item["consumer_details"] = [
        consumer
        for report in reports.values()
        for consumer in report.consumers
        if consumer["channel_details"]["name"] == name
    ]
    every = [report.flows for report in reports.values()]
    item |= flows.of_channel(every, name, call.catalogue)
    return json(paging.only_columns(item, call.query))


ROUTES = (
    listing("/api/channels", show_all),
    Endpoint("GET", "/api/channels/{name}", show),
    listing("/api/vhosts/{vhost}/channels", show_vhost),
)
