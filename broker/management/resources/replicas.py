"""Replicas of quorum queues: `/api/queues/quorum`. The queues' leaders do what is noted here."""

from __future__ import annotations

from aiohttp import web

from broker.management import request_body
from broker.management.answers import bad_request, json, no_content, not_found, unavailable
from broker.management.call import Call, Endpoint
from broker.metadata.commands import MoveMembers

TRIES_MAX = 5
"""How often a change is made anew because the queue's replicas were changed meanwhile."""


async def add(call: Call) -> web.Response:
    """POST /api/queues/quorum/VHOST/NAME/replicas/add, {"node": NODE}."""
    node = request_body.text(await call.body(), "node")
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None or queue.type != "quorum":
        raise not_found()
    _check_running(call, node)
    await _add(call, queue.uid, node)
    if call.catalogue.queue_by_uid(queue.uid) is None:
        raise not_found()
    return no_content()


async def status(call: Call) -> web.Response:
    """GET /api/queues/quorum/VHOST/NAME/status: what each member says."""
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None or queue.type != "quorum":
        raise not_found()
    return json(await call.operations.quorum_status.of(queue))


async def grow(call: Call) -> web.Response:
    """POST /api/queues/quorum/replicas/on/NODE/grow, {"strategy": "all" or "even"}."""
    node = call.name("node")
    _check_running(call, node)
    strategy = request_body.text(await call.body(), "strategy", "all")
    if strategy not in ("all", "even"):
        raise bad_request('the strategy is "all" or "even"')
    grown = [
        {"name": queue.name, "vhost": queue.vhost}
        for queue in call.catalogue.all_queues()
        if queue.type == "quorum" and await _add(call, queue.uid, node, strategy)
    ]
    return json(grown)


def _check_running(call: Call, node: str) -> None:
    record = call.catalogue.node(node)
    if record is None or not record.alive:
        raise bad_request(f"node {node[:80]} is not running")


async def _add(call: Call, uid: int, node: str, strategy: str = "all") -> bool:
    """Give a queue a replica on a node. False: it is gone, has one there, or is not wanted to."""
    for _ in range(TRIES_MAX):
        queue = call.catalogue.queue_by_uid(uid)
        if queue is None or node in queue.members:
            return False
        if strategy == "even" and len(queue.members) % 2:
            return False
        _check_running(call, node)
        grown = (*queue.members, node)
        if await call.propose(MoveMembers(uid, grown, expected=queue.members)) is True:
            return True
    raise unavailable("the replicas of the queue are being changed; try again")


ROUTES = (
    Endpoint("GET", "/api/queues/quorum/{vhost}/{name}/status", status),
    Endpoint("POST", "/api/queues/quorum/{vhost}/{name}/replicas/add", add, "administrator"),
    Endpoint("POST", "/api/queues/quorum/replicas/on/{node}/grow", grow, "administrator"),
)
