"""The placement of queues on nodes: look-ups and counts, kept at every change of a record.

Counting is done here, once a change, since whoever places a new queue asks each time: counting all
queues for each declare would make 10,000 declares cost 10,000 times 10,000.
"""

from __future__ import annotations

from broker.metadata.records import REPLICATED, Queue


class PlacedQueues:
    """Queues by node.

    Attributes:
        by_node: Uids of the queues whose home, replica or living mirror a node is.
        homes: How many queues each node is the home of.
        leaders: How many queues with replicas each node leads.
        replicas: How many queues each node has a replica of.
        ringed: Uids of the mirrored queues.
    """

    __slots__ = ("by_node", "homes", "leaders", "replicas", "ringed")

    def __init__(self) -> None:
        self.by_node: dict[str, dict[int, None]] = {}
        self.homes: dict[str, int] = {}
        self.leaders: dict[str, int] = {}
        self.replicas: dict[str, int] = {}
        self.ringed: dict[int, None] = {}

    def change(self, uid: int, before: Queue | None, after: Queue | None) -> None:
        """A queue's record is added (no `before`), replaced, or removed (no `after`)."""
        old, new = _nodes_of(before), _nodes_of(after)
        for node in old - new:
            del self.by_node[node][uid]
        for node in new - old:
            self.by_node.setdefault(node, {})[uid] = None
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
        if after is not None and after.ring is not None:
            self.ringed[uid] = None
        else:
            self.ringed.pop(uid, None)

    def _count(self, queue: Queue, change: int) -> None:
        self.homes[queue.home] = self.homes.get(queue.home, 0) + change
        if queue.type in REPLICATED:
            self.leaders[queue.home] = self.leaders.get(queue.home, 0) + change
        for member in queue.members:
            self.replicas[member] = self.replicas.get(member, 0) + change


def _nodes_of(queue: Queue | None) -> set[str]:
    if queue is None:
        return set()
    alive = () if queue.ring is None else queue.ring.alive()
    return {queue.home, *queue.members, *(member.node for member in alive)}
