"""The next replica of a queue: towards the target, and never at the cost of safety."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.replicas.plan import Nodes, Replicas, is_settled, next_members

AFTER_MS = 1_000
ALL = "abcdefg"


def nodes(up: str, *, lost: str = "", away: str = "", load: dict[str, int] | None = None) -> Nodes:
    down_ms = dict.fromkeys(lost, AFTER_MS) | dict.fromkeys(away, AFTER_MS - 1)
    return Nodes(tuple(up), down_ms, load or {})


def planned(members: str, target: int, there: Nodes, voters: str | None = None) -> str | None:
    replicas = Replicas(tuple(members), tuple(members if voters is None else voters), target)
    found = next_members(replicas, there, AFTER_MS)
    return None if found is None else "".join(found)


def test_the_node_with_the_fewest_replicas_gets_the_next_one() -> None:
    assert planned("a", 3, nodes("abc", load={"b": 5, "c": 4})) == "ac"
    assert planned("ac", 3, nodes("abc")) == "acb"
    assert planned("abc", 3, nodes("abcd")) is None


def test_one_at_a_time() -> None:
    """Nothing more is begun while a replica on a living node has no vote yet."""
    assert planned("ab", 3, nodes("abc"), voters="a") is None
    assert planned("ab", 3, nodes("abc"), voters="abd") is None


def test_a_replica_of_a_node_that_is_down_shortly_is_left() -> None:
    assert planned("abc", 3, nodes("abd", away="c")) is None


def test_a_lost_replica_goes_when_another_has_its_vote() -> None:
    there = nodes("abd", lost="c")
    assert planned("abc", 3, there) == "abcd"
    assert planned("abcd", 3, there, voters="abc") is None
    assert planned("abcd", 3, there) == "abd"


def test_without_a_node_for_another_nothing_is_removed() -> None:
    assert planned("abc", 3, nodes("ab", lost="c")) is None


def test_a_learner_whose_node_died_does_not_stop_the_repair() -> None:
    there = nodes("abd", lost="c")
    assert planned("abc", 3, there, voters="ab") == "abcd"
    assert planned("abcd", 3, there, voters="abd") == "abd"


def test_more_replicas_than_the_target_stay() -> None:
    """`ctl add_member` asked for them."""
    assert planned("abcde", 3, nodes("abcde")) is None
    assert planned("abcde", 3, nodes("abcd", lost="e")) == "abcd"


def test_nothing_is_replaced_where_that_is_switched_off() -> None:
    replicas = Replicas(("a", "b", "c"), ("a", "b", "c"), 3)
    assert next_members(replicas, nodes("abd", lost="c"), None) is None


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[str], int, list[str], list[str], list[str]]:
    """Members with a leader, a target, and nodes that are up, away or lost."""
    members = draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=5, unique=True))
    down = draw(st.lists(st.sampled_from(ALL), unique=True, max_size=4))
    down = [node for node in down if node != members[0]]
    if len([node for node in members if node not in down]) <= len(members) // 2:
        down = [node for node in down if node not in members]
    away = [node for node in down if draw(st.booleans())]
    target = draw(st.integers(1, 7))
    return members, target, [n for n in ALL if n not in down], away, down


@given(worlds())
def test_it_converges_and_no_step_endangers_the_queue(
    world: tuple[list[str], int, list[str], list[str], list[str]],
) -> None:
    start, target, up, away, down = world
    lost = [node for node in down if node not in away]
    there = nodes("".join(up), lost="".join(lost), away="".join(away))
    members, voters = tuple(start), set(start)
    for _ in range(20):
        found = next_members(Replicas(members, tuple(sorted(voters)), target), there, AFTER_MS)
        if found is None:
            break
        added, removed = set(found) - set(members), set(members) - set(found)
        assert len(added) + len(removed) == 1, "one change at a time"
        assert added <= set(up)
        if removed:
            rest = voters & set(found)
            assert removed <= set(lost)
            assert len(rest) >= target, "its replacement has caught up"
            assert len(rest & set(up)) > target // 2, "a majority of the target lives"
        members = found
        replicas = Replicas(members, tuple(sorted(voters)), target)
        if added:
            assert not is_settled(replicas, up)
            assert next_members(replicas, there, AFTER_MS) is None, "it waits for the vote"
        voters = (voters & set(members)) | added  # the leader's group follows
        assert len(voters & set(up)) > len(voters) // 2, "never without a majority"
    else:
        raise AssertionError("no end")
    kept = [node for node in members if node not in lost]
    assert len(kept) >= min(target, len({*up, *kept}))
    if len(kept) >= target:
        assert len(members) == len(kept), "what is lost is replaced"


@given(worlds())
def test_a_step_that_is_planned_twice_is_the_same(
    world: tuple[list[str], int, list[str], list[str], list[str]],
) -> None:
    """A new leader, or the same one without an answer, asks for the same members again."""
    members, target, up, away, _ = world
    replicas = Replicas(tuple(members), tuple(members), target)
    first = next_members(replicas, nodes("".join(up), away="".join(away)), AFTER_MS)
    again = next_members(replicas, nodes("".join(reversed(up)), away="".join(away)), AFTER_MS)
    assert first == again
