"""Starting and stopping this node's broker, its joins and resets: `/api/node`. Ours alone."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from aiohttp import web

from broker.audit import trail
from broker.errors import Refusal
from broker.management import request_body
from broker.management.answers import bad_request, json, no_content, refuse, unavailable
from broker.management.call import Call, Endpoint
from broker.management.control import NodeError

_log = logging.getLogger(__name__)


async def _done(
    call: Call, verb: str, work: Awaitable[bool | None], other: str = ""
) -> web.Response:
    _log.info("node.%s", verb, extra={"user": call.user.name})
    told: dict[str, object] = {"node": call.control.name}
    if other:
        told["with"] = other
    try:
        if await work is False:
            return json({"status": "already_member"})
    except NodeError as error:
        trail.note(call.control.name, call.by, f"node.{verb}", told, "refused", str(error))
        raise bad_request(str(error)) from error
    except OSError as error:
        raise unavailable(f"{verb} failed: {error.strerror or error}") from error
    trail.note(call.control.name, call.by, f"node.{verb}", told)
    return no_content()


async def stop_app(call: Call) -> web.Response:
    """POST /api/node/stop_app."""
    return await _done(call, "stop_app", call.control.stop_app())


async def start_app(call: Call) -> web.Response:
    """POST /api/node/start_app; answered once clients are served."""
    return await _done(call, "start_app", call.control.start_app())


async def reset(call: Call) -> web.Response:
    """POST /api/node/reset."""
    return await _done(call, "reset", call.control.reset())


async def join_cluster(call: Call) -> web.Response:
    """POST /api/node/join_cluster `{"node"}`."""
    node = request_body.text(await call.body(), "node")
    if not node:
        raise bad_request("key_missing: node")
    return await _done(call, "join_cluster", call.control.join_cluster(node), node)


async def drain(call: Call) -> web.Response:
    """POST /api/node/drain: put this node into maintenance mode; answered when it is drained."""
    assert call.serving is not None, "or it raises"
    _log.info("node.drain", extra={"user": call.user.name})
    result = await call.operations.maintenance.drain(call.by)
    if isinstance(result, Refusal):
        refuse(result)
    return json(result)


async def revive(call: Call) -> web.Response:
    """POST /api/node/revive: end the maintenance mode of this node."""
    assert call.serving is not None, "or it raises"
    _log.info("node.revive", extra={"user": call.user.name})
    result = await call.operations.maintenance.revive(call.by)
    if isinstance(result, Refusal):
        refuse(result)
    return no_content()


ROUTES = (
    Endpoint("POST", "/api/node/drain", drain, "administrator"),
    Endpoint("POST", "/api/node/revive", revive, "administrator"),
    Endpoint("POST", "/api/node/stop_app", stop_app, "administrator"),
    Endpoint("POST", "/api/node/start_app", start_app, "administrator"),
    Endpoint("POST", "/api/node/reset", reset, "administrator"),
    Endpoint("POST", "/api/node/join_cluster", join_cluster, "administrator"),
)
