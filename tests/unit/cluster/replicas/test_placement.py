"""The placement of replicas and leaders."""

from __future__ import annotations

from broker.cluster.replicas.placement import SPREAD, leader, locator, replica_nodes


def test_declaring_node_and_those_with_fewest_replicas() -> None:
    """Rows: 1.16 initial size"""
    load = {"a": 9, "b": 3, "c": 1, "d": 2}
    assert replica_nodes("a", "abcd", load) == ("a", "c", "d")


def test_down_nodes_are_taken_last_and_small_clusters_give_what_they_have() -> None:
    assert replica_nodes("a", "ac", {"b": 0, "c": 5}, members="abc") == ("a", "c", "b")
    assert replica_nodes("a", "a", {}) == ("a",)


def test_leader_locator() -> None:
    """Rows: 1.16 leader locator"""
    load = {"a": 2, "b": 1, "c": 1}
    assert leader("client-local", "a", "abc", load) == "a"
    assert leader("balanced", "a", "abc", load) == "b"
    assert leader("balanced", "c", "abc", load) == "c"
    assert leader("client-local", "z", "abc", load) == "b"


def test_a_master_locators_argument_wins_and_a_leader_locators_policy() -> None:
    master, newer = {"queue-master-locator": "min-masters"}, {"queue-leader-locator": "balanced"}
    asked, asked_newer = {"x-queue-master-locator": "random"}, {"x-queue-leader-locator": "random"}
    assert locator("classic", {}, {}, "client-local") == "client-local"
    assert locator("classic", {}, master, "client-local") == "min-masters"
    assert locator("classic", asked, {**master, **newer}, "client-local") == "random"
    assert locator("classic", {}, newer, "client-local") == "balanced"
    assert locator("quorum", asked_newer, {}, "client-local") == "random"
    assert locator("quorum", asked_newer, newer, "client-local") == "balanced"


def test_unasked_leaders_of_quorum_queues_are_spread() -> None:
    """Classic queues stay where they are declared: their home is their only copy."""
    assert locator("quorum", {}, {}, "") == locator("stream", {}, {}, "") == SPREAD
    assert locator("classic", {}, {}, "") == "client-local"
    assert locator("quorum", {}, {}, "client-local") == "client-local"
    led = {"a": 0, "b": 0, "c": 0}
    for _ in range(30):
        led[leader(SPREAD, "a", "abc", led)] += 1
    assert sorted(led.values()) == [9, 10, 11]
    assert leader(SPREAD, "b", "abc", {"a": 0, "b": 1, "c": 0}) == "b", "its own clients' first"
