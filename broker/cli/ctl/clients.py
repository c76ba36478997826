"""The commands that close client connections; texts and exit codes are rabbitmqctl's.

A connection is named by its `pid` of list_connections, or by its name.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping
from typing import Any, Final

from broker.cli.ctl.api import EXIT_UNAVAILABLE, EXIT_USAGE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation

_PID: Final = re.compile(r"<[^<>]+(\.\d+){3}>")
_CONNECTION: Final = re.compile(r"\S+ -> \S+")
_COLUMNS: Final = "?columns=name,node,user,vhost"


def pid(record: Mapping[str, Any]) -> str:
    """A connection's or a channel's process, in the form that scripts pass on.

    Args:
        record: Its `node` and `name` in the API.

    Source: `rabbitmqctl list_connections pid`, "<rabbit@node1.1795288920.720.0>".
    """
    name = str(record.get("name", ""))
    return f"<{record.get('node', '')}.1.{zlib.crc32(name.encode())}.0>"


def _close(api: Api, name: str, reason: str) -> bool:
    """False if it is gone already."""
    path = f"/api/connections/{segment(name)}"
    status, answer = api.look(path, "DELETE", reason=reason)
    if status == 404:  # noqa: PLR2004 - HTTP's
        return False
    api.judge(status, answer)
    return True


def close_connection(api: Api, call: Invocation) -> str | None:
    """Close one client connection; the client is told the reason. No error if it is gone."""
    asked, reason = call.arguments
    if _CONNECTION.fullmatch(asked):
        _close(api, asked, reason)
        return None
    if not _PID.fullmatch(asked):
        raise CtlError(EXIT_UNAVAILABLE, f'Error:\n{{:invalid_pid_syntax, "{asked}"}}')
    for record in api.get("/api/connections" + _COLUMNS):
        if pid(record) == asked:
            _close(api, record["name"], reason)
    return None


def close_all_connections(api: Api, call: Invocation) -> str | None:
    """Close the client connections of a vhost, or of all (--global)."""
    limit, delay_s = _number(call, "limit"), _number(call, "per_connection_delay") / 1000
    found = [
        record["name"]
        for record in api.get("/api/connections" + _COLUMNS)
        if "global" in call.flags or record.get("vhost") == call.vhost
    ]
    if limit:
        found = found[:limit]
    for name in found:
        _close(api, name, call.arguments[0])
        if delay_s:
            time.sleep(delay_s)
    return f"Closed {len(found)} connections"


def close_all_user_connections(api: Api, call: Invocation) -> str | None:
    """Close the client connections of a user."""
    user, reason = call.arguments
    for record in api.get("/api/connections" + _COLUMNS):
        if record.get("user") == user:
            _close(api, record["name"], reason)
    return None


def _number(call: Invocation, name: str) -> int:
    text = call.values.get(name, "0")
    if not text.isdecimal():
        option = name.replace("_", "-")
        raise CtlError(EXIT_USAGE, f"--{option} must be a whole number, found {text!r}")
    return int(text)


def close_all_banner(call: Invocation) -> str:
    """Of close_all_connections."""
    where = "" if "global" in call.flags else f" in vhost {call.vhost}"
    return f"Closing all connections{where}, reason: {call.arguments[0]}..."
