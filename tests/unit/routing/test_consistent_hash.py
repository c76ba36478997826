"""x-consistent-hash: shares follow weights, few keys move, all nodes agree."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.amqp.content import Properties
from broker.routing.consistent_hash import (
    POINTS_MAX,
    ConsistentHashMatcher,
    arguments_fault,
    key_fault,
)
from tests.unit.routing.shorthands import Shorthand

KEYS = [f"key {number}" for number in range(4_000)]


def ring(**weights: int) -> Shorthand:
    matcher = Shorthand(ConsistentHashMatcher({}))
    for name, weight in weights.items():
        matcher.bind(str(weight), name)
    return matcher


def owners(matcher: Shorthand) -> list[str]:
    return [next(iter(matcher.match(key))) for key in KEYS]


def test_each_message_has_one_destination_and_none_without_bindings():
    assert list(ring().match("k")) == []
    assert all(len(list(ring(a=1, b=3).match(key))) == 1 for key in KEYS[:100])


def test_shares_follow_weights():
    """Within a third: 128 points for a unit spread by about 9 percent."""
    counts = Counter(owners(ring(a=1, b=2, c=5)))
    for name, share in (("a", 1 / 8), ("b", 2 / 8), ("c", 5 / 8)):
        assert counts[name] == pytest.approx(share * len(KEYS), rel=0.33)


def test_a_new_destination_takes_its_share_and_no_key_moves_between_the_others():
    matcher = ring(a=1, b=1, c=1)
    before = owners(matcher)
    matcher.bind("1", "d")
    after = owners(matcher)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"d"}
    assert len(moved) == pytest.approx(len(KEYS) / 4, rel=0.33)
    matcher.unbind("1", "d")
    assert owners(matcher) == before


@settings(deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 9)), max_size=20),
    seed=st.integers(0, 99),
)
def test_the_ring_follows_from_what_is_bound_and_not_from_how_it_came_about(changes, seed):
    """One node applied the log, with publishes in between; another read a snapshot."""
    lived, bound = Shorthand(ConsistentHashMatcher({})), []
    for name, weight in changes:
        if (name, weight) in bound:
            lived.unbind(str(weight), name)
            bound.remove((name, weight))
        else:
            lived.bind(str(weight), name)
            bound.append((name, weight))
        list(lived.match("k"))
    random.Random(seed).shuffle(bound)
    fresh = Shorthand(ConsistentHashMatcher({}))
    for name, weight in bound:
        fresh.bind(str(weight), name)
    for key in KEYS[:50]:
        assert list(lived.match(key)) == list(fresh.match(key))


def test_huge_weights_take_no_more_memory():
    matcher = ring(a=10**17, b=10**17, c=1)
    assert set(owners(matcher)) >= {"a", "b"}
    assert len(matcher.matcher._ring) <= POINTS_MAX + 3
    matcher.unbind(str(10**17), "a")
    matcher.unbind(str(10**17), "b")
    assert list(matcher.match("k")) == ["c"]
    assert len(matcher.matcher._ring) == 128


def test_extra_keys_do_not_count():
    matcher = ring(a=1, b=1)
    for key in KEYS[:50]:
        assert list(matcher.match(key, "other")) == list(matcher.match(key))


def test_a_header_or_a_property_is_hashed_instead_of_the_key():
    by_header = Shorthand(ConsistentHashMatcher({"hash-header": "user"}))
    by_id = Shorthand(ConsistentHashMatcher({"hash-property": "message_id"}))
    for matcher in (by_header, by_id):
        for name in "abcdef":
            matcher.bind("1", name)
    assert len({*by_header.match("k", headers={"user": "ann"})}) == 1
    assert {*by_header.match("k", headers={"user": 7})} == {
        *by_header.match("other", headers={"user": 7})
    }
    found = {next(iter(by_header.match("k", headers={"user": key}))) for key in KEYS[:100]}
    assert found == set("abcdef")
    found = {
        next(iter(by_id.match("k", properties=Properties(message_id=key)))) for key in KEYS[:100]
    }
    assert found == set("abcdef")
    nothing = {*by_header.match("k")} | {*by_header.match("j", headers={})}
    assert len(nothing) == 1
    assert len({*by_id.match("k")} | {*by_id.match("j", properties=Properties())}) == 1


def test_a_property_that_is_no_utf8_is_hashed_too():
    by_id = Shorthand(ConsistentHashMatcher({"hash-property": "correlation_id"}))
    for name in "ab":
        by_id.bind("1", name)
    broken = Properties(correlation_id=b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert len({*by_id.match("k", properties=broken)}) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, None),
        ({"hash-header": "h"}, None),
        ({"hash-property": "correlation_id"}, None),
        ({"hash-property": "message_id"}, None),
        ({"hash-property": "timestamp"}, None),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        (
            {"hash-property": "message_id", "hash-header": "h"},
            "hash-header and hash-property are mutually exclusive",
        ),
        ({"hash-header": 1}, "hash-header must be a string"),
        ({"hash-property": None}, "hash-property must be a string"),
    ],
)
def test_arguments_of_the_exchange(arguments, text):
    assert arguments_fault(arguments) == text


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("1", None),
        ("+007", None),
        ("0", "The binding key must be greater than 0"),
        ("-3", "The binding key must be greater than 0"),
        ("", 'The binding key must be an integer: <<"">>'),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        ("ten", 'The binding key must be an integer: <<"ten">>'),
        ("١", 'The binding key must be an integer: <<"١">>'),  # noqa: RUF001 - a digit, not ours
        ("9" * 255, "The binding key must have at most 18 digits"),
    ],
)
def test_weights_are_whole_numbers_above_zero(key, text):
    assert key_fault(key) == text
