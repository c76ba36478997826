"""One replica of one group, without IO: messages and ticks in, a Ready out.

`step` applies the term rule, which is the same for all roles, then looks up what the role does
with the message. See ready.py for what the host must do with a Ready, and in which order.

What this class does not do: read a clock, log, raise for anything a peer can cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from raft.core import candidate, follower, leader, replication, transitions, voting
from raft.core.log import LogReader
from raft.core.membership import ConfigChange
from raft.core.messages import (
    Append,
    AppendReply,
    Configuration,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    SnapshotMeta,
    TimeoutNow,
    Vote,
    VoteReply,
)
from raft.core.ready import Ready, RefusalReason, Refused, Role, SoftState
from raft.core.state import NodeConfig, Replica, Rng, SavedState
from raft.core.trace import Tracer
from raft.core.unstable import size_bytes

__all__ = ["NodeConfig", "RaftNode", "Rng", "SavedState"]

# Any: each handler takes its own message type, which the key guarantees.
Handlers = dict[type, Callable[[Replica, Any], None]]

_ANY_ROLE: Final[Handlers] = {Vote: voting.on_vote, PreVote: voting.on_pre_vote}
_FOLLOWER: Final[Handlers] = {
    **_ANY_ROLE,
    Append: follower.on_append,
    Heartbeat: follower.on_heartbeat,
    InstallSnapshot: follower.on_install_snapshot,
    TimeoutNow: follower.on_timeout_now,
    ReadIndexReply: follower.on_read_index_reply,
}
_CANDIDATE: Final[Handlers] = {
    **_ANY_ROLE,
    VoteReply: candidate.on_vote_reply,
    PreVoteReply: candidate.on_pre_vote_reply,
}
_LEADER: Final[Handlers] = {
    **_ANY_ROLE,
    AppendReply: leader.on_append_reply,
    HeartbeatReply: leader.on_heartbeat_reply,
    InstallSnapshotReply: leader.on_install_snapshot_reply,
    ReadIndex: leader.on_read_index,
}
HANDLERS: Final[dict[Role, Handlers]] = {
    Role.FOLLOWER: _FOLLOWER,
    Role.PRE_CANDIDATE: _CANDIDATE,
    Role.CANDIDATE: _CANDIDATE,
    Role.LEADER: _LEADER,
}
TICKS: Final[dict[Role, Callable[[Replica], None]]] = {
    Role.FOLLOWER: follower.tick,
    Role.PRE_CANDIDATE: candidate.tick,
    Role.CANDIDATE: candidate.tick,
    Role.LEADER: leader.tick,
}
_FROM_LEADER: Final = frozenset((Append, Heartbeat, InstallSnapshot))


class RaftNode:
    """One replica of one group."""

    def __init__(self, config: NodeConfig, saved: SavedState, reader: LogReader, rng: Rng) -> None:
        self.state = Replica(config, saved, reader, rng)
        self._ready_number = 0
        self._hard_state_handed = (self.state.term, self.state.vote)
        self._terms_writing: deque[tuple[int, int]] = deque()  # (ready number, term)
        self._soft_state_handed = SoftState(Role.FOLLOWER, None, self.state.term)

    # What the host may read.

    @property
    def role(self) -> Role:
        """Follower, candidate or leader."""
        return self.state.role

    @property
    def leader(self) -> str | None:
        """The leader of this term, if known."""
        return self.state.leader

    @property
    def is_leader(self) -> bool:
        """True if this replica leads."""
        return self.state.role is Role.LEADER

    @property
    def is_quiesced(self) -> bool:
        """True while the group is quiesced: ticks have no effect until something happens."""
        return self.state.is_quiesced

    @property
    def term(self) -> int:
        """The current term."""
        return self.state.term

    @property
    def commit_index(self) -> int:
        """The newest entry known to be committed."""
        return self.state.log.commit

    @property
    def applied_index(self) -> int:
        """The newest entry reported applied by `advance`."""
        return self.state.log.applied

    @property
    def first_index(self) -> int:
        """The oldest entry that is not compacted."""
        return self.state.log.base_index + 1

    @property
    def last_index(self) -> int:
        """The newest entry, durable or not."""
        return self.state.log.last_index

    @property
    def last_entry(self) -> tuple[int, int]:
        """Term and index of the newest entry."""
        return self.state.log.last_term, self.state.log.last_index

    @property
    def cached_from(self) -> int:
        """The oldest entry in memory, one behind the last if none is; older ones are durable."""
        return self.state.log.unstable.offset

    def entries(self, low: int, high: int, size_bytes_max: int) -> list[Entry]:
        """Some entries from `low` on, before `high`, at least one; they must be there."""
        return self.state.log.slice(low, high, high - low, size_bytes_max)

    @property
    def configuration(self) -> Configuration:
        """The configuration in force, committed or not."""
        return self.state.configuration

    @property
    def cached_bytes(self) -> int:
        """Bytes of the log's entries that are in memory: the newest, durable or not."""
        return self.state.log.unstable.size_bytes

    @property
    def is_blank(self) -> bool:
        """True if this replica waits to be admitted (`SavedState.is_blank`)."""
        return self.state.is_blank

    def admitted(self) -> None:
        """Admit a blank replica: a leader has committed its removal as a voter."""
        self.state.is_blank = False

    def set_tracer(self, tracer: Tracer | None) -> None:
        """Have every transition recorded."""
        self.state.tracer = tracer

    def matches(self) -> dict[str, int]:
        """Per member, the last index known durable there; empty unless leading."""
        return {node: progress.match for node, progress in self.state.progress.items()}

    # Input.

    def step(self, message: Message) -> None:
        """Take a message from another replica; foreign groups and stale terms are dropped."""
        if not self.accepts(message):
            return
        replica = self.state
        if replica.is_quiesced and not getattr(message, "quiesce", False):
            self.wake()
        if message.term != replica.term and not self._term_rule(message):
            return
        if type(message) in _FROM_LEADER and replica.role is not Role.FOLLOWER:
            assert replica.role is not Role.LEADER, "two leaders in one term"
            transitions.become_follower(replica, replica.term, message.sender)
        handler = HANDLERS[replica.role].get(type(message))
        if handler is not None:
            handler(replica, message)

    def accepts(self, message: Message) -> bool:
        """True if the message is for this replica of this group (docs/planted-bugs.md R10)."""
        return message.group == self.state.group and message.to == self.state.name

    def _term_rule(self, message: Message) -> bool:
        """Settle a difference of terms (Raft 5.1); false if the message ends here."""
        replica, kind = self.state, type(message)
        if message.term > replica.term:
            if kind is Vote or kind is PreVote:
                if replica.has_lease and not getattr(message, "transfer", False):
                    # A leader is alive: the candidate was cut off or removed (docs/planted-bugs.md
                    # R9).
                    return False
                if kind is PreVote:
                    return True
            elif kind is PreVoteReply and getattr(message, "granted", False):
                return True
            sender = message.sender if kind in _FROM_LEADER else None
            transitions.become_follower(replica, message.term, sender)
            return True
        sender = message.sender
        if kind in _FROM_LEADER:
            # An old leader learns of the new term from any answer; else it, and a replica stuck
            # with a higher term behind pre-vote, might never meet (docs/planted-bugs.md R8).
            replica.send(AppendReply(replica.group, replica.name, sender, replica.term, ok=False))
        elif kind is PreVote:
            replica.send(
                PreVoteReply(replica.group, replica.name, sender, replica.term, granted=False)
            )
        return False

    def tick(self) -> None:
        """Let one tick pass. A quiesced node ignores it, so the host may skip it."""
        if not self.state.is_quiesced:
            TICKS[self.state.role](self.state)

    @property
    def wants_hedge(self) -> bool:
        """True if a commit may be waiting for one follower while another was not asked."""
        replica = self.state
        return replica.thrifty.has_withheld and replica.log.commit < replica.log.last_index

    def hedge(self) -> None:
        """Send entries that were uncommitted at the last call to all followers.

        To be called at even steps as long as `wants_hedge`; delayed calls affect latency, not
        safety.
        """
        if self.state.role is Role.LEADER:
            leader.hedge(self.state)

    def propose(self, data: bytes, *, is_begun: bool = False) -> int | Refused:
        """Append an entry; replication goes out with the next Ready.

        Args:
            data: Of the entry.
            is_begun: It goes on with what the entry before it began: taken though space is short.

        Returns:
            Its index, or why not. It succeeded when an entry with this index and the term at this
            call comes out in `Ready.committed`; if another term's entry stands there, it was lost.
        """
        if self.state.role is not Role.LEADER:
            return Refused(RefusalReason.NOT_LEADER, self.state.leader)
        self.wake()
        return leader.propose(self.state, data, is_begun=is_begun)

    def propose_change(self, change: ConfigChange) -> int | Refused:
        """Append a membership change; in force at once, finished when committed."""
        if self.state.role is not Role.LEADER:
            return Refused(RefusalReason.NOT_LEADER, self.state.leader)
        refused = self.change_refusal()
        if refused is not None:
            return refused
        self.wake()
        return leader.propose_change(self.state, change)

    def change_refusal(self) -> Refused | None:
        """Return why a leader may not begin a membership change now, None if it may."""
        return leader.change_refusal(self.state)

    def campaign(self) -> None:
        """Try to become leader now: without pre-vote in a group that never had a term."""
        self.wake()
        replica = self.state
        is_new = replica.term == 0 and replica.log.last_index == 0
        voting.campaign(replica, without_pre_vote=is_new)

    def transfer_leadership(self, to: str) -> Refused | None:
        """Hand over to a voter once it has the whole log; given up after an election timeout."""
        if self.state.role is not Role.LEADER:
            return Refused(RefusalReason.NOT_LEADER, self.state.leader)
        self.wake()
        return leader.transfer(self.state, to)

    def push_commits_to(self, nodes: frozenset[str] | None) -> None:
        """Say which followers are told of commits at once while this replica leads.

        The others hear of them with the next append or heartbeat.

        Args:
            nodes: Their names; None: all of them.
        """
        replica = self.state
        replica.told_at_once = nodes
        if nodes != frozenset() and replica.role is Role.LEADER:
            replica.must_replicate = True  # what is committed by now

    def read_index(self, context: int) -> Refused | None:
        """Ask for a linearizable read.

        Its ReadState comes in a later Ready, or never: ask again after a change of leader.
        """
        replica = self.state
        if replica.role is Role.LEADER:
            self.wake()
            leader.read(replica, context, replica.name)
            return None
        if replica.leader is None:
            return Refused(RefusalReason.NOT_LEADER)
        replica.send(ReadIndex(replica.group, replica.name, replica.leader, replica.term, context))
        return None

    def peer_suspected(self, node: str) -> None:
        """Note that the failure detector suspects a node.

        If it leads, its lease is void and this replica campaigns after a random delay of at most
        half an election timeout.
        """
        replica = self.state
        replica.suspected.add(node)
        if node not in replica.configuration.members and node != replica.leader:
            return
        self.wake()
        if replica.role is Role.LEADER:
            leader.suspected(replica, node)
        if replica.leader == node and replica.role is Role.FOLLOWER:
            replica.leader = None
            replica.election_elapsed = 0
            half = max(1, replica.config.election_ticks // 2)
            replica.election_timeout = 1 + int(replica.rng.random() * half)

    def peer_back(self, node: str) -> None:
        """Replicate to a node that is reachable again or restarted; ends quiescence."""
        self.state.suspected.discard(node)
        if node in self.state.configuration.members:
            self.wake()

    def wake(self) -> None:
        """End quiescence: timers run again."""
        replica = self.state
        if not replica.is_quiesced:
            return
        replica.is_quiesced = False
        replica.election_elapsed = 0
        replica.draw_election_timeout()
        if replica.role is Role.LEADER:
            leader.woken(replica)
        replica.trace("wake")

    # Output.

    def has_ready(self) -> bool:
        """True if `ready()` has work for the host."""
        replica, log = self.state, self.state.log
        return bool(
            replica.must_replicate
            or log.unstable.handed < log.last_index
            or (log.applying < log.commit and self._is_apply_due())
            or replica.outbox_now
            or replica.outbox_after_sync
            or replica.read_states
            or log.snapshot is not None
            or replica.is_configuration_news
            or self._hard_state_handed != (replica.term, replica.vote)
            or self._is_soft_state_news()
        )

    def _is_apply_due(self) -> bool:
        """True if committed entries are applied now; a follower may delay a few.

        It goes on in small pieces while it has nothing to write: what it has to write, a leader and
        its client wait for.
        """
        replica, config = self.state, self.state.config
        if not config.apply_behind_max or replica.role is not Role.FOLLOWER:
            return True
        log = replica.log
        behind = log.commit - log.applying
        if (
            behind >= config.apply_behind_max
            or replica.unapplied_bytes >= config.apply_behind_bytes
        ):
            return True
        is_idle = log.unstable.stable == log.last_index
        return is_idle and (replica.is_apply_due or behind >= config.apply_idle_min)

    def _is_soft_state_news(self) -> bool:
        handed, replica = self._soft_state_handed, self.state
        return (
            handed.role is not replica.role
            or handed.leader != replica.leader
            or handed.term != replica.term
        )

    def ready(self) -> Ready:
        """Take the work for the host; nothing is handed out twice."""
        replica, log = self.state, self.state.log
        if replica.must_replicate:
            replication.replicate(replica)
        self._ready_number = number = self._ready_number + 1
        hard_state = self._take_hard_state(number)
        soft_state = None
        if self._is_soft_state_news():
            soft_state = SoftState(replica.role, replica.leader, replica.term)
            self._soft_state_handed = soft_state
        snapshot, log.snapshot = log.snapshot, None
        if snapshot is not None:
            replica.snapshot_unsynced = number
        ready = Ready(
            number=number,
            hard_state=hard_state,
            entries=log.unstable.take_unwritten(number),
            snapshot=snapshot,
            messages_now=replica.outbox_now,
            messages_after_sync=replica.outbox_after_sync,
            committed=self._take_committed(),
            soft_state=soft_state,
            read_states=replica.read_states,
            configuration=replica.configuration if replica.is_configuration_news else None,
        )
        replica.outbox_now, replica.outbox_after_sync, replica.read_states = [], [], []
        replica.is_configuration_news = False
        return ready

    def _take_hard_state(self, number: int) -> HardState | None:
        replica = self.state
        if self._hard_state_handed == (replica.term, replica.vote):
            return None
        self._hard_state_handed = (replica.term, replica.vote)
        self._terms_writing.append((number, replica.term))
        return HardState(replica.term, replica.vote, replica.log.commit)

    def _take_committed(self) -> list[Entry]:
        replica = self.state
        if replica.log.applying >= replica.log.commit or not self._is_apply_due():
            return []
        replica.is_apply_due = False
        replica.unapplied_bytes = 0
        committed = replica.log.take_committed(replica.config.apply_size_bytes_max)
        if committed and replica.uncommitted_bytes:
            freed = sum([size_bytes(entry) for entry in committed])
            replica.uncommitted_bytes = max(0, replica.uncommitted_bytes - freed)
        return committed

    def advance(self, ready: Ready) -> None:
        """Note that a Ready was written (not synced), its snapshot restored and entries applied."""
        log = self.state.log
        if ready.snapshot is not None:
            log.applied = max(log.applied, ready.snapshot.meta.index)
        if ready.committed:
            log.applied = max(log.applied, ready.committed[-1].index)
            log.unstable.trim(log.applied)

    def synced(self, number: int) -> None:
        """Note that everything up to and including Ready `number` is durable."""
        replica = self.state
        while self._terms_writing and self._terms_writing[0][0] <= number:
            replica.term_synced = self._terms_writing.popleft()[1]
        if replica.snapshot_unsynced is not None and replica.snapshot_unsynced <= number:
            replica.snapshot_unsynced = None
        if replica.log.unstable.synced(number) and replica.role is Role.LEADER:
            own = replica.progress.get(replica.name)
            if own is not None:
                own.match = replica.log.unstable.stable
                leader.after_commit(replica)
        voting.own_vote_synced(replica)

    # Snapshots and compaction.

    def snapshot_meta(self, index: int) -> SnapshotMeta:
        """Return the metadata of a snapshot of the machine at `index` (applied, not compacted)."""
        replica = self.state
        term = replica.log.term(index)
        assert term is not None, f"index {index} is compacted or not there"
        return SnapshotMeta(index, term, replica.history.at(index))

    def compact(self, index: int) -> None:
        """Forget the log up to `index`.

        Call it when a snapshot at or after `index` is durable, before the entries are deleted.
        """
        self.state.log.compact(index)
        self.state.history.compacted(index)
