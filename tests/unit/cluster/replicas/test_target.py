"""The target number of replicas of a quorum queue, and the missing ones."""

from __future__ import annotations

from broker.cluster.replicas.target import GroupSizes, target_size
from broker.config import Peer, Settings
from broker.metadata import commands
from broker.metadata.records import Queue
from tests.unit.session.rig import NODE, World

B, C = "rabbit@b", "rabbit@c"


def test_argument_and_policy_before_the_initial_size_before_the_settings() -> None:
    """Rows: 1.17 auto reconciliation"""
    settings = Settings(quorum_target_group_size=7, quorum_initial_group_size=5)
    argument, policy = {"x-quorum-target-group-size": 3}, {"target-group-size": 4}
    first = {"x-quorum-initial-group-size": 1}
    assert target_size({**argument, **first}, {}, settings) == 3
    assert target_size({**argument, **first}, policy, settings) == 4
    assert target_size({"x-quorum-target-group-size": 9}, policy, settings) == 9
    assert target_size(first, {}, settings) == 1
    assert target_size({}, {}, settings) == 7
    assert target_size({}, {}, Settings(quorum_initial_group_size=5)) == 5
    assert target_size({}, {}, Settings()) == 3


def test_what_is_no_size_counts_as_absent() -> None:
    odd = {"x-quorum-target-group-size": "5", "x-quorum-initial-group-size": 0}
    assert target_size(odd, {"target-group-size": True}, Settings()) == 3


def queue(*members: str) -> Queue:
    return Queue("/", "q", 7, "quorum", True, False, None, {}, members[0], members)


def test_no_more_is_missing_than_the_cluster_has_nodes() -> None:
    world = World()
    alone = GroupSizes(world.catalogue, Settings(node_name=NODE))
    have = len(world.catalogue.nodes())
    assert alone.missing(queue(NODE)) == min(3, have) - 1
    world.apply(commands.JoinNode(C, "c:1"))
    assert alone.missing(queue(NODE)) == min(3, have + 1) - 1


def test_configured_peers_that_did_not_join_yet_are_missing() -> None:
    peers = tuple(Peer(name, "host", 1) for name in (NODE, B, C))
    sizes = GroupSizes(World().catalogue, Settings(node_name=NODE, cluster_peers=peers))
    assert sizes.missing(queue(NODE)) == 2
    assert sizes.missing(queue(NODE, B, C)) == 0


def test_a_replica_without_a_vote_is_missing() -> None:
    peers = tuple(Peer(name, "host", 1) for name in (NODE, B, C))
    sizes = GroupSizes(World().catalogue, Settings(node_name=NODE, cluster_peers=peers))
    assert sizes.missing(queue(NODE, B, C), [NODE, B]) == 1
