"""Queues are opened one by one at a node's start, and what changes meanwhile is followed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from broker.metadata import commands
from broker.metadata.records import Queue
from broker.ports import QueueStat
from tests.unit.queues.rig import A, B, Channel, Node, World, message


def _filled(world: World, *names: str) -> None:
    for name in names:
        queue = world.declare(name)
        world.nodes[A].registry.open(queue).publish([message()], [1], Channel())
    world.settle()


def _ready(world: World, name: str) -> int:
    found: list[object] = []
    queue = world.catalogue.queue("/", name)
    assert queue is not None
    world.nodes[A].registry.open(queue).stat(found.append)
    world.settle()
    (stat,) = found
    assert isinstance(stat, QueueStat), stat
    return stat.ready


def test_each_queue_is_a_step_of_its_own() -> None:
    world = World()
    _filled(world, "a", "b", "c")
    world.declare("elsewhere", home=B)
    opened: list[int] = []
    world.boot(A, world.kill(A), opened=lambda node: opened.append(len(node.registry._classic)))
    assert opened == [1, 2, 3]
    assert [_ready(world, name) for name in "abc"] == [1, 1, 1]


def test_changes_between_two_steps_are_followed() -> None:
    """Nobody tells the registry before it serves: it compares everything then (P6)."""
    world = World()
    _filled(world, "a", "b", "c", "d")
    uids = {queue.name: queue.uid for queue in world.catalogue.queues()}
    steps = 0

    def opened(node: Node) -> None:
        nonlocal steps
        steps += 1
        if steps != 2:
            return
        here = world.nodes.pop(A)
        world.apply(commands.DeleteQueue(uids["a"]))
        world.apply(commands.DeleteQueue(uids["d"]))
        world.apply(commands.SetPolicy("/", "short", "^b$", {"max-length": 0}, 0, "queues"))
        world.declare("e")
        world.nodes[A] = here

    node = world.boot(A, world.kill(A), opened=opened)
    world.settle()
    assert steps == 3
    assert {queue.record.name for queue in node.registry.local_classic()} == {"b", "c", "e"}
    assert [_ready(world, name) for name in "bce"] == [0, 1, 0]
    assert uids["a"] not in node.store.queues()


def test_settings_are_worked_out_once_for_each_queue_that_was_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    _filled(world, "a", "b", "c")
    disk = world.kill(A)
    asked: list[str] = []
    effective = world.catalogue.effective_policy

    def noted(queue: Queue) -> Mapping[str, object]:
        asked.append(queue.name)
        return effective(queue)

    monkeypatch.setattr(world.catalogue, "effective_policy", noted)
    node = world.boot(A, disk)
    node.registry.reconcile_all()
    assert sorted(asked) == ["a", "b", "c"]
    world.apply(commands.SetPolicy("/", "short", "^b$", {"max-length": 0}, 0, "queues"))
    asked.clear()
    node.registry.reconcile_all()
    assert sorted(asked) == ["a", "b", "c"]
