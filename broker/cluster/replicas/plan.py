"""Plans the next replica of a quorum queue: one step towards its target size. Pure.

The node that leads the queue decides, from the catalogue and from what it sees of the others. A
step is written into the catalogue under the condition that the replicas are still those it was made
from; the leader's group then follows the catalogue (`QueueGroups.tend`). So a step that is made
twice, or by a leader that has been replaced, does nothing.

Invariants:
    1. One change at a time: nothing is decided while a replica on a living node has no vote yet.
    2. A replica is removed only where as many others as the target asks for have a vote, so never
       before the replica that replaces it has caught up.
    3. Only a replica on a node that has been down for long is removed, never the leader's.
    4. Replicas beyond the target that live stay: an operator asked for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple


class Replicas(NamedTuple):
    """A queue's replicas, as the leader's node knows them.

    Attributes:
        members: By the catalogue.
        voters: Those with a vote in its Raft group.
        target: How many there should be.
    """

    members: tuple[str, ...]
    voters: tuple[str, ...]
    target: int


class Nodes(NamedTuple):
    """The cluster's nodes, as the leader's node sees them.

    Attributes:
        up: Living members of the cluster that are heard, the leader's node included.
        down_ms: How long members of the cluster that are not up have been down.
        replicas: How many replicas each node has; the fewest get the next one.
    """

    up: Collection[str]
    down_ms: Mapping[str, int]
    replicas: Mapping[str, int]


def is_settled(replicas: Replicas, up: Collection[str]) -> bool:
    """True when the group has followed the catalogue as far as living nodes let it."""
    voters = set(replicas.voters)
    return voters.issubset(replicas.members) and not (set(replicas.members) - voters) & set(up)


def next_members(
    replicas: Replicas, nodes: Nodes, replace_after_ms: int | None
) -> tuple[str, ...] | None:
    """The replicas that the queue should have next; None: as it has.

    Args:
        replicas: Of the queue.
        nodes: Of the cluster.
        replace_after_ms: How long a node may be down before its replica is replaced; None: for
            ever.
    """
    if not is_settled(replicas, nodes.up):
        return None
    members = replicas.members
    lost = [node for node in members if _is_lost(node, nodes, replace_after_ms)]
    kept = [node for node in members if node not in lost]
    if len(kept) < replicas.target:
        free = [node for node in nodes.up if node not in members]
        if not free:
            return None
        return (*members, min(free, key=lambda node: (nodes.replicas.get(node, 0), node)))
    voting = [node for node in kept if node in replicas.voters]
    is_living = sum(node in nodes.up for node in voting) > replicas.target // 2
    if not lost or len(voting) < replicas.target or not is_living:
        return None
    return tuple(node for node in members if node != lost[0])


def _is_lost(node: str, nodes: Nodes, replace_after_ms: int | None) -> bool:
    if node in nodes.up:
        return False
    return replace_after_ms is not None and nodes.down_ms.get(node, 0) >= replace_after_ms
