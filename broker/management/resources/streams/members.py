"""A stream's members: `/api/streams/VHOST/NAME/status`, `.../restart`. WarrenMQ only."""

from __future__ import annotations

from aiohttp import web

from broker.management import request_body
from broker.management.answers import bad_request, json, unavailable
from broker.management.call import Call, Endpoint
from broker.management.operations.streams import NO_REPLICA
from broker.management.resources.streams.tracking import named


async def status(call: Call) -> web.Response:
    """GET .../status: what each member says."""
    return json(await call.operations.streams.status(named(call)))


async def restart(call: Call) -> web.Response:
    """POST .../restart {"preferred_leader_node": NODE}: another member leads; `{"leader"}`.

    Without a node the one that has most of the log.
    """
    queue = named(call)
    is_denied = call.control.settings.management_denies_replica_operations
    call.not_denied(is_denied=is_denied, what="stream replica operations")
    preferred = request_body.text(await call.body(), "preferred_leader_node", "")
    result = await call.operations.streams.restart(queue, preferred)
    if result.text == NO_REPLICA:
        raise bad_request(f"node {preferred[:80]} has {NO_REPLICA}")
    if not result.is_done:
        raise unavailable(result.text)
    return json({"leader": result.text})


ROUTES = (
    Endpoint("GET", "/api/streams/{vhost}/{name}/status", status),
    Endpoint("POST", "/api/streams/{vhost}/{name}/restart", restart, "administrator"),
)
