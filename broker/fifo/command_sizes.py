"""Sizes of commands in bytes, and the limits on what a node sends at once and holds for a queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.fifo.commands import Enqueue, SessionCommand
from broker.message import Message

BATCH_BYTES_MAX: Final = 1 << 20
BATCH_NUMBERS_MAX: Final = 1_000
"""A batch ends at whichever comes first (P13); one larger message goes alone."""

HELD_BYTES_MAX: Final = 16 << 20
"""What a node may hold for one queue; a publish that would exceed it is refused (P12)."""

_RECORD_BYTES: Final = 64
_NUMBER_BYTES: Final = 9  # the largest msgpack integer


def size_of(command: SessionCommand) -> int:
    """Return about how many bytes a command takes on the wire, never less than its bodies."""
    if isinstance(command, Enqueue):
        return sum([_RECORD_BYTES + len(message.content) for message in command.messages])
    return _RECORD_BYTES + _NUMBER_BYTES * len(getattr(command, "numbers", ()))


def pieces(messages: list[Message]) -> Iterator[tuple[list[Message], int]]:
    """Cut what is to be enqueued where a batch ends; one larger message goes alone (P13).

    Yields:
        The messages of a piece and their size in bytes.
    """
    start = size_bytes = 0
    for index, message in enumerate(messages):
        more = _RECORD_BYTES + len(message.content)
        if size_bytes + more > BATCH_BYTES_MAX or index - start >= BATCH_NUMBERS_MAX:
            if index > start:
                yield messages[start:index], size_bytes
            start, size_bytes = index, 0
        size_bytes += more
    yield messages[start:], size_bytes
