"""Chooses the queue to move so that all nodes serve about as many queues. Pure.

A node has too many when it serves more than its share, rounded up. Of its queues the one with the
fewest messages moves first, to the node that serves the fewest. A queue that could not be moved is
not tried again, so this ends.

Source: rabbit_amqqueue.erl rebalance/3, maybe_migrate/3; docs/rabbitmq-behaviour.md 1.13
"Rebalance". RabbitMQ clears mirrors before the new master has their messages
(rabbitmq-server#2749): here a queue only moves to a node that has all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Movable(NamedTuple):
    """A queue that may be served elsewhere.

    Attributes:
        uid: Its incarnation.
        node: Who serves it.
        messages: How many it holds.
        ready: Nodes that hold all of it, so that it can move at once.
        others: Nodes that could hold all of it, once that has been sent to them.
    """

    uid: int
    node: str
    messages: int
    ready: tuple[str, ...]
    others: tuple[str, ...] = ()


class Move(NamedTuple):
    """A queue and where it should be served.

    Attributes:
        uid: Its incarnation.
        source: Who serves it now.
        target: Who should.
        is_ready: Whether the target holds all of it.
    """

    uid: int
    source: str
    target: str
    is_ready: bool


def next_move(
    queues: Sequence[Movable], nodes: Sequence[str], tried: Collection[int] = ()
) -> Move | None:
    """The next move, None when nothing would be better.

    Args:
        queues: What may move, each where it is now.
        nodes: Who could serve.
        tried: Queues that moved already, or could not.
    """
    if not nodes:
        return None
    counts = Counter(dict.fromkeys(nodes, 0))
    counts.update(queue.node for queue in queues if queue.node in counts)
    share = -(-len(queues) // len(nodes))
    for source in sorted(nodes, key=lambda node: (-counts[node], node)):
        if counts[source] <= share:
            break
        here = [queue for queue in queues if queue.node == source and queue.uid not in tried]
        for queue in sorted(here, key=lambda queue: (queue.messages, queue.uid)):
            move = _move(queue, counts)
            if move is not None:
                return move
    return None


def _move(queue: Movable, counts: Counter[str]) -> Move | None:
    for is_ready, targets in ((True, queue.ready), (False, queue.others)):
        better = [
            node for node in targets if node in counts and counts[node] + 1 < counts[queue.node]
        ]
        if better:
            target = min(better, key=lambda node: (counts[node], node))
            return Move(queue.uid, queue.node, target, is_ready)
    return None
