"""Health checks around a restart: may a node be stopped, has a started one caught up. Ours alone.

200 `{"status":"ok"}`, or 503 with `"status":"failed"`, the reasons, and in `reason` the first one.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.errors import quoted
from broker.management.answers import UNAVAILABLE, json, not_found
from broker.management.call import Call, Endpoint
from broker.management.report import NODE, QUEUES, Report
from broker.management.reports import alarms_in
from broker.management.resources.checks.stop_safety import (
    NAMED_MAX,
    Check,
    ClusterView,
    Reason,
    lacks_of,
    reasons_against,
)
from broker.management.resources.queues import QueueStates


def node_of(call: Call) -> str:
    """The node in the path, or this one.

    Raises:
        ApiError: 404.
    """
    name = call.names.get("node", call.control.name)
    if call.catalogue.node(name) is None:
        raise not_found()
    return name


async def seen(call: Call, reports: dict[str, Report]) -> ClusterView:
    """The cluster by the nodes' reports, with NODE and QUEUES."""
    states = await call.reports.pace.run(QueueStates.merged(reports))
    return ClusterView(call.catalogue, states, set(reports), alarms_in(reports))


async def _found(call: Call, node: str, check: Check) -> list[Reason]:
    applied = call.cluster.metadata.applied_index
    reports = await call.reports.gather(NODE, QUEUES)
    found = await call.reports.pace.run(check(node, await seen(call, reports)))
    if check is lacks_of:
        report = reports.get(node)
        if report is None or not report.node["is_serving"]:
            found.insert(0, Reason("metadata", f"node {node} does not serve yet"))
        elif report.node.get("applied_index", applied) < applied:
            found.insert(0, Reason("metadata", f"node {node} has not applied all of group 0 yet"))
    return found


def _answer(node: str, found: list[Reason]) -> web.Response:
    if not found:
        return json({"status": "ok", "node": node})
    reasons: list[dict[str, Any]] = [
        {
            "kind": reason.kind,
            "reason": reason.text,
            "count": len(reason.queues),
            "queues": [
                {
                    "name": queue.name,
                    "readable_name": quoted("queue", queue.name, queue.vhost),
                    "type": queue.type,
                    "virtual_host": queue.vhost,
                }
                for queue in reason.queues[:NAMED_MAX]
            ],
        }
        for reason in found
    ]
    failed = {"status": "failed", "reason": found[0].text, "node": node, "reasons": reasons}
    return json(failed, UNAVAILABLE)


async def safe_to_stop(call: Call) -> web.Response:
    """GET /api/health/checks/safe-to-stop[/NODE]: a stop of the node interrupts nobody."""
    node = node_of(call)
    return _answer(node, await _found(call, node, reasons_against))


async def caught_up(call: Call) -> web.Response:
    """GET /api/health/checks/caught-up[/NODE]: the node has all that others have."""
    node = node_of(call)
    return _answer(node, await _found(call, node, lacks_of))


ROUTES = tuple(
    Endpoint("GET", f"/api/health/checks/{name}{suffix}", run)
    for name, run in (("safe-to-stop", safe_to_stop), ("caught-up", caught_up))
    for suffix in ("", "/{node}")
)
