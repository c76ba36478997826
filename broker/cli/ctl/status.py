"""The commands that describe a node or the cluster: text as rabbitmqctl's, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.cli.ctl import diagnostics, output
from broker.cli.ctl.api import Api, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import Answer


def cluster_status(api: Api, call: Invocation) -> str:
    """Return the members of the cluster and those that run."""
    found = api.get("/api/cluster/status")
    if call.values.get("formatter") == "json":
        return json.dumps(found) + "\n"
    versions = [f"{node}: {text}" for node, text in found.get("versions", {}).items()]
    maintenance = [
        f"Node: {node}, status: {status}"
        for node, status in found.get("maintenance_status", {}).items()
    ]
    listeners = [
        f"Node: {node}, interface: {one['interface']}, port: {one['port']},"
        f" protocol: {one['protocol']}"
        for node, ones in found.get("listeners", {}).items()
        for one in ones
    ]
    sections: list[tuple[str, Sequence[str]]] = [
        ("Basics", [f"Cluster name: {found.get('cluster_name', '')}"]),
        ("Disk Nodes", found.get("disk_nodes", [])),
        ("Running Nodes", found.get("running_nodes", [])),
        ("Versions", versions),
        ("Maintenance status", maintenance),
        ("Alarms", [str(alarm) for alarm in found.get("alarms", [])] or ["(none)"]),
        ("Network Partitions", _partitions(found) or ["(none)"]),
        ("Listeners", listeners),
    ]
    return _sections(sections)


def _partitions(found: Mapping[str, Any]) -> list[str]:
    """Return who does not hear whom, and what is not known of those whom nobody hears."""
    lines = [
        f"Node {node} cannot communicate with {', '.join(others)}"
        for node, others in found.get("partitions", {}).items()
    ]
    silent = [node for node, is_ in found.get("unheard_nodes", {}).items() if is_ == "silent"]
    return lines + [
        f"No node that answers hears {node}: it is cut off, stands still, or its machine is off"
        for node in silent
    ]


def status(api: Api, call: Invocation) -> str:
    """One node: version, memory, descriptors, disk, totals."""
    overview = api.get("/api/overview")
    name = overview.get("node", "")
    node = api.get(f"/api/nodes/{segment(name)}") if name else {}
    if call.values.get("formatter") == "json":
        return json.dumps({"node": node, "overview": overview}) + "\n"
    totals = overview.get("object_totals", {})
    sections: list[tuple[str, Sequence[str]]] = [
        (
            "Runtime",
            [
                f"Node: {name}",
                f"RabbitMQ version: {overview.get('rabbitmq_version', '')}",
                f"{overview.get('product_name', 'WarrenMQ')} version:"
                f" {overview.get('product_version', '')}",
                f"Uptime (seconds): {int(node.get('uptime', 0)) // 1000}",
                f"Is under maintenance?: {str(bool(node.get('being_drained'))).lower()}",
            ],
        ),
        (
            "Memory",
            [
                f"Total memory used: {_megabytes(node.get('mem_used'))}",
                f"Memory high watermark: {_megabytes(node.get('mem_limit'))}",
            ],
        ),
        ("File Descriptors", _descriptors(node)),
        ("Event Loop", _event_loop(node.get("event_loop") or {})),
        (
            "Free Disk Space",
            [
                f"Low free disk space watermark: {_megabytes(node.get('disk_free_limit'))}",
                f"Free disk space: {_megabytes(node.get('disk_free'))}",
            ],
        ),
        (
            "Totals",
            [
                f"Connection count: {totals.get('connections', 0)}",
                f"Queue count: {totals.get('queues', 0)}",
            ],
        ),
        ("Listeners", _listeners(overview.get("listeners", []), name)),
    ]
    return _sections(sections)


def _descriptors(node: Mapping[str, Any]) -> list[str]:
    """Return the file descriptors in use, and the connections in use at each listener."""
    doors = [
        f"{name.capitalize()}: {door['connections']}, limit: {door['limit']}, "
        f"refused: {door['refused']}"
        for name, door in node.get("doors", {}).items()
    ]
    return [
        f"Total: {node.get('fd_used', 0)}, limit: {node.get('fd_total', 0)}",
        f"Sockets: {node.get('sockets_used', 0)}, limit: {node.get('sockets_total', 0)}",
        *doors,
    ]


def _event_loop(facts: Mapping[str, Any]) -> list[str]:
    """How long its turns are: clients wait for as long as one lasts."""
    if not facts:
        return ["unknown"]
    return [
        f"Longest turn in the last {facts['window_s']} s: {facts['longest_turn_ms']} ms,"
        f" on the processor: {facts['longest_busy_ms']} ms",
        *_own_turn(facts),
        f"Turns over {facts['long_turn_ms']} ms since the start: {facts['long_turns']}",
    ]


def _own_turn(facts: Mapping[str, Any]) -> list[str]:
    """The longest turn as far as the machine gave the processor; older nodes don't say."""
    own_ms = facts.get("longest_own_ms")
    return [] if own_ms is None else [f"Longest but for the wait for a processor: {own_ms} ms"]


def version(api: Api, call: Invocation) -> Answer:
    """The version clients see."""
    found = str(api.get("/api/overview").get("rabbitmq_version", ""))
    value = {"version": found} if call.command == "version" else found
    return Answer(found, {"value": value})


def listeners(api: Api, _: Invocation) -> Answer:
    """Return the addresses at which this node listens."""
    overview = api.get("/api/overview")
    node = overview.get("node", "")
    found = [each for each in overview.get("listeners", []) if each.get("node") in (None, node)]
    facts = [
        {
            "node": node,
            "interface": each.get("ip_address", ""),
            "port": each.get("port", 0),
            "protocol": each.get("protocol", ""),
        }
        for each in found
    ]
    return Answer("\n".join(_listeners(found, node)), {"listeners": facts})


def environment(api: Api, _: Invocation) -> Answer:
    """The settings that act, and where each came from; no secrets."""
    found = api.get("/api/config/effective").get("settings", [])
    lines = [
        f"{each['key']} = {output.text(each['value'])}  # {', '.join(each['at']) or each['source']}"
        for each in found
    ]
    columns = ("key", "value", "source", "at")
    return Answer("\n".join(lines), {"settings": found}, columns, found)


DESCRIPTIONS: dict[str, tuple[Callable[[Api, Invocation], str | Answer], str]] = {
    "cluster_status": (cluster_status, "Cluster status of node {node} ..."),
    "status": (status, "Status of node {node} ..."),
    "info": (status, "Status of node {node} ..."),
    "server_version": (version, ""),
    "version": (version, ""),
    "listeners": (listeners, ""),
    "environment": (environment, "Application environment of node {node} ..."),
    **diagnostics.DESCRIPTIONS,
}


def _sections(sections: Sequence[tuple[str, Sequence[str]]]) -> str:
    return "".join(
        f"{title}\n\n" + "".join(f"{x}\n" for x in lines) + "\n" for title, lines in sections
    )


def _listeners(found: Sequence[Mapping[str, Any]], node: str) -> list[str]:
    return [
        f"Interface: {one.get('ip_address', '')}, port: {one.get('port', '')},"
        f" protocol: {one.get('protocol', '')}"
        for one in found
        if one.get("node") in (None, node)
    ]


def _megabytes(size_bytes: object) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if isinstance(size_bytes, int | float) else "unknown"
