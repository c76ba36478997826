"""Nothing gets into group 0's log that a member can't decode (decision 0060)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker import feature_flags
from broker.cluster.feature_gate import KNOWN_METHOD
from broker.cluster.identity import FILE_NAME, IdentityDamaged, IdentityFile
from broker.cluster.membership import ClusterMembership
from broker.errors import Refusal
from broker.metadata.commands import EnableFeatures, JoinNode, SetMaintenance
from tests.unit.cluster.nodes import cluster_of, until

pytestmark = pytest.mark.asyncio

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"
ENABLE = EnableFeatures((feature_flags.MAINTENANCE,))


def leader_of(running: dict[str, ClusterMembership]) -> ClusterMembership:
    return next(each for each in running.values() if each.metadata.is_leading)


def make_older(node: ClusterMembership) -> None:
    """It answers as 0.2.0 does: "no such method"."""
    del node.links._calls._handlers[KNOWN_METHOD]


async def test_flags_are_enabled_when_all_members_know_them(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B) as nodes:
        for node in nodes.running.values():
            refused = await node.propose(SetMaintenance(A, True))
            assert isinstance(refused, Refusal)
            assert "is not enabled" in refused.text
        assert await nodes.running[A].propose(ENABLE) is True
        assert await nodes.running[B].propose(SetMaintenance(A, True)) is True
        await until(lambda: nodes.running[A].metadata.catalogue.drained() == {A})


async def test_an_older_member_keeps_flags_off_and_is_named(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        leader = leader_of(nodes.running)
        follower = next(each for each in nodes.running.values() if each is not leader)
        make_older(follower)
        before = leader.metadata.group.status().last_index
        refused = await leader.propose(ENABLE)
        assert isinstance(refused, Refusal)
        assert f"node {follower.node} knows no feature flags" in refused.text
        assert leader.metadata.group.status().last_index == before


async def test_a_member_that_is_down_keeps_flags_off(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A, B, C) as nodes:
        leader = leader_of(nodes.running)
        gone = next(name for name in (A, B, C) if name != leader.node)
        await nodes.kill(gone)
        await until(lambda: not leader.links.is_up(gone))
        refused = await leader.propose(ENABLE)
        assert isinstance(refused, Refusal)
        assert f"node {gone} is not running" in refused.text


async def test_who_does_not_know_an_enabled_flag_does_not_join(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        node = nodes.running[A]
        assert await node.propose(ENABLE) is True
        refused = await node.propose(JoinNode(B, "127.0.0.1:1"))
        assert isinstance(refused, Refusal)
        assert f"node {B} does not know the feature flags maintenance_mode_status" in refused.text
        known = tuple(feature_flags.KNOWN)
        assert await node.propose(JoinNode(B, "127.0.0.1:1", known)) is True


async def test_flags_are_not_enabled_while_a_node_joins(tmp_path: Path) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        gate = nodes.running[A].metadata.gate
        join = JoinNode(B, "127.0.0.1:1")
        assert await gate.enter(join) is None
        refused = await gate.enter(ENABLE)
        assert refused is not None
        assert "are changing" in refused.text
        gate.leave(join)
        assert await gate.enter(ENABLE) is None
        assert await gate.enter(join) is not None  # until that is applied, too


async def test_data_written_with_flags_is_refused_by_a_version_that_does_not_know_them(
    tmp_path: Path,
) -> None:
    async with cluster_of(tmp_path, A) as nodes:
        assert json.loads((tmp_path / A / FILE_NAME).read_text())["version"] == 1
        await nodes.running[A].propose(ENABLE)
        found = json.loads((tmp_path / A / FILE_NAME).read_text())
    # 0.2.0 reads version 1 alone, and says "start the newer version that wrote it".
    assert found["version"] == 2
    assert found["features"] == [feature_flags.MAINTENANCE]
    found["features"].append("of_a_later_version")
    (tmp_path / A / FILE_NAME).write_text(json.dumps(found))
    with pytest.raises(IdentityDamaged, match=r"of_a_later_version.*newer version"):
        IdentityFile(tmp_path / A, A)
