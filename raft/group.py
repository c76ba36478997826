"""One group on this node: its core, its machine, and who waits for what.

A `Group` is what the embedder holds. The host calls `collect`, `apply` and `synced`; everything
else may be called by anyone on the loop. It decides nothing about consensus: that is the core.

Invariants:

1. Every proposal is answered once: with the machine's result when its entry (same index, same
   term) is applied here, with `NotLeader` or `ProposalDropped` otherwise.
2. The machine hears `role_changed(leader=True)` only after the first entry of this replica's own
   term was applied, and `leader=False` before anything that follows the loss.
3. The log is compacted only behind a durable snapshot (docs/protocol-rules.md P28).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from raft import parts
from raft.checkpointing import Checkpointing
from raft.core.membership import ChangeKind, ConfigChange
from raft.core.messages import CONFIG, Entry, Message
from raft.core.node import RaftNode
from raft.core.ready import Ready, RefusalReason, Refused, Role, SoftState
from raft.entry_log import LogSegment
from raft.errors import (
    ChangeRefused,
    GroupClosed,
    LogCorrupt,
    NotLeader,
    ProposalDropped,
    RaftError,
)
from raft.log_store import GroupLog
from raft.ports import Machine
from raft.reading import LogReading, ReadDone
from raft.settings import RaftHostConfig
from raft.snapshots import SnapshotStore

Done = Callable[[object], None]


class GroupStatus(NamedTuple):
    """A group as listings show it.

    Attributes:
        group: Its id.
        role: "leader", "follower", "candidate", "pre-candidate" or "stopped".
        leader: Who leads, if known.
        term: The current term.
        commit_index: The newest entry known to be committed.
        applied_index: The newest entry given to the machine.
        first_index: The oldest entry kept.
        last_index: The newest entry, durable or not.
        snapshot_index: Where the newest snapshot stands, durable or under way; 0: none.
        voters: Members whose votes and copies count.
        learners: Members that only receive.
        is_quiesced: True when no timers run.
        matches: Per member, the last index known durable there; empty unless leading.
    """

    group: int
    role: str
    leader: str | None
    term: int
    commit_index: int
    applied_index: int
    first_index: int
    last_index: int
    snapshot_index: int
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    is_quiesced: bool
    matches: dict[str, int]


class _Read:
    """A read that waits for its index."""

    __slots__ = ("age_ticks", "done", "index")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.index: int | None = None
        self.age_ticks = 0


class _Transfer(NamedTuple):
    """A hand-over that waits for its end."""

    to: str
    deadline_ticks: int
    done: Done


class GroupHost(Protocol):
    """The host of a node's groups, as one of them sees it."""

    def wake(self, group: Group) -> None:
        """There may be work for a group: look at it at the end of this turn."""
        ...

    def fail(self, group: Group, error: Exception) -> None:
        """Stop a group because of a bug or damaged data."""
        ...


class Group:
    """One replica, open on this node. Made by `RaftHost.open_group`.

    Args:
        node: The core.
        log: Its durable state.
        machine: What entries are applied to, already restored from the snapshot.
        config: Limits.
        host: Told when there is work.
        on_leader_change: Told who leads when that changes, also on followers.
        is_log_read: Its log is what is read: without other members it goes on with damage in it.
    """

    def __init__(
        self,
        node: RaftNode,
        log: GroupLog,
        machine: Machine,
        config: RaftHostConfig,
        host: GroupHost,
        on_leader_change: Callable[[str | None], None] | None = None,
        *,
        is_log_read: bool = False,
    ) -> None:
        self.id = log.group
        self.node = node
        self.error: BaseException | None = None
        self.is_closed = False
        # Number of the newest Ready that waits for a sync; 0 when none does.
        self.unsynced = 0
        self._log = log
        self._machine = machine
        self._config = config
        self._host = host
        self._on_leader_change = on_leader_change
        self._is_log_read = is_log_read
        self._soft = SoftState(Role.FOLLOWER, None, node.term)
        self._announced_term: int | None = None
        self._pending: dict[int, tuple[int, Done]] = {}
        self._reads: dict[int, _Read] = {}
        self._next_context = 1
        self._transfer: _Transfer | None = None
        self._ticks = 0
        self._assembler = parts.ProposalAssembler()
        self._snapshot_index = log.saved.snapshot_index
        self._reading = LogReading(node, log.entry_log, node.applied_index)
        self._snapshots: SnapshotStore | None = None
        self._checkpointing: Checkpointing | None = None
        if isinstance(log.snapshots, SnapshotStore):
            self._snapshots = log.snapshots
        else:
            limit = config.checkpoint_log_bytes
            self._checkpointing = Checkpointing(
                node, log, log.snapshots, machine, self._assembler, limit
            )

    # -- what anyone may read -----------------------------------------------------------------

    @property
    def leader(self) -> str | None:
        """The leader as known to this node."""
        return self.node.leader

    @property
    def is_leader(self) -> bool:
        """True when this replica leads."""
        return self.node.is_leader

    @property
    def term(self) -> int:
        """The current term."""
        return self.node.term

    @property
    def voters(self) -> tuple[str, ...]:
        """Members whose votes and copies count."""
        return self.node.configuration.voters

    @property
    def learners(self) -> tuple[str, ...]:
        """Members that only receive."""
        return self.node.configuration.learners

    @property
    def last_entry(self) -> tuple[int, int]:
        """Term and index of the newest entry: the greater one is in the better log (Raft 5.4.1)."""
        return self.node.last_entry

    @property
    def is_blank(self) -> bool:
        """True while the replica waits to be admitted, without a vote (`RaftHost.open_group`)."""
        return self.node.is_blank

    @property
    def has_waiters(self) -> bool:
        """True while something waits for ticks."""
        return bool(self._reads) or self._transfer is not None

    @property
    def cached_bytes(self) -> int:
        """Bytes of the log's entries that are in memory: the newest, durable or not."""
        return self.node.cached_bytes

    def status(self) -> GroupStatus:
        """The group as listings show it."""
        node, configuration = self.node, self.node.configuration
        is_running = self.error is None and not self.is_closed
        return GroupStatus(
            group=self.id,
            role=node.role.value if is_running else "stopped",
            leader=node.leader,
            term=node.term,
            commit_index=node.commit_index,
            applied_index=node.applied_index,
            first_index=node.first_index,
            last_index=node.last_index,
            snapshot_index=self._newest_snapshot(),
            voters=configuration.voters,
            learners=configuration.learners,
            is_quiesced=node.is_quiesced,
            matches=node.matches(),
        )

    def _newest_snapshot(self) -> int:
        if self._checkpointing is not None:
            return self._checkpointing.last_index
        return self._snapshot_index

    # -- requests -----------------------------------------------------------------------------

    def propose_nowait(self, data: bytes, done: Done) -> None:
        """Propose an entry.

        Args:
            data: Not empty; a large one takes several entries of the log.
            done: Called once: with the machine's result, or with a `NotLeader`,
                `ProposalDropped` or `GroupClosed` instance, then possibly before this returns.
        """
        assert data, "an entry without data would not reach the machine's apply"
        pieces = parts.cut(data)
        if len(pieces) == 1:
            self._submit(lambda: self.node.propose(pieces[0]), done)
        else:
            self._submit(lambda: self._propose_all(pieces), done)

    def propose(self, data: bytes) -> asyncio.Future[object]:
        """Propose an entry; the future gives the machine's result on this node.

        Raises (through the future):
            NotLeader: This replica does not lead; the error names who does.
            ProposalDropped: It was not taken, or leadership was lost and its fate is unknown.
            GroupClosed: The group was closed here.
        """
        return self._future(lambda done: self.propose_nowait(data, done))

    def add_learner(self, node: str) -> asyncio.Future[object]:
        """Add a member that only receives (or demote a voter); done when committed."""
        return self._change("learner", node)

    def promote(self, node: str) -> asyncio.Future[object]:
        """Make a learner that has caught up a voter; done when committed."""
        return self._change("voter", node)

    def remove(self, node: str) -> asyncio.Future[object]:
        """Remove a member; done when committed."""
        return self._change("remove", node)

    def read_barrier(self) -> asyncio.Future[object]:
        """Done when this replica has applied everything committed before the call.

        Asks again when nothing is heard; fails with `NotLeader` after `read_ticks_max`.
        """
        return self._future(self._begin_read)

    async def readmit(self, node: str) -> None:
        """As the leader, readmit a member without its data as a learner (docs/planted-bugs.md R11).

        It is removed even if it was a learner, so that nothing it once acknowledged counts.
        """
        if node in (*self.voters, *self.learners):
            await self.remove(node)
        await self.add_learner(node)

    def admitted(self) -> None:
        """A leader has readmitted this replica: from now on it votes where it is asked to."""
        if not self.is_closed:
            self.node.admitted()
            self._log.admitted()

    # -- reading the log ----------------------------------------------------------------------

    @property
    def applied_index(self) -> int:
        """The newest entry that the machine has; while it gets one, that one."""
        return self._reading.applied

    def read(self, low: int, size_bytes_max: int) -> list[Entry]:
        """Applied entries from `low` on, or from the first one kept if `low` was cut away.

        Raw: `raft.parts.proposals` makes proposals of them. May wait for the disk.

        Args:
            low: Index of the first one.
            size_bytes_max: How much; but at least one entry, and nothing beyond a segment's end.

        Returns:
            Empty if nothing behind `low` is applied.

        Raises:
            GroupClosed: The group was closed here.
            LogCorrupt: One is damaged; the group has failed with that, unless nobody else has it.
        """
        self._check_open()
        try:
            return self._reading.read(low, size_bytes_max)
        except LogCorrupt as error:
            self._damaged(error)
            raise

    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        """`read`, with the disk's part in another thread.

        Args:
            low: As in `read`.
            size_bytes_max: As in `read`.
            done: Called once, possibly before this returns: with the entries, or with a
                `GroupClosed` or `LogCorrupt` instance. Not when the node stops meanwhile.
        """

        def read(found: list[Entry] | RaftError) -> None:
            if self.is_closed:
                found = GroupClosed(f"group {self.id} is closed")
            elif isinstance(found, LogCorrupt):
                self._damaged(found)
            done(found)

        try:
            self._check_open()
            self._reading.read_later(low, size_bytes_max, read)
        except RaftError as error:
            read(error)

    def entry_head(self, index: int, size_bytes: int) -> bytes:
        """The first bytes of an applied entry's data, for a search; no checksum is looked at.

        Args:
            index: The entry, applied and not cut away.
            size_bytes: How many.

        Returns:
            Empty if the entry is none of a proposal; see `raft.parts.unframed`.

        Raises:
            GroupClosed: The group was closed here.
            LogCorrupt: It is not there; as in `read`.
            ValueError: There is no such entry.
        """
        self._check_open()
        try:
            return self._reading.entry_head(index, size_bytes)
        except LogCorrupt as error:
            self._damaged(error)
            raise

    def _damaged(self, error: LogCorrupt) -> None:
        """Stop; but where no other member has what is lost here, what is whole is read on."""
        if not self._is_log_read or len(self.voters) + len(self.learners) > 1:
            self._host.fail(self, error)

    def fail(self, error: Exception) -> None:
        """Stop, keeping the data: the machine can't be served from what is in the log."""
        if not self.is_closed:
            self._host.fail(self, error)

    @property
    def damage(self) -> str:
        """What was found damaged in a log that is read around that; "" for one that is whole."""
        return self._log.damage

    @property
    def lost_entries(self) -> list[tuple[int, int]]:
        """First and last of entries that are lost, in a log that is read around them."""
        return self._log.lost_entries

    def log_segments(self) -> list[LogSegment]:
        """The parts of the log that are removed as a whole, oldest first; none without segments.

        The last one grows, and may hold entries that are not applied.
        """
        return self._log.entry_log.segments()

    @property
    def disk_bytes(self) -> int:
        """What the group takes of the disk: its log's files, or its entries and its snapshot.

        Entries before the snapshot that are kept for followers are not among them.
        """
        segments = self.log_segments()
        if segments:
            return sum([each.size_bytes for each in segments])
        current = None if self._snapshots is None else self._snapshots.current
        return self._log.entry_log.log_bytes + (0 if current is None else current.size_bytes)

    def release(self, index: int) -> None:
        """Let the log go up to an entry, on every replica for itself, and again after a restart.

        It is cut behind the newest durable checkpoint at or before `index`, in whole segments, as
        soon as there is one. A replica that joins later begins with that checkpoint.

        Args:
            index: Entries up to there are not needed any more: of a group that keeps its log.
        """
        assert self._checkpointing is not None, "only a log that is kept can be released"
        if not self.is_closed:
            self._checkpointing.release(index)

    def hold_checkpoint(self, index: int, parts: Sequence[bytes]) -> None:
        """Keep a state in memory that may become a checkpoint later (`put_held`).

        Args:
            index: The entry that the machine has got last; no later one may be there yet.
            parts: The state: at most 1 MiB each, all together a few.
        """
        assert self._checkpointing is not None, "only a log that is kept has checkpoints"
        self._checkpointing.hold(index, parts)

    def put_held(self) -> None:
        """Make the state that is held a checkpoint, in place of all older ones.

        The log must be released up to there, and whoever begins with it must find in the log what
        it lacks (docs/protocol-rules.md P28). Nothing happens without one.
        """
        assert self._checkpointing is not None, "only a log that is kept has checkpoints"
        if not self.is_closed:
            self._checkpointing.put_held()

    def _check_open(self) -> None:
        if self.is_closed:
            raise GroupClosed(f"group {self.id} is closed")

    # -- leadership ---------------------------------------------------------------------------

    def push_commits_to(self, nodes: frozenset[str] | None) -> None:
        """Say which followers are told of commits at once (`RaftNode.push_commits_to`)."""
        if not self.is_closed:
            self.node.push_commits_to(nodes)
            self._host.wake(self)

    def transfer(self, to: str) -> asyncio.Future[object]:
        """Hand leadership to a voter; done when it leads, `ChangeRefused` if it does not soon."""
        return self._future(lambda done: self._begin_transfer(to, done))

    # -- what the host calls ------------------------------------------------------------------

    def collect(self) -> Ready | None:
        """Take the core's output, if there is any."""
        return self.node.ready() if self.node.has_ready() else None

    def save(self, ready: Ready) -> None:
        """Write the durable part of a Ready into the journal's turn."""
        self._log.save(ready)

    def apply(self, ready: Ready) -> None:
        """Apply a saved Ready and answer who waited; `finish` must follow."""
        soft = ready.soft_state
        if soft is not None:
            self._step_down_before(soft)
            self._soft = soft
        if ready.snapshot is not None:
            meta = ready.snapshot.meta
            self._assembler.reset()
            if self._checkpointing is not None:
                self._checkpointing.restored()
            self._machine.restore(meta.index, ready.snapshot.parts)
            self._snapshot_index = self._reading.applied = meta.index
        if self._checkpointing is not None:
            self._checkpointing.saved(self._reading.applied)
        for entry in ready.committed:
            self._apply_entry(entry)
            if self.is_closed:
                return

    def finish(self, ready: Ready) -> None:
        """Tell the core what was applied, and do what nobody waits for."""
        soft = ready.soft_state
        self.node.advance(ready)
        if soft is not None:
            self._settle_role(soft)
        for state in ready.read_states:
            read = self._reads.get(state.context)
            if read is not None:
                read.index = state.index
        if self._reads:
            self._finish_reads()
        if self._checkpointing is not None:
            self._checkpointing.finished()
        elif self._snapshots is not None:
            self._maybe_take_snapshot(self._snapshots)
        if not self.unsynced and not self.is_closed:
            self.synced(ready.number)

    def synced(self, number: int) -> None:
        """Everything up to Ready `number` is durable."""
        if self.unsynced == number:
            self.unsynced = 0
        self.node.synced(number)

    def step(self, message: Message) -> None:
        """Give the core a message."""
        self.node.step(message)

    def tick(self) -> None:
        """Let one tick pass, for the core and for those who wait."""
        self._ticks += 1
        self.node.tick()
        if self._reads:
            self._age_reads()
        transfer = self._transfer
        if transfer is not None and self._ticks >= transfer.deadline_ticks:
            self._end_transfer(ChangeRefused(f"{transfer.to} did not take over in time"))

    def stop(self, error: RaftError) -> None:
        """Answer everyone who waits, and do nothing more."""
        if self.is_closed:
            return
        self.is_closed = True
        self._log.snapshots.stop()
        if self._checkpointing is not None:
            self._checkpointing.stop()
        self._drop_pending(lambda _: True, error)
        reads, self._reads = self._reads, {}
        for read in reads.values():
            read.done(error)
        self._end_transfer(error)
        if self._announced_term is not None:
            self._announced_term = None
            self._machine.role_changed(leader=False, term=self.node.term)

    # -- proposals ----------------------------------------------------------------------------

    def _future(self, begin: Callable[[Done], None]) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def done(result: object) -> None:
            if future.done():
                return
            if isinstance(result, RaftError):
                future.set_exception(result)
            else:
                future.set_result(result)

        begin(done)
        return future

    def _submit(self, submit: Callable[[], int | Refused], done: Done) -> None:
        if self.is_closed:
            done(GroupClosed(f"group {self.id} is closed"))
            return
        index = submit()
        if isinstance(index, Refused):
            done(_error(index))
            return
        self._pending[index] = (self.node.term, done)
        self._host.wake(self)

    def _propose_all(self, pieces: list[bytes]) -> int | Refused:
        """Append the parts of one proposal, all or none: the last one's index, or why not.

        Were there no room for the later ones, what is larger than the room could never be taken.
        """
        index = self.node.propose(pieces[0])
        for piece in pieces[1:]:
            if isinstance(index, Refused):
                break
            index = self.node.propose(piece, is_begun=True)
        return index

    def _change(self, kind: ChangeKind, node: str) -> asyncio.Future[object]:
        return self._future(
            lambda done: self._submit(
                lambda: self.node.propose_change(ConfigChange(kind, node)), done
            )
        )

    def _apply_entry(self, entry: Entry) -> None:
        result: object = None
        self._reading.applied = entry.index
        if entry.kind == CONFIG and len(self.voters) > 1:
            self._log.has_others()
        data = self._assembler.join(entry)
        if data is not None:
            result = self._machine.apply(entry.index, data)
        if self._checkpointing is not None:
            self._checkpointing.applied(entry)
        if self._announced_term is None and self._is_own_first(entry):
            self._announced_term = entry.term
            self._machine.role_changed(leader=True, term=entry.term)
        waiting = self._pending.pop(entry.index, None)
        if waiting is not None:
            term, done = waiting
            if term == entry.term:
                done(result)
            else:
                done(ProposalDropped(f"entry {entry.index} of term {term} was overwritten"))

    def _is_own_first(self, entry: Entry) -> bool:
        return self._soft.role is Role.LEADER and self._soft.term == entry.term

    def _step_down_before(self, soft: SoftState) -> None:
        announced = self._announced_term
        if announced is not None and (soft.role is not Role.LEADER or soft.term != announced):
            self._announced_term = None
            self._machine.role_changed(leader=False, term=soft.term)

    def _settle_role(self, soft: SoftState) -> None:
        is_leader = soft.role is Role.LEADER
        self._drop_pending(
            lambda term: not is_leader or term != soft.term,
            ProposalDropped("leadership was lost before the entry was committed"),
        )
        transfer = self._transfer
        if transfer is not None and soft.leader == transfer.to:
            self._end_transfer(None)
        if self._on_leader_change is not None:
            self._on_leader_change(soft.leader)

    def _drop_pending(self, is_lost: Callable[[int], bool], error: RaftError) -> None:
        lost = [index for index, (term, _) in self._pending.items() if is_lost(term)]
        for index in lost:
            _, done = self._pending.pop(index)
            done(error)

    # -- reads and transfers ------------------------------------------------------------------

    def _begin_read(self, done: Done) -> None:
        if self.is_closed:
            done(GroupClosed(f"group {self.id} is closed"))
            return
        context, self._next_context = self._next_context, self._next_context + 1
        self._reads[context] = _Read(done)
        self.node.read_index(context)  # refused without a leader: asked again with the ticks
        self._host.wake(self)

    def _finish_reads(self) -> None:
        applied = self.node.applied_index
        ready = [c for c, r in self._reads.items() if r.index is not None and r.index <= applied]
        for context in ready:
            self._reads.pop(context).done(None)

    def _age_reads(self) -> None:
        expired = []
        for context, read in self._reads.items():
            read.age_ticks += 1
            if read.age_ticks >= self._config.read_ticks_max:
                expired.append(context)
            elif read.index is None and read.age_ticks % self._config.read_retry_ticks == 0:
                self.node.read_index(context)
        for context in expired:
            self._reads.pop(context).done(NotLeader(self.node.leader))

    def _begin_transfer(self, to: str, done: Done) -> None:
        if self.is_closed:
            done(GroupClosed(f"group {self.id} is closed"))
            return
        if self.is_leader and to == self.node.state.name:
            done(None)
            return
        refused = self.node.transfer_leadership(to)
        if refused is not None:
            done(_change_error(refused))
            return
        self._end_transfer(ChangeRefused("another transfer was asked for"))
        self._transfer = _Transfer(to, self._ticks + self._config.transfer_ticks_max, done)
        self._host.wake(self)

    def _end_transfer(self, result: object) -> None:
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.done(result)

    # -- snapshots ----------------------------------------------------------------------------

    def _maybe_take_snapshot(self, snapshots: SnapshotStore) -> None:
        log, config = self._log, self._config
        applied = self.node.applied_index
        entries = applied - self._snapshot_index
        if entries <= 0 or snapshots.is_writing or self._assembler.is_open:
            return
        current = snapshots.current
        # A snapshot costs as much as the state is large, so the log may grow as large first:
        # then no more than half of what is written is snapshots.
        last_bytes = 0 if current is None else current.size_bytes
        is_due = log.entry_log.log_bytes >= max(config.snapshot_log_bytes, last_bytes) or (
            entries >= config.snapshot_entries and log.entry_log.log_bytes >= last_bytes // 4
        )
        if not is_due:
            return
        state = list(self._machine.snapshot())
        trailing_bytes = config.trailing_bytes_max * entries // max(1, log.entry_log.log_bytes)
        keep = min(config.trailing_entries, trailing_bytes)
        self._snapshot_index = applied
        log.entry_log.log_bytes = 0
        snapshots.write(
            self.node.snapshot_meta(applied), state, lambda: self._compact(applied, keep)
        )

    def _compact(self, snapshot_index: int, keep: int) -> None:
        if self.is_closed:
            return
        index = snapshot_index - keep
        if index >= self.node.first_index:
            self.node.compact(index)
            self._log.compact(index)


def _error(refused: Refused) -> RaftError:
    if refused.reason is RefusalReason.NOT_LEADER:
        return NotLeader(refused.leader)
    if refused.reason in (RefusalReason.OVERLOADED, RefusalReason.TRANSFERRING):
        return ProposalDropped(refused.text or refused.reason.value)
    return _change_error(refused)


def _change_error(refused: Refused) -> RaftError:
    if refused.reason is RefusalReason.NOT_LEADER:
        return NotLeader(refused.leader)
    return ChangeRefused(refused.text or refused.reason.value)
