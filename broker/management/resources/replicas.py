"""Replicas of quorum queues: `/api/queues/quorum`. The queues' leaders do what is noted here."""

from __future__ import annotations

from aiohttp import web

from broker.management import request_body
from broker.management.answers import bad_request, json, no_content, not_found
from broker.management.call import Call, Route
from broker.metadata.commands import MoveMembers
from broker.metadata.records import Queue


async def add(call: Call) -> web.Response:
    """POST /api/queues/quorum/VHOST/NAME/replicas/add, {"node": NODE}."""
    node = request_body.text(await call.body(), "node")
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None or queue.type != "quorum":
        raise not_found()
    await _add(call, queue, _running(call, node))
    return no_content()


async def grow(call: Call) -> web.Response:
    """POST /api/queues/quorum/replicas/on/NODE/grow, {"strategy": "all" or "even"}."""
    node = _running(call, call.name("node"))
    strategy = request_body.text(await call.body(), "strategy", "all")
    if strategy not in ("all", "even"):
        raise bad_request('the strategy is "all" or "even"')
    grown = []
    for queue in call.catalogue.all_queues():
        is_even = len(queue.members) % 2 == 0
        if queue.type != "quorum" or node in queue.members or (strategy == "even" and not is_even):
            continue
        await _add(call, queue, node)
        grown.append({"name": queue.name, "vhost": queue.vhost})
    return json(grown)


def _running(call: Call, node: str) -> str:
    record = call.catalogue.node(node)
    if record is None or not record.alive:
        raise bad_request(f"node {node[:80]} is not running")
    return node


async def _add(call: Call, queue: Queue, node: str) -> None:
    if node not in queue.members:
        await call.propose(MoveMembers(queue.uid, (*queue.members, node)))


ROUTES = (
    Route("POST", "/api/queues/quorum/{vhost}/{name}/replicas/add", add, "administrator"),
    Route("POST", "/api/queues/quorum/replicas/on/{node}/grow", grow, "administrator"),
)
