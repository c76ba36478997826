"""Where replicas and leaders go."""

from __future__ import annotations

from broker.cluster.placement import leader, quorum_members


def test_declaring_node_and_those_with_fewest_replicas() -> None:
    load = {"a": 9, "b": 3, "c": 1, "d": 2}
    assert quorum_members("a", "abcd", load) == ("a", "c", "d")


def test_down_nodes_are_taken_last_and_small_clusters_give_what_they_have() -> None:
    assert quorum_members("a", "ac", {"b": 0, "c": 5}, members="abc") == ("a", "c", "b")
    assert quorum_members("a", "a", {}) == ("a",)


def test_leader_locator() -> None:
    load = {"a": 2, "b": 1, "c": 1}
    assert leader("client-local", "a", "abc", load) == "a"
    assert leader("balanced", "a", "abc", load) == "b"
    assert leader("balanced", "c", "abc", load) == "c"
    assert leader("client-local", "z", "abc", load) == "b"
