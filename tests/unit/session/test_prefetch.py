from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.session.prefetch import PrefetchWindow, credit
from tests.unit.session.rig import deliveries


@pytest.mark.parametrize(
    ("consumer", "channel", "given_"), [(0, 0, 0), (5, 0, 5), (0, 7, 7), (5, 7, 5), (9, 7, 7)]
)
def test_queue_gets_the_smaller_limit(consumer: int, channel: int, given_: int) -> None:
    assert credit(consumer, channel) == given_


def test_what_is_above_the_limit_is_parked_and_comes_back_in_order() -> None:
    window: PrefetchWindow[str] = PrefetchWindow()
    window.limit = 3
    assert [d.number for d in window.admit("a", deliveries(1, 2), 0)] == [1, 2]
    assert [d.number for d in window.admit("a", deliveries(3, 4), 2)] == [3]
    assert window.admit("b", deliveries(9), 3) == []
    assert window.unpark(3) == []
    came = window.unpark(1)
    assert [(owner, [d.number for d in some]) for owner, some in came] == [("a", [4]), ("b", [9])]
    assert not window.has_parked


def test_nothing_overtakes_what_is_parked() -> None:
    window: PrefetchWindow[str] = PrefetchWindow()
    window.limit = 1
    window.admit("a", deliveries(1, 2), 0)
    assert window.admit("b", deliveries(9), 0) == []


def test_cancelled_consumers_deliveries_are_given_back() -> None:
    window: PrefetchWindow[str] = PrefetchWindow()
    window.limit = 1
    window.admit("a", deliveries(1, 2, 3), 0)
    window.admit("b", deliveries(9), 1)
    assert window.remove("a") == [2, 3]
    assert [owner for owner, _ in window.unpark(0)] == ["b"]


@given(st.integers(1, 5), st.lists(st.integers(0, 6), max_size=20))
def test_channel_never_holds_more_than_its_limit(limit: int, batches: list[int]) -> None:
    window: PrefetchWindow[str] = PrefetchWindow()
    window.limit = limit
    held = number = 0
    for size in batches:
        batch = deliveries(*range(number + 1, number + 1 + size))
        number += size
        held += len(window.admit("a", batch, held))
        assert held <= limit
        held = max(0, held - 2)
        held += sum(len(some) for _, some in window.unpark(held))
        assert held <= limit
