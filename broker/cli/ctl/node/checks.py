"""Checks of rabbitmq-diagnostics that are answered from listings, and counts of logins.

Source: the commands of rabbitmq_cli 3.13 (texts, keys).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from broker.cli.ctl.api import EXIT_SOFTWARE, EXIT_UNAVAILABLE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import Answer, table

_ATTEMPTS = ("protocol", "auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
_SOURCES = ("remote_address", "username", *_ATTEMPTS)


def _own_name(api: Api) -> str:
    return str(api.get("/api/overview")["node"])


def node_health_check(api: Api, _: Invocation) -> str:
    """RabbitMQ's old check: the node serves, without alarms."""
    status, answer = api.look("/api/healthchecks/node")
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        why = answer.get("reason", "") if isinstance(answer, dict) else ""
        raise CtlError(EXIT_SOFTWARE, f"Error: healthcheck failed. Message: {why}", is_plain=True)
    api.judge(status, answer)
    return "Health check passed"


def check_mirroring_policy(api: Api, _: Invocation) -> str:
    """Fail if a policy, or an operator policy, mirrors classic queues."""
    lines = [
        f"{title} {each['name']} enables classic queue mirroring"
        for title, path in (("Policy", "policies"), ("Operator policy", "operator-policies"))
        for each in api.get(f"/api/{path}")
        if "ha-mode" in each.get("definition", {})
    ]
    if lines:
        raise CtlError(EXIT_UNAVAILABLE, "\n".join(lines))
    return "Cluster reported no policies enabling classic queue mirroring"


def list_deprecated_features(api: Api, _: Invocation) -> Answer:
    """List what RabbitMQ 3.13 deprecates; here it is all permitted, and stays."""
    found: list[dict[str, Any]] = api.get("/api/deprecated-features")
    return table(("name", "deprecation_phase"), found, "features", "")


def check_deprecated_features(api: Api, _: Invocation) -> str:
    """Fail if a policy or a queue makes use of any."""
    used = [each["name"] for each in api.get("/api/deprecated-features/used")]
    if used:
        text = f"Cluster reported the following deprecated features in use: {', '.join(used)}"
        raise CtlError(EXIT_UNAVAILABLE, text)
    return "Cluster reported no deprecated features in use"


def list_auth_attempts(api: Api, call: Invocation) -> Answer:
    """Count logins that were tried at the node, by protocol or by source."""
    is_by_source = "by_source" in call.flags
    name = _own_name(api)
    path = f"/api/auth/attempts/{segment(name)}" + ("/source" if is_by_source else "")
    found: list[dict[str, Any]] = api.get(path)
    columns = _SOURCES if is_by_source else _ATTEMPTS
    empty = f"Node {name} reported no authentication attempt stats"
    return table(columns, found, "attempts", empty)


def reset_auth_attempts(api: Api, _: Invocation) -> None:
    """Count them anew."""
    api.request("DELETE", f"/api/auth/attempts/{segment(_own_name(api))}")


def enable_source_tracking(api: Api, _: Invocation) -> str:
    """Nothing to do: sources are always counted."""
    api.get("/api/overview")
    return "Logins are always counted by source: list_node_auth_attempt_stats --by-source"


def metadata_store_status(api: Api, _: Invocation) -> Answer:
    """The members of group 0, who leads it, and who runs."""
    found = api.get("/api/cluster/status")
    leader, running = found.get("metadata_leader"), found.get("running_nodes", [])
    rows = [
        {
            "Node Name": node,
            "Raft State": "leader" if node == leader else "follower",
            "Online": node in running,
        }
        for node in found.get("disk_nodes", [])
    ]
    return table(("Node Name", "Raft State", "Online"), rows, "members", "")
