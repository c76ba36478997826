"""The kept counts of queues by node are right after every change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.placed import PlacedQueues
from broker.metadata.records import Queue

NODES = ["a", "b", "c"]


def queue(uid: int, home: str, members: tuple[str, ...]) -> Queue:
    return Queue("/", f"q{uid}", uid, "quorum", True, False, None, {}, home, members)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4),
            st.booleans(),
            st.sampled_from(NODES),
            st.lists(st.sampled_from(NODES), unique=True).map(tuple),
        ),
        max_size=30,
    )
)
def test_counts_follow_every_change(changes):
    placed, records = PlacedQueues(), {}
    for uid, is_there, home, members in changes:
        after = queue(uid, home, members) if is_there else None
        placed.change(uid, records.pop(uid, None), after)
        if after is not None:
            records[uid] = after
    assert +Counter(placed.homes) == Counter(each.home for each in records.values())
    assert +Counter(placed.replicas) == Counter(
        node for each in records.values() for node in each.members
    )
    for node in NODES:
        own = {uid for uid, each in records.items() if node in {each.home, *each.members}}
        assert set(placed.by_node.get(node, ())) == own
