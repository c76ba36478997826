"""Headers matching against a plain reading of the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.headers import HeadersMatcher, arguments_fault
from tests.unit.routing.hand import Hand

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from(["", "1", "a", b"\xff"]),
    st.just([1, "a"]),
    st.just({"k": 1}),
)
keys = st.sampled_from(["a", "b", "x-c"])
tables = st.dictionaries(keys, values, max_size=3)
modes = st.sampled_from([None, "all", "any", "all-with-x", "any-with-x"])


def equal(bound: object, carried: object) -> bool:
    """Erlang's `==` on decoded values: a boolean is never a number."""
    if isinstance(bound, bool) or isinstance(carried, bool):
        return bound is carried
    return bound == carried


def matches(arguments: dict[str, object], headers: dict[str, object]) -> bool:
    mode = arguments.get("x-match", "all")
    with_x = str(mode).endswith("with-x")
    hits = [
        key in headers and (value is None or equal(value, headers[key]))
        for key, value in arguments.items()
        if key != "x-match" and (with_x or not key.startswith("x-"))
    ]
    return any(hits) if str(mode).startswith("any") else all(hits)


@given(
    bound=st.lists(st.tuples(modes, tables, st.integers(0, 3)), max_size=8),
    removed=st.lists(st.integers(0, 7), max_size=4, unique=True),
    headers=tables,
)
def test_matches_what_the_rules_say(bound, removed, headers):
    bindings = [
        ({**table, **({} if mode is None else {"x-match": mode})}, destination)
        for mode, table, destination in bound
    ]
    matcher = Hand(HeadersMatcher())
    for arguments, destination in bindings:
        matcher.bind("", destination, arguments)
    for index in removed:
        if index < len(bindings):
            arguments, destination = bindings[index]
            matcher.unbind("", destination, arguments)
    kept = [each for index, each in enumerate(bindings) if index not in removed]
    found = list(matcher.match("", headers=headers))
    assert set(found) == {d for arguments, d in kept if matches(arguments, headers)}
    assert len(found) == len(set(found))


def test_all_without_conditions_matches_everything_and_any_matches_nothing():
    matcher = Hand(HeadersMatcher())
    matcher.bind("", "all", {"x-match": "all"})
    matcher.bind("", "any", {"x-match": "any"})
    assert list(matcher.match("")) == ["all"]
    assert list(matcher.match("", headers={"a": 1})) == ["all"]


def test_indexes_are_empty_after_the_last_unbind():
    matcher = Hand(HeadersMatcher())
    for arguments in ({"a": 1}, {"x-match": "any", "a": 1, "b": 2}, {}):
        matcher.bind("", "q", arguments)
    for arguments in ({"a": 1}, {"x-match": "any", "a": 1, "b": 2}, {}):
        matcher.unbind("", "q", arguments)
    assert not matcher.matcher._bound
    assert not matcher.matcher._by_pair
    assert not matcher.matcher._unconditional


@pytest.mark.parametrize("mode", ["all", "any", "all-with-x", "any-with-x"])
def test_known_modes_pass(mode):
    assert arguments_fault({"x-match": mode}) is None


def test_unknown_mode_is_refused_in_rabbitmqs_words():
    assert arguments_fault({"x-match": "some"}) == (
        'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'
    )
    assert arguments_fault({"x-match": 1}) == (
        "Invalid x-match field type signedint (value 1); expected longstr"
    )
