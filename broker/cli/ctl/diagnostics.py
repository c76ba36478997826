"""Commands of rabbitmq-diagnostics and rabbitmq-queues that ask the HTTP API and change nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from broker.cli.ctl.api import EXIT_UNAVAILABLE, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import PollUntilTimeout
from broker.cli.ctl.output import Answer

CONNECT_TIMEOUT_S: Final = 5.0
_UNITS: Final = {"bytes": 1, "mb": 10**6, "gb": 10**9}
_AWAIT_S: Final = 120.0
"""As rabbitmq-upgrade's await_* without --timeout."""


def _as_json(call: Invocation) -> bool:
    return call.values.get("formatter") == "json"


def alarms(api: Api, _call: Invocation) -> Answer:
    """The alarms that are set, of all nodes."""
    rows = [
        {"node": node["name"], "alarm": alarm}
        for node in api.get("/api/nodes")
        for alarm, key in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
        if node.get(key)
    ]
    lines = [f"{row['alarm']} alarm on node {row['node']}" for row in rows]
    return Answer("\n".join(lines) or "No alarms are set, cluster-wide", {"alarms": rows})


def memory_breakdown(api: Api, call: Invocation) -> str:
    """What takes the node's memory, the largest first.

    Raises:
        UsageError: 64 for an unknown --unit.
    """
    unit = call.values.get("unit", "gb").lower()
    if unit not in _UNITS:
        known = ", ".join(_UNITS)
        raise UsageError(f"unit '{unit}' is not supported. Please use one of: {known}")
    name = str(api.get("/api/overview").get("node", ""))
    parts = api.get(f"/api/nodes/{segment(name)}/memory")["memory"]
    total = max(parts["total"].values())
    sizes = {key: size for key, size in parts.items() if key not in {"strategy", "total"}}
    found = {
        key: {"bytes": size, "percentage": round(100 * size / total, 2)}
        for key, size in sorted(sizes.items(), key=lambda part: part[1], reverse=True)
    }
    if _as_json(call):
        return json.dumps(found) + "\n"
    divisor = _UNITS[unit]
    return "".join(
        f"{key}: {round(part['bytes'] / divisor, 4) if divisor > 1 else part['bytes']} {unit} "
        f"({part['percentage']}%)\n"
        for key, part in found.items()
    )


def report(api: Api, call: Invocation) -> str:
    """Everything that a support request needs: the node, the cluster and what is in it."""
    paths = ("overview", "nodes", "vhosts", "policies", "queues", "exchanges", "connections")
    found = {path: api.get(f"/api/{path}") for path in paths}
    if _as_json(call):
        return json.dumps(found) + "\n"
    return "".join(f"{path}:\n{json.dumps(each, indent=1)}\n\n" for path, each in found.items())


def check_port_connectivity(api: Api, _call: Invocation) -> str:
    """Connect to each port at which the node listens for clients.

    Raises:
        CtlError: 69 with those that do not accept.
    """
    overview = api.get("/api/overview")
    host = urlsplit(api.url).hostname or "127.0.0.1"
    refused = []
    for listener in overview.get("listeners", []):
        if listener["node"] != overview["node"] or listener["protocol"] == "clustering":
            continue
        own = str(listener.get("ip_address", ""))
        address = host if own in {"", "::", "0.0.0.0"} else own  # noqa: S104 - compared, not bound
        try:
            socket.create_connection((address, listener["port"]), CONNECT_TIMEOUT_S).close()
        except OSError as why:
            refused.append(f"{listener['protocol']} at {address}:{listener['port']}: {why}")
    if refused:
        raise CtlError(EXIT_UNAVAILABLE, "Connection failed to: " + "; ".join(refused))
    return f"Successfully connected to all ports of node {overview['node']}."


def quorum_status(api: Api, call: Invocation) -> str:
    """The members of a quorum queue, which of them run, and who leads."""
    path = f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}"
    queue = api.get(path)
    if queue.get("type") != "quorum":
        raise CtlError(EXIT_UNAVAILABLE, f"queue '{call.arguments[0]}' is not a quorum queue")
    leader, online = queue.get("leader"), queue.get("online", [])
    rows = [
        {
            "Node Name": member,
            "Raft State": "leader" if member == leader else "follower",
            "Online": member in online,
        }
        for member in queue.get("members", [])
    ]
    if _as_json(call):
        return json.dumps(rows)
    lines = ["Node Name\tRaft State\tOnline"]
    lines += [f"{row['Node Name']}\t{row['Raft State']}\t{row['Online']}" for row in rows]
    return "\n".join(lines)


def why(api: Api, call: Invocation) -> str:
    """Why a queue does not drain, or that it is well: a sentence, what proves it, what helps."""
    path = f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}/why"
    found = api.get(path)
    if _as_json(call):
        return json.dumps(found) + "\n"
    lines: list[str] = []
    for each in (found, *found["also"]):
        lines += [each["text"], *(f"  {proof}" for proof in each["proof"])]
        if each["advice"]:
            lines.append(f"  -> {each['advice']}")
    return "\n".join(lines)


def list_policies_that_match(api: Api, call: Invocation) -> str:
    """The policies of the vhost whose pattern matches a queue, the one that applies first."""
    import re2

    name = call.arguments[0]
    api.get(f"/api/queues/{segment(call.vhost)}/{segment(name)}")
    found = [
        each
        for each in api.get(f"/api/policies/{segment(call.vhost)}")
        if each.get("apply-to") != "exchanges" and re2.search(each["pattern"], name) is not None
    ]
    found.sort(key=lambda each: -int(each.get("priority", 0)))
    if _as_json(call):
        return json.dumps(found)
    if not found:
        return f"No policies match queue '{name}'"
    lines = ["name\tpattern\tapply-to\tpriority"]
    lines += [f"{p['name']}\t{p['pattern']}\t{p['apply-to']}\t{p['priority']}" for p in found]
    return "\n".join(lines)


def awaits(check: str, missing: str) -> Callable[[Api, Invocation], str | None]:
    """Wait until one of /api/health/checks is fine, as before a node is stopped.

    Args:
        check: Its name.
        missing: What there is until then, for the error of a timeout.
    """

    def run(api: Api, call: Invocation) -> str | None:
        with PollUntilTimeout(call, _AWAIT_S) as poll:
            while api.status_of(f"/api/health/checks/{check}") != HTTPStatus.OK:
                poll.show(missing)
                poll.wait(missing)
        return None

    return run


def enable_feature_flag(api: Api, call: Invocation) -> None:
    """Enable a flag, or `all` of them."""
    name = call.arguments[0]
    if name == "all":
        flags = api.get("/api/feature-flags")
        names = [each["name"] for each in flags if each["state"] == "disabled"]
    else:
        names = [name]
    for each in names:
        api.ask("PUT", f"/api/feature-flags/{segment(each)}/enable", {})


def is_booting(api: Api, _call: Invocation) -> str:
    """Tell whether the node answers but serves no clients yet."""
    is_ready = api.status_of("/readyz") == HTTPStatus.OK
    return "the node has booted" if is_ready else "the node is still booting"


DESCRIPTIONS: Final[dict[str, tuple[Callable[[Api, Invocation], str | Answer], str]]] = {
    "alarms": (alarms, "Asking node {node} to report any known resource alarms ..."),
    "memory_breakdown": (memory_breakdown, "Reporting memory breakdown on node {node} ..."),
    "report": (report, "Reporting server status of node {node} ..."),
}
