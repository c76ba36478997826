"""A line in which the numbers fall is found, wherever the history is cut."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
import itertools

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sieving import lines

DELIVERY = st.tuples(
    st.integers(0, 1), st.sampled_from(["b", "a"]), st.integers(1, 6), st.integers(0, 4)
)
"""Line, recorder, event_no, number of the message."""


def bad(deliveries, cuts=()):
    found, all_bad = {}, set()
    places = [0, *sorted(cut for cut in cuts if cut < len(deliveries)), len(deliveries)]
    for begin, end in itertools.pairwise(places):
        line, who, number, seq = (
            [each[n] for each in deliveries[begin:end]] for n in range(4)
        )  # fmt: skip
        stretches, falling = lines.stretches(
            pa.array(line, pa.int64()),
            pa.array(who, pa.string()).dictionary_encode(),
            pa.array(number, pa.int64()),
            pa.array(seq, pa.int64()),
        )
        all_bad |= falling
        for name, some in stretches.items():
            found.setdefault(name, []).extend(some)
    return all_bad | lines.falling(found)


def falls(deliveries):
    """Lines in which a number is below the one before; or nobody knows what is before what."""
    out = set()
    for line in {each[0] for each in deliveries}:
        seen = sorted(each[1:] for each in deliveries if each[0] == line)
        pairs = list(itertools.pairwise(seen))
        if any(a[2] > b[2] or a[:2] == b[:2] for a, b in pairs):
            out.add(line)
    return out


@given(st.lists(DELIVERY, max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_no_line_that_falls_is_missed(deliveries, cuts):
    assert bad(deliveries, cuts) >= falls(deliveries)


@given(st.lists(DELIVERY, max_size=12), st.lists(st.integers(0, 12), max_size=3))
def test_in_a_history_in_order_no_other_line_is_suspected(deliveries, cuts):
    in_order = sorted(deliveries, key=lambda each: each[1:3])
    assert bad(in_order, cuts) == falls(in_order)
