"""How long other nodes have been gone, silent or cut off from this one; checked once a second."""

from __future__ import annotations

from broker.queues.mirrored.ports import Neighbours
from broker.queues.mirrored.reconcile import CUT_MS
from broker.queues.node import NodeContext


class LinkWatch:
    """The time for which each other node has been unreachable, by which rings decide.

    Args:
        context: The node.
        neighbours: Links between nodes.
    """

    def __init__(self, context: NodeContext, neighbours: Neighbours) -> None:
        self._node = context.node
        self._catalogue = context.catalogue
        self._neighbours = neighbours
        self._clock = context.clock
        self._leader_now = context.leader
        self._leader: str | None = None
        self._led_since_ms = self._began_ms = self._clock.monotonic_ms()
        self._gone_since_ms: dict[str, int] = {}
        self._cut_since_ms: dict[str, int] = {}

    @property
    def has_cuts(self) -> bool:
        """True if a living node can't be reached now."""
        return bool(self._cut_since_ms)

    def tick(self) -> bool:
        """Check all links.

        Returns:
            True if a link has been cut since the last call.
        """
        now_ms = self._clock.monotonic_ms()
        leader = self._teller()
        if leader != self._leader:
            self._leader, self._led_since_ms = leader, now_ms
        is_new = False
        for node in self._catalogue.nodes():
            name = node.name
            if name == self._node:
                continue
            if self._neighbours.is_gone(name):
                self._gone_since_ms.setdefault(name, now_ms)
            else:
                self._gone_since_ms.pop(name, None)
            if self.is_reachable(name) or not node.alive:
                self._cut_since_ms.pop(name, None)
            elif name not in self._cut_since_ms:
                self._cut_since_ms[name] = now_ms
                is_new = True
        return is_new

    def running(self) -> list[str]:
        """The nodes of the cluster that are alive."""
        return [node.name for node in self._catalogue.nodes() if node.alive]

    def reachable(self) -> list[str]:
        """The living nodes that hear this one and are heard by it, itself included."""
        return [node for node in self.running() if self.is_reachable(node)]

    def is_reachable(self, node: str) -> bool:
        """True if this node and another hear each other."""
        return self._neighbours.is_linked(self._node, node)

    def is_cut(self, node: str) -> bool:
        """True if the link to a living node has been cut for `CUT_MS` (P25).

        A dead node's links are cut, too. Only the leader of group 0 can tell the two cases apart:
        it has had the time to report a death and has not. That leader must be reachable, and must
        not be the node in question. Without such a leader the answer is False: a master that led
        group 0 may have died, and if its mirrors left the ring during the election the last copies
        would be lost.
        """
        since_ms = self._cut_since_ms.get(node)
        leader = self._teller()
        if since_ms is None or leader is None or leader != self._leader or leader == node:
            return False
        if leader != self._node and not self.is_reachable(leader):
            return False
        return self._clock.monotonic_ms() - max(since_ms, self._led_since_ms) >= CUT_MS

    def _teller(self) -> str | None:
        """Return the leader of group 0 if its own boot is alive, so that it may propose (P1)."""
        leader = self._leader_now()
        record = None if leader is None else self._catalogue.node(leader)
        return leader if record is not None and record.alive else None

    def refused_ms(self, node: str) -> int:
        """Milliseconds for which connections to a node have been refused; 0 while they are not."""
        since_ms = self._gone_since_ms.get(node)
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    def silent_ms(self, node: str) -> int:
        """Milliseconds for which a node has been silent while this one listened."""
        listened_ms = self._clock.monotonic_ms() - self._began_ms
        return min(listened_ms, self._neighbours.silence_ms(node))
