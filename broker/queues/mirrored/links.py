"""Since when other nodes are gone, silent or cut off from this one; looked at once a second."""

from __future__ import annotations

from broker.metadata.catalogue import Catalogue
from broker.ports import Clock
from broker.queues.mirrored.ports import Neighbours
from broker.queues.mirrored.tending import CUT_MS


class LinkWatch:
    """This node's links, as far as rings depend on how long they have been as they are.

    Args:
        node: This node.
        catalogue: Says which nodes there are.
        neighbours: Says how links are now.
        clock: Time.
    """

    def __init__(
        self, node: str, catalogue: Catalogue, neighbours: Neighbours, clock: Clock
    ) -> None:
        self._node = node
        self._catalogue = catalogue
        self._neighbours = neighbours
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._gone_since_ms: dict[str, int] = {}
        self._cut_since_ms: dict[str, int] = {}

    @property
    def has_cuts(self) -> bool:
        """Whether a living node can't be reached now."""
        return bool(self._cut_since_ms)

    def tick(self) -> bool:
        """Look at all links; True if one was cut since the last time."""
        now_ms = self._clock.monotonic_ms()
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
        """Whether this node and another hear each other."""
        return self._neighbours.is_linked(self._node, node)

    def is_cut(self, node: str) -> bool:
        """Whether they do not, and not just for a moment (P25)."""
        since_ms = self._cut_since_ms.get(node)
        return since_ms is not None and self._clock.monotonic_ms() - since_ms >= CUT_MS

    def refused_ms(self, node: str) -> int:
        """How long connections to a node have been refused; 0 while they are not."""
        since_ms = self._gone_since_ms.get(node)
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    def silent_ms(self, node: str) -> int:
        """How long a node has been silent while this one listened."""
        listened_ms = self._clock.monotonic_ms() - self._began_ms
        return min(listened_ms, self._neighbours.silence_ms(node))
