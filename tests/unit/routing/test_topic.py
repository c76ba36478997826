"""Topic matching against a definition by recursion, and its bound.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.topic import TopicMatcher, key_fault
from tests.unit.routing.shorthands import Shorthand

words = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=5)
plain_words = st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=6)


def matches(pattern: list[str], key: list[str]) -> bool:
    """The definition: `*` is one word, `#` is none or more."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return matches(pattern[1:], key) or (bool(key) and matches(pattern, key[1:]))
    if not key:
        return False
    return pattern[0] in {"*", key[0]} and matches(pattern[1:], key[1:])


@given(
    bound=st.lists(st.tuples(words, st.integers(0, 3)), max_size=12),
    removed=st.lists(st.integers(0, 11), max_size=6, unique=True),
    keys=st.lists(plain_words, min_size=1, max_size=5),
)
def test_matches_what_the_definition_says(bound, removed, keys):
    matcher = Shorthand(TopicMatcher())
    for pattern, destination in bound:
        matcher.bind(".".join(pattern), destination)
    kept = [each for index, each in enumerate(bound) if index not in removed]
    for index in removed:
        if index < len(bound):
            matcher.unbind(".".join(bound[index][0]), bound[index][1])
    for key in keys:
        expected = {destination for pattern, destination in kept if matches(pattern, key)}
        found = list(matcher.match(".".join(key)))
        assert set(found) == expected
        assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("#", "", True),
        ("*", "", True),
        ("", "", True),
        ("a.*", "a", False),
        ("a.#", "a", True),
        ("#.a", "a", True),
        ("#.a.#", "b.a.c.d", True),
        ("a.*.#", "a", False),
        ("a..b", "a..b", True),
        ("a.*.b", "a..b", True),
        ("*.*", "a", False),
        ("ab", "a", False),
    ],
)
def test_single_patterns(pattern, key, expected):
    matcher = Shorthand(TopicMatcher())
    matcher.bind(pattern, "q")
    assert (list(matcher.match(key)) == ["q"]) is expected


def test_nothing_is_left_after_the_last_unbind():
    matcher = Shorthand(TopicMatcher())
    keys = ["a.*.#", "#.b", "a.b.c", "*", ""]
    for key in keys:
        matcher.bind(key, "q")
    for key in keys:
        matcher.unbind(key, "q")
    assert matcher.matcher._root.is_bare()


def test_same_key_and_destination_twice_survives_one_unbind():
    matcher = Shorthand(TopicMatcher())
    matcher.bind("a.b", "q")
    matcher.bind("a.b", "q")
    matcher.unbind("a.b", "q")
    assert list(matcher.match("a.b")) == ["q"]


def test_long_key_visits_each_place_at_most_once_a_word():
    """reliability case 73: 128 words on 10,000 bindings `#.word.#` stay bounded."""
    matcher = Shorthand(TopicMatcher())
    for number in range(10_000):
        matcher.bind(f"#.w{number}.#", number)
    key = ".".join(f"w{number}" for number in range(128))
    assert len(key) > 255  # longer than the wire allows: worse than the worst
    assert set(matcher.match(key)) == set(range(128))


def test_key_of_equal_words_on_hash_star_mixtures_ends():
    matcher = Shorthand(TopicMatcher())
    for number in range(64):
        matcher.bind("#." + "*." * number + "#", number)
    assert set(matcher.match(".".join(["a"] * 128))) == set(range(64))


@pytest.mark.parametrize("key", ["#", "#.#", "a.#.b.#", "##.###.#.#", "a#"])
def test_two_hash_words_are_allowed(key):
    assert key_fault(key) is None


def test_three_hash_words_are_refused():
    assert "more than 2 '#' words" in (key_fault("#.a.#.b.#") or "")
