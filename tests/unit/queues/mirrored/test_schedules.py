"""Schedules that the simulator of the whole queue (`tests/sim/mirrored`) found, made small."""

from __future__ import annotations

from broker.metadata import commands
from tests.unit.queues.mirrored.trio import Trio


def test_a_policy_that_comes_later_founds_the_ring() -> None:
    """Nothing else has to happen: no node comes or goes, no queue is declared."""
    trio = Trio(is_declared=False)
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.uid = trio.declare("q").uid
    trio.settle()
    assert trio.queue.ring is None
    trio.policy()
    trio.tick()
    assert trio.ring.master is not None


def test_a_policy_that_goes_dissolves_the_ring() -> None:
    trio = Trio()
    trio.apply(commands.ClearPolicy("/", "p"))
    trio.tick()
    assert trio.queue.ring is None
