"""What nodes ask each other about streams: bytes of a log that one of them has a replica of. Pure.

    question    [uid, index, bytes, wait ms, [kind, value] | nil, [node, consumers] | nil,
                 [delivered, acknowledged]]
    answer      [applied index, first index, [index, offset, from ms] | nil, [entry, ...]]

A question with a place is answered by where to read; one without by raw entries from an index on,
which the asking node checks and joins itself. A damaged answer can't pass for a message: chunks
carry checksums.
"""

from __future__ import annotations

import msgspec

from raft.core.messages import Entry


class StreamQuestion(msgspec.Struct, array_like=True, frozen=True):
    """A question to a node with a replica.

    Attributes:
        uid: The stream.
        index: Raft index to read from; 0 where a place is asked for.
        size_bytes: How much to read.
        wait_ms: How long to wait, in milliseconds, for that index to be applied.
        spec: (kind, value) of a `broker.streams.offsets.OffsetSpec`, or None.
        consumers: (node, how many consumers it has), for the leader's counts; nothing is asked.
        handled: With `consumers`: how many messages they got and acknowledged since the last time.
    """

    uid: int
    index: int = 0
    size_bytes: int = 0
    wait_ms: int = 0
    spec: tuple[str, int] | None = None
    consumers: tuple[str, int] | None = None
    handled: tuple[int, int] = (0, 0)


class StreamAnswer(msgspec.Struct, array_like=True, frozen=True):
    """The answer.

    Attributes:
        applied_index: Raft index of the newest entry applied there.
        first_index: Of the oldest entry that is needed there; 0 while all are.
        place: The fields of a `broker.streams.machine.Place`, where one was asked for.
        entries: As they stand in the log; empty if the index is not applied yet.
    """

    applied_index: int
    first_index: int
    place: tuple[int, int, int] | None = None
    entries: list[Entry] = []


_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(StreamQuestion)
_answers = msgspec.msgpack.Decoder(StreamAnswer)


def encode(value: StreamQuestion | StreamAnswer) -> bytes:
    """Return the bytes of a question or an answer."""
    return _encoder.encode(value)


def decode_question(data: bytes) -> StreamQuestion:
    """Read a question.

    Raises:
        msgspec.DecodeError: The bytes are none.
    """
    return _questions.decode(data)


def decode_answer(data: bytes) -> StreamAnswer:
    """Read an answer.

    Raises:
        msgspec.DecodeError: The bytes are none.
    """
    return _answers.decode(data)
