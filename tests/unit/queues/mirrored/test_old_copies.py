"""Old copies of a mirrored queue on a node that left its ring, and their removal."""

from __future__ import annotations

import pytest

from broker.metadata import commands
from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


def left(trio: Trio, name: str) -> int:
    """Records and bodies of the queue on a node's disk."""
    families = trio.nodes[name].disk.families
    return sum(len(families.get(family, {})) for family in ("queue_index", "bodies"))


def of_two() -> Trio:
    """Three nodes, and a queue with messages on two of them."""
    trio = Trio(is_declared=False)
    trio.policy(ha_mode="exactly", ha_params=2, ha_sync_mode="automatic")
    trio.uid = trio.declare("q").uid
    trio.settle()
    trio.tick(3)
    trio.confirmed(A, 1, 2, 3)
    return trio


def replaced() -> tuple[Trio, str]:
    """A queue on two nodes, and the node that lost its place to the third by dying."""
    trio = of_two()
    (away,) = (member.node for member in trio.ring.alive() if member.node != A)
    disk = trio.kill(away)
    trio.tick(5)
    trio.boot(away, disk)
    trio.tick(5)
    assert {member.node for member in trio.ring.alive()} == {A, B, C} - {away}
    return trio, away


@pytest.mark.parametrize("how", ["the queue is deleted", "the policy is cleared"])
def test_the_copy_of_a_node_that_lost_its_place_goes_at_the_latest_with_the_mirrors(
    how: str,
) -> None:
    trio, away = replaced()
    if how == "the queue is deleted":
        trio.apply(commands.DeleteQueue(trio.uid))
    else:
        trio.apply(commands.ClearPolicy("/", "p"))
    trio.settle()
    trio.tick(3)
    assert left(trio, away) == 0


def test_a_copy_that_may_still_be_asked_for_stays() -> None:
    """P23: should all others go, it is among those that a master may be recovered from."""
    trio, away = replaced()
    assert away in trio.ring.recoverable
    trio.apply(commands.SetPolicy("/", "other", "nothing", {"ha-mode": "all"}))
    trio.settle()
    assert left(trio, away) > 0


def test_a_rolling_restart_leaves_no_copy_outside_the_ring() -> None:
    """A node that another has replaced while it was away is nobody to recover from."""
    trio = of_two()
    for name in (A, B, C):
        disk = trio.stop(name)
        trio.tick(5)
        trio.boot(name, disk)
        trio.tick(5)
    (outside,) = {A, B, C} - {member.node for member in trio.ring.alive()}
    assert outside not in trio.ring.recoverable
    assert left(trio, outside) == 0
