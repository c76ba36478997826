"""Actions on queues: `/api/queues/VHOST/NAME/actions`, `/api/rebalance/queues`.

The requests are answered when the work has begun. How far it is stands in the queue's object and
below `/api/queues/VHOST/NAME/migration` and GET `/api/rebalance/queues`, which are ours alone.
"""

from __future__ import annotations

import logging

import msgspec
from aiohttp import web

from broker.management import request_body
from broker.management.answers import bad_request, json, no_content, not_found
from broker.management.call import Call, Endpoint
from broker.management.operations.migration import MigrationRequest
from broker.management.operations.rebalance import TYPES, Selection
from broker.management.operations.remote import OperationResult
from broker.management.resources.queues import named
from broker.patterns import pattern_fault

_log = logging.getLogger(__name__)


async def act(call: Call) -> web.Response:
    """POST /api/queues/VHOST/NAME/actions `{"action"}`.

    "sync" sends mirrors what they lack, "cancel_sync" ends that. Ours alone:
    `{"action":"migrate","target","delete_source"}` moves a classic queue's messages into a quorum
    queue, "cancel_migrate" ends that.
    """
    queue = named(call)
    body = await call.body()
    if "action" not in body:
        raise bad_request("[{key_missing,action}]")
    action = request_body.text(body, "action")
    migrations = call.operations.migrations
    if action == "sync":
        return _started(call, action, await call.operations.syncing.begin(queue))
    if action == "cancel_sync":
        result = await call.operations.syncing.cancel(queue)
        return (
            json({"status": result.text})
            if result.is_done and result.text
            else _started(call, action, result)
        )
    if action == "migrate":
        request = MigrationRequest(
            request_body.text(body, "target"),
            request_body.flag(body, "delete_source"),
            call.by,
        )
        if not request.target:
            raise bad_request("key_missing: target")
        return _started(call, action, await migrations.ask(queue, request))
    if action == "cancel_migrate":
        await migrations.cancel(queue.vhost, queue.name)
        return no_content()
    raise bad_request(f"unknown action: {action[:80]}")


def _started(call: Call, action: str, result: OperationResult) -> web.Response:
    if not result.is_done:
        raise bad_request(result.text)
    _log.info("queue.action", extra={"user": call.user.name, "action": action})
    return no_content()


async def migration(call: Call) -> web.Response:
    """GET /api/queues/VHOST/NAME/migration; also of a queue that was deleted at its end."""
    progress = await call.operations.migrations.progress(call.vhost(), call.name("name"))
    if progress is None:
        raise not_found()
    return json(msgspec.to_builtins(progress))


async def rebalance(call: Call) -> web.Response:
    """POST /api/rebalance/queues `{"type","vhost_pattern","queue_pattern"}`, all optional."""
    body = await call.body()
    selection = Selection(
        request_body.text(body, "type", "all"),
        request_body.text(body, "vhost_pattern", ".*"),
        request_body.text(body, "queue_pattern", ".*"),
    )
    if selection.type not in TYPES:
        raise bad_request(
            f"type {selection.type[:80]} is not supported. Try one of {', '.join(TYPES)}."
        )
    for pattern in (selection.vhost_pattern, selection.queue_pattern):
        fault = pattern_fault(pattern)
        if fault is not None:
            raise bad_request(f"not a regular expression: {fault}")
    return _started(call, "rebalance", await call.operations.rebalance.ask(selection))


async def rebalanced(call: Call) -> web.Response:
    """GET /api/rebalance/queues: `{"running","moved","kept"}` of the last one."""
    return json(await call.operations.rebalance.state())


_QUEUE = "/api/queues/{vhost}/{name}"

ROUTES = (
    Endpoint("POST", _QUEUE + "/actions", act, "administrator"),
    Endpoint("GET", _QUEUE + "/migration", migration, "administrator"),
    Endpoint("POST", "/api/rebalance/queues", rebalance, "administrator"),
    Endpoint("GET", "/api/rebalance/queues", rebalanced, "administrator"),
)
