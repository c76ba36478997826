"""Lists and cancels the messages of x-delayed-message exchanges. RabbitMQ has no such commands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from broker.cli.ctl.api import EXIT_DATA, EXIT_UNAVAILABLE, EXIT_USAGE, Api, CtlError, segment
from broker.cli.ctl.arguments import Invocation

COLUMNS: Final = ("number", "due", "routing_key", "payload_bytes")
KNOWN: Final = (*COLUMNS, "due_ms", "exchange")

_PAGE: Final = 1_000


def _path(call: Invocation) -> str:
    exchange = segment(call.arguments[0])
    return f"/api/exchanges/{segment(call.vhost)}/{exchange}/delayed"


def listed(api: Api, call: Invocation) -> list[Mapping[str, Any]]:
    """Fetch all messages that an exchange keeps, those due first in front.

    They are fetched in parts, so one that comes due, or is published, meanwhile may be missed.

    Raises:
        CtlError: 65 the exchange is not there or delays nothing, else as `Api.request`.
    """
    found: dict[int, Mapping[str, Any]] = {}
    first = 0
    while True:
        part = api.get(f"{_path(call)}?first={first}&count={_PAGE}")
        found |= {each["number"]: each for each in part}
        first += len(part)
        if len(part) < _PAGE:
            return [{**each, "due_ms": each["due"], "due": _when(each)} for each in found.values()]


def _when(message: Mapping[str, Any]) -> str:
    """Return the time at which a message is due, in UTC, to the millisecond."""
    seconds, milliseconds = divmod(message["due"], 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"


def check_cancel(call: Invocation) -> None:
    """Refuse a cancel that does not say what, before anything is asked.

    Raises:
        CtlError: 64.
    """
    numbers = call.arguments[1:]
    if bool(numbers) == ("all" in call.flags):
        raise CtlError(EXIT_USAGE, f"{call.command} needs either message numbers or --all")
    for word in numbers:
        if not word.isascii() or not word.isdigit() or len(word) > 18:  # noqa: PLR2004 - 64 bits
            raise CtlError(EXIT_USAGE, f"expected a message's number, found {word!r}")


def cancel(api: Api, call: Invocation) -> str | None:
    """Forget messages before they are due; the numbers are those that the listing shows.

    Raises:
        CtlError: 69 if the exchange is not there or delays nothing, or if a number named no
            message: what is due meanwhile can't be cancelled any more.
    """
    numbers = [int(word) for word in dict.fromkeys(call.arguments[1:])]
    body: dict[str, object] = {"all": True} if "all" in call.flags else {"numbers": numbers}
    try:
        found = api.request("DELETE", _path(call), body)["cancelled"]
    except CtlError as error:
        code = EXIT_UNAVAILABLE if error.exit_code == EXIT_DATA else error.exit_code
        raise CtlError(code, error.text) from error
    said = f"Cancelled {found} messages"
    if numbers and found < len(numbers):
        gone = len(numbers) - found
        raise CtlError(
            EXIT_UNAVAILABLE,
            f"{said}; {gone} of those asked for were not there: due already, or unknown",
        )
    return said
