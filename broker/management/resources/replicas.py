"""Replicas of quorum queues and streams. The queues' leaders do what is noted here."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from broker.audit import trail
from broker.management import request_body
from broker.management.answers import bad_request, json, no_content, not_found, unavailable
from broker.management.call import Call, Endpoint
from broker.management.operations.quorum_queues import LAST_NODE, NO_MESSAGE
from broker.management.resources.queues import named
from broker.metadata.commands import MoveMembers
from broker.metadata.records import REPLICATED, Queue, QueueType
from broker.patterns import Search, pattern_fault, searcher

POSITION_MAX: Final = 1_000_000_000
TRIES_MAX: Final = 5
"""How often a change is made anew because the queue's replicas were changed meanwhile."""


async def add(call: Call) -> web.Response:
    """POST /api/queues/quorum/VHOST/NAME/replicas/add, {"node": NODE}."""
    return await _add_to(call, "quorum")


async def add_to_stream(call: Call) -> web.Response:
    """POST /api/streams/VHOST/NAME/replicas/add, {"node": NODE}."""
    return await _add_to(call, "stream")


async def _add_to(call: Call, type_: QueueType) -> web.Response:
    _check_restriction(call)  # before all else: it holds for queues that are not there, too
    queue = _queue_of_type(call, type_)
    node = request_body.text(await call.body(), "node")
    _check_running(call, node)
    await _add(call, queue.uid, node)
    if call.catalogue.queue_by_uid(queue.uid) is None:
        raise not_found()
    return no_content()


async def status(call: Call) -> web.Response:
    """GET /api/queues/quorum/VHOST/NAME/status: what each member says."""
    queue = _queue_of_type(call, "quorum")
    return json(await call.operations.quorum_status.of(queue))


async def grow(call: Call) -> web.Response:
    """POST /api/queues/quorum/replicas/on/NODE/grow, {"strategy": "all" or "even"}."""
    _check_restriction(call)
    node = call.name("node")
    _check_running(call, node)
    body = await call.body()
    strategy = request_body.text(body, "strategy", "all")
    if strategy not in ("all", "even"):
        raise bad_request('the strategy is "all" or "even"')
    in_vhost = _searcher(body, "vhost_pattern")
    in_name = _searcher(body, "queue_pattern")
    grown = [
        {"name": queue.name, "vhost": queue.vhost, "size": len(queue.members) + 1, "result": "ok"}
        for queue in call.catalogue.all_queues()
        if queue.type == "quorum"
        and in_vhost(queue.vhost)
        and in_name(queue.name)
        and await _add(call, queue.uid, node, strategy)
    ]
    return json(grown)


async def delete(call: Call) -> web.Response:
    """DELETE /api/queues/quorum/VHOST/NAME/replicas/delete, {"node": NODE}."""
    return await _delete_from(call, "quorum")


async def delete_from_stream(call: Call) -> web.Response:
    """DELETE /api/streams/VHOST/NAME/replicas/delete, {"node": NODE}."""
    return await _delete_from(call, "stream")


async def _delete_from(call: Call, type_: QueueType) -> web.Response:
    _check_restriction(call)
    queue = _queue_of_type(call, type_)
    node = request_body.text(await call.body(), "node")
    result = await call.operations.quorum_queues.remove_member(queue, node, call.by)
    if result.is_done:
        return no_content()
    if result.text == LAST_NODE:
        raise bad_request(LAST_NODE)
    raise unavailable(result.text)


async def shrink(call: Call) -> web.Response:
    """DELETE /api/queues/quorum/replicas/on/NODE/shrink: one queue after another."""
    _check_restriction(call)
    node = call.name("node")
    shrunk = []
    for queue in call.catalogue.all_queues():
        if queue.type != "quorum" or node not in queue.members:
            continue
        result = await call.operations.quorum_queues.remove_member(queue, node, call.by)
        why = "the last node cannot be removed" if result.text == LAST_NODE else result.text
        shrunk.append(
            {
                "vhost": queue.vhost,
                "name": queue.name,
                "size": len(queue.members) - result.is_done,
                "result": "ok" if result.is_done else f"error: {why}",
            }
        )
    return json(shrunk)


async def force_shrink(call: Call) -> web.Response:
    """POST /api/queues/VHOST/NAME/replicas/force_shrink, {"force": false}.

    The replica on the node that is asked goes on alone; 400 says why it must not, and what to do.
    """
    _check_restriction(call)
    queue = named(call)
    if queue.type not in REPLICATED:
        raise bad_request("quorum queues and streams have replicas, this queue has none")
    is_forced = request_body.flag(await call.body(), "force")
    result = await call.operations.survivors.go_on_alone(queue, call.by, is_forced=is_forced)
    if not result.is_done:
        raise bad_request(result.text)
    return json({"node": call.control.name, "text": result.text})


async def peek(call: Call) -> web.Response:
    """GET /api/queues/quorum/VHOST/NAME/peek/POSITION; 404 with a reason where there is none."""
    text = call.name("position")
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:10]) < POSITION_MAX:
        raise bad_request("position value must be a positive integer")
    queue = _queue_of_type(call, "quorum")
    result = await call.operations.quorum_queues.peek(queue, int(text))
    if result.is_done:
        about: dict[str, object] = {
            "vhost": queue.vhost,
            "queue": queue.name,
            "position": int(text),
        }
        trail.note(call.control.name, call.by, "queue.peek", about)
        return web.Response(text=result.text, content_type="application/json")
    if result.text == NO_MESSAGE:
        return json({"error": "Object Not Found", "reason": NO_MESSAGE}, 404)
    raise unavailable(result.text)


def _check_restriction(call: Call) -> None:
    is_denied = call.control.settings.management_denies_replica_operations
    call.not_denied(is_denied=is_denied, what="quorum queue replica operations")


def _queue_of_type(call: Call, type_: QueueType) -> Queue:
    queue = call.catalogue.queue(call.vhost(), call.name("name"))
    if queue is None or queue.type != type_:
        raise not_found()
    return queue


def _searcher(body: dict[str, Any], key: str) -> Search:
    """Whether a name contains the pattern of a field, ".*" without one.

    Raises:
        ApiError: 400 for what is no regular expression.
    """
    pattern = request_body.text(body, key, ".*")
    fault = pattern_fault(pattern)
    if fault is not None:
        raise bad_request(f"{key} is no regular expression: {fault}")
    return searcher(pattern)


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
    Endpoint(
        "DELETE", "/api/queues/quorum/{vhost}/{name}/replicas/delete", delete, "administrator"
    ),
    Endpoint("DELETE", "/api/queues/quorum/replicas/on/{node}/shrink", shrink, "administrator"),
    Endpoint("GET", "/api/queues/quorum/{vhost}/{name}/peek/{position}", peek, "administrator"),
    Endpoint("POST", "/api/queues/quorum/{vhost}/{name}/replicas/add", add, "administrator"),
    Endpoint(
        "POST", "/api/queues/{vhost}/{name}/replicas/force_shrink", force_shrink, "administrator"
    ),
    Endpoint("POST", "/api/queues/quorum/replicas/on/{node}/grow", grow, "administrator"),
    Endpoint("POST", "/api/streams/{vhost}/{name}/replicas/add", add_to_stream, "administrator"),
    Endpoint(
        "DELETE", "/api/streams/{vhost}/{name}/replicas/delete", delete_from_stream, "administrator"
    ),
)
