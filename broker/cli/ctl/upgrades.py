"""Commands around restarts and upgrades of nodes: rabbitmq-upgrade's, and `safe_to_stop`."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from broker.cli.ctl import mirroring
from broker.cli.ctl.api import EXIT_UNAVAILABLE, EXIT_USAGE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation

KINDS: Final = ("alarm", "metadata", "quorum", "mirror", "classic")
"""Kinds of reasons that the node gives."""


def drain(api: Api, call: Invocation) -> str | None:
    """Put the node into maintenance mode; name the queues that stay."""
    found = api.ask("POST", "/api/node/drain") or {}
    if call.values.get("formatter") == "json":
        return json.dumps(found)
    kept = found.get("kept", [])
    return "\n".join(f"{each['queue']} stays: {each['why']}" for each in kept) or None


def revive(api: Api, _call: Invocation) -> str | None:
    """End the maintenance mode of the node."""
    api.ask("POST", "/api/node/revive")
    return None


def post_upgrade(api: Api, call: Invocation) -> str | None:
    """Spread leaders and masters again, as rabbitmq-upgrade's command does."""
    return mirroring.rebalance(api, call._replace(arguments=("all",)))


def tolerated(text: str) -> frozenset[str]:
    """Read the kinds of reasons that are accepted.

    Args:
        text: "classic,alarm"; "" for none.

    Raises:
        CtlError: 64 for one that does not exist.
    """
    kinds = frozenset(filter(None, text.split(",")))
    for kind in sorted(kinds - set(KINDS)):
        raise CtlError(EXIT_USAGE, f"--tolerate: no reason of kind {kind}; {', '.join(KINDS)}")
    return kinds


class Reason(NamedTuple):
    """What stands against a stop, or what a started node lacks.

    Attributes:
        kind: Of KINDS; "" where the node could not say.
        text: For people.
    """

    kind: str
    text: str


def reasons(api: Api, check: str, node: str, accepted: frozenset[str]) -> list[Reason]:
    """Ask a health check about a node.

    Args:
        api: Of any node.
        check: "safe-to-stop" or "caught-up".
        node: Its full name; "" for the node that is asked.
        accepted: Kinds of reasons that do not count.

    Raises:
        CtlError: The node does not answer, or does not know the check.
    """
    path = f"/api/health/checks/{check}" + (f"/{segment(node)}" if node else "")
    status, answer = api.look(path)
    if status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        api.judge(status, answer)
    found: dict[str, Any] = answer if isinstance(answer, dict) else {}
    if status != HTTPStatus.OK and "reasons" not in found:
        return [Reason("", str(found.get("reason") or f"{api.url} answered {status}"))]
    told = [Reason(each["kind"], each["reason"]) for each in found.get("reasons", [])]
    return [each for each in told if each.kind not in accepted]


def safe_to_stop(api: Api, call: Invocation) -> str:
    """Say whether a stop of a node interrupts nobody.

    Raises:
        CtlError: 69 with every reason if it does.
    """
    name = call.arguments[0] if call.arguments else ""
    node = name if not name or "@" in name else f"rabbit@{name}"
    accepted = tolerated(call.values.get("tolerate", ""))
    found = reasons(api, "safe-to-stop", node, accepted)
    shown = node or str(api.get("/api/overview").get("node", ""))
    if call.values.get("formatter") == "json":
        told = [each._asdict() for each in found]
        text = json.dumps({"node": shown, "safe": not found, "reasons": told})
        if found:
            raise CtlError(EXIT_UNAVAILABLE, text, is_plain=True)
        return text
    if found:
        lines = "\n".join(f"  {reason.text}" for reason in found)
        raise CtlError(EXIT_UNAVAILABLE, f"It is not safe to stop node {shown}:\n{lines}")
    return f"It is safe to stop node {shown}"
