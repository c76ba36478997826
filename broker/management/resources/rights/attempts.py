"""Logins that were tried at a node: `/api/auth/attempts/NODE`, and by address and user.

RabbitMQ counts by source where `track_auth_attempt_source` is set, for its table has no limit; here
it is always done, of the sources that tried last.

Source: rabbit_mgmt_wm_auth_attempts.erl.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from broker.cluster.calls import CallFailed
from broker.cluster.links import Links
from broker.management.answers import json, no_content, not_found, unavailable
from broker.management.call import Call, Endpoint
from broker.server.entrance.doors import Doors

_ASKED: Final = "management.attempts"
_TIMEOUT_S: Final = 2.0
_PROTOCOL: Final = b"protocol"
_SOURCE: Final = b"source"
_RESET: Final = b"reset"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode


def serve(doors: Doors, links: Links) -> None:
    """Answer other nodes from now on.

    Args:
        doors: This node's.
        links: The way to the others.
    """

    async def attempts(_node: str, _boot: str, payload: bytes) -> bytes:
        return _encode(_here(doors, payload))

    links.serve(_ASKED, attempts)


def _here(doors: Doors, what: bytes) -> list[dict[str, object]]:
    tally = doors.logins.tally
    if what == _RESET:
        tally.reset()
        return []
    return tally.by_source() if what == _SOURCE else tally.by_protocol()


async def _at(call: Call, what: bytes) -> list[dict[str, Any]]:
    """Ask the node of the path.

    Raises:
        ApiError: 404, or 503 where it does not answer.
    """
    node = call.catalogue.node(call.name("node"))
    if node is None:
        raise not_found()
    if node.name == call.control.name:
        return _here(call.control.doors, what)
    try:
        return _decode(await call.cluster.links.call(node.name, _ASKED, what, _TIMEOUT_S))
    except CallFailed as error:
        raise unavailable(f"{node.name} does not answer: {error}") from error


async def by_protocol(call: Call) -> web.Response:
    """GET /api/auth/attempts/NODE."""
    return json(await _at(call, _PROTOCOL))


async def by_source(call: Call) -> web.Response:
    """GET /api/auth/attempts/NODE/source."""
    return json(await _at(call, _SOURCE))


async def reset(call: Call) -> web.Response:
    """DELETE of either: both count anew."""
    await _at(call, _RESET)
    return no_content()


_PATH: Final = "/api/auth/attempts/{node}"

ROUTES = (
    Endpoint("GET", _PATH, by_protocol, "monitoring"),
    Endpoint("GET", _PATH + "/source", by_source, "monitoring"),
    Endpoint("DELETE", _PATH, reset, "administrator"),
    Endpoint("DELETE", _PATH + "/source", reset, "administrator"),
)
