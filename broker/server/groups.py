"""Raft groups of quorum queues and streams: opened with the right members, closed, handed over."""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import Journal
from broker.queues.quorum import QuorumQueue
from broker.queues.replicas.survivor import Condition, MemberState
from broker.queues.streams.replica import StreamReplica
from broker.server.events.queue_news import QueueNews
from broker.storage.replaced_logs import Kept, ReplacedLogs, forget
from raft import log_keys
from raft.errors import LogCorrupt, RaftError
from raft.group import Group
from raft.host import RaftHost
from raft.ports import Machine

_log = logging.getLogger(__name__)

CHANGE_S = 3.0
"""How long a change of one group's members may keep the other groups waiting."""

HAND_OVER_S = 3.0
"""How long a stopping node tries to hand its groups over."""


AskMayVote = Callable[[str, int], Awaitable[bool]]

MARK_KEY: Final = b"replicas"
"""Key in `meta` of the highest queue uid of which this store may have had a replica, 8 bytes BE."""

_WITH_OTHERS: Final = (
    "all of it stays on disk until the queue has a leader on another node, which lets this replica "
    "in anew, without data; if too few are whole for that, see 'warrenmq ctl "
    "force_shrink_member_to_current_member'"
)
_ALONE: Final = (
    "no other node has a replica: the queue is down, and all of the log stays on disk; stop the "
    "node, and put back what is missing or run 'warrenmq ctl set_log_aside QUEUE'; or delete it"
)

_READ_AROUND: Final = (
    "no other node has a replica: the stream is served without what is lost, and its files stay as "
    "they are; stop the node, put back what is missing and start it again, then all is read"
)
LOST_TOLD: Final = 20
"""Parts of a log that are named."""

_MARK: Final = struct.Struct(">Q")


class Damage(NamedTuple):
    """A replica here whose log is damaged.

    Attributes:
        queue: Its queue.
        why: What is wrong with it.
        others: The other members, in turn, for ever.
    """

    queue: Queue
    why: str
    others: Iterator[str]


class QueueGroups:
    """`broker.queues.replicas.groups.Groups` on the node's Raft host.

    Args:
        host: The node's Raft groups.
        catalogue: Says since when this node is a member.
        node: This node.
        journal: The node's store, where the groups are, too.
        news: Told of leaders.
        replaced: Keeps damaged logs of replicas that are erased; None: nobody does.
    """

    def __init__(
        self,
        host: RaftHost,
        catalogue: Catalogue,
        node: str,
        journal: Journal,
        news: QueueNews,
        replaced: ReplacedLogs | None = None,
    ) -> None:
        self._host = host
        self._catalogue = catalogue
        self._replaced = replaced
        self._node = node
        self._journal = journal
        self._news = news
        self._on_disk = set(host.groups_on_disk())
        self._mark = self._started_at = self._read_mark(catalogue)
        self._begun: set[int] = set()  # new replicas of this time
        # As of their opening; the replicas know it themselves. With it whom to ask in turn.
        self._blank: dict[int, Iterator[str]] = {}
        self._damaged: dict[int, Damage] = {}
        self._to_lead_alone: set[int] = set()

    def open(self, queue: Queue, machine: Machine, *, segment_bytes: int = 0) -> Group | None:
        """Start or recover this node's replica.

        A replica without data may vote as a first member, if the queue still has those, only if
        this store never had a replica of it; otherwise what it once promised may be lost with
        its data (R11), and it waits for the leader instead.

        Args:
            queue: The queue.
            machine: What its entries are applied to.
            segment_bytes: Of a stream, whose log is what it holds, and of a quorum queue whose
                bodies are in its log: it is kept in files of about this size until it is released.
                Those of streams are read at all replicas. 0: the log is cut behind snapshots.

        Returns:
            None for a replica whose log is damaged (`damaged`): all of it stays on disk.
        """
        uid = queue.uid
        if uid in self._to_lead_alone:
            self._to_lead_alone.discard(uid)
            self._host.force_group(uid, (self._node,))
        is_new = uid > self._started_at and uid not in self._on_disk and uid not in self._begun
        first = queue.members if is_new and not queue.moved_at else None
        self._begin(queue.uid)
        try:
            return self._open(queue, machine, first, segment_bytes)
        except LogCorrupt as why:
            self.failed(queue, str(why))
            return None

    def failed(self, queue: Queue, why: str) -> None:
        """Note that the log of a replica here is damaged; it takes part in nothing any more.

        Nothing of it is erased: of what a majority has confirmed, this replica may have the only
        copy that is left. A leader that lets it in anew proves that others have all of it.

        Args:
            queue: The queue.
            why: What is wrong with the log.
        """
        others = [node for node in queue.members if node != self._node]
        self._damaged[queue.uid] = Damage(queue, why, itertools.cycle(others))
        _log.critical(
            "queue.log_damaged: %s",
            _WITH_OTHERS if others else _ALONE,
            extra={"queue": queue.name, "vhost": queue.vhost, "why": why},
        )

    def lead_alone(self, uid: int) -> None:
        """Give up all other members of a replica's group when it is opened the next time.

        Safe only where none of them ever speaks for the group again: they must be no members by
        the catalogue, which each node follows before it confirms anything.

        Args:
            uid: A queue with a replica here that is open, and is closed next.
        """
        self._to_lead_alone.add(uid)

    def state(self, uid: int) -> MemberState:
        """Say how the replica of a queue here is."""
        if uid in self._damaged:
            return MemberState(Condition.DAMAGED, why=self._damaged[uid].why)
        group = self._host.group(uid)
        if group is None:
            return MemberState(Condition.ABSENT)
        if group.error is not None:
            return MemberState(Condition.DAMAGED, why=str(group.error))
        condition = Condition.BLANK if group.is_blank else Condition.WHOLE
        return MemberState(condition, group.leader or "", group.last_entry, group.voters)

    def damage(self, uid: int) -> str:
        """Return what is wrong with the log of a replica here; "" if nothing is known."""
        found = self._damaged.get(uid)
        return "" if found is None else found.why

    def damaged(self) -> list[tuple[int, str]]:
        """Damaged replicas here that have others, and which of them to ask to let this one in."""
        found = []
        for uid, damage in self._damaged.items():
            node = next(damage.others, None)
            if node is not None:
                found.append((uid, node))
        return found

    def _read_mark(self, catalogue: Catalogue) -> int:
        """Read `MARK_KEY`; a new store notes that there was an earlier one until this boot."""
        found = self._journal.get("meta", MARK_KEY)
        if found is not None:
            return int(_MARK.unpack(found)[0])
        known = catalogue.node(self._node)
        mark = 0 if known is None else known.booted_at
        self._journal.put("meta", MARK_KEY, _MARK.pack(mark))
        return mark

    def _begin(self, uid: int) -> None:
        """Raise the mark in one batch with what the replica writes first."""
        if uid in self._on_disk:
            return
        self._begun.add(uid)
        if uid > self._mark:
            self._mark = uid
            self._journal.put("meta", MARK_KEY, _MARK.pack(uid))

    def _open(
        self, queue: Queue, machine: Machine, first: tuple[str, ...] | None, segment_bytes: int
    ) -> Group:
        group = self._host.open_group(
            queue.uid,
            first,
            machine,
            campaign_at_once=first is not None and queue.home == self._node,
            is_read=queue.type == "stream",
            is_blank=first is None,
            segment_bytes=segment_bytes,
            keeps_log=segment_bytes > 0,
            on_leader_change=self._news.of(queue.uid).leader_changed,
            is_alone=queue.type == "stream" and queue.members == (self._node,),
        )
        if group.damage:
            self._tell_losses(queue, group)
        if group.is_blank:
            others = [queue.home, *queue.members]
            self._blank[queue.uid] = itertools.cycle(n for n in others if n != self._node)
        return group

    def _tell_losses(self, queue: Queue, group: Group) -> None:
        lost = [f"{first} to {last}" for first, last in group.lost_entries]
        _log.critical(
            "queue.log_damaged: %s",
            _READ_AROUND,
            extra={
                "queue": queue.name,
                "vhost": queue.vhost,
                "why": group.damage,
                "entries_lost": ", ".join(lost[:LOST_TOLD]) + (" ..." if lost[LOST_TOLD:] else ""),
            },
        )

    def keeps_log(self, uid: int) -> bool:
        """True if this node's replica, open or not, is in the form whose log stays."""
        try:
            return self._host.keeps_log(uid)
        except LogCorrupt:
            return False  # whoever opens it is told

    def close(self, uid: int, *, erase: bool) -> None:
        """Stop a replica, for good if `erase`: then a damaged log is kept elsewhere first.

        Not that of a queue which was deleted.
        """
        damage = self._damaged.pop(uid, None)
        if erase:
            self._on_disk.discard(uid)
            self._to_lead_alone.discard(uid)
            is_wanted = self._catalogue.queue_by_uid(uid) is not None
            if damage is not None and self._replaced is not None and is_wanted:
                self._keep(damage, self._replaced)
        self._blank.pop(uid, None)
        self._host.close_group(uid, erase=erase)

    def _keep(self, damage: Damage, replaced: ReplacedLogs) -> None:
        """Keep a damaged log that is about to be erased: the latest of each queue."""
        queue = damage.queue
        family = "raft_state"
        rows = self._journal.scan(family, *log_keys.state_range(queue.uid))
        try:
            kept = replaced.keep(queue.uid, [(family, *row) for row in rows])
        except OSError as error:
            kept = Kept("", str(error), [])
        place = {"queue": queue.name, "vhost": queue.vhost, "damage": damage.why}
        if kept.path:
            _log.warning("queue.damaged_log_kept", extra={**place, "path": kept.path})
        else:
            _log.warning("queue.damaged_log_erased", extra={**place, "why": kept.why_not})
        if kept.former:
            asyncio.get_running_loop().run_in_executor(None, forget, kept.former)

    def when_settled(self, uid: int, do: Callable[[], None]) -> None:
        """Call when a replica that was closed may be opened again: what it wrote is durable."""
        self._host.when_settled(uid, do)

    def blank(self) -> list[tuple[int, str]]:
        """Replicas here that no leader has let in yet, and who leads them.

        Where that is not known, who may: a leader may be quiet, and a replica that may not vote
        does not wake it by itself.
        """
        found = []
        for uid in list(self._blank):
            group = self._host.group(uid)
            if group is None:
                del self._blank[uid]
                continue
            leader = group.leader or next(self._blank[uid], self._node)
            if leader != self._node:
                found.append((uid, leader))
        return found

    def readmitted(self, uid: int) -> None:
        """The leader has made the replica a learner: it may be promoted as any other."""
        self._blank.pop(uid, None)
        group = self._host.group(uid)
        if group is not None:
            group.admitted()

    async def readmit(self, uid: int, node: str) -> bool:
        """As the leader, readmit a member without its data as a learner (docs/planted-bugs.md R11).

        Args:
            uid: The queue's incarnation.
            node: The member; it says itself that it has nothing.

        Returns:
            False where this node does not lead the queue.
        """
        group = self._host.group(uid)
        if group is None or not group.is_leader:
            return False
        try:
            await group.readmit(node)
        except RaftError as why:
            _log.info("queue.not_readmitted", extra={"node": node, "why": str(why)})
            return False
        _log.info("queue.readmitted", extra={"queue": uid, "node": node})
        return True

    def may_vote(self, uid: int) -> bool:
        """True if this node's replica may vote: it is here, and no leader has to let it in."""
        group = self._host.group(uid)
        return group is not None and not group.is_blank

    async def tend(
        self,
        replicas: Sequence[QuorumQueue | StreamReplica],
        living: list[str],
        ask_may_vote: AskMayVote,
    ) -> list[int]:
        """As the leader: a group's members are the queue's by the catalogue (P6).

        Learners that have caught up become voters, but not before they may vote: a voter without
        a vote (R11) counts for the majority that it does not help to reach. One step that waits
        for a majority does not keep the others waiting for long.

        Args:
            replicas: This node's that may need it.
            living: Other nodes that are heard.
            ask_may_vote: Asks a node whether its replica of a queue may.

        Returns:
            Queues that have to be looked at again.
        """
        unfinished = []
        for replica in replicas:
            if not replica.is_leading:
                continue  # before anything else is touched: there may be thousands of them
            uid, members = replica.record.uid, replica.record.members
            group = self._host.group(uid)
            if group is None or not group.is_leader:
                continue
            if not group.learners and sorted(group.voters) == sorted(members):
                continue
            unfinished.append(uid)
            try:
                async with asyncio.timeout(CHANGE_S):
                    await self._tend(group, members, living, ask_may_vote)
            except (RaftError, TimeoutError) as why:
                _log.info("queue.not_tended", extra={"queue": uid, "why": str(why)})
        return unfinished

    async def _tend(
        self,
        group: Group,
        members: tuple[str, ...],
        living: list[str],
        ask_may_vote: AskMayVote,
    ) -> None:
        for node in (*group.voters, *group.learners):
            if node not in members and node != self._node:
                await group.remove(node)
        for node in members:
            if node in living and node not in (*group.voters, *group.learners):
                await group.add_learner(node)
        status = group.status()
        for node in status.learners:
            is_caught_up = status.matches.get(node, 0) >= status.commit_index
            if node in living and is_caught_up and await ask_may_vote(node, group.id):
                await group.promote(node)
                _log.info("queue.promoted", extra={"queue": group.id, "node": node})

    def erase_unknown(self, queues: Iterable[Queue], *, is_current: bool) -> None:
        """Erase replicas of queues that were deleted, or moved away, while this node was away.

        One that was given up (`lead_alone`) and is added again must begin blank: its log still
        names the old members, and two such replicas would elect each other.

        Args:
            queues: All that there are.
            is_current: They are those of now, not those that this node knew when it went.
        """
        known = {each.uid for each in queues if self._node in each.members or not is_current}
        for uid in sorted(self._on_disk - known):
            if uid:
                self.close(uid, erase=True)

    async def hand_over(self, living: list[str]) -> None:
        """Give leadership of every queue led here to a living member, as far as time allows."""
        moves = []
        for group in self._host.groups():
            others = [node for node in group.voters if node in living and node != self._node]
            if group.id and group.is_leader and others:
                moves.append(group.transfer(others[0]))
        if not moves:
            return
        try:
            async with asyncio.timeout(HAND_OVER_S):
                for outcome in await asyncio.gather(*moves, return_exceptions=True):
                    if isinstance(outcome, RaftError):
                        _log.info("queue.not_handed_over", extra={"why": str(outcome)})
        except TimeoutError:
            _log.warning("queue.hand_over_late", extra={"groups": len(moves)})
