"""The commands on policies and operator policies; exit codes and texts are rabbitmqctl's."""

from __future__ import annotations

import json
from collections.abc import Callable

from broker.cli.ctl.api import EXIT_UNAVAILABLE, EXIT_USAGE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.rights.accounts import no_vhost

Run = Callable[[Api, Invocation], str | None]


def setter(kind: str) -> Run:
    """Make or replace a policy.

    Args:
        kind: "policies" or "operator-policies", as in the endpoint.
    """

    def run(api: Api, call: Invocation) -> str | None:
        name, pattern, text = call.arguments
        priority = _priority(call)
        try:
            definition = json.loads(text)
        except ValueError as error:
            reason = f"JSON decoding error. Reason: {error}"
            raise CtlError(EXIT_UNAVAILABLE, reason) from None
        body = {
            "pattern": pattern,
            "definition": definition,
            "priority": priority,
            "apply-to": call.values.get("apply_to", "all"),
        }
        path = f"/api/{kind}/{segment(call.vhost)}/{segment(name)}"
        api.ask("PUT", path, body, missing=no_vhost(call.vhost))
        return None

    return run


def clearer(kind: str) -> Run:
    """Remove a policy.

    Args:
        kind: "policies" or "operator-policies", as in the endpoint.
    """

    def run(api: Api, call: Invocation) -> str | None:
        path = f"/api/{kind}/{segment(call.vhost)}/{segment(call.arguments[0])}"
        missing = CtlError(EXIT_UNAVAILABLE, "Parameter does not exist")
        api.ask("DELETE", path, missing=missing)
        return None

    return run


def _priority(call: Invocation) -> int:
    text = call.values.get("priority", "0")
    try:
        return int(text)
    except ValueError:
        raise CtlError(EXIT_USAGE, f"--priority must be a whole number, found {text!r}") from None
