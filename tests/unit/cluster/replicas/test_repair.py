"""Repair of quorum queues: its timing, its proposals, and its log."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.replicas.repair import LINES_MAX, MOVING_MAX, Led, Repair
from broker.config import Settings
from broker.metadata import commands
from broker.metadata.results import Changes, Declared
from tests.unit.session.rig import NODE, World

C, D = "rabbit@c", "rabbit@d"
TRIGGER_MS = Settings().quorum_repair_trigger_interval_ms


class Rig:
    """A node that leads quorum queues whose groups follow the catalogue when told to."""

    def __init__(self, **settings: Any) -> None:
        self.world = World()
        self.now_ms = 0
        self.up: set[str] = {node.name for node in self.world.catalogue.nodes()} - {NODE}
        self.voters: dict[int, tuple[str, ...]] = {}
        self.proposed: list[commands.MoveMembers] = []
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        peers: Any = SimpleNamespace(up=lambda: self.up)
        given = Settings(node_name=NODE, **settings)
        self.repair = Repair(NODE, given, self.world.catalogue, clock, self, peers, self)
        for node in [each.name for each in self.world.catalogue.nodes()]:
            if node != NODE:
                self.ends(node)
                self.world.apply(commands.ForgetNode(node))

    def joins(self, node: str) -> None:
        self.world.apply(commands.JoinNode(node, "x:1"))
        self.world.apply(commands.BootNode(node, f"boot-{node}", "x:1"))
        self.up.add(node)
        self.repair.follow(Changes(nodes_changed=[node]))

    def ends(self, node: str) -> None:
        boot = self.world.catalogue.node(node).boot  # type: ignore[union-attr]
        if boot is not None:
            self.world.apply(commands.EndBoot(node, boot))
        self.up.discard(node)
        self.repair.follow(Changes(nodes_changed=[node]))

    def declared(self, name: str = "q", *members: str) -> int:
        kind: dict[str, object] = {"x-queue-type": "quorum"}
        at = members or (NODE,)
        found = self.world.apply(
            commands.DeclareQueue("/", name, True, False, None, kind, NODE, at)
        )
        assert isinstance(found, Declared)
        self.voters[found.queue.uid] = at
        return found.queue.uid

    def led(self, uid: int | None) -> list[Led]:
        found = [self.world.catalogue.queue_by_uid(each) for each in self.voters]
        return [
            Led(queue, SimpleNamespace(voters=self.voters[queue.uid]))  # type: ignore[arg-type]
            for queue in found
            if queue is not None and uid in {None, queue.uid}
        ]

    async def propose(self, step: commands.MoveMembers) -> object:
        self.proposed.append(step)
        return self.world.apply(step)

    def tick(self, after_ms: int = 0) -> list[tuple[str, ...]]:
        """One tick: the members that it asked for."""
        self.now_ms += after_ms
        before = len(self.proposed)
        asyncio.run(self.repair.tick())
        return [step.members for step in self.proposed[before:]]

    def followed(self) -> None:
        for queue, _ in self.led(None):
            self.voters[queue.uid] = queue.members


def test_a_node_that_joins_gets_replicas_after_the_trigger_interval() -> None:
    rig = Rig()
    rig.declared()
    rig.tick(TRIGGER_MS)
    rig.joins(C)
    assert rig.tick(TRIGGER_MS - 1) == []
    assert rig.tick(1) == [(NODE, C)]
    assert rig.tick() == [], "its replica has no vote yet"
    rig.followed()
    assert rig.tick() == []
    assert not rig.repair.is_busy


def test_several_triggers_are_one_survey() -> None:
    rig = Rig()
    rig.declared()
    rig.tick(TRIGGER_MS)
    rig.joins(C)
    rig.now_ms += TRIGGER_MS - 1
    rig.joins(D)
    assert len(rig.tick(1)) == 1


def test_so_many_queues_at_once() -> None:
    rig = Rig()
    for number in range(MOVING_MAX + 5):
        rig.declared(f"q{number}")
    rig.joins(C)
    assert len(rig.tick(TRIGGER_MS)) == MOVING_MAX
    assert rig.tick() == []
    rig.followed()
    assert len(rig.tick()) == 5


def test_a_lost_node_is_replaced_after_the_delay_counted_from_when_it_was_seen_down() -> None:
    rig = Rig(quorum_repair_replace_after_ms=60_000)
    for node in (C, D, "rabbit@e"):
        rig.joins(node)
    uid = rig.declared("q", NODE, C, D)
    rig.tick(TRIGGER_MS)
    rig.ends(D)
    assert rig.tick(1) == []
    assert rig.tick(50_000) == []
    assert rig.tick(10_000) == [(NODE, C, D, "rabbit@e")]
    rig.followed()
    assert rig.tick() == [(NODE, C, "rabbit@e")]
    assert rig.world.catalogue.queue_by_uid(uid).home == NODE  # type: ignore[union-attr]


def test_a_node_that_is_back_in_time_keeps_its_replicas() -> None:
    rig = Rig(quorum_repair_replace_after_ms=60_000)
    for node in (C, D, "rabbit@e"):
        rig.joins(node)
    rig.declared("q", NODE, C, D)
    rig.tick(TRIGGER_MS)
    rig.ends(D)
    rig.tick(59_000)
    rig.world.apply(commands.BootNode(D, "again", "x:1"))
    rig.up.add(D)
    assert rig.tick(TRIGGER_MS) == []
    rig.ends(D)
    assert rig.tick(59_000) == [], "the delay begins anew"


def test_switched_off_it_only_tells(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(quorum_repair_enabled=False)
    rig.declared()
    rig.joins(C)
    with caplog.at_level(logging.INFO):
        assert rig.tick(TRIGGER_MS) == []
    assert "queue 'q' in vhost '/' has 1 of 2 replicas: rabbit@a" in caplog.text


def test_the_log_tells_once_when_it_begins_and_once_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    rig.declared()
    rig.joins(C)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            rig.tick(TRIGGER_MS)
        assert caplog.text.count("queue.below_target_size") == 1
        rig.followed()
        for _ in range(3):
            rig.tick(TRIGGER_MS)
    assert caplog.text.count("queue.at_target_size") == 1


def test_the_log_names_the_first_of_many(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    for number in range(LINES_MAX + 30):
        rig.declared(f"q{number}")
    rig.joins(C)
    rig.tick(TRIGGER_MS)
    assert caplog.text.count("queue.below_target_size: queue ") == LINES_MAX
    assert "30 more queues" in caplog.text


def test_a_queue_that_another_node_leads_by_now_is_left() -> None:
    rig = Rig()
    for number in range(MOVING_MAX + 1):
        rig.declared(f"q{number}")
    rig.joins(C)
    rig.tick(TRIGGER_MS)
    rig.voters.clear()
    assert rig.tick() == []
    assert not rig.repair.is_busy


def test_without_a_change_queues_are_looked_at_each_interval() -> None:
    rig = Rig(quorum_repair_interval_ms=60_000)
    rig.tick(TRIGGER_MS)
    rig.up.add(C)
    rig.world.apply(commands.JoinNode(C, "x:1"))  # of which nobody was told
    rig.world.apply(commands.BootNode(C, "boot-c", "x:1"))
    rig.declared()
    assert rig.tick(59_999) == []
    assert rig.tick(1) == [(NODE, C)]
