"""Offsets of a query: for each stream its incarnation, and the first offset not read.

    {"v": 1, "streams": {"orders-0": {"uid": "4711", "next": 123456}}}

`uid` is "" where the broker does not say it. A stream that was not there at the start of a batch
has `from`, where it is read from: a batch that is read again begins at the same place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pipeline.connector.failures import OffsetsRefused, OptionRefused

VERSION: Final = 1
FIRST: Final = "first"
NEXT: Final = "next"
LAST: Final = "last"
OFFSET_MAX: Final = (1 << 63) - 1


class Position(NamedTuple):
    """How far a stream is read.

    Attributes:
        uid: Its incarnation; "" if not known.
        next: The first offset not read.
        start: Where it is read from if the batch before did not have it; None otherwise.
    """

    uid: str
    next: int
    start: int | None = None


Positions = Mapping[str, Position]
"""By name of the stream."""

Spec = str | int | datetime
"""`first`, `last`, `next`, an offset or a time."""


def encode(positions: Positions) -> dict[str, Any]:
    """As Spark keeps them in its checkpoint."""
    streams: dict[str, dict[str, Any]] = {}
    for name, position in sorted(positions.items()):
        streams[name] = {"uid": position.uid, "next": position.next}
        if position.start is not None:
            streams[name]["from"] = position.start
    return {"v": VERSION, "streams": streams}


def decode(found: Mapping[str, Any]) -> dict[str, Position]:
    """Out of a checkpoint.

    Raises:
        OffsetsRefused: They are of a newer version, or not ours.
    """
    version = found.get("v")
    if isinstance(version, int) and version > VERSION:
        raise OffsetsRefused(
            f"the checkpoint has offsets of version {version}, this connector knows {VERSION}: "
            "use the version of it that wrote them, or a newer one"
        )
    try:
        return {
            str(name): Position(
                str(item["uid"]),
                _offset(item["next"]),
                _offset(item["from"]) if "from" in item else None,
            )
            for name, item in found["streams"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise OffsetsRefused(
            f"the checkpoint has no offsets of amqp-stream, but {json.dumps(found)[:200]}: "
            "it belongs to a query with another source; give this one a checkpoint of its own"
        ) from None


def specs(option: str, text: str, streams: list[str]) -> dict[str, Spec]:
    """Read startingOffsets or endingOffsets.

    Args:
        option: Its name.
        text: One value for all streams, or JSON with one for each.
        streams: Their names.

    Raises:
        OptionRefused: It says nothing, or names another stream.
    """
    if not text.startswith("{"):
        one = _spec(option, text)
        return dict.fromkeys(streams, one)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionRefused(f"option {option}: no JSON: {error}") from None
    if set(found) != set(streams):
        differing = ", ".join(sorted(set(found) ^ set(streams)))
        raise OptionRefused(
            f"option {option}: it must have exactly the streams that are read: {differing}"
        )
    return {name: _spec(option, str(value)) for name, value in found.items()}


def _spec(option: str, text: str) -> Spec:
    if text in (FIRST, LAST, NEXT):
        return text
    if text.isascii() and text.isdigit() and int(text) <= OFFSET_MAX:
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise OptionRefused(
            f"option {option}: '{text}' is none of first, last, next, an offset, "
            "or a time as 2026-11-26T18:00:00Z"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= OFFSET_MAX:
        raise ValueError
    return value
