"""Dead letters: `list_dead_letters`, `redrive`. RabbitMQ has no such commands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from broker.cli.ctl.api import (
    EXIT_DATA,
    EXIT_SOFTWARE,
    EXIT_TEMPORARY,
    EXIT_UNAVAILABLE,
    Api,
    CtlError,
    UsageError,
    segment,
)
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import Change, PollUntilTimeout

COLUMNS: Final = (
    "reason", "queue", "exchange", "messages", "first_seen", "last_seen", "redrives", "exception",
)  # fmt: skip
KNOWN: Final = (*COLUMNS, "bytes", "routing_keys")

_DIGITS_MAX: Final = 15
_TARGETS: Final = ("origin", "death_queue")


def _path(call: Invocation) -> str:
    return f"/api/queues/{segment(call.vhost)}/{segment(call.arguments[0])}"


def _missing(call: Invocation) -> CtlError:
    return CtlError(EXIT_UNAVAILABLE, f"no queue '{call.arguments[0]}' in vhost '{call.vhost}'")


def listed(api: Api, call: Invocation) -> list[Mapping[str, Any]]:
    """Fetch the groups of dead letters among the first 10,000 messages of a queue.

    Raises:
        CtlError: 69 the queue is not there, or is a stream.
    """
    groups = _asked(api, call, "GET", "/dead-letters")["groups"]
    for each in groups:
        for key in ("first_seen", "last_seen"):
            each[key] = _when(each[key])
        each["exception"] = each.get("exception") or ""
    return list(groups)


def _when(ms: int | None) -> str:
    return "" if ms is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def _asked(api: Api, call: Invocation, method: str, end: str, body: object = None) -> Any:
    try:
        return api.ask(method, _path(call) + end, body, missing=_missing(call))
    except CtlError as error:
        code = EXIT_UNAVAILABLE if error.exit_code == EXIT_DATA else error.exit_code
        raise CtlError(code, error.text) from error


def check(call: Invocation) -> None:
    """Refuse options that contradict each other, and numbers that are none.

    Raises:
        UsageError: With what is wrong.
    """
    values = call.values
    named = [key for key in ("to", "to_queue", "to_exchange") if key in values]
    if len(named) > 1:
        raise UsageError("one of --to, --to-queue and --to-exchange says where messages go")
    if values.get("to", "origin") not in _TARGETS:
        raise UsageError(f"--to is {' or '.join(_TARGETS)}, found '{values['to']}'")
    if "key" in values and "to_exchange" not in values:
        raise UsageError("--key goes with --to-exchange")
    for key, option in (("number", "--number"), ("max_redrives", "--max-redrives")):
        text = values.get(key, "1")
        is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
        if not is_number or int(text) < 1:
            raise UsageError(f"{option} must be a number from 1, found '{text}'")
    _rate(values)


def _rate(values: Mapping[str, str]) -> float | None:
    if "rate" not in values:
        return None
    try:
        return float(values["rate"])
    except ValueError:
        text = f"--rate must be a number of messages a second, found '{values['rate']}'"
        raise UsageError(text) from None


def _body(call: Invocation) -> dict[str, Any]:
    values = call.values
    selection: dict[str, object] = {}
    for key, name in (("reason", "reason"), ("died_in", "queue"), ("exception", "exception")):
        if key in values:
            selection[name] = values[key]
    for key, name in (("number", "count"), ("max_redrives", "max_redrives")):
        if key in values:
            selection[name] = int(values[key])
    target: dict[str, object] = {"to": values.get("to", "origin")}
    if "to_queue" in values:
        target = {"to": "queue", "queue": values["to_queue"]}
    if "to_exchange" in values:
        target = {"to": "exchange", "exchange": values["to_exchange"]}
        if "key" in values:
            target["routing_key"] = values["key"]
    found: dict[str, Any] = {"selection": selection, "target": target}
    rate = _rate(values)
    return found if rate is None else {**found, "rate": rate}


def redrive(api: Api, call: Invocation) -> str:
    """Send dead letters back, or say what would go where.

    Raises:
        CtlError: 69 it was refused, 70 it failed, 75 it was stopped: by Ctrl-C or by somebody, or
            --timeout is over and it goes on.
    """
    body = _body(call)
    if "dry_run" in call.flags:
        return _planned(_asked(api, call, "POST", "/redrive", {**body, "dry_run": True}))
    begun = _asked(api, call, "POST", "/redrive", body)
    path = f"/api/redrives/{begun['id']}"
    try:
        with PollUntilTimeout(call) as poll:
            found = begun
            while found["state"] == "running":
                poll.show("messages have gone back", found["sent"], found["total"])
                poll.wait("the redrive did not end", f"it goes on: GET {path} tells how far it is")
                found = api.get(path)
    except KeyboardInterrupt:
        api.request("DELETE", path)
        text = "stopped; nothing is lost: the same command goes on"
        raise CtlError(EXIT_TEMPORARY, text) from None
    said = "\n".join([f"{found['sent']} messages have gone back", *_stay(found, "stay")])
    if found["state"] != "done":
        code = EXIT_TEMPORARY if found["state"] == "stopped" else EXIT_SOFTWARE
        raise CtlError(code, f"{found['text']}\n{said}")
    return said


def _planned(found: dict[str, Any]) -> str:
    lines = [f"{found['would_send']} messages would go back{':' if found['targets'] else ''}"]
    for each in found["targets"]:
        where = f"exchange '{each['exchange']}' with key '{each['routing_key']}'"
        lines.append(f"  {each['messages']} to {where}, into {', '.join(each['queues'])}")
    if found["more_targets"]:
        lines.append(f"  {found['more_targets']} to others")
    lines += _stay(found, "would stay")
    if not found["complete"]:
        looked, every = found["looked"], found["messages"]
        lines.append(f"{looked} of {every} messages were looked at")
    return "\n".join(lines)


def _stay(found: dict[str, Any], verb: str) -> list[str]:
    return [f"{each['messages']} messages {verb}: they {each['text']}" for each in found["kept"]]


REDRIVE: Final[dict[str, Change]] = {
    "redrive": Change(
        redrive,
        1,
        1,
        "[-p VHOST] QUEUE [--reason REASON] [--died-in QUEUE] [--exception EXCEPTION]"
        " [--number COUNT] [--max-redrives COUNT] [--to origin|death_queue | --to-queue QUEUE"
        " | --to-exchange EXCHANGE [--key KEY]] [--rate MESSAGES_A_SECOND] [--dry-run]",
        "Sending dead letters of queue '{0}' in vhost '{vhost}' back ...",
        check=check,
        is_answer=True,
    ),
}
