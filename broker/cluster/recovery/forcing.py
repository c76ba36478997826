"""A cluster whose nodes are lost for good: what it keeps and loses (P8). Pure.

An operator says which nodes are lost. Those that are left are a cluster of their own, with an id
of its own, so that a lost node that turns up again is refused. Where one node is left, its id is
drawn. Where several are, each is told on its own, stopped, and all must come to the same
conclusion: their id follows from all that the conclusion says, so nodes that differ in any of it
refuse each other instead of electing two leaders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from broker.metadata.catalogue import Catalogue
from broker.metadata.records import REPLICATED, Node, Queue


class ForcingRefused(Exception):
    """The request can't be carried out; the text says why. Nothing was changed."""


class Conclusion(NamedTuple):
    """The cluster that remains.

    Attributes:
        survivors: The nodes, sorted; this one is among them.
        lost: The others, sorted.
        replicas: Queue uid -> nodes that keep a replica, of queues with replicas, one at least.
    """

    survivors: tuple[str, ...]
    lost: tuple[str, ...]
    replicas: dict[int, tuple[str, ...]]


class Losses(NamedTuple):
    """Queues and messages that are lost with nodes.

    Attributes:
        deleted: Queues of which nothing is left.
        shrunk: Quorum queues that keep a replica, and mirrored ones that lose their master and keep
            a mirror. What they had confirmed is lost only where the copies that are left had not
            got it: a replica that was not among the majority, an unsynchronised or old mirror.
    """

    deleted: tuple[Queue, ...]
    shrunk: tuple[Queue, ...]


def conclude(node: str, catalogue: Catalogue, lost: Collection[str]) -> Conclusion:
    """Work out what is left.

    Args:
        node: This node.
        catalogue: What this node knows of the cluster.
        lost: Nodes that never come back.

    Raises:
        ForcingRefused: This node is no member, or is itself said to be lost; or a lost one is
            not known.
    """
    members = {record.name for record in catalogue.nodes()}
    known = ", ".join(sorted(members)) or "nobody"
    if node not in members:
        raise ForcingRefused(f"{node} is no member of its cluster, it knows {known}")
    if node in lost:
        raise ForcingRefused(f"{node} can't be lost: this is its own data; wipe it instead")
    strangers = sorted(set(lost) - members)
    if strangers:
        raise ForcingRefused(f"no node {', '.join(strangers)} in this cluster; there are {known}")
    replicas = {}
    for queue in catalogue.all_queues():
        left = tuple(sorted(set(queue.members) - set(lost)))
        if queue.type in REPLICATED and left:
            replicas[queue.uid] = left
    return Conclusion(tuple(sorted(members - set(lost))), tuple(sorted(lost)), replicas)


def new_cluster_id(old: str, conclusion: Conclusion, draw_id: Callable[[], str]) -> str:
    """The id of what is left.

    Args:
        old: The cluster's id before anything was lost.
        conclusion: What is left.
        draw_id: Draws 16 hex characters that were never drawn before.
    """
    if len(conclusion.survivors) == 1:
        return draw_id()
    text = msgspec.json.encode((old, conclusion.survivors, sorted(conclusion.replicas.items())))
    return hashlib.sha256(text).hexdigest()[:16]


def mark(record: Node) -> str:
    """Return what distinguishes a lost member from a wiped node that joined under its name."""
    return record.boot or (record.ended_boots[-1] if record.ended_boots else "")


def is_marked(record: Node | None, mark_then: str) -> bool:
    """True if a member is still the one that was marked, not a new one of its name."""
    if record is None:
        return False
    boots = (*record.ended_boots, *([record.boot] if record.boot else []))
    return mark_then in boots if mark_then else not boots


def losses(catalogue: Catalogue, lost: Collection[str]) -> Losses:
    """Return what is deleted and what may lack messages when `lost` nodes are forgotten."""
    deleted: list[Queue] = []
    shrunk: list[Queue] = []
    for queue in catalogue.all_queues():
        if queue.ring is not None:
            if queue.home in lost:
                copies = {each.node for each in (*queue.ring.alive(), *queue.ring.left)}
                (shrunk if copies - set(lost) else deleted).append(queue)
        elif queue.type == "classic":
            if queue.home in lost:
                deleted.append(queue)
        elif not set(queue.members) - set(lost):
            deleted.append(queue)
        elif set(queue.members) & set(lost):
            shrunk.append(queue)
    return Losses(tuple(deleted), tuple(shrunk))
