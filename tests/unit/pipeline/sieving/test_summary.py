"""Recorders are whole or torn, wherever their history is cut."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sieving.summary import Summary, runs_of

EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 6)), max_size=20)
WHOLE = st.permutations([(name, number) for name in "ab" for number in range(1, 6)])
LOW, HIGH = -(2**63), 2**63 - 1


def torn(events, cuts):
    whole = Summary()
    places = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    for begin, end in itertools.pairwise(places):
        some = events[begin:end]
        names = pa.array([name for name, _ in some], pa.string()).dictionary_encode()
        runs, twice = runs_of(names, pa.array([number for _, number in some], pa.int64()))
        whole.add(Summary(runs=runs, twice=twice, is_empty=False))
    return whole.torn()


@given(st.one_of(EVENTS, WHOLE), st.lists(st.integers(0, 20), max_size=4))
def test_torn_are_those_whose_numbers_are_not_1_to_n(events, cuts):
    numbers = {name: sorted(n for who, n in events if who == name) for name, _ in events}
    assert torn(events, cuts) == sorted(
        name for name, seen in numbers.items() if seen != list(range(1, len(seen) + 1))
    )


def test_numbers_at_the_ends_of_what_fits_do_not_hide_a_gap():
    assert torn([("a", HIGH), ("a", LOW)], []) == ["a"]


def test_what_has_no_events_adds_nothing():
    whole = Summary(epoch=-3, last_us=-5, is_empty=False)
    whole.add(Summary())
    assert (whole.totals()["leader_changes"], whole.totals()["last_us"]) == (-3, -5)
    first = Summary()
    first.add(whole)
    assert first == whole
