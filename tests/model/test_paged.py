"""The set of paged-out messages against a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.fifo.ready.paged import CHUNK, Paged

# Numbers near each other and at the edges of chunks, as queues have them.
NUMBERS = st.one_of(st.integers(1, 40), st.integers(CHUNK - 3, CHUNK + 3), st.integers(1, 1 << 40))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NUMBERS, st.integers(0, 5_000)),
        st.tuples(st.just("remove"), NUMBERS, st.just(0)),
        st.tuples(st.just("add_run"), NUMBERS, st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("remove_run"), NUMBERS, st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("range"), NUMBERS, st.integers(0, 2 * CHUNK)),
    ),
    max_size=60,
)


@given(STEPS, NUMBERS)
def test_it_is_a_dict_of_sizes(steps, low):
    paged, model = Paged(), {}
    for what, number, value in steps:
        if what == "add":
            paged.add([(number, value)])
            model[number] = value
        elif what == "add_run":
            sizes = [(number + n) % 7 for n in range(value)]
            paged.add_run(number, sizes)
            model |= dict(enumerate(sizes, number))
        elif what == "remove_run":
            run = [*range(number, number + value)]
            assert paged.remove(run) == [each for each in run if each in model]
            for each in run:
                model.pop(each, None)
        elif what == "remove":
            assert paged.remove([number]) == ([number] if number in model else [])
            model.pop(number, None)
        else:
            gone = [each for each in model if number <= each <= number + value]
            assert paged.remove_range(number, number + value) == len(gone)
            for each in gone:
                del model[each]
        assert paged.lowest() == min(model, default=None)
    assert (len(paged), paged.size_bytes) == (len(model), sum(model.values()))
    assert list(paged) == sorted(model)
    assert list(paged.numbers_from(low)) == sorted(each for each in model if each >= low)
    assert paged.lowest() == min(model, default=None)
    assert paged.highest() == max(model, default=None)
    assert (low in paged, paged.size_of(low)) == (low in model, model.get(low))
    other = paged.copy()
    paged.clear()
    assert list(other) == sorted(model)
    assert (len(other), other.size_bytes) == (len(model), sum(model.values()))
    assert other.first(9, 1 << 30) == sorted(model)[:9]


@given(
    st.lists(st.tuples(st.integers(1, 9_000), st.integers(0, 3_000)), max_size=6),
    st.integers(0, 9_000),
    st.one_of(st.none(), st.integers(1, 4)),
)
def test_ranges_are_the_runs_without_a_gap(spans, low, count):
    numbers = {n for first, more in spans for n in range(first, first + more + 1)}
    paged = Paged((n, 1) for n in numbers)
    found = paged.ranges(low, count)
    expected = sorted(n for n in numbers if n >= low)
    runs = []
    for n in expected:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    assert found == runs[:count]


def test_a_damaged_dump_is_refused():
    [(chunk_id, data)] = Paged([(1, 1)]).dump()
    with pytest.raises(ValueError, match="expected a chunk of 1024 cells, found 4095 bytes"):
        Paged.load([(chunk_id, data[:-1])])


@given(st.dictionaries(NUMBERS, st.integers(0, 500)), st.integers(1, 20), st.integers(0, 2_000))
def test_what_is_read_next_is_the_lowest_within_the_limits(model, count, bytes_max):
    found = Paged(model.items()).first(count, bytes_max)
    assert found == sorted(model)[: len(found)]
    if len(found) > 1:
        assert len(found) <= count
        assert sum(model[each] for each in found) <= bytes_max
    if len(found) < min(count, len(model)):
        following = sorted(model)[len(found)]
        assert sum(model[each] for each in found) + model[following] > bytes_max


def test_a_million_messages_take_less_than_five_megabytes():
    paged = Paged((number, 1_000) for number in range(1, 1_000_001))
    assert paged.ram_bytes < 5_000_000
    assert paged.remove_range(1, 1_000_000) == 1_000_000
    assert (len(paged), paged.ram_bytes) == (0, 0)
