"""x-modulus-hash and x-random: one destination each, chosen alike on every node."""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import permutations

import pytest

from broker.routing.modulus_hash import ModulusHashMatcher
from broker.routing.random_choice import RandomMatcher
from tests.unit.routing.shorthands import Shorthand

QUEUES = ["q0", "q1", "q2", "q3"]


def test_modulus_is_what_the_documentation_promises_to_clients():
    matcher = Shorthand(ModulusHashMatcher())
    for name in reversed(QUEUES):
        matcher.bind("ignored", name)
    for number in range(200):
        key = f"order {number}"
        assert list(matcher.match(key)) == [QUEUES[zlib.crc32(key.encode()) % 4]]


def test_modulus_spreads_numbered_keys_evenly():
    matcher = Shorthand(ModulusHashMatcher())
    for name in QUEUES:
        matcher.bind("", name)
    counts = Counter(next(iter(matcher.match(str(number)))) for number in range(10_000))
    assert min(counts.values()) > 2_000


@pytest.mark.parametrize("make", [ModulusHashMatcher, RandomMatcher])
def test_the_order_of_binding_does_not_matter(make):
    results = set()
    for order in permutations(QUEUES[:3]):
        matcher = Shorthand(make())
        for name in order:
            matcher.bind("", name)
        matcher.bind("", "gone")
        matcher.unbind("", "gone")
        results.add(tuple(next(iter(matcher.match(str(n), draw=n))) for n in range(30)))
    assert len(results) == 1


@pytest.mark.parametrize("make", [ModulusHashMatcher, RandomMatcher])
def test_a_destination_bound_twice_counts_once_and_stays_till_the_last_unbind(make):
    matcher = Shorthand(make())
    matcher.bind("a", "q")
    matcher.bind("b", "q")
    assert list(matcher.match("k", draw=1)) == ["q"]
    matcher.unbind("a", "q")
    assert list(matcher.match("k", draw=2)) == ["q"]
    matcher.unbind("b", "q")
    assert list(matcher.match("k", draw=3)) == []


def test_several_keys_of_one_message_go_to_one_place():
    matcher = Shorthand(ModulusHashMatcher())
    for name in QUEUES:
        matcher.bind("", name)
    assert len(list(matcher.match("a", "b", "c"))) == 1


def test_random_follows_the_draw():
    matcher = Shorthand(RandomMatcher())
    for name in QUEUES:
        matcher.bind("", name)
    assert [next(iter(matcher.match("k", draw=draw))) for draw in range(5)] == [*QUEUES, "q0"]
