from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.fifo.dedup import Dedup


def test_a_key_is_a_double_once_it_was_seen():
    dedup = Dedup(10, None)
    assert [dedup.is_double(key, 1) for key in ("a", "b", "a", "a")] == [False, False, True, True]


def test_no_key_is_never_a_double():
    dedup = Dedup(10, None)
    assert not dedup.is_double("", 1)
    assert not dedup.is_double("", 1)
    assert len(dedup) == 0


def test_the_oldest_is_forgotten_where_there_is_no_room():
    dedup = Dedup(2, None)
    for key in ("a", "b", "c"):
        dedup.is_double(key, 1)
    assert [dedup.is_double(key, 2) for key in ("c", "b", "a")] == [True, True, False]


def test_a_double_renews_nothing():
    dedup = Dedup(2, 10)
    dedup.is_double("a", 0)
    assert dedup.is_double("a", 9)
    assert not dedup.is_double("a", 10)
    dedup.is_double("b", 11)
    dedup.is_double("a", 12)
    dedup.is_double("c", 13)
    assert not dedup.is_double("a", 14)


def test_a_size_of_nothing_remembers_nothing():
    dedup = Dedup(0, None)
    assert not dedup.is_double("a", 1)
    assert not dedup.is_double("a", 1)


def test_a_loaded_memory_is_the_saved_one():
    dedup = Dedup(3, 10)
    for at, key in enumerate("abcd"):
        dedup.is_double(key, at)
    other = Dedup(3, 10)
    other.load(dedup.records())
    assert other.records() == [("b", 1), ("c", 2), ("d", 3)]
    assert [other.is_double(key, 12) for key in "cd"] == [False, True]


def test_a_smaller_memory_loads_the_newest():
    other = Dedup(1, None)
    other.load([("a", 1), ("b", 2)])
    assert other.records() == [("b", 2)]


@given(
    size=st.integers(1, 5),
    ttl_ms=st.none() | st.integers(0, 8),
    steps=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3))),
)
def test_it_says_what_a_list_would_say(size, ttl_ms, steps):
    dedup, seen, now_ms = Dedup(size, ttl_ms), [], 0
    for key, wait_ms in steps:
        now_ms += wait_ms
        seen = [(k, at) for k, at in seen if ttl_ms is None or at + ttl_ms > now_ms]
        expected = key in [k for k, _ in seen]
        if not expected:
            seen = [*seen, (key, now_ms)][-size:]
        assert dedup.is_double(key, now_ms) == expected
        assert dedup.records() == seen
