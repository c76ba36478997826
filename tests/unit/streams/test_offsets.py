"""Where a consumer of a stream begins."""

from __future__ import annotations

import pytest

from broker.amqp.fields import Long, Timestamp
from broker.streams.offsets import FIRST, LAST, NEXT, OffsetSpec, offset_spec
from broker.streams.questions import StreamQuestion, decode_question, encode

NOW_MS = 1_700_000_000_000


def spec_of(value: object) -> OffsetSpec | None:
    return offset_spec({"x-stream-offset": value}, NOW_MS)


def test_new_messages_only_if_nothing_is_said() -> None:
    assert offset_spec({}, NOW_MS) == NEXT


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        ("first", FIRST),
        ("last", LAST),
        ("next", NEXT),
        (0, OffsetSpec("offset", 0)),
        (Long(2**63 - 1), OffsetSpec("offset", 2**63 - 1)),
        (-3, OffsetSpec("offset", 0)),
        (Timestamp(1_600_000_000), OffsetSpec("timestamp", 1_600_000_000_000)),
        (Timestamp(2**64 - 1), OffsetSpec("timestamp", 2**63 - 1)),
        ("10m", OffsetSpec("timestamp", NOW_MS - 600_000)),
        ("99Y", OffsetSpec("timestamp", 0)),
    ],
)
def test_every_kind(value: object, spec: OffsetSpec) -> None:
    assert spec_of(value) == spec
    decode_question(encode(StreamQuestion(1, spec=(spec.kind, spec.value))))  # another node's log


@pytest.mark.parametrize(
    "value", ["", "First", "3", "0s", True, 1.0, None, b"first", ["first"], {}]
)
def test_what_is_none(value: object) -> None:
    assert spec_of(value) is None
