"""Why a node can't be stopped without interrupting clients, and what a started one still lacks.

Pure: everything is told by the catalogue of group 0 and by the nodes' reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Final, NamedTuple

from broker.errors import quoted
from broker.management.pace import STEP, kept
from broker.management.resources.queues import QueueStates
from broker.metadata.catalogue import Catalogue
from broker.metadata.records import REPLICATED, Queue

KINDS: Final = ("alarm", "metadata", "quorum", "mirror", "classic")
NAMED_MAX: Final = 10
"""Queues that one reason names; it counts all."""


class Reason(NamedTuple):
    """One reason.

    Attributes:
        kind: Of KINDS.
        text: For people.
        queues: Some of the queues it is about.
    """

    kind: str
    text: str
    queues: tuple[Queue, ...] = ()


class ClusterView(NamedTuple):
    """The cluster as it is now.

    Attributes:
        catalogue: Of group 0.
        states: The nodes' reports about queues, joined.
        running: Nodes that answer.
        alarms: What nodes are short of, for people: "memory alarm on node rabbit@node1".
    """

    catalogue: Catalogue
    states: QueueStates
    running: Collection[str]
    alarms: Collection[str] = ()


def reasons_against(node: str, view: ClusterView) -> Generator[None, None, list[Reason]]:
    """Find what a stop of a node would interrupt, in steps; [] if nothing.

    Args:
        node: The node.
        view: The cluster.
    """
    catalogue, states = view.catalogue, view.states
    found = [Reason("alarm", text) for text in sorted(view.alarms)]
    members = {each.name for each in catalogue.nodes()}
    left = (members & set(view.running)) - {node}
    if len(left) <= len(members) // 2:
        text = f"{len(left)} of {len(members)} nodes would run: no majority, nobody would be served"
        found.append(Reason("metadata", text))
    queues = catalogue.queues_on(node)
    for kind, texts, is_meant in (
        (
            "quorum",
            (
                "would lose its quorum: wait until its other members have caught up",
                "would lose their quorum: wait until their other members have caught up",
            ),
            lambda queue: _needs_for_quorum(queue, node, states),
        ),
        (
            "mirror",
            (
                "has no other synchronised copy: wait, or use sync_queue",
                "have no other synchronised copy: wait, or use sync_queue",
            ),
            lambda queue: is_only_copy_on(queue, node, catalogue),
        ),
        (
            "classic",
            (
                "has messages on this node alone: consume or move them (migrate_queue), mirror the "
                "queue, or accept that it is away meanwhile, and that what is not durable is lost",
                "have messages on this node alone: consume or move them (migrate_queue), mirror "
                "the queues, or accept that they are away meanwhile, and that what is not durable "
                "is lost",
            ),
            lambda queue: _holds_alone(queue, node, catalogue, states),
        ),
    ):
        meant = yield from kept(queues, is_meant)
        found += _about(kind, meant, texts)
    return found


def lacks_of(node: str, view: ClusterView) -> Generator[None, None, list[Reason]]:
    """Find what a node that has started still has to catch up with, in steps; [] if nothing.

    Args:
        node: The node.
        view: The cluster.
    """
    catalogue, states = view.catalogue, view.states
    found: list[Reason] = []
    for kind, text, is_meant in (
        ("quorum", "replica", lambda queue: _lacks_replica(queue, node, states)),
        ("mirror", "mirror", lambda queue: _lacks_mirror(queue, node, catalogue)),
    ):
        meant = yield from kept(catalogue.all_queues(), is_meant)
        where = f"{text} on node {node}"
        found += _about(kind, meant, (f"waits for its {where}", f"wait for their {where}"))
    return found


def is_only_copy_on(queue: Queue, node: str, catalogue: Catalogue) -> bool:
    """True for a queue that shall be mirrored and has all of its messages on one node only."""
    ring = queue.ring
    if ring is None:
        is_here = queue.type == "classic" and queue.home == node
        return is_here and catalogue.ha_policy(queue) is not None
    if ring.master is None or ring.master.node != node:
        return False
    return not any(mirror in ring.synced for mirror in ring.mirrors())


def _about(kind: str, queues: list[Queue], texts: tuple[str, str]) -> list[Reason]:
    """One reason for some queues; the texts are for one and for several."""
    if not queues:
        return []
    names = ", ".join(quoted("queue", each.name, each.vhost) for each in queues[:NAMED_MAX])
    more = f" and {len(queues) - NAMED_MAX} more" if len(queues) > NAMED_MAX else ""
    said = f"1 queue {texts[0]}" if len(queues) == 1 else f"{len(queues)} queues {texts[1]}"
    return [Reason(kind, f"{said}: {names}{more}", tuple(queues))]


class StopEffects(NamedTuple):
    """What the stop of a node does to queues that go on without it.

    Attributes:
        moved: Another node leads them then.
        copies: They have a copy less meanwhile, and are led by another node already.
        alone: They are on this node alone: away meanwhile.
        stuck: They lose their quorum or their only synchronised copy: away meanwhile.
    """

    moved: list[Queue]
    copies: list[Queue]
    alone: list[Queue]
    stuck: list[Queue]


def effects_of_stop(node: str, view: ClusterView) -> Generator[None, None, StopEffects]:
    """Sort the queues of a node by what its stop does to them, in steps.

    Args:
        node: The node.
        view: The cluster.
    """
    effects = StopEffects([], [], [], [])
    for number, queue in enumerate(view.catalogue.queues_on(node), 1):
        _place_of(queue, node, view, effects).append(queue)
        if not number % STEP:
            yield
    return effects


def _place_of(queue: Queue, node: str, view: ClusterView, effects: StopEffects) -> list[Queue]:
    if _needs_for_quorum(queue, node, view.states) or (
        queue.ring is not None and is_only_copy_on(queue, node, view.catalogue)
    ):
        return effects.stuck
    if queue.type not in REPLICATED and queue.ring is None:
        return effects.alone
    return effects.moved if view.states.node(queue) == node else effects.copies


def _ready_members(queue: Queue, states: QueueStates) -> set[str]:
    """Members that vote, run, and have about all of the log."""
    online = set(states.online_members(queue))
    voters = states.voters(queue.uid)
    return (online if voters is None else online & set(voters)) - set(states.behind(queue.uid))


def _needs_for_quorum(queue: Queue, node: str, states: QueueStates) -> bool:
    if queue.type not in REPLICATED or node not in queue.members:
        return False
    has_leader = queue.uid in states.served
    return not has_leader or len(_ready_members(queue, states) - {node}) <= len(queue.members) // 2


def _holds_alone(queue: Queue, node: str, catalogue: Catalogue, states: QueueStates) -> bool:
    if queue.type != "classic" or queue.home != node or queue.ring is not None:
        return False
    if queue.exclusive_owner is not None or catalogue.ha_policy(queue) is not None:
        return False  # the one ends with its connection, the other is a "mirror" reason
    stat = states.stat(queue.uid)
    return stat is not None and stat.ready + stat.unacked > 0


def _lacks_replica(queue: Queue, node: str, states: QueueStates) -> bool:
    if queue.type not in REPLICATED or node not in queue.members:
        return False
    return queue.uid not in states.served or node not in _ready_members(queue, states)


def _lacks_mirror(queue: Queue, node: str, catalogue: Catalogue) -> bool:
    ring, policy = queue.ring, catalogue.ha_policy(queue)
    if ring is None or policy is None:
        return False
    member = ring.member_on(node)
    if member is None:
        return policy.mode == "all" or (policy.mode == "nodes" and node in policy.nodes)
    return policy.sync_mode == "automatic" and member not in ring.synced


Check = Callable[[str, ClusterView], Generator[None, None, list[Reason]]]
"""One of the two above."""
