"""Permissions: `/api/permissions`, and the lists of one vhost's or user's."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import bad_request, json, no_content, not_found, plain, stored
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.resources.rights import users
from broker.metadata.commands import ClearPermissions, SetPermissions
from broker.metadata.records import Permission
from broker.patterns import pattern_fault


def item(permission: Permission) -> dict[str, Any]:
    """A user's permissions in a vhost, as RabbitMQ shows them."""
    return {
        "user": plain(permission.user),
        "vhost": plain(permission.vhost),
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


async def _show(call: Call, found: list[Permission]) -> Parts:
    found.sort(key=lambda each: (each.vhost, each.user))
    return await call.listed(found, item)


async def show_all(call: Call) -> Parts:
    """GET /api/permissions."""
    return await _show(call, call.catalogue.permissions())


async def show_vhost(call: Call) -> Parts:
    """GET /api/vhosts/VHOST/permissions."""
    vhost = call.vhost()
    return await _show(call, [each for each in call.catalogue.permissions() if each.vhost == vhost])


async def show_user(call: Call) -> Parts:
    """GET /api/users/USER/permissions."""
    user = users.named(call).name
    return await _show(call, [each for each in call.catalogue.permissions() if each.user == user])


def _named(call: Call) -> Permission | None:
    """The permissions in the path, None if its user has none in its vhost.

    Raises:
        ApiError: 404 if there is no such user or vhost.
    """
    return call.catalogue.permission(users.named(call).name, call.vhost())


async def show(call: Call) -> web.Response:
    """GET /api/permissions/VHOST/USER."""
    found = _named(call)
    if found is None:
        raise not_found()
    return json(paging.only_columns(item(found), call.query))


def check_ends(call: Call) -> None:
    """Permissions join a user and a vhost that both exist.

    Raises:
        ApiError: 400, in RabbitMQ's words.
    """
    catalogue = call.catalogue
    if catalogue.user(call.name("user")) is None or catalogue.vhost(call.name("vhost")) is None:
        raise bad_request("vhost_or_user_not_found")


def check_pattern(key: str, pattern: str) -> None:
    """Refuse an expression that RE2 does not take.

    Raises:
        ApiError: 400.
    """
    fault = pattern_fault(pattern)
    if fault is not None:
        raise bad_request(f"invalid_regexp: {key}: {fault}")


async def put(call: Call) -> web.Response:
    """PUT /api/permissions/VHOST/USER: all three expressions."""
    check_ends(call)
    body = await call.body()
    request_body.require(body, "configure", "write", "read")
    patterns = [request_body.text(body, key) for key in ("configure", "write", "read")]
    for key, pattern in zip(("configure", "write", "read"), patterns, strict=True):
        check_pattern(key, pattern)
    command = SetPermissions(call.name("user"), call.name("vhost"), *patterns)
    return stored(is_new=await call.propose(command) is True)


async def delete(call: Call) -> web.Response:
    """DELETE /api/permissions/VHOST/USER."""
    if _named(call) is None:
        raise not_found()
    await call.propose(ClearPermissions(call.name("user"), call.vhost()))
    return no_content()


ROUTES = (
    listing("/api/permissions", show_all, "administrator"),
    Endpoint("GET", "/api/permissions/{vhost}/{user}", show, "administrator"),
    Endpoint("PUT", "/api/permissions/{vhost}/{user}", put, "administrator"),
    Endpoint("DELETE", "/api/permissions/{vhost}/{user}", delete, "administrator"),
    listing("/api/vhosts/{vhost}/permissions", show_vhost, "administrator"),
    listing("/api/users/{user}/permissions", show_user, "administrator"),
)
