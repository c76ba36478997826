"""Runtime parameters of vhosts, and global ones: `/api/parameters`, `/api/global-parameters`.

`cluster_name` and `internal_cluster_id` are listed among the global ones as in RabbitMQ; group 0
keeps them by itself.

Source: rabbit_mgmt_wm_parameter.erl, rabbit_mgmt_wm_global_parameter.erl; statuses and texts
compared with a RabbitMQ 3.10.8 node.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import ApiError, bad_request, json, no_content, not_found, stored
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.resources import policies
from broker.metadata import parameters
from broker.metadata.commands import ClearParameter, SetClusterName, SetParameter
from broker.metadata.parameters import CLUSTER_NAME, COMPUTED, INTERNAL_CLUSTER_ID
from broker.metadata.policies import Policy
from broker.metadata.records import Parameter

Item = dict[str, Any]
OPERATOR_POLICY = "operator_policy"


def _item(record: Parameter) -> Item:
    return {
        "value": record.value,
        "vhost": record.vhost,
        "component": record.component,
        "name": record.name,
    }


def _of_policy(policy: Policy) -> Item:
    """An operator policy, which RabbitMQ keeps as a parameter."""
    shown = policies.item(policy)
    kept = ("pattern", "apply-to", "definition", "priority")
    return {
        "value": {key: shown[key] for key in kept},
        "vhost": shown["vhost"],
        "component": OPERATOR_POLICY,
        "name": shown["name"],
    }


async def _show(call: Call, component: str | None = None, vhost: str | None = None) -> Parts:
    found = [
        _item(record)
        for record in call.catalogue.parameters()
        if record.vhost
        and component in {None, record.component}
        and vhost in {None, record.vhost}
        and call.sees(record.vhost)
    ]
    found += [
        _of_policy(policy)
        for policy in call.catalogue.operator_policies(vhost)
        if component in {None, OPERATOR_POLICY} and call.sees(policy.vhost)
    ]
    found.sort(key=lambda each: (each["vhost"], each["component"], each["name"]))
    return await call.listed_items(found)


async def show_all(call: Call) -> Parts:
    """GET /api/parameters."""
    return await _show(call)


async def show_component(call: Call) -> Parts:
    """GET /api/parameters/COMPONENT."""
    return await _show(call, call.name("component"))


async def show_vhost(call: Call) -> Parts:
    """GET /api/parameters/COMPONENT/VHOST."""
    return await _show(call, call.name("component"), call.vhost())


def _key(call: Call) -> tuple[str, str, str]:
    return call.vhost(), call.name("component"), call.name("name")


async def show(call: Call) -> web.Response:
    """GET /api/parameters/COMPONENT/VHOST/NAME."""
    record = call.catalogue.parameter(*_key(call))
    if record is None:
        raise not_found()
    return json(paging.only_columns(_item(record), call.query))


async def put(call: Call) -> web.Response:
    """PUT /api/parameters/COMPONENT/VHOST/NAME `{"value"}`."""
    if call.catalogue.vhost(call.name("vhost")) is None:
        raise ApiError(404, "vhost_not_found", "not_found")
    key = _key(call)
    body = await call.body()
    request_body.require(body, "value")
    fault = parameters.fault(key[1], key[2], body["value"])
    if fault == parameters.RESERVED:
        raise bad_request(fault)
    if fault is not None:
        raise bad_request(f"Validation failed\n\n{fault}\n")
    return stored(is_new=await call.propose(SetParameter(*key, body["value"])) is True)


async def delete(call: Call) -> web.Response:
    """DELETE /api/parameters/COMPONENT/VHOST/NAME."""
    if await call.propose(ClearParameter(*_key(call))) is not True:
        raise not_found()
    return no_content()


# Global ones


def _globals(call: Call) -> dict[str, Any]:
    catalogue = call.catalogue
    found = {
        record.name: record.value
        for record in catalogue.parameters()
        if not record.vhost and not record.component
    }
    return {
        **found,
        CLUSTER_NAME: catalogue.cluster_name,
        INTERNAL_CLUSTER_ID: f"rabbitmq-cluster-id-{catalogue.cluster_id}",
    }


async def show_globals(call: Call) -> Parts:
    """GET /api/global-parameters."""
    found = [{"name": name, "value": value} for name, value in sorted(_globals(call).items())]
    return await call.listed_items(found)


async def show_global(call: Call) -> web.Response:
    """GET /api/global-parameters/NAME."""
    known, name = _globals(call), call.name("name")
    if name not in known:
        raise not_found()
    return json(paging.only_columns({"value": known[name], "name": name}, call.query))


async def put_global(call: Call) -> web.Response:
    """PUT /api/global-parameters/NAME `{"value"}`; any JSON, but the cluster's name is a string."""
    name = call.name("name")
    body = await call.body()
    request_body.require(body, "value")
    if name == INTERNAL_CLUSTER_ID:
        raise bad_request(f"{name} never changes")
    if name == CLUSTER_NAME:
        await call.propose(SetClusterName(request_body.text(body, "value")))
        return no_content()
    if len(name.encode()) > parameters.NAME_BYTES_MAX:
        raise bad_request(f"a parameter's name has at most {parameters.NAME_BYTES_MAX} bytes")
    is_new = await call.propose(SetParameter("", "", name, body["value"])) is True
    return stored(is_new=is_new)


async def delete_global(call: Call) -> web.Response:
    """DELETE /api/global-parameters/NAME."""
    name = call.name("name")
    if name in COMPUTED:
        raise bad_request(f"{name} can't be cleared")
    if await call.propose(ClearParameter("", "", name)) is not True:
        raise not_found()
    return no_content()


_ONE = "/api/parameters/{component}/{vhost}/{name}"
_ONE_GLOBAL = "/api/global-parameters/{name}"

ROUTES = (
    listing("/api/parameters", show_all, "policymaker"),
    listing("/api/parameters/{component}", show_component, "policymaker"),
    listing("/api/parameters/{component}/{vhost}", show_vhost, "policymaker"),
    Endpoint("GET", _ONE, show, "policymaker"),
    Endpoint("PUT", _ONE, put, "policymaker"),
    Endpoint("DELETE", _ONE, delete, "policymaker"),
    listing("/api/global-parameters", show_globals, "policymaker"),
    Endpoint("GET", _ONE_GLOBAL, show_global, "policymaker"),
    Endpoint("PUT", _ONE_GLOBAL, put_global, "administrator"),
    Endpoint("DELETE", _ONE_GLOBAL, delete_global, "administrator"),
)
