"""The share of time in which a queue could deliver at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.fifo.statistics.capacity import Capacity

BEGAN_MS = 1_700_000_000_000


def after(*passed_ms: int) -> tuple[Capacity, int]:
    """A queue that was able from its first turn on, then not, then able, ... and the time."""
    capacity, now_ms = Capacity(), BEGAN_MS
    capacity.turn(now_ms)
    capacity.turn(now_ms)
    for passed in passed_ms:
        now_ms += passed
        capacity.turn(now_ms)
    return capacity, now_ms


def test_a_queue_that_always_could_has_1():
    capacity = Capacity()
    assert capacity.share(BEGAN_MS) == 1
    capacity, now_ms = after()
    assert capacity.share(now_ms + 5_000) == 1


def test_half_of_what_was_before_counts_after_a_second():
    capacity, now_ms = after(0)
    assert capacity.share(now_ms + 1_000) == pytest.approx(0.5)
    assert capacity.share(now_ms + 2_000) == pytest.approx(0.25)
    capacity.turn(now_ms + 2_000)
    assert capacity.share(now_ms + 3_000) == pytest.approx(0.625)


@given(able=st.integers(1, 50), unable=st.integers(1, 50))
def test_turns_that_go_on_give_the_share_of_time(able: int, unable: int):
    capacity, now_ms = after(*[able, unable] * 2_000)
    assert capacity.share(now_ms) == pytest.approx(able / (able + unable), abs=0.04)


@given(st.lists(st.integers(-5_000, 5_000)), st.integers(-5_000, 5_000))
def test_a_clock_that_jumps_leaves_it_between_0_and_1(passed_ms: list[int], later_ms: int):
    capacity, now_ms = after(*passed_ms)
    assert 0 <= capacity.share(now_ms + later_ms) <= 1
