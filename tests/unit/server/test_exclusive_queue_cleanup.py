"""P6: exclusive queues go with their connection, whatever became of the proposal."""

from __future__ import annotations

from broker.metadata import commands
from broker.server.exclusive_queue_cleanup import ExclusiveQueueCleanup
from tests.unit.session.rig import BOOT, NODE, World


def declare(world: World, name: str, owner: str) -> None:
    world.apply(commands.DeclareQueue("/", name, False, False, owner, {}, NODE))


def test_a_declare_applied_after_the_connections_end_is_found() -> None:
    world = World()
    cleanup = ExclusiveQueueCleanup(world.catalogue, NODE, BOOT)
    declare(world, "mine", f"{NODE}/{BOOT}/1")
    declare(world, "gone", f"{NODE}/{BOOT}/2")
    declare(world, "far", f"rabbit@b/{'f' * 16}/2")
    assert cleanup.find({1}) == []  # its end may be under way
    assert cleanup.find({1}) == [f"{NODE}/{BOOT}/2"]
    assert cleanup.find({1}) == [f"{NODE}/{BOOT}/2"]  # until it is gone
    world.apply(commands.EndConnection(f"{NODE}/{BOOT}/2"))
    assert cleanup.find({1}) == []
