"""The commands on runtime parameters and limits; texts and exit codes are rabbitmqctl's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from broker.cli.ctl import output
from broker.cli.ctl.api import EXIT_UNAVAILABLE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.rights.accounts import no_such_user, no_vhost, vhost_exists

_ALL = "all"
_DEFAULT_USER = "guest"


def value_of(text: str) -> Any:
    """A value on the command line.

    Raises:
        CtlError: 69, not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        reason = f"JSON decoding error. Reason: {error}"
        raise CtlError(EXIT_UNAVAILABLE, reason) from None


def shown(value: Any) -> str:
    """A value as rabbitmqctl prints it: JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _no_parameter() -> CtlError:
    return CtlError(EXIT_UNAVAILABLE, "Parameter does not exist")


def _parameter(vhost: str, component: str, name: str) -> str:
    return f"/api/parameters/{segment(component)}/{segment(vhost)}/{segment(name)}"


def set_parameter(api: Api, call: Invocation) -> str | None:
    """Set a runtime parameter of a vhost."""
    component, name, text = call.arguments
    body = {"value": value_of(text)}
    path = _parameter(call.vhost, component, name)
    api.ask("PUT", path, body, missing=no_vhost(call.vhost))
    return None


def clear_parameter(api: Api, call: Invocation) -> str | None:
    """Remove a runtime parameter of a vhost."""
    api.ask("DELETE", _parameter(call.vhost, *call.arguments), missing=_no_parameter())
    return None


def _global(call: Invocation) -> str:
    return f"/api/global-parameters/{segment(call.arguments[0])}"


def set_global_parameter(api: Api, call: Invocation) -> str | None:
    """Set a parameter of the whole cluster."""
    api.ask("PUT", _global(call), {"value": value_of(call.arguments[1])})
    return None


def clear_global_parameter(api: Api, call: Invocation) -> str | None:
    """Remove a parameter of the whole cluster."""
    api.ask("DELETE", _global(call), missing=_no_parameter())
    return None


# Limits


def set_vhost_limits(api: Api, call: Invocation) -> str | None:
    """Replace a vhost's limits."""
    path = _parameter(call.vhost, "vhost-limits", "limits")
    body = {"value": value_of(call.arguments[0])}
    api.ask("PUT", path, body, missing=no_vhost(call.vhost))
    return None


def clear_vhost_limits(api: Api, call: Invocation) -> str | None:
    """Remove a vhost's limits."""
    path = _parameter(call.vhost, "vhost-limits", "limits")
    api.ask("DELETE", path, missing=_no_parameter())
    return None


def list_vhost_limits(api: Api, call: Invocation) -> str | None:
    """The limits of one vhost as JSON, or of all as a table."""
    if "global" in call.flags:
        found = api.get("/api/vhost-limits")
        rows = [{"vhost": each["vhost"], "limits": each["value"]} for each in found]
        return _listed(call, ("vhost", "limits"), rows)
    if not vhost_exists(api, call.vhost):
        raise no_vhost(call.vhost)
    found = api.get(f"/api/vhost-limits/{segment(call.vhost)}")
    if not found:
        return "[]" if call.values.get("formatter") == "json" else ""
    return shown(found[0]["value"])


def _listed(call: Invocation, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    formatter = call.values.get("formatter", "tab")
    if formatter != "json":
        rows = [{**row, "limits": shown(row["limits"])} for row in rows]
    headers = not call.flags & {"silent", "no_headers"}
    return output.rows(formatter, columns, rows, headers=headers).removesuffix("\n")


def _user_limits(name: str) -> str:
    return f"/api/user-limits/{segment(name)}"


def set_user_limits(api: Api, call: Invocation) -> str | None:
    """Set limits of a user; those not named stay."""
    name, text = call.arguments
    api.ask("PUT", _user_limits(name), {"value": value_of(text)}, missing=no_such_user(name))
    return None


def clear_user_limits(api: Api, call: Invocation) -> str | None:
    """Remove one limit of a user, or "all"."""
    name, limit = call.arguments
    tail = "" if limit == _ALL else f"/{segment(limit)}"
    api.ask("DELETE", _user_limits(name) + tail, missing=no_such_user(name))
    return None


def _subject(call: Invocation) -> str:
    return call.values.get("user", _DEFAULT_USER)


def list_user_limits(api: Api, call: Invocation) -> str | None:
    """The limits of one user as JSON, or of all as a table."""
    if "global" in call.flags:
        rows = [{"user": e["user"], "limits": e["value"]} for e in api.get("/api/user-limits")]
        return _listed(call, ("user", "limits"), rows)
    name = _subject(call)
    found = api.ask("GET", _user_limits(name), missing=no_such_user(name))
    return shown(found[0]["value"]) if found else "{}"


def vhost_limits_banner(call: Invocation) -> str:
    """Of list_vhost_limits."""
    if "global" in call.flags:
        return "Listing limits for all vhosts ..."
    return f'Listing limits for vhost "{call.vhost}" ...'


def user_limits_banner(call: Invocation) -> str:
    """Of list_user_limits."""
    if "global" in call.flags:
        return "Listing limits for all users ..."
    return f'Listing limits for user "{_subject(call)}" ...'


def clear_user_limits_banner(call: Invocation) -> str:
    """Of clear_user_limits."""
    name, limit = call.arguments
    what = "all limits" if limit == _ALL else f'"{limit}" limit'
    return f'Clearing {what} for user "{name}" ...'
