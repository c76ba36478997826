"""What happened to the cluster, and how it is now: `/api/timeline`, `/api/cluster/picture`."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from broker.management.answers import bad_request, json
from broker.management.call import Call, Endpoint
from broker.management.operations.timeline.happenings import Shown, sentence

LIMIT: Final = 200
LIMIT_MAX: Final = 3_000
DIGITS_MAX: Final = 15


async def timeline(call: Call) -> web.Response:
    """GET /api/timeline[?since_ms=&limit=&vhost=&queue=]: `{"events", "missing_nodes"}`."""
    since_ms, limit = _number(call, "since_ms", 0), min(_number(call, "limit", LIMIT), LIMIT_MAX)
    vhost, queue = call.query.get("vhost"), call.query.get("queue")
    shown, missing = await call.operations.timeline.shown()
    found = [
        each
        for each in shown
        if each.happening.at_ms >= since_ms
        and (vhost is None or each.happening.vhost in {vhost, ""})
        and (queue is None or queue in each.happening.queues)
    ]
    return json({"events": [_item(each) for each in found[:limit]], "missing_nodes": missing})


async def picture(call: Call) -> web.Response:
    """GET /api/cluster/picture: `{"nodes": [{"name", "answers", "leads", "links", ...}]}`."""
    looks = await call.operations.picture.taken()
    members = sorted(each.name for each in call.catalogue.nodes())
    leader = call.cluster.metadata.leader
    return json(
        {
            "nodes": [
                {
                    "name": name,
                    "answers": name in looks,
                    "leads_metadata": name == leader,
                    **(msgspec.to_builtins(looks[name]) if name in looks else {}),
                }
                for name in members
            ]
        }
    )


def _number(call: Call, key: str, default: int) -> int:
    text = call.query.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        raise bad_request(f"{key} must be a number")
    return int(text)


def _item(shown: Shown) -> dict[str, Any]:
    each = shown.happening
    return {
        "at_ms": each.at_ms,
        "kind": each.kind,
        "node": each.node,
        "other": each.other,
        "vhost": each.vhost,
        "queues": list(each.queues),
        "count": each.count,
        "text": sentence(each),
        "seen_by": list(shown.seen_by),
    }


ROUTES = (
    Endpoint("GET", "/api/timeline", timeline, "monitoring"),
    Endpoint("GET", "/api/cluster/picture", picture, "monitoring"),
)
