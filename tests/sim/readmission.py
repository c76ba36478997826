"""Nodes that lose their disk, and how they come back (bug R11): at most one at a time.

A node without its data asks whoever it thinks leads; a leader removes it, and tells it so when that
is committed. Then it is added as a learner, and made a voter again when it has caught up.

Bugs are the rows of docs/planted-bugs.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.core.membership import ConfigChange
from raft.core.messages import Configuration
from raft.core.ready import Refused
from tests.sim.disk import Disk

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster, SimNode

ASK_MS = 200


class Readmission:
    """What the catalogue and the shells do about nodes whose data is gone."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._name: str | None = None  # of the node that is blank, or no voter again yet
        self._group = 0
        self._removal: tuple[str, int, int] | None = None  # leader, term, index of the removal

    def blank(self) -> str | None:
        """Who has lost its data and is no voter again yet."""
        if self._group != self._cluster.group:
            self._name = None
        return self._name

    def may_lose(self, name: str) -> bool:
        """Whether a node's data may go without any harm that Raft allows.

        All members know of the same three voters or more, and are up, so that those that are left
        can elect a leader once they run.
        """
        cluster, leader = self._cluster, self._cluster.leader()
        if self.blank() is not None or leader is None or leader.checker.group != cluster.group:
            return False
        configuration = leader.node.configuration
        members = [cluster.nodes[member] for member in configuration.members]
        is_settled = leader.node.commit_index >= leader.node.state.history.last_index
        return (
            is_settled
            and name in configuration.voters
            and len(configuration.voters) >= 3
            and all(_agrees(node, configuration) for node in members)
        )

    def wipe(self, name: str, down_ms: int) -> None:
        """End a node and its disk; it starts again after `down_ms` without its data."""
        cluster = self._cluster
        node = cluster.nodes[name]
        cluster.note(f"{name} loses its disk")
        cluster.count("lost disks")
        cluster.close(node)
        node.is_up = False
        node.disk = Disk(Configuration(), is_blank=True)
        cluster.checker(cluster.group).wiped(name)
        self._name, self._group, self._removal = name, cluster.group, None
        cluster.clock.after(down_ms, cluster.restart, name)
        cluster.clock.after(down_ms + ASK_MS, self._ask, name)

    def _ask(self, name: str) -> None:
        """The blank node's moment, every so often, until it is a voter again."""
        cluster, node = self._cluster, self._cluster.nodes[name]
        if self.blank() != name:
            return
        cluster.clock.after(ASK_MS, self._ask, name)
        replica = node.replica
        if not node.is_up or replica is None or node.paused_until_ms > cluster.clock.now_ms:
            return
        asked = replica.node.leader
        if not replica.disk.live.is_blank:
            self._tend(name)
        elif asked is not None and asked != name:
            cluster.network.send(name, asked, self._asked_at, asked, name, node.boot)

    def _asked_at(self, asked: str, name: str, boot: int) -> None:
        """The node that was asked removes the blank one, and says so when that is committed."""
        node = self._cluster.nodes[asked]
        leader = node.replica
        if self.blank() != name or leader is None or not leader.node.is_leader:
            return
        if node.paused_until_ms > self._cluster.clock.now_ms:
            return
        here = (asked, leader.node.term)
        if self._removal is None or self._removal[:2] != here:
            answer = leader.node.propose_change(ConfigChange("remove", name))
            if not isinstance(answer, Refused):
                self._removal = (*here, answer)
            leader.process()
        elif leader.node.commit_index >= self._removal[2]:
            self._cluster.network.send(asked, name, self._admitted, name, boot)

    def _admitted(self, name: str, boot: int) -> None:
        node = self._cluster.nodes[name]
        if self.blank() == name and node.is_up and node.boot == boot and node.replica is not None:
            self._cluster.note(f"{name} is admitted")
            node.replica.disk.write([("admit", None)])
            node.replica.node.admitted()

    def _tend(self, name: str) -> None:
        """As the leader: make it a learner, then a voter."""
        leader = self._cluster.leader()
        if leader is None:
            return
        configuration = leader.node.configuration
        if name in configuration.voters:
            self._name = None
            self._cluster.count("readmitted")
            return
        kind = "voter" if name in configuration.learners else "learner"
        leader.node.propose_change(ConfigChange(kind, name))
        leader.process()


def _agrees(node: SimNode, configuration: Configuration) -> bool:
    replica = node.replica
    return node.is_up and replica is not None and replica.node.configuration == configuration
