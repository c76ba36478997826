"""The commands on a node's log.

Source: rabbitmq_cli's log_*_command.ex, rotate_logs_command.ex and set_log_level_command.ex (names,
options, defaults).
"""

from __future__ import annotations

import sys
import time
from typing import Final

from broker.cli.ctl.api import EXIT_USAGE, Api, UsageError
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.output import Answer

_LINES: Final = "50"
_LOOK_S: Final = 0.5


def tail(api: Api, call: Invocation) -> Answer:
    """The last lines."""
    found = api.get(f"/api/node/log?lines={_count(call)}")
    return Answer("\n".join(found["lines"]), {"lines": found["lines"]})


def tail_banner(call: Invocation) -> str:
    """Say how many lines come."""
    return f"Last {_count(call)} log lines on node {{node}} ..."


def _count(call: Invocation) -> int:
    text = call.values.get("number", _LINES)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError("the number of lines must be at least 1.")
    return int(text)


def check_tail(call: Invocation) -> None:
    """Refuse a number that is none.

    Raises:
        UsageError: It is none.
    """
    _count(call)


def stream(api: Api, call: Invocation) -> None:
    """Print lines as they are written, for --duration seconds or until Ctrl-C."""
    text = call.values.get("duration", "infinity")
    try:
        ends_s = time.monotonic() + float(text)
    except ValueError:
        raise UsageError("the duration must be a number of seconds.") from None
    following = api.get("/api/node/log?lines=0")["next"]
    while time.monotonic() < ends_s:
        found = api.get(f"/api/node/log?since={following}")
        following = found["next"]
        for line in found["lines"]:
            print(line)
        sys.stdout.flush()
        time.sleep(max(0.0, min(_LOOK_S, ends_s - time.monotonic())))


def location(api: Api, _: Invocation) -> Answer:
    """Where the log goes."""
    found = api.get("/api/node/log?lines=0")["locations"]
    return Answer("\n".join(found), {"paths": found})


def rotate(api: Api, _: Invocation) -> str | None:
    """Begin a new file."""
    count = api.request("POST", "/api/node/rotate_logs")["files"]
    if count:
        return None
    return "Nothing to rotate: no log file, or log.file.rotation.count = 0 keeps no old ones"


def set_level(api: Api, call: Invocation) -> None:
    """Change the level of the running node, or of one category."""
    *category, level = call.arguments
    body = {"level": level, **({"category": category[0]} if category else {})}
    api.ask("PUT", "/api/node/log_level", body, refused=EXIT_USAGE)


def level_banner(call: Invocation) -> str:
    """Say which level is set."""
    *category, level = call.arguments
    of = f' for category "{category[0]}"' if category else ""
    return f'Setting log level{of} to "{level}" on node {{node}} ...'
