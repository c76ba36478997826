"""The cluster as `warrenmq ctl cluster_status` shows it, and forgetting a member. Ours alone."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.errors import Refusal
from broker.management.answers import bad_request, json, no_content, not_found, refuse
from broker.management.call import Call, Endpoint
from broker.management.control import NodeError
from broker.management.report import NODE
from broker.management.resources.node.reachability import partitions, unheard


async def status(call: Call) -> web.Response:
    """GET /api/cluster/status; also of a node that belongs to no cluster."""
    control = call.control
    cluster = control.cluster
    reports = await call.reports.gather(NODE)
    facts = {node: report.node for node, report in reports.items()}
    names = {node.name for node in cluster.metadata.catalogue.nodes()} if cluster else set()
    found: dict[str, Any] = {
        "cluster_name": cluster.metadata.catalogue.cluster_name if cluster else "",
        "cluster_id": cluster.file.identity.cluster_id if cluster else "",
        "node": control.name,
        "disk_nodes": sorted(names | {control.name}),
        "ram_nodes": [],
        "running_nodes": sorted(
            node for node, report in reports.items() if report.node["is_serving"]
        ),
        "partitions": partitions(facts),
        "unheard_nodes": unheard(facts, names),
        "alarms": [
            f"{node}: {name}"
            for node, report in sorted(reports.items())
            for name in ("memory", "disk", "file_descriptor_limit")
            if report.node.get(f"{name}_alarm")
        ],
        "versions": {
            node: f"RabbitMQ {report.node['compat_version']}, WarrenMQ {report.node['version']}"
            for node, report in sorted(reports.items())
        },
        "maintenance_status": {
            node.name: "under maintenance" if node.being_drained else "not under maintenance"
            for node in (cluster.metadata.catalogue.nodes() if cluster else ())
        },
        "listeners": {
            node: [
                {
                    "interface": listener["ip_address"],
                    "port": listener["port"],
                    "protocol": listener["protocol"],
                }
                for listener in report.node["listeners"]
            ]
            for node, report in sorted(reports.items())
        },
        "metadata_leader": (cluster.metadata.leader if cluster else None) or "",
    }
    return json(found)


async def forget(call: Call) -> web.Response:
    """DELETE /api/cluster/nodes/NODE: remove a stopped member for good."""
    name = call.name("node")
    node = call.catalogue.node(name)
    if node is None:
        raise not_found()
    if name == call.control.name:
        raise bad_request("a node can't forget itself: use reset, or ask another member")
    if node.alive:
        raise bad_request(f"node {name} is running: stop it first")
    try:
        result = await call.control.forget(name, call.by)
    except NodeError as error:
        raise bad_request(str(error)) from error
    if isinstance(result, Refusal):
        refuse(result)
    if result is False:
        raise not_found()
    return no_content()


ROUTES = (
    Endpoint("GET", "/api/cluster/status", status, "monitoring"),
    Endpoint("DELETE", "/api/cluster/nodes/{node}", forget, "administrator"),
)
