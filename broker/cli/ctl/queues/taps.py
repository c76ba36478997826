"""Taps: `add_tap`, `delete_tap`. RabbitMQ has no such commands."""

from __future__ import annotations

from typing import Any, Final

from broker.cli.ctl.api import EXIT_UNAVAILABLE, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import Change
from broker.cli.ctl.queues.super_streams import partition_arguments

COLUMNS: Final = ("kind", "source", "stream", "routing_key")
_KINDS: Final = ("queue", "exchange")


def check(call: Invocation) -> None:
    """Refuse what is neither a queue nor an exchange, and a key that no queue has.

    Raises:
        UsageError: With what is wrong.
    """
    kind = call.arguments[0]
    if kind not in _KINDS:
        raise UsageError(f"expected queue or exchange, found '{kind}'")
    if kind == "queue" and "key" in call.values:
        raise UsageError("--key is for taps of exchanges: a queue's gets what the queue gets")
    partition_arguments(call)


def _path(call: Invocation) -> str:
    kind, source = call.arguments
    return f"/api/taps/{segment(call.vhost)}/{kind}/{segment(source)}"


def _missing(call: Invocation) -> CtlError:
    kind, source = call.arguments
    return CtlError(EXIT_UNAVAILABLE, f"no {kind} '{source}' in vhost '{call.vhost}'")


def add(api: Api, call: Invocation) -> None:
    """Add a tap; its stream is declared if it is not there."""
    body: dict[str, Any] = {"arguments": partition_arguments(call)}
    if "key" in call.values:
        body["routing_key"] = call.values["key"]
    api.ask("PUT", _path(call), body, missing=_missing(call))


def delete(api: Api, call: Invocation) -> None:
    """Remove a tap; its stream stays."""
    kind, source = call.arguments
    text = f"no tap of {kind} '{source}' in vhost '{call.vhost}'"
    api.ask("DELETE", _path(call), missing=CtlError(EXIT_UNAVAILABLE, text))


TAPS: Final[dict[str, Change]] = {
    "add_tap": Change(
        add,
        2,
        2,
        "[--vhost <vhost>] queue|exchange <source> [--key <binding key>] [--max-age <age>] "
        "[--max-length-bytes <size>] [--stream-max-segment-size-bytes <size>] "
        "[--leader-locator <locator>] [--initial-cluster-size <count>]",
        "Adding a tap of {0} '{1}' in vhost '{vhost}' ...",
        check=check,
    ),
    "delete_tap": Change(
        delete,
        2,
        2,
        "[--vhost <vhost>] queue|exchange <source>",
        "Deleting the tap of {0} '{1}' in vhost '{vhost}' ...",
        check=check,
    ),
}
