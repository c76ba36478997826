"""The cluster at a glance: `/api/overview`, and what never changes."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import encode, json, no_content
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.report import NODE, STATISTICS, TOTALS, product_version
from broker.management.resources.queues import of_vhosts, totals
from broker.management.statistics.measured import total
from broker.management.statistics.message_stats import of_churn, of_messages
from broker.metadata.commands import SetClusterName
from broker.routing.types import TYPES

_PLUGINS: Final = {
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange.",
    "x-modulus-hash": "Modulus Hashing Exchange",
    "x-random": "AMQP random exchange",
    "x-recent-history": "Recent History Exchange.",
}
_RETENTION: Final = {"global": [60, 3_600, 86_400], "basic": [60, 3_600], "detailed": [60, 3_600]}
"""Seconds that rings reach back (`broker.management.statistics.history`): of nodes and vhosts; of
queues, exchanges and connections; of channels."""

EXCHANGE_TYPES: Final = tuple(
    {
        "name": name,
        "description": _PLUGINS.get(name, f"AMQP {name} exchange, as per the AMQP specification"),
        "enabled": True,
    }
    for name in sorted(TYPES)
)


async def show(call: Call) -> Parts:
    """GET /api/overview; who does not monitor sees the totals of what is visible to it."""
    gathered = await call.reports.gather(NODE, TOTALS, STATISTICS, ages=call.ages())
    reports = gathered.values()
    settings, catalogue = call.control.settings, call.catalogue
    is_monitor = call.has_tag("monitoring")
    own = None if is_monitor else call.user.name
    vhosts = {vhost.name for vhost in catalogue.vhosts() if call.sees(vhost.name)}
    found: dict[str, Any] = {
        "management_version": settings.compat_version,
        "rates_mode": "detailed",
        "sample_retention_policies": _RETENTION,
        "exchange_types": EXCHANGE_TYPES,
        "product_version": product_version(),
        "product_name": "WarrenMQ",
        "rabbitmq_version": settings.compat_version,
        "cluster_name": catalogue.cluster_name,
        "disable_stats": False,
        "enable_queue_totals": True,
        "is_op_policy_updating_enabled": not settings.management_denies_operator_policies,
        "message_stats": of_messages(of_vhosts(reports, vhosts)),
        "churn_rates": of_churn(total(each.statistics.churn for each in reports)),
        "queue_totals": totals(reports, vhosts),
        "object_totals": {
            "channels": sum(_of_user(report.totals.channels, own) for report in reports),
            "connections": sum(_of_user(report.totals.connections, own) for report in reports),
            "consumers": sum(
                sums.consumers
                for report in reports
                for vhost, sums in report.totals.queues.items()
                if vhost in vhosts
            ),
            "exchanges": sum(map(catalogue.exchange_count, vhosts)),
            "queues": sum(map(catalogue.queue_count, vhosts)),
        },
        "statistics_db_event_queue": 0,
    }
    if is_monitor:
        found["node"] = call.control.name
        found["listeners"] = [
            listener for report in reports for listener in report.node["listeners"]
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
    return [encode(paging.only_columns(found, call.query))]


def _of_user(counts: dict[str, int], user: str | None) -> int:
    """Return the number that one user has, or all users together."""
    return sum(counts.values()) if user is None else counts.get(user, 0)


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
    listing("/api/overview", show),
    Endpoint("GET", "/api/cluster-name", cluster_name),
    Endpoint("PUT", "/api/cluster-name", put_cluster_name, "administrator"),
    Endpoint("GET", "/api/extensions", extensions),
    Endpoint("GET", "/api/auth", auth),
)
