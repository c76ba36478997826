"""All Raft groups of this node: one turn steps every group with work, saves once, sends, applies.

Groups share the journal's syncs, the links' payloads and one timer. In each turn of the event
loop that has work:

1. every active group's Ready is collected, and what promises nothing about this disk (a leader's
   appends, heartbeats) leaves at once: followers take longest;
2. the durable parts are put into the journal: one atomic batch, one sync, however many groups;
3. committed entries are applied, proposers answered;
4. when the sync is done, what promises durability leaves, and the cores are told.

A failed sync runs no callback, so nothing of step 4 ever happens then. Quiesced groups are not
ticked, and without an awake group there is no timer at all. A late timer is one tick, never
several: a stalled loop must not make followers believe that their leader was silent.

A message for a group that is not open here is counted, never answered, and never makes a
group: a deleted queue's replica must stay deleted.

Source:
    dragonboat's `engine.processSteps`: step, send appends, save together, send, apply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TypeVarTuple

from raft.core.messages import Append, Configuration, InstallSnapshot, Message
from raft.core.node import NodeConfig, RaftNode, Rng
from raft.core.ready import Ready
from raft.errors import GroupClosed
from raft.group import Group
from raft.log_store import LogStore
from raft.ports import Clock, Journal, LogFiles, Machine, Transport
from raft.settings import RaftHostConfig
from raft.wire import convert

_BULK = frozenset((Append, InstallSnapshot))

UNKNOWN_TOLD = 10
"""Files and folders that are named where they are of no group."""

_Args = TypeVarTuple("_Args")

_log = logging.getLogger(__name__)


class RaftHost:
    """The groups of one node. Lives on the running event loop.

    Args:
        name: This node.
        journal: Where everything durable goes.
        transport: How payloads reach other nodes.
        clock: For lateness of the timer.
        rng: For election timeouts.
        config: Limits.
        on_group_failed: Told of a group that stopped because of a bug or damaged data.
        tick_delay_s: Seconds to wait for the next tick, given how long one is; so that ticks fall
            together with other work of the process. None: a moment of the host's own.
        files: Where the entries of groups with segments go; None: there are no such groups.

    Attributes:
        name: As given.
        unknown_group_count: Messages for groups that were not open here.
        damaged_payload_count: Payloads that could not be read.
        late_tick_count: Ticks that came a tick late or more.
    """

    def __init__(
        self,
        name: str,
        journal: Journal,
        transport: Transport,
        clock: Clock,
        rng: Rng,
        *,
        config: RaftHostConfig | None = None,
        on_group_failed: Callable[[int, BaseException], None] | None = None,
        tick_delay_s: Callable[[float], float] | None = None,
        files: LogFiles | None = None,
    ) -> None:
        self.name = name
        self.unknown_group_count = 0
        self.damaged_payload_count = 0
        self.late_tick_count = 0
        self._config = config if config is not None else RaftHostConfig()
        self._journal = journal
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._on_group_failed = on_group_failed
        self._tick_delay_s = tick_delay_s
        self._loop = asyncio.get_running_loop()
        self._store = LogStore(journal, files)
        unknown = self._store.clean_up()
        if unknown:
            _log.warning(
                "raft.unknown_files: %s%s: of no group that this store knows, so they stay; remove "
                "them if nothing is missing on this node",
                ", ".join(unknown[:UNKNOWN_TOLD]),
                " ..." if len(unknown) > UNKNOWN_TOLD else "",
            )
        self._groups: dict[int, Group] = {}
        self._settling: dict[int, object] = {}  # closed, and some of it may be on its way to disk
        self._suspected: set[str] = set()
        # Insertion-ordered sets: the order of work must not depend on hashes.
        self._dirty: dict[Group, None] = {}
        self._awake: dict[Group, None] = {}
        self._hedged: dict[Group, None] = {}
        self._hedge_timer: asyncio.TimerHandle | None = None
        self._hedge_due_s = 0.0
        self._is_turn_due = False
        self._is_closed = False
        self._is_ticking = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_tick_ms = 0

    # -- groups -------------------------------------------------------------------------------

    def groups_on_disk(self) -> list[int]:
        """Groups that have data here, open or not: what a start must open or erase."""
        return self._store.groups()

    def keeps_log(self, group: int) -> bool:
        """True if a group on disk keeps its log, open or not.

        Raises:
            LogCorrupt: The record that says so is damaged.
        """
        return self._store.keeps_log(group)

    def group(self, group: int) -> Group | None:
        """An open group."""
        return self._groups.get(group)

    def groups(self) -> list[Group]:
        """All open groups."""
        return list(self._groups.values())

    def open_group(
        self,
        group: int,
        initial_voters: Iterable[str] | None,
        machine: Machine,
        *,
        campaign_at_once: bool = False,
        is_read: bool = True,
        is_blank: bool = False,
        segment_bytes: int = 0,
        keeps_log: bool = False,
        is_alone: bool = False,
        on_leader_change: Callable[[str | None], None] | None = None,
    ) -> Group:
        """Open a group: recover it from disk, or create it.

        Args:
            group: Its id, never used for another group before.
            initial_voters: The first members of a new group, the same on each of them, and only
                where this node never had the group: a voter that forgot its votes could vote
                twice. None recovers, or waits for a leader that adds this node. Ignored when the
                group is on disk.
            machine: A fresh machine; it is restored from the snapshot, if there is one.
            campaign_at_once: Become leader without waiting (docs/protocol-rules.md P31); an only
                voter always does.
            is_read: False where nobody reads the machine but at the leader: followers then hear
                of commits with the next entries, and apply some together; and those that a
                majority does without get entries late and together.
            is_blank: There is no data here, but there may have been: the replica neither votes nor
                leads until `Group.admitted`, restarts included. Ignored when it is on disk.
            segment_bytes: Its entries are in files of about so many bytes (`raft.segments`); 0:
                in the journal.
            keeps_log: Its log is what it is for: it stays, in segments, until it is released
                (`Group.release`). A group on disk in the form with a snapshot changes to this one,
                for ever; the machine is restored from that snapshot, too.
            is_alone: There is no other replica: a log that is kept, in files, is read around what
                of it is damaged, and the machine is given `raft.parts.LOST` in its place.
            on_leader_change: Told who leads when that changes.

        Raises:
            LogCorrupt: If its data is damaged. The replica must then be erased and added again
                as a learner.
            ValueError: If it is open already, or what it wrote until it was closed is not durable
                yet: it would be taken for that.
        """
        if group in self._groups:
            raise ValueError(f"group {group} is open already")
        if group in self._settling:
            raise ValueError(f"group {group} was closed, and what it wrote is not durable yet")
        assert segment_bytes or not keeps_log, "a log that stays is kept in segments"
        first = Configuration(tuple(sorted(initial_voters or ())))
        log = self._store.open(
            group,
            first,
            is_blank=is_blank,
            segment_bytes=segment_bytes,
            keeps_log=keeps_log,
            is_alone=is_alone,
        )
        node = RaftNode(
            NodeConfig(
                group,
                self.name,
                heartbeat_ticks=self._config.heartbeat_ticks,
                election_ticks=self._config.election_ticks,
                push_commits=is_read,
                apply_behind_max=0 if is_read else self._config.apply_behind_max,
                lag_entries_max=0 if is_read else self._config.lag_entries_max,
            ),
            log.saved,
            log,
            self._rng,
        )
        if log.saved.snapshot_index:
            machine.restore(log.saved.snapshot_index, log.snapshots.read())
        opened = Group(
            node,
            log,
            machine,
            self._config,
            self,
            on_leader_change,
            is_log_read=is_read and keeps_log,
        )
        self._groups[group] = opened
        for suspect in self._suspected:
            node.peer_suspected(suspect)
        if campaign_at_once or node.configuration.voters == (self.name,):
            node.campaign()  # an only voter has nobody to wait for
        self.wake(opened)
        return opened

    def close_group(self, group: int, *, erase: bool) -> None:
        """Close a group; who waits for it gets `GroupClosed`.

        Args:
            group: Its id; one that is not open may still be erased.
            erase: Remove its data too, for a queue that was deleted.
        """
        closing = self._groups.pop(group, None)
        if closing is not None:
            self._dirty.pop(closing, None)
            self._awake.pop(closing, None)
            closing.stop(GroupClosed(f"group {group} was closed"))
            if closing.unsynced and not erase and not self._is_closed:
                settling = self._settling[group] = object()
                self._journal.when_synced(lambda: self._settled(group, settling))
        if erase:
            self._settling.pop(group, None)
            self._store.erase(group)

    def force_group(self, group: int, voters: Iterable[str]) -> None:
        """Put a configuration in force that no majority agreed on (`GroupLog.force`).

        It is written before all that the group writes when it is opened again.

        Args:
            group: Its id; it is on disk, not open, and all that it wrote is durable.
            voters: Its only members from now on.

        Raises:
            LogCorrupt: Its data is damaged; nothing was changed.
            ValueError: It is open, or not durable yet.
        """
        if group in self._groups or group in self._settling:
            raise ValueError(f"group {group} is open, or what it wrote is not durable yet")
        self._store.open(group, Configuration()).force(Configuration(tuple(sorted(voters))))

    def when_settled(self, group: int, do: Callable[[], None]) -> None:
        """Call when a closed group may be opened again: all that it wrote is durable.

        Args:
            group: Its id.
            do: Called at once where nothing is on its way to the disk.
        """
        if group in self._settling:
            self._journal.when_synced(do)  # behind `_settled`
        else:
            do()

    def _settled(self, group: int, settling: object) -> None:
        if self._settling.get(group) is settling:
            del self._settling[group]

    def close(self) -> None:
        """Close all groups; nothing is sent or written any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._hedge_timer is not None:
            self._hedge_timer.cancel()
            self._hedge_timer = None
        for group in list(self._groups):
            self.close_group(group, erase=False)

    # -- from other nodes ---------------------------------------------------------------------

    def receive(self, node: str, payload: bytes | memoryview) -> None:
        """Take a payload that came from a node; a damaged one is counted and dropped."""
        if self._is_closed:
            return
        try:
            messages = convert.decode(payload, sender=node, to=self.name)
        except convert.PayloadDamaged as error:
            self.damaged_payload_count += 1
            _log.warning("raft.payload_damaged", extra={"node": node, "error": str(error)})
            return
        unknown: set[int] = set()
        for message in messages:
            group = self._groups.get(message.group)
            if group is None:
                unknown.add(message.group)
            else:
                self._guarded(group, group.step, message)
        self.unknown_group_count += len(unknown)

    def peer_up(self, node: str) -> None:
        """A node can be reached (again)."""
        self._suspected.discard(node)
        for group in self.groups():
            self._guarded(group, group.node.peer_back, node, only_member=node)

    def peer_restarted(self, node: str) -> None:
        """A node came back with another boot id: what it had not synced is gone."""
        self.peer_up(node)

    def peer_suspected(self, node: str) -> None:
        """The failure detector gave up on a node: wake what it led (docs/protocol-rules.md P7)."""
        self._suspected.add(node)
        for group in self.groups():
            self._guarded(group, group.node.peer_suspected, node, only_member=node)

    # -- turns --------------------------------------------------------------------------------

    def _guarded(
        self,
        group: Group,
        do: Callable[[*_Args], None],
        *args: *_Args,
        only_member: str | None = None,
        if_ready: bool = False,
    ) -> None:
        """Do a group's work, and look at the group at the end of this turn."""
        if group.error is not None:
            return
        if only_member is not None and only_member not in group.node.configuration.members:
            return
        try:
            do(*args)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a group's work
            self.fail(group, error)
            return
        if not if_ready or group.node.has_ready():
            self.wake(group)

    def wake(self, group: Group) -> None:
        """There may be work for a group: look at it at the end of this turn."""
        if group.is_closed or self._is_closed:
            return
        self._dirty[group] = None
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)
        if not group.node.is_quiesced or group.has_waiters:
            self._awake[group] = None
            if self._timer is None and not self._is_ticking:
                # Hosts woken by one event must not tick in step, or their votes split.
                self._start_timer(self._rng.random())

    def _turn(self) -> None:
        self._is_turn_due = False
        groups, self._dirty = self._dirty, {}
        work: list[tuple[Group, Ready]] = []
        messages: list[Message] = []
        for group in groups:
            ready = self._guarded_ready(group)
            if ready is not None:
                work.append((group, ready))
                messages += ready.messages_now
        self._send(messages)
        self._save(work)
        for group, ready in work:
            self._try(group, group.apply, ready)
        self._transport.flush()
        for group, ready in work:
            if self._try(group, group.finish, ready) and group.node.has_ready():
                self.wake(group)
        for group in groups:
            if group.node.wants_hedge:
                self._hedge_soon(group)
            elif group in self._hedged:
                self._hedge_no_more(group)

    def _guarded_ready(self, group: Group) -> Ready | None:
        if group.is_closed:
            return None
        try:
            return group.collect()
        except Exception as error:  # noqa: BLE001 - the outermost frame of a group's work
            self.fail(group, error)
            return None

    def _try(self, group: Group, do: Callable[[*_Args], None], *args: *_Args) -> bool:
        """Do a group's work; False where it was closed before, or is now."""
        if group.is_closed:
            return False
        try:
            do(*args)
        except Exception as error:  # noqa: BLE001 - the outermost frame of a group's work
            self.fail(group, error)
        return not group.is_closed

    def _save(self, work: list[tuple[Group, Ready]]) -> None:
        """Put what must be durable into the journal; what waits for that leaves when it is."""
        messages: list[Message] = []
        awaited: list[tuple[Group, Ready]] = []
        for group, ready in work:
            if not self._try(group, group.save, ready):
                continue
            if ready.must_sync or (group.unsynced and ready.messages_after_sync):
                group.unsynced = ready.number
                awaited.append((group, ready))
            else:
                messages += ready.messages_after_sync
        self._send(messages)
        if awaited:
            self._journal.when_synced(lambda: self._synced(awaited))

    def _synced(self, awaited: list[tuple[Group, Ready]]) -> None:
        if self._is_closed:
            return
        messages: list[Message] = []
        for group, ready in awaited:
            if not group.is_closed:
                messages += ready.messages_after_sync
                self._guarded(group, group.synced, ready.number, if_ready=True)
        self._send(messages)

    def _send(self, messages: list[Message]) -> None:
        if not messages:
            return
        control: dict[str, list[Message]] = {}
        data: dict[str, list[Message]] = {}
        for message in messages:
            stream = data if type(message) in _BULK else control
            stream.setdefault(message.to, []).append(message)
        for to, some in control.items():
            for payload in convert.encode(self.name, to, some):
                self._transport.send_control(to, *payload)
        for to, some in data.items():
            for payload in convert.encode(self.name, to, some):
                self._transport.send_data(to, *payload)
        self._transport.flush()

    def fail(self, group: Group, error: Exception) -> None:
        """Stop a group and keep the evidence: its data stays, it answers nothing more."""
        _log.critical(
            "raft.group_failed", extra={"group": group.id, "error": repr(error)}, exc_info=error
        )
        group.error = error
        self._dirty.pop(group, None)
        self._awake.pop(group, None)
        group.stop(GroupClosed(f"group {group.id} failed: {error}"))
        if self._on_group_failed is not None:
            self._on_group_failed(group.id, error)

    # -- time ---------------------------------------------------------------------------------

    def _start_timer(self, part_of_tick: float = 1.0) -> None:
        self._last_tick_ms = self._clock.monotonic_ms()
        tick_s = self._config.tick_ms / 1000
        wait_s = self._tick_delay_s(tick_s) if self._tick_delay_s else tick_s * part_of_tick
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._is_ticking = True
        if self._clock.monotonic_ms() - self._last_tick_ms > 2 * self._config.tick_ms:
            self.late_tick_count += 1
        for group in list(self._awake):
            if group.node.is_quiesced and not group.has_waiters:
                del self._awake[group]
            else:
                self._guarded(group, group.tick)
        self._is_ticking = False
        if self._awake and not self._is_closed:
            self._start_timer()

    def _hedge_soon(self, group: Group) -> None:
        """One timer for all groups, and none while no commit waits for a single follower."""
        self._hedged[group] = None
        if self._hedge_timer is None:
            self._hedge_due_s = self._loop.time() + self._config.hedge_ms / 1000
            self._hedge_timer = self._loop.call_at(self._hedge_due_s, self._hedge)

    def _hedge_no_more(self, group: Group) -> None:
        """Most commits come long before the timer: it would wake the leader for nothing."""
        del self._hedged[group]
        if not self._hedged and self._hedge_timer is not None:
            self._hedge_timer.cancel()
            self._hedge_timer = None

    def _hedge(self) -> None:
        """Ask leaders about delays, unless this loop was late itself: answers wait to be read."""
        self._hedge_timer = None
        hedged, self._hedged = self._hedged, {}
        is_late = self._loop.time() - self._hedge_due_s > self._config.hedge_ms / 1000
        for group in hedged:
            if group.error is not None or group.is_closed:
                continue
            if not is_late:
                self._guarded(group, group.node.hedge, if_ready=True)
            if group.node.wants_hedge:
                self._hedge_soon(group)
