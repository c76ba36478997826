"""Virtual hosts: `/api/vhosts`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from broker.management import paging, request_body
from broker.management.answers import (
    bad_request,
    json,
    no_content,
    not_found,
    plain,
    refuse,
    stored,
    unavailable,
)
from broker.management.call import Call, Endpoint, listing
from broker.management.listings import Parts
from broker.management.report import NODE, STATISTICS, TOTALS, Report
from broker.management.resources.queues import of_vhosts, totals
from broker.management.statistics.measured import Measured, total
from broker.management.statistics.message_stats import detailed, of_messages
from broker.metadata.commands import AddVhost, DeleteVhost
from broker.metadata.configured import limits
from broker.metadata.records import Vhost
from broker.session.traced_vhosts import TracedVhosts

TAGS_MAX = 32
NAME_BYTES_MAX = 255
"""No client could open one with a longer name."""


def _item(vhost: Vhost, reports: dict[str, Report], traced: TracedVhosts) -> dict[str, Any]:
    return {
        "cluster_state": {
            node: "running" if report.node["is_serving"] else "stopped"
            for node, report in sorted(reports.items())
        },
        "default_queue_type": vhost.default_queue_type or "undefined",
        "description": plain(vhost.description),
        **totals(reports.values(), {vhost.name}),
        **_octets(reports.values(), vhost.name),
        "message_stats": of_messages(of_vhosts(reports.values(), {vhost.name})),
        "metadata": {
            "description": plain(vhost.description),
            "tags": list(vhost.tags),
            **({"default_queue_type": default} if (default := vhost.default_queue_type) else {}),
        },
        "name": plain(vhost.name),
        "tags": list(vhost.tags),
        "tracing": vhost.name in traced.firehose,
        **({"tracing_acks": True} if vhost.name in traced.with_acks else {}),
    }


def _octets(reports: Iterable[Report], vhost: str) -> dict[str, Any]:
    """The bytes of a vhost's clients, of those that have gone too, with their rates."""
    known = (report.statistics.octets.get(vhost, Measured((0, 0))) for report in reports)
    return detailed(("recv_oct", "send_oct"), total(known))


async def show_all(call: Call) -> Parts:
    """GET /api/vhosts."""
    reports = await call.reports.gather(NODE, TOTALS, STATISTICS, ages=call.ages())
    return await call.listed(
        [vhost for vhost in call.catalogue.vhosts() if call.sees(vhost.name)],
        lambda vhost: _item(vhost, reports, call.serving.context.traced),
        order=lambda vhost: vhost.name,
        name=lambda vhost: plain(vhost.name),
    )


async def show(call: Call) -> web.Response:
    """GET /api/vhosts/VHOST."""
    vhost = call.catalogue.vhost(call.vhost())
    if vhost is None:
        raise not_found()
    reports = await call.reports.gather(NODE, TOTALS, STATISTICS, ages=call.ages())
    traced = call.serving.context.traced
    return json(paging.only_columns(_item(vhost, reports, traced), call.query))


async def start(call: Call) -> web.Response:
    """POST /api/vhosts/VHOST/start/NODE: a vhost runs on every node, so nothing is left to do.

    Raises:
        ApiError: 400: the node does not run.
    """
    call.vhost()
    node = call.catalogue.node(call.name("node"))
    if node is None:
        raise not_found()
    if not node.alive:
        raise bad_request(f"node {node.name} is not running")
    return no_content()


async def put(call: Call) -> web.Response:
    """PUT /api/vhosts/VHOST; who makes it gets all permissions in it.

    With `"grant": false` (ours, for rabbitmqctl's add_vhost) no user gets any.
    """
    name = call.name("vhost")
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise bad_request(f"a vhost's name has 1 to {NAME_BYTES_MAX} bytes")
    body = await call.body()
    default = request_body.text(body, "default_queue_type", "")
    metadata = body.get("metadata")
    merged = {**metadata, **body} if isinstance(metadata, dict) else body
    command = AddVhost(
        name=name,
        description=request_body.text(merged, "description", ""),
        tags=request_body.labels(merged, "tags", TAGS_MAX),
        default_queue_type=default or None,
        user=call.user.name if request_body.flag(body, "grant", default=True) else "",
    )
    refusal = limits.vhost_refusal(call.catalogue, name, call.control.settings.vhost_max)
    if refusal is not None:
        refuse(refusal)
    is_new = await call.propose(command) is True
    if is_new:
        await call.operations.seeding.plant(name, call.catalogue, call.proposed)
    if "tracing" in body:
        await _trace(call, name, is_traced=request_body.flag(body, "tracing"))
    return stored(is_new=is_new)


async def _trace(call: Call, vhost: str, *, is_traced: bool, with_acks: bool = False) -> None:
    """Switch the firehose.

    Raises:
        ApiError: 503, not all nodes did it; those that did go on.
    """
    failed = await call.operations.tracing.set(vhost, is_traced=is_traced, with_acks=with_acks)
    if failed:
        raise unavailable(f"not on all nodes, try again: {'; '.join(failed)}")


async def trace(call: Call) -> web.Response:
    """PUT and DELETE /api/vhosts/VHOST/tracing (ours): the firehose, and nothing else of it.

    With `"acks": true` acknowledgements leave copies, too.
    """
    name = call.vhost()
    if call.catalogue.vhost(name) is None:
        raise not_found()
    is_traced = call.request.method == "PUT"
    with_acks = is_traced and request_body.flag(await call.body(), "acks")
    await _trace(call, name, is_traced=is_traced, with_acks=with_acks)
    return no_content()


async def delete(call: Call) -> web.Response:
    """DELETE /api/vhosts/VHOST, with all that is in it."""
    if await call.propose(DeleteVhost(call.name("vhost"))) is False:
        raise not_found()
    return no_content()


ROUTES = (
    listing("/api/vhosts", show_all),
    Endpoint("GET", "/api/vhosts/{vhost}", show),
    Endpoint("PUT", "/api/vhosts/{vhost}", put, "administrator"),
    Endpoint("DELETE", "/api/vhosts/{vhost}", delete, "administrator"),
    Endpoint("POST", "/api/vhosts/{vhost}/start/{node}", start, "administrator"),
    Endpoint("PUT", "/api/vhosts/{vhost}/tracing", trace, "administrator"),
    Endpoint("DELETE", "/api/vhosts/{vhost}/tracing", trace, "administrator"),
)
