"""Quorum queues whose policies change faster than their groups commit what was asked for before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.metadata import commands
from broker.metadata.records import Queue
from tests.unit.queues.rig import A, B, C, World
from tests.unit.queues.test_dead_lettering import KEPT, bind, contents, held, held_under
from tests.unit.queues.test_rules import publish, ready

ONCE: dict[str, object] = {
    "dead-letter-exchange": "amq.direct",
    "dead-letter-routing-key": "k",
}


class SlowGroup:
    """The leader A's group of a queue: what it takes is committed when a test says so."""

    def __init__(self, world: World, queue: Queue) -> None:
        replica = world.replicas[queue.uid][A]
        assert replica.group is not None
        self._group = replica.group
        self._world = world
        self.waiting: list[tuple[bytes, Callable[[object], None]]] = []
        replica.group = self

    @property
    def leader(self) -> str | None:
        return self._group.leader

    def propose_nowait(self, data: bytes, done: Callable[[object], None]) -> None:
        if self._world.is_dropping:
            self._group.propose_nowait(data, done)
        else:
            self.waiting.append((data, done))

    def commit(self) -> None:
        """Commit what waits, and what comes of that."""
        self._world.settle()
        while self.waiting:
            self._group.propose_nowait(*self.waiting.pop(0))
            self._world.settle()


def limited() -> tuple[World, Queue]:
    """A queue on three nodes with ten messages, all confirmed, and a policy that allows them."""
    world = World(A, B, C, timers=True)
    queue = world.declare_quorum()
    world.lead(queue, A)
    ask(world, **{"max-length": 1_000})
    world.settle()
    channel = publish(world, queue, *range(1, 11))
    world.settle()
    assert len(channel.verdicts) == 10
    return world, queue


def ask(world: World, **definition: Any) -> None:
    """The policy of "q" is another from now on."""
    world.apply(commands.SetPolicy("/", "p", "^q$", definition))


def test_a_policy_that_is_withdrawn_before_it_was_proposed_never_acts() -> None:
    world, queue = limited()
    ask(world, **{"max-length": 1})
    ask(world, **{"max-length": 1_000})
    world.advance(2_000)
    assert [held(world, queue, node) for node in (A, B, C)] == [10, 10, 10]


def test_a_policy_that_is_withdrawn_on_its_way_ends_with_the_next_entry() -> None:
    """Not with the next tick: what is confirmed meanwhile must stay."""
    world, queue = limited()
    group = SlowGroup(world, queue)
    ask(world, **{"max-length": 1})
    world.settle()
    ask(world, **{"max-length": 1_000})
    group.commit()
    publish(world, queue, 11, 12)
    group.commit()
    assert [held(world, queue, node) for node in (A, B, C)] == [3, 3, 3]


def test_a_policy_that_was_refused_behind_another_is_proposed_again() -> None:
    """The machine's rules were what it asks for when it was refused: they tell nothing."""
    world, queue = limited()
    group = SlowGroup(world, queue)
    ask(world, **{"max-length": 1})
    world.settle()
    world.is_dropping = True
    ask(world, **{"max-length": 1_000})
    world.settle()
    world.is_dropping = False
    group.commit()
    assert held(world, queue) == 1
    world.tick()
    group.commit()
    publish(world, queue, 11, 12)
    group.commit()
    assert [held(world, queue, node) for node in (A, B, C)] == [3, 3, 3]


def test_a_policy_is_proposed_once_however_long_its_entry_takes() -> None:
    world, queue = limited()
    group = SlowGroup(world, queue)
    ask(world, **{"max-length": 5})
    world.tick(5)
    assert len(group.waiting) == 1


def test_the_next_leader_asks_for_what_the_last_one_could_not() -> None:
    """Also the same node in a later term: what it proposed before may be lost."""
    world, queue = limited()
    group = SlowGroup(world, queue)
    ask(world, **{"max-length": 5})
    world.settle()
    group.waiting.clear()
    world.lead(queue, A)
    group.commit()
    assert [held(world, queue, node) for node in (A, B, C)] == [5, 5, 5]


def test_a_strategy_that_never_came_to_act_lets_go_of_nothing() -> None:
    """The group refused the change, as it does while it hands over; then it was undone.

    Nobody else would ever publish what the queue still holds.
    """
    world, queue = held_under(ONCE | KEPT)
    world.is_dropping = True
    ask(world, **ONCE)
    world.settle()
    world.is_dropping = False
    ask(world, **ONCE | KEPT)
    world.settle()
    target = world.declare("dead", B)
    bind(world, target)
    world.advance(5_000)
    assert (held(world, queue), ready(world, target, B)) == (0, 1)


def test_a_strategy_that_was_asked_for_and_undone_in_one_turn_lets_go_of_nothing() -> None:
    world, queue = held_under(ONCE | KEPT)
    ask(world, **ONCE)
    ask(world, **ONCE | KEPT)
    world.settle()
    target = world.declare("dead", B)
    bind(world, target)
    world.advance(5_000)
    assert (held(world, queue), ready(world, target, B)) == (0, 1)


def test_a_strategy_that_acted_for_a_moment_has_let_go() -> None:
    """A letter of before must not be published when its queue has let go of it."""
    world, queue = held_under(ONCE | KEPT)
    group = SlowGroup(world, queue)
    ask(world, **ONCE)
    world.settle()
    ask(world, **ONCE | KEPT)
    group.commit()
    assert [held(world, queue, node) for node in (A, B, C)] == [0, 0, 0]
    publish(world, queue, 2)
    group.commit()
    world.clock.ms += 200
    world.advance(0)
    target = world.declare("dead", B)
    bind(world, target)
    for _ in range(5):
        world.tick()
        group.commit()
    assert [body for body, _ in contents(world, target, B)] == [b"2"]
    assert held(world, queue) == 0
