"""A master that loses its lease tells nothing until it is back (P4, P19)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.queues.mirrored.trio import Trio
from tests.unit.queues.rig import A, B, C


class Lapsing:
    """A lease that is held for so many more questions."""

    def __init__(self, questions: int) -> None:
        self.questions = questions

    def __call__(self) -> bool:
        self.questions -= 1
        return self.questions >= 0


@pytest.mark.parametrize("questions", range(1, 5))
def test_a_verdict_waits_for_the_ring_though_the_lease_ended_in_between(
    questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trio = Trio()
    master = trio.membership(A).master
    assert master is not None
    lease = Lapsing(questions)
    monkeypatch.setattr(master, "_node", replace(master._node, has_lease=lease))
    trio.cut = {(A, C), (C, A)}
    channel = trio.publish(B, 1)
    trio.settle()
    lease.questions = 1_000
    trio.nodes[A].registry.lease_back()
    trio.settle()
    assert channel.verdicts == []
    trio.cut = set()
    for name in (A, C):
        for other in (A, C):
            trio.nodes[name].registry.ring_link_up(other)
    trio.settle()
    assert channel.verdicts == [(1, True)]


def test_a_joiner_that_comes_while_the_lease_is_away_gets_everything_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trio = Trio(ha_sync_mode="manual")
    disk = trio.kill(C)
    trio.settle()
    master = trio.membership(A).master
    assert master is not None
    lease = Lapsing(1)
    monkeypatch.setattr(master, "_node", replace(master._node, has_lease=lease))
    channel = trio.publish(B, 1)
    trio.settle()
    trio.boot(C, disk)
    trio.tick(2)
    lease.questions = 1_000
    trio.tick(2)
    assert channel.verdicts == [(1, True)]
    trio.confirmed(B, 2)
    assert trio.depth(B) == 2
    assert trio.depth(C) == 1


def test_a_session_goes_on_at_a_joiner_of_that_moment() -> None:
    trio = Trio()
    trio.confirmed(B, 1)
    trio.boot(C, trio.kill(C))
    trio.tick(2)
    trio.confirmed(B, 2)
    trio.kill(A)
    trio.settle()
    trio.confirmed(B, 3)
