"""The ring as a value: neighbours and heirs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gm.core.view import MemberId, Slot, View
from tests.unit.gm.harness import dead, view_of

A, B, C, D = (MemberId(name, "boot", 1) for name in "abcd")


def test_neighbours_follow_the_list_and_close_the_ring() -> None:
    view = view_of(1, A, B, C)
    assert [view.right(m) for m in (A, B, C)] == [B, C, A]
    assert [view.left(m) for m in (A, B, C)] == [C, A, B]


def test_the_dead_are_no_neighbours() -> None:
    view = view_of(1, A, dead(B), C)
    assert view.right(A) == C
    assert view.left(C) == A


def test_one_alone_is_its_own_neighbour() -> None:
    view = view_of(1, dead(B), A)
    assert view.left(A) == view.right(A) == A
    assert view.aliases(A) == (B,)


def test_the_dead_at_the_end_of_the_list_fall_to_the_first_living() -> None:
    view = view_of(1, A, dead(B), C, dead(D))
    assert view.aliases(A) == (D,)
    assert view.aliases(C) == (B,)


def test_who_does_not_live_has_no_place() -> None:
    view = view_of(1, A, dead(B))
    for ask in (view.left, view.right, view.aliases):
        with pytest.raises(ValueError, match="not in"):
            ask(B)
    assert not view.contains_alive(B)


@given(st.lists(st.booleans(), min_size=1, max_size=9).filter(any))
def test_every_dead_member_has_exactly_one_heir(alive: list[bool]) -> None:
    """GM4."""
    ring = tuple(Slot(MemberId(f"n{i}", "boot", 1), lives) for i, lives in enumerate(alive))
    view = View(1, ring)
    inherited = [m for heir in view.alive() for m in view.aliases(heir)]
    assert sorted(inherited) == [slot.member for slot in ring if not slot.alive]
