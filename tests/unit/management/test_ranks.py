"""Where queues stand that are sorted without an item for each (`statistics.ranks`)."""

from __future__ import annotations

from broker.management.report import Report, Served
from broker.management.resources.queues import QueueStates
from broker.management.statistics.measured import Measured
from broker.management.statistics.ranks import HELD, REPLICA, by_state, state_rank
from broker.metadata.records import Queue
from broker.ports import QueueStat

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"


def queue(uid: int, kind: str = "quorum") -> Queue:
    members = (A, B, C) if kind == "quorum" else (A,)
    return Queue("/", f"q{uid}", uid, kind, True, False, None, {}, A, members)


def served(uid: int, state: str, syncing: int | None = None) -> Served:
    stat = QueueStat(0, 0, 0, 0, 0, state)
    return Served(uid, 0, stat, syncing, None, Measured(), [], None)


def test_states_are_put_together_from_all_nodes_as_items_have_them():
    """Running, held, in flow, syncing, one replica left, two without a leader, not served."""
    queues = [*[queue(uid) for uid in range(1, 7)], queue(7, "classic")]
    a, b = Report(), Report()
    a.served = [served(1, "running"), served(2, "running"), served(3, "flow")]
    b.served = [served(4, "running", 5)]
    a.replicas, b.replicas = [1, 2, 3, 5, 6], [4, 6]
    b.held = [2, 7]
    states = QueueStates({A: a, B: b})
    said = [
        *[(each.uid, state_rank(each.stat.state)) for each in a.served],
        (4, state_rank("syncing")),
        *[(5, REPLICA), (6, REPLICA), (6, REPLICA)],
        *[(2, HELD), (7, HELD)],
    ]
    place = by_state(said)
    names = [states.state(each) for each in queues]
    assert names == ["running", "flow", "flow", "syncing", "minority", "down", "down"]
    assert [place(each) for each in queues] == [state_rank(name) for name in names]


def test_states_stand_in_the_order_of_their_names():
    names = ["running", "flow", "syncing", "promoting", "minority", "down", "stopped", "crashed"]
    assert sorted(names, key=state_rank) == sorted(names)
    assert state_rank("another") > max(map(state_rank, names))
