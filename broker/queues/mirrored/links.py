"""Since when other nodes are gone, silent or cut off from this one; looked at once a second."""

from __future__ import annotations

from broker.queues.mirrored.ports import Surroundings
from broker.queues.mirrored.tending import CUT_MS


class LinkWatch:
    """This node's links, as far as rings depend on how long they have been as they are.

    Args:
        around: The node.
    """

    def __init__(self, around: Surroundings) -> None:
        self._node = around.node
        self._catalogue = around.catalogue
        self._neighbours = around.neighbours
        self._clock = around.clock
        self._leader_now = around.leader
        self._leader: str | None = None
        self._led_since_ms = self._began_ms = self._clock.monotonic_ms()
        self._gone_since_ms: dict[str, int] = {}
        self._cut_since_ms: dict[str, int] = {}

    @property
    def has_cuts(self) -> bool:
        """True if a living node can't be reached now."""
        return bool(self._cut_since_ms)

    def tick(self) -> bool:
        """Look at all links; True if one was cut since the last time."""
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
        """Nodes that live."""
        return [node.name for node in self._catalogue.nodes() if node.alive]

    def reachable(self) -> list[str]:
        """Living nodes that this one hears and is heard by, itself included."""
        return [node for node in self.running() if self.is_reachable(node)]

    def is_reachable(self, node: str) -> bool:
        """True if this node and another hear each other."""
        return self._neighbours.is_linked(self._node, node)

    def is_cut(self, node: str) -> bool:
        """True if two nodes are cut off for more than a moment, and neither has died (P25).

        A dead node's links are cut, too. All that tells the two apart is a leader of group 0 that
        has had the time to tell a death and has not: not the node in question, and heard itself.
        Without one this may be an election after the death of a master that led group 0, and
        mirrors that give way to it take the last copies with them.
        """
        since_ms = self._cut_since_ms.get(node)
        leader = self._teller()
        if since_ms is None or leader is None or leader != self._leader or leader == node:
            return False
        if leader != self._node and not self.is_reachable(leader):
            return False
        return self._clock.monotonic_ms() - max(since_ms, self._led_since_ms) >= CUT_MS

    def _teller(self) -> str | None:
        """Return the leader of group 0 if it may propose: its own boot lives (P1)."""
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
