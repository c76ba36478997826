"""`add_super_stream` and `delete_super_stream` of rabbitmq-streams.

Source: AddSuperStreamCommand, DeleteSuperStreamCommand of the stream plugin (checks, texts).
"""

from __future__ import annotations

import re
from typing import Any, Final

from broker.cli.ctl.api import EXIT_SOFTWARE, Api, CtlError, UsageError, segment
from broker.cli.ctl.arguments import Invocation
from broker.cli.ctl.change import Change

_ISO_AGE: Final = re.compile(
    r"P(?=.)(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})D)?"
    r"(?:T(?=.)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?"
)
_AGE: Final = re.compile(r"[0-9]{1,18}[YMDhms]")
_SECONDS: Final = (365 * 86_400, 30 * 86_400, 86_400, 3_600, 60, 1)
_SIZE: Final = re.compile(r"(\d{1,18})([kmgt]?)(i?b?)", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")


def size_of(text: str) -> int | None:
    """Read a size such as 20gb (10^9) or 20gib and 20g (2^30); None if it is none."""
    found = _SIZE.fullmatch(text)
    if found is None or (found[3].lower() == "i" and found[2]):
        return None
    base = 1_000 if found[3].lower() == "b" else 1_024
    return int(found[1]) * int(base ** _POWERS[found[2].lower()])


def age_of(text: str) -> str | None:
    """Read an age, P5DT8H in ISO 8601 or 7D as arguments of streams have it; None if it is none."""
    if _AGE.fullmatch(text):
        return text
    found = _ISO_AGE.fullmatch(text)
    if found is None:
        return None
    pairs = zip(found.groups(), _SECONDS, strict=True)
    return f"{sum(int(number or 0) * seconds for number, seconds in pairs)}s"


def partition_arguments(call: Invocation) -> dict[str, Any]:
    """Read the options that are arguments of streams.

    Raises:
        UsageError: In RabbitMQ's words.
    """
    found: dict[str, Any] = {}
    for option in ("max-length-bytes", "stream-max-segment-size-bytes"):
        text = call.values.get(option.replace("-", "_"))
        if text is not None:
            size = size_of(text)
            if size is None:
                raise UsageError(f"Invalid value for --{option}, valid example values: 100gb, 50mb")
            found[f"x-{option}"] = size
    text = call.values.get("max_age")
    if text is not None:
        age = age_of(text)
        if age is None:
            raise UsageError(
                "Invalid value for --max-age, the value must a ISO 8601 duration, e.g. e.g. "
                "PT10M30S for 10 minutes 30 seconds, P5DT8H for 5 days 8 hours."
            )
        found["x-max-age"] = age
    text = call.values.get("leader_locator")
    if text is not None:
        if text not in _LOCATORS:
            raise UsageError(
                "Invalid value for --leader-locator, valid values are client-local, balanced."
            )
        found["x-queue-leader-locator"] = text
    text = call.values.get("initial_cluster_size")
    if text is not None:
        if not text.isascii() or not text.isdigit() or not int(text[:9]):
            raise UsageError(
                "Invalid value for --initial-cluster-size, the value must be a positive integer."
            )
        found["x-initial-cluster-size"] = int(text)
    return found


def check(call: Invocation) -> None:
    """Refuse options that contradict each other.

    Raises:
        UsageError: In RabbitMQ's words.
    """
    text = call.values.get("partitions")
    if text is not None:
        if "binding_keys" in call.values:
            raise UsageError("Specify --partitions or --binding-keys, not both.")
        if not text.isascii() or not text.isdigit() or not int(text[:9]):
            raise UsageError("The partition number must be greater than 0")
    partition_arguments(call)


def _path(call: Invocation) -> str:
    return f"/api/stream/super-streams/{segment(call.vhost)}/{segment(call.arguments[0])}"


def add(api: Api, call: Invocation) -> str:
    """Create a super stream, with three partitions unless an option says otherwise."""
    body: dict[str, Any] = {"arguments": partition_arguments(call)}
    if "binding_keys" in call.values:
        body["binding-keys"] = call.values["binding_keys"]
    elif "partitions" in call.values:
        body["partitions"] = int(call.values["partitions"])
    api.ask("PUT", _path(call), body, refused=EXIT_SOFTWARE)
    return f"Super stream {call.arguments[0]} has been created"


def delete(api: Api, call: Invocation) -> str:
    """Delete a super stream and its partitions."""
    missing = CtlError(EXIT_SOFTWARE, "stream_not_found")
    api.ask("DELETE", _path(call), missing=missing, refused=EXIT_SOFTWARE)
    return f"Super stream {call.arguments[0]} has been deleted"


SUPER_STREAMS: Final[dict[str, Change]] = {
    "add_super_stream": Change(
        add,
        1,
        1,
        "<name> [--vhost <vhost>] [--partitions <partitions>] [--binding-keys <binding-keys>] "
        "[--max-length-bytes <size>] [--max-age <age>] [--stream-max-segment-size-bytes <size>] "
        "[--leader-locator <locator>] [--initial-cluster-size <count>]",
        "Adding a super stream...",
        check=check,
    ),
    "delete_super_stream": Change(
        delete, 1, 1, "<name> [--vhost <vhost>]", "Deleting a super stream..."
    ),
}
