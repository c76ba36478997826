"""What the stop of a node would touch, before it is made: `/api/preview/stop[/NODE]`. Ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from broker.management.answers import json, plain
from broker.management.call import Call, Endpoint
from broker.management.report import NODE, QUEUES
from broker.management.resources.checks.stop_safety import effects_of_stop, reasons_against
from broker.management.resources.checks.stopping import node_of, seen
from broker.metadata.records import Queue

NAMED_MAX: Final = 100
"""Things that are named; all are counted."""


async def of_stop(call: Call) -> web.Response:
    """GET /api/preview/stop[/NODE]: what the stop of a node would do to its queues and clients."""
    node = node_of(call)
    reports = await call.reports.gather(NODE, QUEUES)
    view = await seen(call, reports)
    run = call.reports.pace.run
    reasons = await run(reasons_against(node, view))
    effects = await run(effects_of_stop(node, view))
    report = reports.get(node)
    answer = {
        "node": node,
        "safe": not reasons,
        "reasons": [{"kind": each.kind, "reason": each.text} for each in reasons],
        "clients": None if report is None else report.node.get("sockets_used"),
        "leaders_moved": _some(effects.moved),
        "copies_fewer": _some(effects.copies),
        "away": _some(effects.alone),
        "stuck": _some(effects.stuck),
    }
    return json(answer)


def _some(queues: Sequence[Queue]) -> dict[str, Any]:
    return {
        "count": len(queues),
        "queues": [
            {"vhost": plain(each.vhost), "name": plain(each.name), "type": each.type}
            for each in queues[:NAMED_MAX]
        ],
    }


ROUTES = tuple(
    Endpoint("GET", f"/api/preview/stop{suffix}", of_stop, "monitoring")
    for suffix in ("", "/{node}")
)
