"""Client connections of the whole cluster: `/api/connections`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from broker.cluster.calls import CallFailed
from broker.management import paging
from broker.management.answers import (
    NOT_AUTHORISED,
    ApiError,
    json,
    no_content,
    not_found,
    unavailable,
)
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.pace import kept
from broker.management.report import CHANNELS, CONNECTIONS

Item = dict[str, Any]

DEFAULT_REASON: Final = "Closed via management plugin"
REASON_BYTES_MAX: Final = 200
"""The reply text it becomes a part of holds 255."""


def clean_reason(text: str) -> str:
    """A reason as it may stand in a client's log: no control characters, not too long."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.encode()[:REASON_BYTES_MAX].decode(errors="ignore").strip() or DEFAULT_REASON


def _is_visible(call: Call, item: Item) -> bool:
    return call.has_tag("monitoring") or item["user"] == call.user.name


async def _listed(call: Call, is_wanted: Callable[[Item], bool]) -> Parts:
    reports = await call.reports.gather(CONNECTIONS, ages=call.ages())
    every = (item for report in reports.values() for item in report.connections)
    found = await call.reports.pace.run(
        kept(every, lambda item: is_wanted(item) and _is_visible(call, item))
    )
    return await call.listed(found, dict, _name, _name)


def _name(item: Item) -> str:
    return str(item["name"])


async def _one(call: Call) -> Item:
    reports = await call.reports.gather(CONNECTIONS, connection=call.name("name"), ages=call.ages())
    for report in reports.values():
        for item in report.connections:
            if item["name"] == call.name("name"):
                return item
    raise not_found()


async def show_all(call: Call) -> Parts:
    """GET /api/connections."""
    return await _listed(call, lambda _item: True)


async def show_vhost(call: Call) -> Parts:
    """GET /api/vhosts/VHOST/connections."""
    vhost = call.vhost()
    return await _listed(call, lambda item: bool(item["vhost"] == vhost))


async def show_user(call: Call) -> Parts:
    """GET /api/connections/username/USER."""
    user = call.name("user")
    return await _listed(call, lambda item: bool(item["user"] == user))


async def show(call: Call) -> web.Response:
    """GET /api/connections/NAME."""
    item = await _one(call)
    if not _is_visible(call, item):
        raise ApiError(NOT_AUTHORISED, "User not authorised to access object")
    return json(paging.only_columns(item, call.query))


async def show_channels(call: Call) -> Parts:
    """GET /api/connections/NAME/channels."""
    item = await _one(call)
    if not _is_visible(call, item):
        raise ApiError(NOT_AUTHORISED, "User not authorised to access object")
    reports = await call.reports.gather(CHANNELS, connection=item["name"])
    found = [
        channel
        for report in reports.values()
        for channel in report.channels
        if channel["connection_details"]["name"] == item["name"]
    ]
    return await call.listed_items(found)


async def delete(call: Call) -> web.Response:
    """DELETE /api/connections/NAME; the client is told the X-Reason. 403 if it is another's."""
    item = await _one(call)
    if item["user"] != call.user.name:
        call.require("administrator")
    reason = clean_reason(call.request.headers.get("X-Reason", ""))
    try:
        if not await call.reports.close_connection(item["node"], item["name"], reason):
            raise not_found()
    except CallFailed as why:
        raise unavailable(f"node {item['node']} did not answer: {why}") from why
    return no_content()


async def delete_of_user(call: Call) -> web.Response:
    """DELETE /api/connections/username/USER: all of that user's, at all nodes."""
    user = call.name("user")
    if user != call.user.name:
        call.require("administrator")
    reason = clean_reason(call.request.headers.get("X-Reason", ""))
    reports = await call.reports.gather(CONNECTIONS)
    found = [
        (item["node"], item["name"])
        for report in reports.values()
        for item in report.connections
        if item["user"] == user
    ]
    for node, name in found:
        try:
            await call.reports.close_connection(node, name, reason)
        except CallFailed as why:
            raise unavailable(f"node {node} did not answer: {why}") from why
    return no_content()


ROUTES = (
    listing("/api/connections", show_all),
    Endpoint("DELETE", "/api/connections/username/{user}", delete_of_user),
    listing("/api/connections/username/{user}", show_user),
    Endpoint("GET", "/api/connections/{name}", show),
    Endpoint("DELETE", "/api/connections/{name}", delete),
    listing("/api/connections/{name}/channels", show_channels),
    listing("/api/vhosts/{vhost}/connections", show_vhost),
)
