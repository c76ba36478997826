"""Topic permissions: `/api/topic-permissions`, and the lists of one vhost's or user's.

A user has several in a vhost, one for each exchange; a path names the user and the vhost.

Source: rabbit_mgmt_wm_topic_permission.erl; statuses compared with a RabbitMQ 3.10.8 node.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import json, no_content, not_found, plain, stored
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.resources.rights import users
from broker.management.resources.rights.permissions import check_ends, check_pattern
from broker.metadata.commands import ClearTopicPermissions, SetTopicPermissions
from broker.metadata.records import TopicPermission


def item(record: TopicPermission) -> dict[str, Any]:
    """A user's permissions on one exchange's routing keys, as RabbitMQ shows them."""
    return {
        "user": plain(record.user),
        "vhost": plain(record.vhost),
        "exchange": plain(record.exchange),
        "write": record.write,
        "read": record.read,
    }


async def _show(call: Call, found: list[TopicPermission]) -> Parts:
    found.sort(key=lambda each: (each.vhost, each.user, each.exchange))
    return await call.listed(found, item)


def _all(call: Call) -> list[TopicPermission]:
    return call.catalogue.topic_permissions()


async def show_all(call: Call) -> Parts:
    """GET /api/topic-permissions."""
    return await _show(call, _all(call))


async def show_vhost(call: Call) -> Parts:
    """GET /api/vhosts/VHOST/topic-permissions."""
    vhost = call.vhost()
    return await _show(call, [each for each in _all(call) if each.vhost == vhost])


async def show_user(call: Call) -> Parts:
    """GET /api/users/USER/topic-permissions."""
    user = users.named(call).name
    return await _show(call, [each for each in _all(call) if each.user == user])


def _named(call: Call) -> list[TopicPermission]:
    """The user's in the vhost of the path.

    Raises:
        ApiError: 404 if there is no such user or vhost, or nothing.
    """
    key = (users.named(call).name, call.vhost())
    found = [each for each in _all(call) if (each.user, each.vhost) == key]
    if not found:
        raise not_found()
    return found


async def show(call: Call) -> Parts:
    """GET /api/topic-permissions/VHOST/USER."""
    return await _show(call, _named(call))


async def show_one(call: Call) -> web.Response:
    """GET /api/topic-permissions/VHOST/USER/EXCHANGE."""
    exchange = call.exchange_name("exchange")
    for each in _named(call):
        if each.exchange == exchange:
            return json(paging.only_columns(item(each), call.query))
    raise not_found()


async def put(call: Call) -> web.Response:
    """PUT /api/topic-permissions/VHOST/USER: an exchange, both expressions; 201 for the first."""
    body = await call.body()
    request_body.require(body, "exchange", "write", "read")
    return await _set(call, body, request_body.text(body, "exchange"))


async def put_one(call: Call) -> web.Response:
    """PUT /api/topic-permissions/VHOST/USER/EXCHANGE: both expressions."""
    body = await call.body()
    request_body.require(body, "write", "read")
    return await _set(call, body, call.exchange_name("exchange"))


async def _set(call: Call, body: request_body.Body, exchange: str) -> web.Response:
    check_ends(call)
    write, read = (request_body.text(body, key) for key in ("write", "read"))
    check_pattern("write", write)
    check_pattern("read", read)
    user, vhost = call.name("user"), call.name("vhost")
    is_new = all((each.user, each.vhost) != (user, vhost) for each in _all(call))
    await call.propose(SetTopicPermissions(user, vhost, exchange, write, read))
    return stored(is_new=is_new)


async def delete(call: Call) -> web.Response:
    """DELETE /api/topic-permissions/VHOST/USER: all of them."""
    _named(call)
    await call.propose(ClearTopicPermissions(call.name("user"), call.vhost()))
    return no_content()


async def delete_one(call: Call) -> web.Response:
    """DELETE /api/topic-permissions/VHOST/USER/EXCHANGE."""
    exchange = call.exchange_name("exchange")
    if all(each.exchange != exchange for each in _named(call)):
        raise not_found()
    await call.propose(ClearTopicPermissions(call.name("user"), call.vhost(), exchange))
    return no_content()


_ONE = "/api/topic-permissions/{vhost}/{user}"

ROUTES = (
    listing("/api/topic-permissions", show_all, "administrator"),
    listing(_ONE, show, "administrator"),
    Endpoint("PUT", _ONE, put, "administrator"),
    Endpoint("DELETE", _ONE, delete, "administrator"),
    Endpoint("GET", _ONE + "/{exchange}", show_one, "administrator"),
    Endpoint("PUT", _ONE + "/{exchange}", put_one, "administrator"),
    Endpoint("DELETE", _ONE + "/{exchange}", delete_one, "administrator"),
    listing("/api/vhosts/{vhost}/topic-permissions", show_vhost, "administrator"),
    listing("/api/users/{user}/topic-permissions", show_user, "administrator"),
)
