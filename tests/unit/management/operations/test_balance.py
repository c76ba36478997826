"""The next queue that a rebalance moves, by example and by its invariants."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker.management.operations.balance import Movable, Move, next_move

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"
NODES = (A, B, C)


def test_the_one_with_the_fewest_messages_moves_to_the_node_that_serves_the_fewest():
    queues = [
        Movable(1, A, 9, (B, C)),
        Movable(2, A, 1, (B, C)),
        Movable(3, A, 5, (B, C)),
        Movable(4, B, 0, (A, C)),
    ]
    assert next_move(queues, NODES) == Move(2, A, C, is_ready=True)
    assert next_move(queues, NODES, {2}) == Move(3, A, C, is_ready=True)


def test_a_node_with_its_share_rounded_up_keeps_it():
    queues = [Movable(uid, A, 0, (B,)) for uid in (1, 2)]
    assert next_move([*queues, Movable(3, B, 0, (A,))], (A, B)) is None


def test_a_node_that_holds_everything_goes_before_one_that_holds_less():
    queues = [Movable(uid, A, 0, ready=(B,), others=(C,)) for uid in range(1, 5)]
    queues.append(Movable(5, B, 0, ()))
    assert next_move(queues, NODES) == Move(1, A, B, is_ready=True)
    lonely = [queue._replace(ready=()) for queue in queues]
    assert next_move(lonely, NODES) == Move(1, A, C, is_ready=False)


def test_nodes_that_do_not_run_get_nothing():
    assert next_move([Movable(uid, A, 0, (B,)) for uid in (1, 2)], (A, C)) is None
    assert next_move([], ()) is None


@st.composite
def clusters(draw: st.DrawFn) -> list[Movable]:
    count = draw(st.integers(0, 12))
    return [
        Movable(
            uid,
            draw(st.sampled_from(NODES)),
            draw(st.integers(0, 3)),
            tuple(draw(st.sets(st.sampled_from(NODES)))),
            tuple(draw(st.sets(st.sampled_from(NODES)))),
        )
        for uid in range(1, count + 1)
    ]


@given(clusters(), st.randoms(use_true_random=False))
def test_it_ends_and_every_move_makes_the_cluster_more_even(queues, random):
    tried: set[int] = set()
    moves = 0
    while (move := next_move(queues, NODES, tried)) is not None:
        moves += 1
        assert moves <= len(queues)
        assert move.uid not in tried
        tried.add(move.uid)
        queue = next(each for each in queues if each.uid == move.uid)
        assert move.source == queue.node
        assert move.target in (queue.ready if move.is_ready else queue.others)
        counts = Counter(each.node for each in queues)
        assert counts[move.target] + 1 < counts[move.source]
        if random.random() < 0.8:  # some moves fail
            queues = [
                each._replace(node=move.target) if each.uid == move.uid else each for each in queues
            ]


@given(st.lists(st.sampled_from(NODES), max_size=12))
def test_where_every_queue_can_go_everywhere_no_node_keeps_more_than_its_share(places):
    queues = [Movable(uid, node, 0, NODES) for uid, node in enumerate(places, 1)]
    tried: set[int] = set()
    while (move := next_move(queues, NODES, tried)) is not None:
        tried.add(move.uid)
        queues = [
            each._replace(node=move.target) if each.uid == move.uid else each for each in queues
        ]
    counts = Counter(each.node for each in queues)
    assert all(count <= -(-len(queues) // len(NODES)) for count in counts.values())
