"""Raft groups of quorum queues: opened with the right first members, closed, handed over."""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from broker.metadata.catalogue import Catalogue
from broker.metadata.records import Queue
from broker.ports import Journal
from broker.queues.quorum import QuorumQueue
from raft.errors import LogCorrupt, RaftError
from raft.group import Group
from raft.host import RaftHost

_log = logging.getLogger(__name__)

CHANGE_S = 3.0
"""How long a change of one group's members may keep the other groups waiting."""

HAND_OVER_S = 3.0
"""How long a stopping node tries to hand its groups over."""


AskMayVote = Callable[[str, int], Awaitable[bool]]

MARK_KEY: Final = b"replicas"
"""Key in `meta` of the highest queue uid of which this store may have had a replica, 8 bytes BE."""

_MARK: Final = struct.Struct(">Q")


class QueueGroups:
    """`broker.queues.registry.Groups` on the node's Raft host.

    Args:
        host: The node's Raft groups.
        catalogue: Says since when this node is a member.
        node: This node.
        journal: The node's store, where the groups are, too.
    """

    def __init__(self, host: RaftHost, catalogue: Catalogue, node: str, journal: Journal) -> None:
        self._host = host
        self._node = node
        self._journal = journal
        self._on_disk = set(host.groups_on_disk())
        self._mark = self._started_at = self._read_mark(catalogue)
        self._begun: set[int] = set()  # new replicas of this time
        # As of their opening; the replicas know it themselves. With it whom to ask in turn.
        self._blank: dict[int, Iterator[str]] = {}

    def open(self, queue: Queue, machine: QuorumQueue) -> Group:
        """Start or recover this node's replica.

        A replica without data may vote as a first member, if the queue still has those, only if
        this store never had a replica of it; otherwise what it once promised may be lost with
        its data (R11), and it waits for the leader instead.
        """
        uid = queue.uid
        is_new = uid > self._started_at and uid not in self._on_disk and uid not in self._begun
        first = queue.members if is_new and not queue.moved_at else None
        self._begin(queue.uid)
        try:
            return self._open(queue, machine, first)
        except LogCorrupt:
            _log.exception("queue.replica_damaged", extra={"queue": queue.name})
            self._host.close_group(queue.uid, erase=True)
            return self._open(queue, machine, None)

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

    def _open(self, queue: Queue, machine: QuorumQueue, first: tuple[str, ...] | None) -> Group:
        group = self._host.open_group(
            queue.uid,
            first,
            machine,
            campaign_at_once=first is not None and queue.home == self._node,
            is_read=False,
            is_blank=first is None,
        )
        if group.is_blank:
            others = [queue.home, *queue.members]
            self._blank[queue.uid] = itertools.cycle(n for n in others if n != self._node)
        return group

    def close(self, uid: int, *, erase: bool) -> None:
        """Stop a replica, for good if `erase`."""
        self._on_disk.discard(uid)
        self._blank.pop(uid, None)
        self._host.close_group(uid, erase=erase)

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
        self, replicas: list[QuorumQueue], living: list[str], ask_may_vote: AskMayVote
    ) -> None:
        """As the leader: a group's members are the queue's by the catalogue (P6).

        Learners that have caught up become voters, but not before they may vote: a voter without
        a vote (R11) counts for the majority that it does not help to reach. One step that waits
        for a majority does not keep the others waiting for long.

        Args:
            replicas: This node's.
            living: Other nodes that are heard.
            ask_may_vote: Asks a node whether its replica of a queue may.
        """
        for replica in replicas:
            uid, members = replica.record.uid, replica.record.members
            group = self._host.group(uid)
            if group is None or not group.is_leader:
                continue
            if not group.learners and sorted(group.voters) == sorted(members):
                continue
            try:
                async with asyncio.timeout(CHANGE_S):
                    await self._tend(group, members, living, ask_may_vote)
            except (RaftError, TimeoutError) as why:
                _log.info("queue.not_tended", extra={"queue": uid, "why": str(why)})

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

    def erase_unknown(self, known: set[int]) -> None:
        """Erase replicas of queues that were deleted while this node was away."""
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
