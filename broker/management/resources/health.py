"""Health checks: `/api/health/checks`, and the older aliveness test.

200 `{"status":"ok"}`, or 503 with `"status":"failed"` and a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from broker.errors import quoted
from broker.management.answers import UNAVAILABLE, bad_request, json, not_found
from broker.management.call import Call, Route
from broker.management.reports import NODE, QUEUES, Report
from broker.management.resources.messages import prove_alive
from broker.management.resources.queues import QueueStates
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue

_PROTOCOLS: Final = {
    "amqp": "amqp",
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp10": "amqp10",
    "http": "http",
    "clustering": "clustering",
}
_PORT_MAX: Final = 65_535


def _ok(**more: object) -> web.Response:
    return json({"status": "ok", **more})


def _failed(reason: str, **more: object) -> web.Response:
    return json({"status": "failed", "reason": reason, **more}, UNAVAILABLE)


def _alarms(reports: Mapping[str, Report]) -> list[dict[str, str]]:
    return [
        {"node": node, "resource": resource}
        for node, report in reports.items()
        for resource in ("memory", "disk", "file_descriptor_limit")
        if report.node.get(f"{resource}_alarm")
    ]


async def alarms(call: Call) -> web.Response:
    """GET /api/health/checks/alarms: no node is short of memory, disk or files."""
    found = _alarms(await call.reports.gather(NODE))
    return _failed("There are alarms in effect in the cluster", alarms=found) if found else _ok()


async def local_alarms(call: Call) -> web.Response:
    """GET /api/health/checks/local-alarms: this node is not."""
    reports = await call.reports.gather(NODE)
    found = _alarms({call.control.name: reports[call.control.name]})
    return _failed("There are local alarms in effect", alarms=found) if found else _ok()


async def virtual_hosts(call: Call) -> web.Response:
    """GET /api/health/checks/virtual-hosts: all vhosts run here, which they do while we serve."""
    if call.control.serving is None:
        names = [vhost.name for vhost in call.catalogue.vhosts()]
        return _failed("Some virtual hosts are down", **{"virtual-hosts": names})
    return _ok()


async def port_listener(call: Call) -> web.Response:
    """GET /api/health/checks/port-listener/PORT."""
    text = call.name("port")
    if not text.isascii() or not text.isdigit() or int(text[:6]) > _PORT_MAX:
        raise bad_request(f"Invalid port: {text[:20]}")
    port = int(text[:6])
    ports = [listener["port"] for listener in await _listeners(call)]
    if port in ports:
        return _ok(port=port)
    return _failed("No active listener", missing=port, ports=ports)


async def protocol_listener(call: Call) -> web.Response:
    """GET /api/health/checks/protocol-listener/PROTOCOL."""
    name = call.name("protocol")
    protocols = [listener["protocol"] for listener in await _listeners(call)]
    if _PROTOCOLS.get(name.lower(), "") in protocols:
        return _ok(protocol=name)
    return _failed("No active listener", missing=name, protocols=protocols)


async def _listeners(call: Call) -> list[dict[str, Any]]:
    reports = await call.reports.gather(NODE)
    found: list[dict[str, Any]] = reports[call.control.name].node["listeners"]
    return found


async def quorum_critical(call: Call) -> web.Response:
    """GET /api/health/checks/node-is-quorum-critical: may this node stop without harm?"""
    here = call.control.name
    if len(call.catalogue.nodes()) == 1:
        return _ok(reason="single node cluster")
    states = QueueStates(await call.reports.gather(QUEUES))
    critical = []
    for queue in call.catalogue.all_queues():
        if queue.type == "quorum" and here in queue.members:
            left = [node for node in states.online_members(queue) if node != here]
            if len(left) <= len(queue.members) // 2:
                critical.append(
                    {
                        "name": queue.name,
                        "readable_name": f"queue '{queue.name}' in virtual host '{queue.vhost}'",
                        "type": "quorum",
                        "virtual_host": queue.vhost,
                    }
                )
    if critical:
        return _failed("There are quorum queues that would lose their quorum", queues=critical)
    return _ok()


async def mirror_sync_critical(call: Call) -> web.Response:
    """GET /api/health/checks/node-is-mirror-sync-critical: may this node stop without harm?

    It fails for mirrored queues whose master is here without a synchronised mirror elsewhere.
    """
    if len(call.catalogue.nodes()) == 1:
        return _ok(reason="single node cluster")
    critical = [
        {
            "name": queue.name,
            "readable_name": quoted("queue", queue.name, queue.vhost),
            "type": queue.type,
            "virtual_host": queue.vhost,
        }
        for queue in call.catalogue.queues_on(call.control.name)
        if _is_only_copy_on(queue, call.control.name, call.catalogue)
    ]
    if critical:
        text = "There are classic mirrored queues without online synchronised mirrors"
        return _failed(text, queues=critical)
    return _ok()


def _is_only_copy_on(queue: Queue, node: str, catalogue: Catalogue) -> bool:
    """True for a queue that shall be mirrored and has all of its messages on one node only."""
    ring = queue.ring
    if ring is None:
        return queue.home == node and catalogue.ha_policy(queue) is not None
    if ring.master is None or ring.master.node != node:
        return False
    return not any(mirror in ring.synced for mirror in ring.mirrors())


async def aliveness(call: Call) -> web.Response:
    """GET /api/aliveness-test/VHOST: declare a queue, publish to it, take the message."""
    await prove_alive(call, call.vhost())
    return _ok()


async def node_check(call: Call) -> web.Response:
    """GET /api/healthchecks/node[/NODE], RabbitMQ's old check: the node serves, without alarms."""
    name = call.request.match_info.get("node", call.control.name)
    if call.catalogue.node(name) is None:
        raise not_found()
    report = (await call.reports.gather(NODE)).get(name)
    if report is None or not report.node["is_serving"]:
        return _failed(f"node {name} does not serve clients")
    if _alarms({name: report}):
        return _failed("resource alarm(s) in effect")
    return _ok()


_CHECKS = "/api/health/checks/"

ROUTES = (
    Route("GET", _CHECKS + "alarms", alarms),
    Route("GET", _CHECKS + "local-alarms", local_alarms),
    Route("GET", _CHECKS + "virtual-hosts", virtual_hosts),
    Route("GET", _CHECKS + "port-listener/{port}", port_listener),
    Route("GET", _CHECKS + "protocol-listener/{protocol}", protocol_listener),
    Route("GET", _CHECKS + "node-is-quorum-critical", quorum_critical),
    Route("GET", _CHECKS + "node-is-mirror-sync-critical", mirror_sync_critical),
    Route("GET", "/api/aliveness-test/{vhost}", aliveness),
    Route("GET", "/api/healthchecks/node", node_check),
    Route("GET", "/api/healthchecks/node/{node}", node_check),
)
