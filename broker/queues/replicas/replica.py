"""A queue's replica on this node, of whichever type, and the leader that it knows."""

from __future__ import annotations

from typing import TypeAlias

from broker.metadata.records import Queue
from broker.queues.quorum import QuorumQueue
from broker.queues.streams.replica import StreamReplica

Replica: TypeAlias = QuorumQueue | StreamReplica


def leader_of(queue: Queue, replica: Replica | None) -> str:
    """Return the node that serves a quorum queue or stream, as far as known here.

    Args:
        queue: The queue; its record names the leader that group 0 was told of last.
        replica: This node's replica of it, which may know better; None where it has none.
    """
    if replica is not None and replica.group is not None and replica.group.leader:
        return replica.group.leader
    return queue.home
