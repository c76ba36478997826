"""Health checks: `/api/health/checks`, and the older aliveness test.

200 `{"status":"ok"}`, or 503 with `"status":"failed"` and a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from broker.errors import quoted
from broker.management.answers import UNAVAILABLE, bad_request, json, not_found
from broker.management.call import Call, Endpoint
from broker.management.pace import kept
from broker.management.report import NODE, QUEUES, Report
from broker.management.resources.checks.stop_safety import is_only_copy_on
from broker.management.resources.messages import prove_alive
from broker.management.resources.queues import QueueStates, group_sizes
from broker.metadata.records import REPLICATED, Queue

_PROTOCOLS: Final = {
    "amqp": "amqp",
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp/ssl": "amqp/ssl",
    "amqps": "amqp/ssl",
    "https": "https",
    "amqp10": "amqp10",
    "http": "http",
    "http/prometheus": "http/prometheus",
    "https/prometheus": "https/prometheus",
    "clustering": "clustering",
}
_RESOURCES: Final = {
    "memory": "memory",
    "disk": "disk space",
    "file_descriptor_limit": "file descriptors",
}
"""What rabbit_alarm.erl's format_as_map/1 calls them."""
_PORT_MAX: Final = 65_535


def _ok(**more: object) -> web.Response:
    return json({"status": "ok", **more})


def _failed(reason: str, **more: object) -> web.Response:
    return json({"status": "failed", "reason": reason, **more}, UNAVAILABLE)


def _alarms(reports: Mapping[str, Report]) -> list[dict[str, str]]:
    return [
        {"node": node, "resource": word}
        for node, report in reports.items()
        for resource, word in _RESOURCES.items()
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
    """GET /api/health/checks/node-is-quorum-critical: ok if no queue loses its majority."""
    here = call.control.name
    if len(call.catalogue.nodes()) == 1:
        return _ok(reason="single node cluster")
    run = call.reports.pace.run
    states = await run(QueueStates.merged(await call.reports.gather(QUEUES)))

    def is_critical(queue: Queue) -> bool:
        if queue.type not in REPLICATED or here not in queue.members:
            return False
        left = [node for node in states.online_members(queue) if node != here]
        return len(left) <= len(queue.members) // 2

    critical = [
        {
            "name": queue.name,
            "readable_name": f"queue '{queue.name}' in virtual host '{queue.vhost}'",
            "type": queue.type,
            "virtual_host": queue.vhost,
        }
        for queue in await run(kept(call.catalogue.all_queues(), is_critical))
    ]
    if critical:
        return _failed("There are quorum queues that would lose their quorum", queues=critical)
    return _ok()


async def below_target_size(call: Call) -> web.Response:
    """GET /api/health/checks/quorum-queues-below-target-size: all have the replicas they should.

    RabbitMQ has no such check.
    """
    run = call.reports.pace.run
    states = await run(QueueStates.merged(await call.reports.gather(QUEUES)))
    sizes = group_sizes(call)
    found = await run(
        kept(
            call.catalogue.all_queues(),
            lambda queue: (
                queue.type == "quorum" and sizes.missing(queue, states.voters(queue.uid)) > 0
            ),
        )
    )
    short = [
        {
            "name": queue.name,
            "readable_name": quoted("queue", queue.name, queue.vhost),
            "type": queue.type,
            "virtual_host": queue.vhost,
            "members": list(queue.members),
            "missing_members": sizes.missing(queue, states.voters(queue.uid)),
            "target_group_size": sizes.target(queue),
        }
        for queue in found
    ]
    if short:
        return _failed("There are quorum queues with too few replicas", queues=short)
    return _ok()


async def without_vote(call: Call) -> web.Response:
    """GET /api/health/checks/quorum-replicas-without-vote: all replicas on this node may vote.

    RabbitMQ has it as a command only (list_with_local_promotable_for_cli/0).
    """
    run, here = call.reports.pace.run, call.control.name
    states = await run(QueueStates.merged(await call.reports.gather(QUEUES)))

    def is_new(queue: Queue) -> bool:
        is_member = queue.type in REPLICATED and here in queue.members
        return is_member and here not in (states.voters(queue.uid) or (here,))

    found = [
        {
            "name": queue.name,
            "readable_name": quoted("queue", queue.name, queue.vhost),
            "type": queue.type,
            "virtual_host": queue.vhost,
        }
        for queue in await run(kept(call.catalogue.all_queues(), is_new))
    ]
    if found:
        return _failed("There are replicas on this node without a vote", queues=found)
    return _ok()


async def mirror_sync_critical(call: Call) -> web.Response:
    """GET /api/health/checks/node-is-mirror-sync-critical: ok if no mirrored queue needs this node.

    It fails for mirrored queues whose master is here without a synchronised mirror elsewhere.
    """
    here = call.control.name
    if len(call.catalogue.nodes()) == 1:
        return _ok(reason="single node cluster")

    def is_critical(queue: Queue) -> bool:
        return is_only_copy_on(queue, here, call.catalogue)

    critical = [
        {
            "name": queue.name,
            "readable_name": quoted("queue", queue.name, queue.vhost),
            "type": queue.type,
            "virtual_host": queue.vhost,
        }
        for queue in await call.reports.pace.run(kept(call.catalogue.queues_on(here), is_critical))
    ]
    if critical:
        text = "There are classic mirrored queues without online synchronised mirrors"
        return _failed(text, queues=critical)
    return _ok()


async def aliveness(call: Call) -> web.Response:
    """GET /api/aliveness-test/VHOST: declare a queue, publish to it, take the message."""
    await prove_alive(call, call.vhost())
    return _ok()


async def node_check(call: Call) -> web.Response:
    """GET /api/healthchecks/node[/NODE], RabbitMQ's old check: the node serves, without alarms."""
    name = call.names.get("node", call.control.name)
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
    Endpoint("GET", _CHECKS + "alarms", alarms),
    Endpoint("GET", _CHECKS + "local-alarms", local_alarms),
    Endpoint("GET", _CHECKS + "virtual-hosts", virtual_hosts),
    Endpoint("GET", _CHECKS + "port-listener/{port}", port_listener),
    Endpoint("GET", _CHECKS + "protocol-listener/{protocol}", protocol_listener),
    Endpoint("GET", _CHECKS + "node-is-quorum-critical", quorum_critical),
    Endpoint("GET", _CHECKS + "quorum-queues-below-target-size", below_target_size),
    Endpoint("GET", _CHECKS + "quorum-replicas-without-vote", without_vote),
    Endpoint("GET", _CHECKS + "node-is-mirror-sync-critical", mirror_sync_critical),
    Endpoint("GET", "/api/aliveness-test/{vhost}", aliveness),
    Endpoint("GET", "/api/healthchecks/node", node_check),
    Endpoint("GET", "/api/healthchecks/node/{node}", node_check),
)
