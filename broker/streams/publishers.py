"""Named publishers: a message that says who sent it, and under which number, is stored once. Pure.

Two headers of a message say it: `x-warren-publisher`, a string of 1 to 255 bytes, and
`x-warren-publishing-id`, an integer from 0 that grows with each message. A message whose id is not
above the last one stored under that name is confirmed and not stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.amqp import fields
from broker.amqp.content import HEADER_FIXED_SIZE, raw_headers, raw_properties
from broker.message import Message

PUBLISHER_HEADER: Final = "x-warren-publisher"
ID_HEADER: Final = "x-warren-publishing-id"
NAME_BYTES_MAX: Final = 255

_FRAME_HEAD_BYTES: Final = 7
_PROPERTIES_AT: Final = _FRAME_HEAD_BYTES + HEADER_FIXED_SIZE
_SIGN: Final = PUBLISHER_HEADER.encode()


class PublishingId(NamedTuple):
    """Who sent a message, and under which number."""

    name: str
    number: int


def is_named(message: Message) -> bool:
    """True if a message may say who sent it; costs a search of its header frame."""
    return message.content.find(_SIGN, 0, _FRAME_HEAD_BYTES + message.header_size) >= 0


def publishing_id(message: Message) -> PublishingId | None:
    """Return who sent a message and under which number; None if it does not say.

    Raises:
        ValueError: It says so, and what it says can't be taken.
    """
    table = raw_headers(message)
    if not table:
        return None
    headers = fields.decode_entries(table[4:])
    name = headers.get(PUBLISHER_HEADER)
    if name is None:
        return None
    number = headers.get(ID_HEADER)
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"{PUBLISHER_HEADER} is not a string of 1 to {NAME_BYTES_MAX} bytes")
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
        raise ValueError(f"{ID_HEADER} is not an integer from 0 to 2^63 - 1")
    return PublishingId(name, number)


def by_publishing_id(
    messages: list[Message],
) -> Iterator[tuple[PublishingId | None, list[Message]]]:
    """Group messages with equal properties that follow each other: their headers are read once.

    Yields:
        Who sent them and under which number, None if they do not say; and the messages.

    Raises:
        ValueError: As `publishing_id`.
    """
    start, size = 0, -1
    raw = b""
    for place, message in enumerate(messages):
        if message.header_size == size and message.content.startswith(raw, _PROPERTIES_AT):
            continue
        if place:
            yield _sender(messages[start]), messages[start:place]
        start, size, raw = place, message.header_size, raw_properties(message)
    if messages:
        yield _sender(messages[start]), messages[start:]


def _sender(message: Message) -> PublishingId | None:
    return publishing_id(message) if is_named(message) else None
