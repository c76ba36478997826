"""The state of one replica, without decisions: the role modules are functions on it.

Invariants:
1. term never falls; vote changes only together with term, or from None.
2. hard state is handed out before any message that reveals its vote.
3. `progress` holds exactly the members of the configuration while leading, and is empty otherwise.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from raft.core.inflight import Inflight
from raft.core.log import LogReader, RaftLog
from raft.core.membership import History
from raft.core.messages import (
    AppendReply,
    Configuration,
    HardState,
    Message,
    SnapshotMeta,
    Vote,
    VoteReply,
)
from raft.core.progress import Progress
from raft.core.reads import Reads
from raft.core.ready import ReadState, Role
from raft.core.trace import Tracer, TraceRecord
from raft.core.unstable import Unstable

# What reveals a vote or a durable log position.
PROMISES: Final = frozenset((Vote, VoteReply, AppendReply))
SCAN_BYTES_MAX: Final = 4 << 20  # how much of the log is read at once when a node starts


class Rng(Protocol):
    """The one random source handed down; a seeded `random.Random` fits."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...


class NodeConfig(msgspec.Struct, frozen=True):
    """A replica's name, group and limits. One tick is about 100 ms.

    Attributes:
        group: The group's id, never used twice.
        name: This node.
        election_ticks: A follower campaigns after 1 to 2 times this without a leader; also the
            leader's lease and the limit of a leadership transfer.
        inflight_appends_max: Appends under way to one follower.
        learner_append_bytes: Size of an append to a learner. No commit waits for a learner, so it
            gets a long log in small pieces between what voters get.
        learner_inflight_bytes: What may be under way to a learner.
        uncommitted_bytes_max: What a leader holds uncommitted before it refuses proposals.
        cache_entries_max: Durable entries kept in memory for followers and for applying.
        quiesce_after_ticks: Idle ticks before a leader asks to quiesce; 0: never.
        push_commits: Tell followers of a commit at once, not with the next append or heartbeat.
            Costs a message to each follower per commit; only for groups whose followers are read.
            `RaftNode.push_commits_to` says to which.
        apply_behind_max: Committed entries that a follower may leave unapplied until its next tick,
            to apply them together, away from the path of a commit; 0: none. Only for groups whose
            followers are not read.
        apply_behind_bytes: But no more than about this much of them.
        apply_idle_min: So many of them are applied sooner, once everything here is durable.
        lag_entries_max: Entries that a follower may be sent late, with the next tick, where a
            majority does without it (see `raft.core.thrifty`); 0: all get everything at once.
        lag_bytes_max: But no more than about this much of them: where bytes are what costs, there
            is nothing to be saved.
    """

    group: int
    name: str
    election_ticks: int = 10
    heartbeat_ticks: int = 1
    append_entries_max: int = 1024
    append_size_bytes_max: int = 1 << 20
    inflight_appends_max: int = 64
    inflight_bytes_max: int = 8 << 20
    learner_append_bytes: int = 128 << 10
    learner_inflight_bytes: int = 1 << 20
    apply_size_bytes_max: int = 4 << 20
    uncommitted_bytes_max: int = 64 << 20
    cache_entries_max: int = 1024
    cache_bytes_max: int = 4 << 20
    quiesce_after_ticks: int = 20
    push_commits: bool = True
    apply_behind_max: int = 0
    apply_behind_bytes: int = 64 << 10
    apply_idle_min: int = 4
    lag_entries_max: int = 0
    lag_bytes_max: int = 16 << 10


class SavedState(msgspec.Struct, frozen=True):
    """The durable state that the host found on disk, besides the log of its LogReader.

    Attributes:
        configuration: The newest snapshot's, or the initial one of a new group. Configurations
            in later log entries are found by the core itself. Empty: wait for a leader.
        snapshot_index: Index of the newest snapshot, from which the machine was restored; 0: none.
        configuration_index: Where `configuration` begins, if that is behind the snapshot: an
            operator forced it on what was the end of the log then, and configurations in entries
            up to there no longer count.
        is_blank: The replica may have lost what it was and promised: see `Replica.may_vote`.
    """

    hard_state: HardState = HardState()
    configuration: Configuration = Configuration()
    snapshot_index: int = 0
    configuration_index: int = 0
    is_blank: bool = False


class Incoming:
    """A snapshot of which the first parts have arrived."""

    __slots__ = ("meta", "parts", "term")

    def __init__(self, meta: SnapshotMeta, term: int) -> None:
        self.meta = meta
        self.term = term
        self.parts: list[bytes] = []


class ThriftyState:
    """The state of a leader about withheld entries (see `raft.core.thrifty`).

    Attributes:
        eager_followers: Those chosen last.
        has_withheld: Whether entries were withheld from anybody.
        hedge_mark: The last entry when the host last said that some time has passed.
        hedge_matches: What the eager followers had then.
        own_bytes: Of all entries appended as this leader.
    """

    __slots__ = ("eager_followers", "has_withheld", "hedge_mark", "hedge_matches", "own_bytes")

    def __init__(self) -> None:
        self.eager_followers: tuple[str, ...] = ()
        self.has_withheld = False
        self.hedge_mark = 0
        self.hedge_matches: dict[str, int] = {}
        self.own_bytes = 0


class Replica:
    """One replica of one group: its durable state, its role's state, its outgoing mail."""

    def __init__(self, config: NodeConfig, saved: SavedState, reader: LogReader, rng: Rng) -> None:
        self.config = config
        self.name, self.group = config.name, config.group
        self.rng = rng
        self.tracer: Tracer | None = None

        self.term, self.vote = saved.hard_state.term, saved.hard_state.vote
        self.is_blank = saved.is_blank
        self.log = RaftLog(
            reader,
            Unstable(reader.last_index(), config.cache_entries_max, config.cache_bytes_max),
            applied=saved.snapshot_index,
            commit=saved.hard_state.commit,
        )
        begins = max(saved.snapshot_index, saved.configuration_index)
        self.history = History(begins, saved.configuration)
        self._scan_configurations(reader)

        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.election_elapsed = 0  # a leader's too: its quorum check
        self.election_timeout = 0
        self.is_quiesced = False
        self.suspected: set[str] = set()  # by the failure detector; never silent towards these
        self.draw_election_timeout()

        self.votes: dict[str, bool] = {}
        self.retry_elapsed = 0  # of a candidate's requests
        self.is_transfer_campaign = False
        self.term_synced = self.term  # newest term whose hard state is durable

        self.progress: dict[str, Progress] = {}
        self.heartbeat_elapsed = 0
        self.idle_ticks = 0
        self.term_start_index = 0  # of the leader's no-op: reads and changes wait for its commit
        self.uncommitted_bytes = 0
        self.transfer_target: str | None = None
        self.transfer_elapsed = 0
        self.reads = Reads()
        self.must_replicate = False
        self.told_at_once: frozenset[str] | None = None if config.push_commits else frozenset()
        self.thrifty = ThriftyState()

        self.is_apply_due = False  # what a follower has put off
        self.unapplied_bytes = 0  # appended since it last applied

        self.incoming: Incoming | None = None
        self.snapshot_unsynced: int | None = None  # the Ready that carries it; no campaign before

        self.outbox_now: list[Message] = []
        self.outbox_after_sync: list[Message] = []
        self.read_states: list[ReadState] = []
        self.is_configuration_news = False

    def _scan_configurations(self, reader: LogReader) -> None:
        low = max(reader.first_index(), self.history.last_index + 1)
        high = reader.last_index() + 1
        while low < high:
            entries = reader.entries(low, high, SCAN_BYTES_MAX)
            self.history.appended(entries)
            low = entries[-1].index + 1

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.history.current

    @property
    def is_voter(self) -> bool:
        """True if this replica is a voter."""
        return self.name in self.history.current.voters

    @property
    def may_vote(self) -> bool:
        """True if this replica has kept its earlier promises (docs/planted-bugs.md R11).

        One that knows of no members waits for a leader. One that may have lost its data must not
        count in any election before a leader has removed it and added it anew, though the past
        that it is sent meanwhile names it a voter: elsewhere a majority may rest on what it had.
        """
        return bool(self.configuration.voters) and not self.is_blank

    @property
    def may_campaign(self) -> bool:
        """True for a voter, unless a received snapshot is not durable yet."""
        is_whole = self.snapshot_unsynced is None and self.log.snapshot is None
        return self.is_voter and is_whole and self.may_vote

    @property
    def has_lease(self) -> bool:
        """True if the leader was heard of less than an election timeout ago (thesis 4.2.3)."""
        return self.leader is not None and self.election_elapsed < self.config.election_ticks

    def draw_election_timeout(self) -> None:
        """Pick when to campaign: between one and two election timeouts (Raft 5.2)."""
        base = self.config.election_ticks
        self.election_timeout = base + int(self.rng.random() * base)

    def send(self, message: Message) -> None:
        """Queue a message: one that makes a promise waits for the sync."""
        if type(message) in PROMISES:
            self.outbox_after_sync.append(message)
        else:
            self.outbox_now.append(message)

    def new_progress(self) -> Progress:
        """Return the progress of a new follower, which may have the whole log."""
        config = self.config
        window = Inflight(config.inflight_appends_max, config.inflight_bytes_max)
        return Progress(self.log.last_index + 1, window)

    def quorum_of(self, value: dict[str, int]) -> int:
        """The largest value that a majority of voters has reached."""
        voters = self.history.current.voters
        values = sorted([value.get(voter, 0) for voter in voters], reverse=True)
        return values[len(values) // 2] if values else 0

    def trace(self, name: str) -> None:
        """Record a transition, if anyone listens."""
        if self.tracer is not None:
            self.tracer(
                TraceRecord(
                    name,
                    self.name,
                    self.group,
                    self.term,
                    self.vote,
                    self.log.commit,
                    self.role,
                    self.log.last_index,
                    self.history.current,
                )
            )
