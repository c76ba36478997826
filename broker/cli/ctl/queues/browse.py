"""`browse`: messages of a queue or stream, which stay as they are. RabbitMQ has no such command."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from broker.cli.ctl.api import EXIT_DATA, EXIT_UNAVAILABLE, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import Change
from broker.cli.ctl.output import Answer, table

COUNT: Final = 20
PAGE: Final = 100
"""What the API shows at a time."""

SHOWN: Final = 200
"""Characters of a body in a line; with `--formatter json` the whole of what the API shows."""

_DIGITS_MAX: Final = 6
_CONDITIONS: Final = {
    "key": "key",
    "key_pattern": "key_regex",
    "header": "header",
    "body": "body",
    "pattern": "body_regex",
    "json_path": "json",
}


def check(call: Invocation) -> None:
    """Refuse a number of messages that is none.

    Raises:
        UsageError: With what is wrong.
    """
    text = call.values.get("number", "1")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text)):
        raise UsageError(f"--number must be a number from 1, found '{text}'")


def browse(api: Api, call: Invocation) -> Answer:
    """Show messages that meet all conditions; asks on until there are enough, or no more.

    Raises:
        CtlError: 69 the queue is not there, or the API refuses what is asked; 77 the user may not.
    """
    values, wanted = call.values, int(call.values.get("number", COUNT))
    where = f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}"
    missing = CtlError(EXIT_UNAVAILABLE, f"no queue '{call.arguments[0]}' in vhost '{call.vhost}'")
    query = {name: values[key] for key, name in _CONDITIONS.items() if key in values}
    if "from" in values:
        kind = api.ask("GET", where, missing=missing).get("type")
        query["offset" if kind == "stream" else "position"] = values["from"]
    found: list[dict[str, Any]] = []
    after, is_over = "", False
    while len(found) < wanted and not is_over:
        asked = query | {"count": str(min(PAGE, wanted - len(found)))}
        if after:
            asked["after"] = after
        answer = _asked(api, f"{where}/browse?{urlencode(asked)}", missing)
        found += answer["messages"]
        after, is_over = answer["next"] or "", answer["next"] is None
    return _shown(found)


def _asked(api: Api, path: str, missing: CtlError) -> Any:
    try:
        return api.ask("GET", path, missing=missing)
    except CtlError as error:
        code = EXIT_UNAVAILABLE if error.exit_code == EXIT_DATA else error.exit_code
        raise CtlError(code, error.text) from error


def _shown(found: list[dict[str, Any]]) -> Answer:
    place = "offset" if found and "offset" in found[0] else "number"
    columns = (place, "routing_key", "bytes", "format", "body")
    lines = [
        {
            place: each[place],
            "routing_key": each["routing_key"],
            "bytes": each["payload_bytes"],
            "format": " ".join(filter(None, (each["format"], each["compression"]))),
            "body": _line(each),
        }
        for each in found
    ]
    return table(columns, lines, "messages", "no message")._replace(facts={"messages": found})


def _line(message: dict[str, Any]) -> str:
    """The beginning of a body, on one line."""
    if message["decoded"] is not None:
        text = message["decoded"]
    elif message["payload"] is None:
        text = "(not shown)"
    else:
        text = message["payload"]
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}..."


BROWSE: Final[dict[str, Change]] = {
    "browse": Change(
        browse,
        1,
        1,
        "[-p VHOST] QUEUE [--number COUNT] [--from POSITION|OFFSET] [--key KEY]"
        " [--key-pattern PATTERN] [--header NAME[=VALUE]] [--body TEXT] [--pattern PATTERN]"
        " [--json PATH[=VALUE]]",
        "Browsing queue '{0}' in vhost '{vhost}' ...",
        check=check,
        is_answer=True,
    ),
}
