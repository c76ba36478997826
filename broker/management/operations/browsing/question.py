"""What is asked of a queue's messages, as a request's query says it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from broker.fifo.ready.places import Place
from broker.management.operations.browsing import paths
from broker.streams.offsets import OFFSET_ARGUMENT, TIME_MAX_MS, offset_spec

COUNT: Final = 20
COUNT_MAX: Final = 100
TRUNCATE_BYTES: Final = 4 << 10
TRUNCATE_BYTES_MAX: Final = 64 << 10
POSITION_MAX: Final = 100_000
"""Further into a queue one goes by pages: each begins where the last one ended."""

CONDITIONS_MAX: Final = 10
TEXT_CHARACTERS_MAX: Final = 256

CONDITIONS: Final = frozenset({"key", "key_regex", "header", "body", "body_regex", "json"})
"""Keys of the query that choose messages by what is in them."""
_OF_QUEUES: Final = CONDITIONS | {"count", "truncate", "after", "at", "position"}
_OF_STREAMS: Final = _OF_QUEUES - {"position"} | {"offset", "timestamp"}
_DIGITS_MAX: Final = 19
_TOKEN_PARTS: Final = 3


class Question(msgspec.Struct, array_like=True, frozen=True):
    """What is asked for. All conditions have to be met.

    Attributes:
        count: At most so many messages.
        truncate: At most so many bytes of each body.
        after: Behind this place.
        at: This message.
        start: Of a queue, how many messages to pass over ("position"); of a stream as of
            `broker.streams.offsets.OffsetSpec`. Counts only without `after` and `at`.
        key: The routing key.
        key_regex: A pattern that is found in the routing key.
        headers: Names of headers that are there, with the values that they have if not None.
        body: A text that is in the body.
        body_regex: A pattern that is found in the body.
        json: As `paths.parsed` reads them.
        masked: Names whose values nobody sees.
    """

    count: int = COUNT
    truncate: int = TRUNCATE_BYTES
    after: Place | None = None
    at: Place | None = None
    start: tuple[str, int] = ("position", 0)
    key: str | None = None
    key_regex: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    body: str | None = None
    body_regex: str | None = None
    json: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()


class Refused(ValueError):
    """A query that asks for nothing that there is; says why, and what would be right."""


def question_in(
    query: Mapping[str, str],
    several: Mapping[str, list[str]],
    uid: int,
    masked: tuple[str, ...],
    *,
    is_stream: bool,
    now_ms: int,
) -> Question:
    """Read a query.

    Args:
        query: Each name once.
        several: All values of `header` and of `json`.
        uid: The queue's.
        masked: Names whose values nobody sees.
        is_stream: The queue is one.
        now_ms: Milliseconds since the epoch, from which ages count back.

    Raises:
        Refused: It is none.
    """
    known = _OF_STREAMS if is_stream else _OF_QUEUES
    unknown = sorted(set(query) - known)
    if unknown:
        raise Refused(f"unknown: {unknown[0][:80]}; there are {', '.join(sorted(known))}")
    headers = several.get("header", [])
    documents = several.get("json", [])
    if len(headers) + len(documents) > CONDITIONS_MAX:
        raise Refused(f"more than {CONDITIONS_MAX} conditions")
    for text in documents:
        try:
            paths.parsed(text)
        except ValueError as error:
            raise Refused(f"json: {error}") from None
    return Question(
        count=_number(query, "count", COUNT, 1, COUNT_MAX),
        truncate=_number(query, "truncate", TRUNCATE_BYTES, 0, TRUNCATE_BYTES_MAX),
        after=place_in(query, "after", uid),
        at=place_in(query, "at", uid),
        start=_stream_start(query, now_ms)
        if is_stream
        else ("position", _number(query, "position", 1, 1, POSITION_MAX) - 1),
        key=_text(query, "key"),
        key_regex=_text(query, "key_regex"),
        headers=tuple([_header(text) for text in headers]),
        body=_text(query, "body"),
        body_regex=_text(query, "body_regex"),
        json=tuple(documents),
        masked=masked,
    )


def _number(query: Mapping[str, str], key: str, usual: int, least: int, most: int) -> int:
    text = query.get(key, "")
    if not text:
        return usual
    if not _is_number(text) or not least <= int(text) <= most:
        raise Refused(f"{key} must be a number from {least} to {most}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _text(query: Mapping[str, str], key: str) -> str | None:
    """A text; one that is empty asks for nothing, as a form sends it."""
    text = query.get(key) or None
    if text is not None and len(text) > TEXT_CHARACTERS_MAX:
        raise Refused(f"{key} is longer than {TEXT_CHARACTERS_MAX} characters")
    if text is not None and not _is_utf8(text):
        raise Refused(f"{key} is not UTF-8")
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _header(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name or len(text) > TEXT_CHARACTERS_MAX or not _is_utf8(text):
        raise Refused(
            f"header must be NAME or NAME=VALUE of at most {TEXT_CHARACTERS_MAX} characters"
        )
    return name, value if equals else None


def place_in(query: Mapping[str, str], key: str, uid: int) -> Place | None:
    """Read a place that an answer has named.

    Args:
        query: Of the request.
        key: "after", "at".
        uid: The queue's incarnation.

    Raises:
        Refused: It is none, or is of another queue.
    """
    text = query.get(key, "")
    if not text:
        return None
    parts = text.split(".")
    numbers = [part.removeprefix("-") for part in parts]
    if len(parts) != _TOKEN_PARTS or not all(map(_is_number, numbers)):
        raise Refused(f"{key} must be a token of an earlier answer")
    if int(parts[0]) != uid:
        raise Refused(f"{key} is of a queue that was deleted, this is another one: begin again")
    return Place(int(parts[1]), int(parts[2]))


def _stream_start(query: Mapping[str, str], now_ms: int) -> tuple[str, int]:
    offset, timestamp = query.get("offset", ""), query.get("timestamp", "")
    if offset and timestamp:
        raise Refused("either offset or timestamp, not both")
    if timestamp:
        most = TIME_MAX_MS
        return "timestamp", _number(query, "timestamp", 0, 0, most)
    if not offset:
        return "first", 0
    value: object = int(offset) if _is_number(offset) else offset
    spec = offset_spec({OFFSET_ARGUMENT: value}, now_ms)
    if spec is None:
        raise Refused("offset must be first, last, next, a number, or an age such as 10m")
    return spec.kind, spec.value
