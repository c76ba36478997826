"""`consume_event_stream`: events of the node as they happen, one JSON object a line.

Source: rabbitmq_cli's consume_event_stream_command.ex (options, defaults, banners).
"""

from __future__ import annotations

import re
import sys
import time
from typing import Final

from broker.cli.ctl.api import Api, UsageError
from broker.cli.ctl.arguments import Invocation

_FOR_EVER: Final = "infinity"
_EVERY: Final = ".*"
_LOOK_S: Final = 0.5


def stream(api: Api, call: Invocation) -> None:
    """Print events for --duration seconds or until Ctrl-C."""
    chosen, ends_s = _pattern(call), time.monotonic() + _duration_s(call)
    following = api.get("/api/node/events")["next"]
    while time.monotonic() < ends_s:
        time.sleep(max(0.0, min(_LOOK_S, ends_s - time.monotonic())))
        found = api.get(f"/api/node/events?since={following}")
        following = found["next"]
        for key, line in found["events"]:
            if chosen.search(key):
                print(line)
        sys.stdout.flush()
        if found["missed"]:
            sys.stderr.write(f"{found['missed']} events were missed\n")


def banner(call: Invocation) -> str:
    """Say for how long."""
    text = call.values.get("duration", _FOR_EVER)
    limit = "" if text == _FOR_EVER else f" for {text} seconds"
    return f"Streaming logs from node {{node}}{limit} ..."


def check(call: Invocation) -> None:
    """Refuse a duration or a pattern that is none.

    Raises:
        UsageError: It is none.
    """
    _duration_s(call)
    _pattern(call)


def _duration_s(call: Invocation) -> float:
    try:
        return float(call.values.get("duration", _FOR_EVER))
    except ValueError:
        raise UsageError("the duration must be a number of seconds.") from None


def _pattern(call: Invocation) -> re.Pattern[str]:
    try:
        return re.compile(call.values.get("pattern", _EVERY))
    except re.error as error:
        raise UsageError(f"the pattern is no regular expression: {error}") from None
