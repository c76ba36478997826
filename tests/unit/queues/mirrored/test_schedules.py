"""Schedules that the simulator of the whole queue (`tests/sim/mirrored`) found, made small."""

from __future__ import annotations

from collections.abc import Callable

from broker.errors import Refusal, ReplyCode
from broker.metadata import commands
from broker.metadata.ring_commands import RingErase, RingFound
from broker.metadata.rings import RingMember, found
from broker.ports import Done
from broker.queues.mirrored import reconcile
from broker.queues.mirrored.proposals import Proposals
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


class Proposer:
    """A node whose proposals and timers a test answers itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[commands.ChangeRings, Done]] = []
        self.due: list[Callable[[], None]] = []

    def propose(self, command: commands.ChangeRings, done: Done, /) -> None:
        self.asked.append((command, done))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        del seconds
        self.due.append(call)


def test_a_step_wanted_while_an_unknown_outcome_is_asked_for_waits_its_turn() -> None:
    """The question names no step, and is under way all the same."""
    node = Proposer()
    asked, due = node.asked, node.due
    outcomes: list[bool | None] = []
    proposals = Proposals(node)
    proposals.want(RingFound(1, "a", "1"), outcomes.append)
    due.pop()()
    asked.pop()[1](Refusal(ReplyCode.INTERNAL_ERROR, "not in 5 s"))
    proposals.tick()
    due.pop()()
    question = asked.pop()
    assert question[0].steps == ()
    proposals.want(RingErase(1, RingMember("b", "2", 1)), outcomes.append)
    for call in due:
        call()
    assert asked == []
    question[1](())
    for call in due:
        call()
    asked.pop()[1]((True,))
    assert outcomes == [None, False, True]


def test_a_member_whose_boot_has_ended_leaves_nothing() -> None:
    """Its shells may be asked once more before they are stopped."""
    ring = found([("a", "1"), ("b", "2")])
    former = RingMember("b", "1", 1)
    assert reconcile.leave_step(1, ring, former, lambda _node: True) is None
