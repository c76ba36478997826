"""The order of handshake steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.doors.turns import STEPS, Turns


class Loop:
    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []

    def defer(self, work: Callable[[], None]) -> None:
        self.later.append(work)

    def turn(self) -> None:
        now, self.later = self.later, []
        for each in now:
            each()


def test_an_address_that_is_alone_has_all_steps_of_each_turn():
    loop, done = Loop(), list[int]()
    turns = Turns(loop.defer)
    for number in range(STEPS * 3):
        turns.run("a", lambda number=number: done.append(number))
    assert len(done) == STEPS
    loop.turn()
    assert len(done) == STEPS * 2
    loop.turn()
    assert done == list(range(STEPS * 3))


def test_of_those_that_wait_each_address_has_a_step_before_any_has_its_second():
    loop, done = Loop(), list[str]()
    turns = Turns(loop.defer)
    for address in ["a"] * 100 + ["b"] * 2 + ["c"]:
        turns.run(address, lambda address=address: done.append(address))
    loop.turn()
    assert done[STEPS : STEPS + 6] == ["a", "b", "c", "a", "b", "a"]


def test_nothing_is_deferred_while_nobody_comes():
    loop = Loop()
    turns = Turns(loop.defer)
    turns.run("a", lambda: None)
    loop.turn()
    assert loop.later == []


def test_a_step_that_fails_ends_no_turns():
    loop, done = Loop(), list[int]()
    turns = Turns(loop.defer)

    def fail() -> None:
        raise ValueError("a bug")

    for _ in range(STEPS):
        turns.run("a", lambda: None)
    turns.run("a", fail)
    turns.run("a", lambda: done.append(1))
    with pytest.raises(ValueError, match="a bug"):
        loop.turn()
    loop.turn()
    assert done == [1]
