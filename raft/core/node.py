"""One replica of one group, without IO: messages and ticks in, a Ready out.

Skeleton: the signatures the host builds on.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from raft.core.log import LogReader
from raft.core.membership import Change
from raft.core.messages import Configuration, HardState, Message, SnapshotMeta
from raft.core.ready import Ready, Refused, Role


class Rng(Protocol):
    """The one random source handed down; a seeded `random.Random` fits."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class NodeConfig(msgspec.Struct, frozen=True):
    """A replica's name, group and limits. One tick is about 100 ms."""

    group: int
    name: str
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    append_entries_max: int = 1024
    append_size_bytes_max: int = 1 << 20
    inflight_appends_max: int = 64
    inflight_bytes_max: int = 8 << 20
    apply_size_bytes_max: int = 4 << 20
    uncommitted_bytes_max: int = 64 << 20
    cache_entries_max: int = 1024
    cache_bytes_max: int = 4 << 20
    quiet_after_ticks: int = 20


class SavedState(msgspec.Struct, frozen=True):
    """What the host found on disk, besides what its LogReader answers.

    Attributes:
        configuration: The newest snapshot's, or the initial one of a new group. Configurations
            in later log entries are found by the core itself. Empty: wait for a leader.
        snapshot_index: Index of the newest snapshot, from which the machine was restored; 0: none.
    """

    hard_state: HardState = HardState()
    configuration: Configuration = Configuration()
    snapshot_index: int = 0


class RaftNode:
    """See ready.py for what the host must do with a Ready, and in which order."""

    def __init__(
        self, config: NodeConfig, saved: SavedState, reader: LogReader, rng: Rng
    ) -> None: ...

    # Read-only views: role, leader, term, commit_index, applied_index, first_index, last_index,
    # configuration, is_leader, is_quiet
    role: Role
    leader: str | None
    term: int
    commit_index: int
    applied_index: int
    last_index: int
    first_index: int
    configuration: Configuration
    is_leader: bool
    is_quiet: bool

    def step(self, message: Message) -> None:
        """Take a message from another replica; foreign groups and stale terms are dropped."""

    def tick(self) -> None:
        """Let one tick pass. A quiet node ignores it, so the host may skip it."""

    def propose(self, data: bytes) -> int | Refused:
        """Append an entry; replication goes out with the next Ready. Returns its index.

        The proposal succeeded when an entry with this index *and the term at this call* comes out
        in `Ready.committed`; if another term's entry stands there, it was lost.
        """
        raise NotImplementedError

    def propose_change(self, change: Change) -> int | Refused:
        """Append a membership change; in force at once, finished when committed."""
        raise NotImplementedError

    def campaign(self) -> None:
        """Try to become leader now: without pre-vote in a group that never had a term."""

    def transfer_leadership(self, to: str) -> Refused | None:
        """Hand over to a voter once it has the whole log; given up after an election timeout."""

    def read_index(self, context: int) -> Refused | None:
        """Ask for a linearizable read; its ReadState comes in a later Ready, or never (retry)."""

    def peer_suspected(self, node: str) -> None:
        """The failure detector gave up on a node; if it leads, campaign after a random delay."""

    def peer_back(self, node: str) -> None:
        """A node is reachable again, or restarted: wake, and replicate to it."""

    def wake(self) -> None:
        """End quietness."""

    def has_ready(self) -> bool:
        """Whether `ready()` has anything to say."""
        raise NotImplementedError

    def ready(self) -> Ready:
        """Take what is to be done; nothing is handed out twice."""
        raise NotImplementedError

    def advance(self, ready: Ready) -> None:
        """The Ready was written (not synced), its committed entries applied."""

    def synced(self, number: int) -> None:
        """Everything up to and including Ready `number` is durable."""

    def snapshot_meta(self, index: int) -> SnapshotMeta:
        """What describes a snapshot of the machine at `index` (applied, not compacted)."""
        raise NotImplementedError

    def compact(self, index: int) -> None:
        """Forget the log up to `index`.

        Call it when a snapshot at or after `index` is durable, before the entries are deleted.
        """
