"""The records Raft keeps and the messages its nodes exchange. Frozen, no behaviour.

Every message names its group, and a group's id is never used twice: a replica of a queue that was
deleted and declared again can't speak for the new one. Fields are only ever appended, with
defaults, because the records are also what goes over the wire and to disk (msgpack arrays).

`term` of a message is the sender's term, except that PreVote carries the term the sender would
campaign in, and a granted PreVoteReply repeats it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

NORMAL: Final = 0
CONFIG: Final = 1
NOOP: Final = 2


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One slot of the log. Indexes start at 1.

    Attributes:
        kind: NORMAL (the proposer's bytes), CONFIG (an encoded Configuration) or NOOP (empty).
    """

    index: int
    term: int
    kind: int
    data: bytes


class HardState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The durable state besides the log (Figure 2). One record, never written in two pieces.

    `commit` is advisory: it spares work after a restart, and may lag.
    """

    term: int = 0
    vote: str | None = None
    commit: int = 0


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """The members of a group: voters, and learners, which have no vote. Both sorted by name."""

    voters: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """Voters, then learners."""
        return self.voters + self.learners


class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    """The last index and term that a snapshot covers, and the configuration there."""

    index: int
    term: int
    configuration: Configuration


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A whole snapshot: the machine's parts in order."""

    meta: SnapshotMeta
    parts: tuple[bytes, ...]


class SnapshotPart(msgspec.Struct, frozen=True, array_like=True):
    """One part of a stored snapshot."""

    data: bytes
    last: bool


class PreVote(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Would you vote for me in `term`? Changes nothing at either side."""

    group: int
    sender: str
    to: str
    term: int
    last_index: int
    last_term: int


class PreVoteReply(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer to PreVote."""

    group: int
    sender: str
    to: str
    term: int
    granted: bool


class Vote(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Vote for me in `term`. `transfer`: the old leader asked, so its lease is no obstacle."""

    group: int
    sender: str
    to: str
    term: int
    last_index: int
    last_term: int
    transfer: bool = False


class VoteReply(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The answer to Vote."""

    group: int
    sender: str
    to: str
    term: int
    granted: bool


class Append(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Entries that follow (prev_index, prev_term), and the leader's commit index."""

    group: int
    sender: str
    to: str
    term: int
    prev_index: int
    prev_term: int
    commit: int
    entries: list[Entry] = []


class AppendReply(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The answer to Append, and to the last part of a snapshot.

    Attributes:
        match: If ok, the last index known to equal the leader's and to be durable here.
        rejected: If not ok, the prev_index that was refused.
        hint_index: If not ok, where the two logs may still agree.
        hint_term: The term of that entry here.
    """

    group: int
    sender: str
    to: str
    term: int
    ok: bool
    match: int = 0
    rejected: int = 0
    hint_index: int = 0
    hint_term: int = 0


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The leader lives.

    Attributes:
        commit: Committed, and known to be in the receiver's log.
        quiesce: The leader will quiesce if every voter agrees; run no election timer then.
        read_round: The newest round of reads this heartbeat confirms when answered.
        answer: False for a commit index pushed out of turn: no reply is wanted.
    """

    group: int
    sender: str
    to: str
    term: int
    commit: int
    quiesce: bool = False
    read_round: int = 0
    answer: bool = True


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The answer to Heartbeat. `quiesce`: I have everything and stopped my timer."""

    group: int
    sender: str
    to: str
    term: int
    quiesce: bool = False
    read_round: int = 0


class InstallSnapshot(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Part `part` (0-based) of the snapshot `meta`; `done` marks the last."""

    group: int
    sender: str
    to: str
    term: int
    meta: SnapshotMeta
    part: int
    done: bool
    data: bytes


class InstallSnapshotReply(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The next part of the snapshot at `index` that the follower needs. No durable promise."""

    group: int
    sender: str
    to: str
    term: int
    index: int
    next_part: int


class TimeoutNow(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The leader hands over: campaign at once."""

    group: int
    sender: str
    to: str
    term: int


class ReadIndex(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A follower asks the leader which index a linearizable read must wait for."""

    group: int
    sender: str
    to: str
    term: int
    context: int


class ReadIndexReply(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The answer to ReadIndex."""

    group: int
    sender: str
    to: str
    term: int
    context: int
    index: int


Message: TypeAlias = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | InstallSnapshot
    | InstallSnapshotReply
    | TimeoutNow
    | ReadIndex
    | ReadIndexReply
)
