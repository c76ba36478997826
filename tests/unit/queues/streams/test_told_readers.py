"""Followers hear of commits at once where there are readers, and there alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.counters import QueueingCounts
from broker.metadata.records import Queue
from broker.metadata.streams.settings import stream_settings_of
from broker.queues.streams.replica import TOLD_MS_MAX, StreamReplica
from tests.unit.queues.rig import A, B, C, Clock

D = "rabbit@d"
RECORD = Queue("/", "q", 7, "stream", True, False, None, {"x-queue-type": "stream"}, A, (A, B, C))


class Group:
    """A Raft group that notes where commits are told at once."""

    leader = A
    is_blank = False
    voters = (A, B, C)

    def __init__(self) -> None:
        self.told: frozenset[str] | None = None
        self.changes = 0

    def push_commits_to(self, nodes: frozenset[str] | None) -> None:
        self.told = nodes
        self.changes += 1


class Rig:
    """A replica that leads."""

    def __init__(self) -> None:
        self.clock = Clock()
        host = SimpleNamespace(begins_to_lead=lambda *_: None)
        node: Any = SimpleNamespace(
            clock=self.clock,
            transport=None,
            counts=QueueingCounts(),
            defer=lambda call: None,
            stirred=set(),
        )
        self.replica = StreamReplica(RECORD, stream_settings_of(RECORD, {}), node, host)
        self.group = Group()
        self.replica.group = self.group  # type: ignore[assignment]
        self.lead(term=1)

    def lead(self, term: int) -> None:
        self.replica.role_changed(leader=True, term=term)

    def pass_ms(self, ms: int) -> None:
        self.clock.ms += ms
        self.replica.tick()


@pytest.fixture
def rig() -> Rig:
    """It has led for so long that all nodes have said whether they read."""
    rig = Rig()
    rig.pass_ms(TOLD_MS_MAX)
    return rig


def test_nobody_is_told_where_nobody_reads(rig: Rig) -> None:
    assert rig.group.told == frozenset()
    rig.pass_ms(1_000)
    assert rig.group.changes == 1, "the same is not said twice"


def test_a_follower_is_told_while_its_node_has_consumers(rig: Rig) -> None:
    rig.replica.told(B, 2, (0, 0))
    assert rig.group.told == {B}
    rig.replica.told(A, 1, (0, 0))
    assert rig.group.told == {B}, "the leader knows"
    rig.replica.told(B, 0, (0, 0))
    assert rig.group.told == frozenset()


def test_a_node_that_says_nothing_more_is_forgotten(rig: Rig) -> None:
    rig.replica.told(B, 1, (0, 0))
    rig.pass_ms(TOLD_MS_MAX)
    assert rig.group.told == frozenset()


def test_all_are_told_while_a_node_without_a_replica_reads(rig: Rig) -> None:
    rig.replica.told(D, 1, (0, 0))
    assert rig.group.told is None


def test_a_new_leader_tells_all_until_it_has_heard_of_all_consumers(rig: Rig) -> None:
    rig.replica.role_changed(leader=False, term=2)
    rig.lead(term=3)
    assert rig.group.told is None
    rig.replica.told(B, 1, (0, 0))
    rig.pass_ms(TOLD_MS_MAX - 1)
    assert rig.group.told is None
    rig.replica.told(B, 1, (0, 0))
    rig.pass_ms(1)
    assert rig.group.told == {B}
