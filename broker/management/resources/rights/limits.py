"""Limits of vhosts and of users: `/api/vhost-limits`, `/api/user-limits`.

Source: rabbit_mgmt_wm_limit.erl, rabbit_mgmt_wm_limits.erl, rabbit_mgmt_wm_user_limit.erl,
rabbit_mgmt_wm_user_limits.erl; statuses and texts compared with a RabbitMQ 3.10.8 node.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.management import request_body
from broker.management.answers import ApiError, bad_request, no_content
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.resources.rights import users
from broker.metadata import parameters
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import ClearParameter, SetParameter, SetUserLimits
from broker.metadata.parameters import LIMITS_COMPONENT, LIMITS_NAME, USER_LIMITS
from broker.metadata.records import User


def of_vhost(catalogue: Catalogue, vhost: str) -> dict[str, Any]:
    """A vhost's limits, {} without any."""
    record = catalogue.parameter(vhost, LIMITS_COMPONENT, LIMITS_NAME)
    return dict(record.value) if record is not None and isinstance(record.value, dict) else {}


async def _vhost_items(call: Call, names: list[str]) -> Parts:
    found = [(name, of_vhost(call.catalogue, name)) for name in sorted(names)]
    items = [{"vhost": name, "value": limits} for name, limits in found if limits]
    return await call.listed_items(items)


async def show_vhosts(call: Call) -> Parts:
    """GET /api/vhost-limits."""
    names = [vhost.name for vhost in call.catalogue.vhosts() if call.sees(vhost.name)]
    return await _vhost_items(call, names)


async def show_vhost(call: Call) -> Parts:
    """GET /api/vhost-limits/VHOST."""
    return await _vhost_items(call, [call.vhost()])


async def _value(call: Call) -> Any:
    body = await call.body()
    request_body.require(body, "value")
    return body["value"]


async def put_vhost(call: Call) -> web.Response:
    """PUT /api/vhost-limits/VHOST/NAME `{"value"}`; the vhost's others stay."""
    vhost = call.name("vhost")
    if call.catalogue.vhost(vhost) is None:
        raise ApiError(404, "vhost_not_found", "not_found")
    change = {call.name("name"): await _value(call)}
    fault = parameters.fault(LIMITS_COMPONENT, LIMITS_NAME, change)
    if fault is not None:
        raise bad_request(f"Validation failed\n\n{fault}\n")
    await _put(call, vhost, {**of_vhost(call.catalogue, vhost), **change})
    return no_content()


async def delete_vhost(call: Call) -> web.Response:
    """DELETE /api/vhost-limits/VHOST/NAME; 204 also if there was none."""
    vhost = call.vhost()
    limits = of_vhost(call.catalogue, vhost)
    if limits.pop(call.name("name"), None) is not None:
        await _put(call, vhost, limits)
    return no_content()


async def _put(call: Call, vhost: str, limits: dict[str, Any]) -> None:
    if limits:
        await call.propose(SetParameter(vhost, LIMITS_COMPONENT, LIMITS_NAME, limits))
    else:
        await call.propose(ClearParameter(vhost, LIMITS_COMPONENT, LIMITS_NAME))


async def _user_items(call: Call, found: list[User]) -> Parts:
    items = [
        {"user": user.name, "value": dict(sorted(user.limits.items()))}
        for user in sorted(found, key=lambda user: user.name)
        if user.limits
    ]
    return await call.listed_items(items)


async def show_users(call: Call) -> Parts:
    """GET /api/user-limits."""
    return await _user_items(call, call.catalogue.users())


async def show_user(call: Call) -> Parts:
    """GET /api/user-limits/USER."""
    return await _user_items(call, [users.named(call)])


async def put_user(call: Call) -> web.Response:
    """PUT /api/user-limits/USER/NAME `{"value"}`; the user's others stay."""
    user = call.name("user")
    if call.catalogue.user(user) is None:
        raise bad_request(f"no_such_user: {user[:255]}")
    change = {call.name("name"): await _value(call)}
    fault = parameters.limits_fault(change, USER_LIMITS, "user-limits")
    if fault is not None:
        raise bad_request(fault)
    await call.propose(SetUserLimits(user, change, is_update=True))
    return no_content()


async def put_all_of_user(call: Call) -> web.Response:
    """PUT /api/user-limits/USER `{"value": {NAME: NUMBER}}`: all at once; others stay. Ours."""
    user = users.named(call).name
    limits = await _value(call)
    fault = parameters.limits_fault(limits, USER_LIMITS, "user-limits")
    if fault is not None:
        raise bad_request(fault)
    await call.propose(SetUserLimits(user, limits, is_update=True))
    return no_content()


async def delete_all_of_user(call: Call) -> web.Response:
    """DELETE /api/user-limits/USER. Ours."""
    await call.propose(SetUserLimits(users.named(call).name, {}))
    return no_content()


async def delete_user(call: Call) -> web.Response:
    """DELETE /api/user-limits/USER/NAME; 204 also if there was none."""
    user = users.named(call).name
    await call.propose(SetUserLimits(user, {}, is_update=True, removed=(call.name("name"),)))
    return no_content()


ROUTES = (
    listing("/api/vhost-limits", show_vhosts),
    listing("/api/vhost-limits/{vhost}", show_vhost),
    Endpoint("PUT", "/api/vhost-limits/{vhost}/{name}", put_vhost, "administrator"),
    Endpoint("DELETE", "/api/vhost-limits/{vhost}/{name}", delete_vhost, "administrator"),
    listing("/api/user-limits", show_users, "administrator"),
    listing("/api/user-limits/{user}", show_user, "administrator"),
    Endpoint("PUT", "/api/user-limits/{user}", put_all_of_user, "administrator"),
    Endpoint("DELETE", "/api/user-limits/{user}", delete_all_of_user, "administrator"),
    Endpoint("PUT", "/api/user-limits/{user}/{name}", put_user, "administrator"),
    Endpoint("DELETE", "/api/user-limits/{user}/{name}", delete_user, "administrator"),
)
