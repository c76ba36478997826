"""The ledger: what happened in a queue, by message number (protocol.md P15).

A classic queue's ledger goes to disk, a mirrored one's to its mirrors. It names messages, never
consumers, so whoever replays it needs none of the queue's rules.
"""

from __future__ import annotations

import msgspec

from broker.message import Message


class Enqueued(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """These messages entered the queue under these numbers (ascending, one each)."""

    numbers: list[int]
    messages: list[Message]


class Taken(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """These were handed to a consumer and are not settled."""

    numbers: list[int]


class Settled(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    """These were acknowledged, or delivered where no acknowledgement is due: they are gone."""

    numbers: list[int]


class Removed(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """These left without an acknowledgement: purged, rejected, over a limit."""

    numbers: list[int]


class Returned(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """These are ready again."""

    numbers: list[int]


class Rejected(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """The queue refused these numbers of a session."""

    session: str
    first: int
    last: int


class Skipped(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """A session gave these numbers up before the queue saw them."""

    session: str
    first: int
    last: int


LedgerRecord = Enqueued | Taken | Settled | Removed | Returned | Rejected | Skipped
