"""The join state: what a mirror needs to replay the ledger from now on (P10, P20).

The master sends it round the ring as the first entry of the view that adds a member. It holds no
messages: a joiner begins empty, gets what is published from now on, and the older part by a
synchronisation or never. As bytes:

    [version, next_number, sessions, ended, absent, is_whole, dedup]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from broker.fifo.message_state import MessageState
from broker.fifo.sessions import SessionRecord, SessionTable

VERSION: Final = 1

Ranges = list[tuple[int, int]]
"""First and last number of each run without a gap, ascending."""


class JoinState(msgspec.Struct, array_like=True, frozen=True):
    """The master's state without its messages, consumers and pending verdicts.

    Attributes:
        version: `VERSION` of the writer.
        next_number: Number of the next message.
        sessions: With their evidence (P11).
        ended: Ended boots, oldest first.
        absent: Messages the evidence names that the joiner does not have: they lie in the master's
            queue, or the master never had them itself.
        is_whole: No session was ever forgotten (the queue has not come back from a disk).
        dedup: Publishes remembered, as `dedup.Dedup.records` gives them.
    """

    version: int
    next_number: int
    sessions: list[SessionRecord]
    ended: list[tuple[str, str]]
    absent: Ranges
    is_whole: bool
    dedup: list[tuple[str, int]] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JoinState)


def join_state_of(messages: MessageState, sessions: SessionTable) -> JoinState:
    """Return the state on which a joining mirror replays the ledger of a queue.

    Args:
        messages: The queue's.
        sessions: The queue's.
    """
    named = sessions.named_messages()
    here = messages.among({n for each in named for n in each})
    absent = [n for each in named for n in each if n in here or sessions.is_absent(n)]
    return JoinState(
        VERSION,
        messages.next_number,
        [
            msgspec.structs.replace(record, owed=[], replies=[], floor=0)
            for record in sessions.records()
        ],
        sessions.ended(),
        ranges_of(sorted(absent)),
        sessions.is_whole,
        [] if messages.dedup is None else messages.dedup.records(),
    )


def encode_join_state(join_state: JoinState) -> bytes:
    """Return a join state's bytes for the ring."""
    return _encoder.encode(join_state)


def decode_join_state(data: bytes) -> JoinState:
    """Read what `encode_join_state` wrote.

    Raises:
        msgspec.DecodeError: The bytes are no join state, or of a version not known here.
    """
    join_state = _decoder.decode(data)
    if join_state.version != VERSION:
        raise msgspec.DecodeError(
            f"expected join state version {VERSION}, found {join_state.version}"
        )
    return join_state


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """Return numbers as (first, last) runs without a gap, in the order given."""
    runs: Ranges = []
    first, last = -1, -2
    for number in numbers:
        if number != last + 1:
            if first >= 0:
                runs.append((first, last))
            first = number
        last = number
    if first >= 0:
        runs.append((first, last))
    return runs


def joined_ranges(runs: Iterable[tuple[int, int]]) -> Ranges:
    """Return runs in any order as ranges: ascending, neighbours joined."""
    ranges: Ranges = []
    for first, last in sorted(runs):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return ranges
