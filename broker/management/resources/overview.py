"""The cluster at a glance: `/api/overview`, and what never changes."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import json, no_content
from broker.management.call import Call, Route
from broker.management.reports import (
    CHANNELS,
    CONNECTIONS,
    CONSUMERS,
    NODE,
    QUEUES,
    product_version,
)
from broker.management.resources.queues import QueueStates, totals
from broker.metadata.commands import SetClusterName
from broker.routing.types import TYPES

_PLUGINS: Final = {
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange.",
    "x-modulus-hash": "Modulus Hashing Exchange",
    "x-random": "AMQP random exchange",
    "x-recent-history": "Recent History Exchange.",
}
EXCHANGE_TYPES: Final = tuple(
    {
        "name": name,
        "description": _PLUGINS.get(name, f"AMQP {name} exchange, as per the AMQP specification"),
        "enabled": True,
    }
    for name in sorted(TYPES)
)


async def show(call: Call) -> web.Response:
    """GET /api/overview; who does not monitor sees the totals of what is visible to it."""
    reports = await call.reports.gather(NODE, QUEUES, CONNECTIONS, CHANNELS, CONSUMERS)
    settings, catalogue = call.control.settings, call.catalogue
    is_monitor = call.has_tag("monitoring")
    own = call.user.name
    queues = [queue for queue in catalogue.queues() if call.sees(queue.vhost)]
    found: dict[str, Any] = {
        "management_version": settings.compat_version,
        "rates_mode": "none",
        "exchange_types": EXCHANGE_TYPES,
        "product_version": product_version(),
        "product_name": "WarrenMQ",
        "rabbitmq_version": settings.compat_version,
        "cluster_name": catalogue.cluster_name,
        "disable_stats": False,
        "enable_queue_totals": True,
        "message_stats": {},
        "churn_rates": {},
        "queue_totals": totals(QueueStates(reports), queues),
        "object_totals": {
            "channels": _visible(reports, "channels", own, is_monitor=is_monitor),
            "connections": _visible(reports, "connections", own, is_monitor=is_monitor),
            "consumers": sum(
                call.sees(item["queue"]["vhost"])
                for report in reports.values()
                for item in report.consumers
            ),
            "exchanges": sum(call.sees(each.vhost) for each in catalogue.exchanges()),
            "queues": len(queues),
        },
        "statistics_db_event_queue": 0,
    }
    if is_monitor:
        found["node"] = call.control.name
        found["listeners"] = [
            listener for report in reports.values() for listener in report.node["listeners"]
        ]
        found["contexts"] = [
            {
                "node": listener["node"],
                "description": "WarrenMQ Management",
                "path": settings.management_path_prefix or "/",
                "port": str(listener["port"]),
            }
            for listener in found["listeners"]
            if listener["protocol"] == "http"
        ]
    return json(paging.only_columns(found, call.query))


def _visible(reports: dict[str, Any], part: str, user: str, *, is_monitor: bool) -> int:
    return sum(
        is_monitor or item["user"] == user
        for report in reports.values()
        for item in getattr(report, part)
    )


async def cluster_name(call: Call) -> web.Response:
    """GET /api/cluster-name."""
    return json({"name": call.catalogue.cluster_name})


async def put_cluster_name(call: Call) -> web.Response:
    """PUT /api/cluster-name."""
    body = await call.body()
    await call.propose(SetClusterName(request_body.text(body, "name")))
    return no_content()


async def extensions(_call: Call) -> web.Response:
    """GET /api/extensions: the page has none."""
    return json([])


async def auth(_call: Call) -> web.Response:
    """GET /api/auth: only basic auth."""
    return json({"oauth_enabled": False})


ROUTES = (
    Route("GET", "/api/overview", show),
    Route("GET", "/api/cluster-name", cluster_name),
    Route("PUT", "/api/cluster-name", put_cluster_name, "administrator"),
    Route("GET", "/api/extensions", extensions),
    Route("GET", "/api/auth", auth),
)
