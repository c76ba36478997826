"""Brings quorum queues to their target size: the shell around `plan`, on each node that leads some.

A survey of the queues led here follows what may have changed them (nodes, policies, leaders) after
`trigger_interval`, so that several changes are followed at once; without any it is made each
`interval`, and each `trigger_interval` while a queue lacks a replica or a node is down. What it
finds to do is done in small steps, for a bounded number of queues at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.cluster.peers import ReachableNodes
from broker.cluster.replicas import plan
from broker.cluster.replicas.target import GroupSizes
from broker.config import Settings
from broker.errors import quoted
from broker.metadata.catalogue import Catalogue
from broker.metadata.commands import MoveMembers
from broker.metadata.records import Queue
from broker.metadata.results import Changes
from broker.ports import Clock

_log = logging.getLogger(__name__)

MOVING_MAX: Final = 32
"""So many queues get a replica at once: each copies what the queue holds."""

SLICE: Final = 200
"""Queues looked at between two turns of the loop."""

LINES_MAX: Final = 20
"""Queues named in the log after one survey."""


class ReplicaGroup(Protocol):
    """A queue's Raft group, as far as repair uses it (`raft.group.Group`)."""

    @property
    def voters(self) -> tuple[str, ...]:
        """Members whose votes and copies count."""
        ...


class Led(NamedTuple):
    """A quorum queue that this node leads."""

    queue: Queue
    group: ReplicaGroup


class LocalReplicas(Protocol):
    """The replicas of quorum queues on this node."""

    def led(self, uid: int | None) -> Iterable[Led]:
        """The queues that this node leads, or only the one of this uid."""
        ...


class MembersProposer(Protocol):
    """The way to group 0."""

    def propose(self, command: MoveMembers, /) -> Awaitable[object]:
        """Change the members of quorum queues."""
        ...


class Repair:
    """Adds replicas that are missing, replaces those that are lost.

    Args:
        node: This node.
        settings: `quorum_queue.continuous_membership_reconciliation.*`.
        catalogue: Group 0.
        clock: Monotonic time.
        replicas: The quorum queues of this node.
        peers: Other nodes.
        group0: Changes which nodes have replicas.
    """

    def __init__(
        self,
        node: str,
        settings: Settings,
        catalogue: Catalogue,
        clock: Clock,
        replicas: LocalReplicas,
        peers: ReachableNodes,
        group0: MembersProposer,
    ) -> None:
        self.sizes = GroupSizes(catalogue, settings)
        self._node = node
        self._settings = settings
        self._catalogue = catalogue
        self._clock = clock
        self._local = replicas
        self._peers = peers
        self._group0 = group0
        self._replace_after_ms = (
            settings.quorum_repair_replace_after_ms if settings.quorum_repair_auto_remove else None
        )
        self._survey_ms = clock.monotonic_ms() + settings.quorum_repair_trigger_interval_ms
        self._down_since: dict[str, int] = {}
        self._work: dict[int, None] = {}
        self._told: dict[int, int] = {}  # queues that the log says lack replicas, and how many

    @property
    def is_busy(self) -> bool:
        """True while a queue waits for a step."""
        return bool(self._work)

    def follow(self, changes: Changes) -> None:
        """Group 0 has changed: look soon, if that may concern replicas."""
        if changes.nodes_changed or changes.policies_changed or changes.restored:
            self.look_soon()

    def look_soon(self) -> None:
        """Survey after `trigger_interval`, counted from the first of several triggers."""
        soon_ms = self._clock.monotonic_ms() + self._settings.quorum_repair_trigger_interval_ms
        self._survey_ms = min(self._survey_ms, soon_ms)

    async def tick(self) -> None:
        """Survey where one is due, and do what is to be done; call it each second at least."""
        now_ms = self._clock.monotonic_ms()
        self._note_down(now_ms)
        if now_ms >= self._survey_ms:
            self._survey_ms = now_ms + self._settings.quorum_repair_interval_ms
            await self._survey()
        if self._work and self._settings.quorum_repair_enabled:
            await self._step()

    def _note_down(self, now_ms: int) -> None:
        """Note since when each node has been down, as seen by this process."""
        up = self._living()
        down = {node.name for node in self._catalogue.nodes()} - up
        for node in self._down_since.keys() - down:
            del self._down_since[node]
        for node in down:
            self._down_since.setdefault(node, now_ms)

    def _living(self) -> set[str]:
        heard = {self._node, *self._peers.up()}
        return {node.name for node in self._catalogue.nodes() if node.alive and node.name in heard}

    async def _survey(self) -> None:
        """Look at all queues led here: note what is to be done, tell what has begun and ended."""
        short: dict[int, int] = {}
        begun: list[Led] = []
        ended: list[Queue] = []
        nodes = self._nodes(self._catalogue.replicas())
        self._work.clear()
        for number, each in enumerate(list(self._local.led(None))):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            queue, group = each
            missing = self.sizes.missing(queue, group.voters)
            if missing:
                short[queue.uid] = missing
                if queue.uid not in self._told:
                    begun.append(each)
            elif queue.uid in self._told:
                ended.append(queue)
            replicas = self._replicas(each)
            is_moving = not plan.is_settled(replicas, nodes.up)
            if is_moving or plan.next_members(replicas, nodes, self._replace_after_ms):
                self._work[queue.uid] = None
        self._told = short
        self._tell(begun, ended)
        if not set(self._down_since).isdisjoint(self._catalogue.replicas()) or short:
            self.look_soon()

    def _tell(self, begun: list[Led], ended: list[Queue]) -> None:
        for queue, group in begun[:LINES_MAX]:
            _log.warning(
                "queue.below_target_size: %s has %d of %d replicas: %s",
                quoted("queue", queue.name, queue.vhost),
                len(group.voters),
                len(group.voters) + self._told[queue.uid],
                ", ".join(group.voters),
            )
        if len(begun) > LINES_MAX:
            _log.warning("queue.below_target_size: %d more queues", len(begun) - LINES_MAX)
        for queue in ended[:LINES_MAX]:
            name = quoted("queue", queue.name, queue.vhost)
            _log.info("queue.at_target_size: %s has its replicas", name)
        if len(ended) > LINES_MAX:
            _log.info("queue.at_target_size: %d more queues", len(ended) - LINES_MAX)

    def _nodes(self, placed: Mapping[str, int]) -> plan.Nodes:
        now_ms = self._clock.monotonic_ms()
        down_ms = {node: now_ms - since for node, since in self._down_since.items()}
        return plan.Nodes(sorted(self._living()), down_ms, placed)

    def _replicas(self, each: Led) -> plan.Replicas:
        queue, group = each
        return plan.Replicas(queue.members, group.voters, self.sizes.target(queue))

    async def _step(self) -> None:
        """Bring queues one replica further; a queue that needs no step (now) is left."""
        placed = dict(self._catalogue.replicas())
        nodes = self._nodes(placed)
        moving = 0
        steps: list[MoveMembers] = []
        for uid in list(self._work):
            each = next(iter(self._local.led(uid)), None)
            if each is None:
                del self._work[uid]  # another node leads it now, or it is gone
                continue
            replicas = self._replicas(each)
            if not plan.is_settled(replicas, nodes.up):
                moving += 1
                continue
            members = plan.next_members(replicas, nodes, self._replace_after_ms)
            if members is None:
                del self._work[uid]
                self._settle(each)
            elif moving + len(steps) < MOVING_MAX:
                steps.append(MoveMembers(uid, members, self._node, expected=each.queue.members))
                for node in set(members) - set(each.queue.members):
                    placed[node] = placed.get(node, 0) + 1
        if steps:  # one that is refused or lost is made anew, from what is there then
            await asyncio.gather(*(self._group0.propose(step) for step in steps))
            _log.info("queue.replicas_changed: %d queues", len(steps))

    def _settle(self, each: Led) -> None:
        uid = each.queue.uid
        if uid in self._told and not self.sizes.missing(each.queue, each.group.voters):
            del self._told[uid]
            self._tell([], [each.queue])
