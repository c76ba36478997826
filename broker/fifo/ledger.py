"""The ledger: the events of a queue, by message number (docs/protocol-rules.md P15).

A classic queue's ledger goes to disk, a mirrored one's to its mirrors. It names messages, never
consumers, so whoever replays it needs none of the queue's rules.

A payload for the ring, at most 1 MiB unless one message is larger (P13):

    [version, [record, ...]]        record = [tag, field, ...], fields only ever appended

`Taken` and `Returned` are no part of it: after a failover every message present is ready at its
place and counts as redelivered (P16), whoever held it, so a mirror would do nothing with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from broker.message import Message

VERSION: Final = 1
"""Version of a payload. A mirror refuses payloads of a version it does not know."""

PAYLOAD_BYTES_MAX: Final = 1 << 20
"""Most bytes of content in one payload (P13)."""

PAYLOAD_MESSAGES_MAX: Final = 1_000
"""Most messages in one payload: a mirror handles it in one turn of its loop."""


class Enqueued(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """Messages entered the queue under these numbers (ascending, one each).

    Attributes:
        numbers: Ascending; without a gap where the whole ledger is kept.
        messages: One for each number.
        session: Publisher session that brought them, "" for a channel on the queue's own node.
        first: The session's number of the first; the others follow.
        lowest: The session's lowest unanswered number then; nothing below is sent again.
        now_ms: The queue's time then, in milliseconds since the epoch, if it drops duplicate
            publishes: a mirror remembers the messages' keys from then on. Else 0.
    """

    numbers: list[int]
    messages: list[Message]
    session: str = ""
    first: int = 0
    lowest: int = 0
    now_ms: int = 0


class Taken(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """Messages were handed to a consumer and are not settled."""

    numbers: list[int]


class Settled(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    """Messages are gone: they were acknowledged, or delivered to a consumer without acks."""

    numbers: list[int]


class Removed(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """Messages are gone without an ack: purged, rejected, expired, over a limit, dead-lettered.

    Dead messages that are held until their targets have them (`limits.Rules.is_held`) are not
    among them: mirrors still have these.
    """

    numbers: list[int]


class Returned(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """Messages are ready again."""

    numbers: list[int]


class Rejected(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """The queue refused these numbers of a session."""

    session: str
    first: int
    last: int


class Skipped(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """A session gave up these numbers before the queue saw them, or they were duplicates."""

    session: str
    first: int
    last: int


class Opened(msgspec.Struct, array_like=True, tag=8, frozen=True, gc=False):
    """A publisher session began, so that mirrors know those that never publish."""

    session: str


class Cleared(msgspec.Struct, array_like=True, tag=9, frozen=True, gc=False):
    """Everything from number `first` to `last`, both included, has left as `Removed` says.

    A deep queue was purged: its messages are on disk, and a range is much smaller than a list of
    millions of numbers.
    """

    first: int
    last: int


LedgerRecord = (
    Enqueued | Taken | Settled | Removed | Returned | Rejected | Skipped | Opened | Cleared
)


class _Payload(msgspec.Struct, array_like=True, frozen=True):
    version: int
    records: list[LedgerRecord]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Payload)


def cut_records(records: list[LedgerRecord]) -> Iterator[list[LedgerRecord]]:
    """Cut one turn's ledger into payloads, in order; none if no record concerns mirrors.

    Args:
        records: As `Effects.ledger` gives them.

    Yields:
        Records of at most `PAYLOAD_BYTES_MAX` of contents and `PAYLOAD_MESSAGES_MAX` messages
        together; a larger message has a payload of its own.
    """
    group: list[LedgerRecord] = []
    room, size_bytes = PAYLOAD_MESSAGES_MAX, 0
    for record in records:
        kind = type(record)
        if kind is Taken or kind is Returned:
            continue
        if kind is not Enqueued:
            group.append(record)
            continue
        assert isinstance(record, Enqueued)
        start = 0
        for index, message in enumerate(record.messages):
            more = len(message.content)
            if not room or (size_bytes and size_bytes + more > PAYLOAD_BYTES_MAX):
                if index > start:
                    group.append(_part(record, start, index))
                yield group
                group, start = [], index
                room, size_bytes = PAYLOAD_MESSAGES_MAX, 0
            room -= 1
            size_bytes += more
        group.append(_part(record, start, len(record.messages)))
    if group:
        yield group


def encode_records(records: list[LedgerRecord]) -> bytes:
    """Return the payload that brings these records to a mirror.

    Args:
        records: One group of `cut_records`.
    """
    return _encoder.encode(_Payload(VERSION, records))


def decode_records(data: bytes) -> list[LedgerRecord]:
    """Read what `encode_records` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no payload, or of a version not known here: the mirror
            must leave the ring, not skip the payload.
    """
    payload = _decoder.decode(data)
    if payload.version != VERSION:
        raise msgspec.DecodeError(f"expected ledger version {VERSION}, found {payload.version}")
    return payload.records


def _part(record: Enqueued, start: int, end: int) -> Enqueued:
    if end - start == len(record.messages):
        return record
    first = record.first + start if record.session else 0
    numbers, messages = record.numbers[start:end], record.messages[start:end]
    return Enqueued(numbers, messages, record.session, first, record.lowest, record.now_ms)
