"""The walk between exchanges: once each, cycles and alternates included."""

from __future__ import annotations

import itertools

import pytest

from broker.routing.router import TYPES, Source, walk


def nowhere(name: str) -> Source | None:
    return None


@pytest.mark.parametrize("exchange_type", TYPES)
def test_bind_then_match_then_unbind_for_each_type(exchange_type):
    source = Source(exchange_type, None)
    source.bind("k", {}, "q")
    assert walk(source, ("k",), {}, nowhere) == ["q"]
    source.unbind("k", {}, "q")
    assert walk(source, ("k",), {}, nowhere) == []


def test_extra_keys_route_too_and_a_queue_is_found_once():
    source = Source("direct", None)
    for key in ("a", "b"):
        source.bind(key, {}, "q1")
    source.bind("c", {}, "q2")
    assert walk(source, ("a", "b", "c", "c"), None, nowhere) == ["q1", "q2"]


def test_cycle_between_exchanges_ends():
    first, second = Source("fanout", None), Source("fanout", None)
    first.bind("", {}, second)
    second.bind("", {}, first)
    second.bind("", {}, "q")
    first.bind("", {}, "q")
    assert walk(first, ("k",), None, nowhere) == ["q"]


def test_alternate_is_used_only_where_nothing_matched():
    exchanges = {name: Source("direct", "ae") for name in ("x", "y")}
    exchanges["ae"] = Source("fanout", None)
    exchanges["ae"].bind("", {}, "lost")
    exchanges["x"].bind("k", {}, "q")
    assert walk(exchanges["x"], ("k",), None, exchanges.get) == ["q"]
    assert walk(exchanges["x"], ("other",), None, exchanges.get) == ["lost"]


def test_alternate_belongs_to_each_exchange_on_the_way():
    """x matches y, so x's alternate rests; y matches nothing, so y's is used."""
    exchanges = {
        "x": Source("fanout", "ax"),
        "y": Source("direct", "ay"),
        "ax": Source("fanout", None),
        "ay": Source("fanout", None),
    }
    exchanges["x"].bind("", {}, exchanges["y"])
    exchanges["ax"].bind("", {}, "from x")
    exchanges["ay"].bind("", {}, "from y")
    assert walk(exchanges["x"], ("k",), None, exchanges.get) == ["from y"]


def test_circle_of_alternates_and_a_missing_one_end():
    exchanges = {"x": Source("direct", "y"), "y": Source("direct", "x")}
    assert walk(exchanges["x"], ("k",), None, exchanges.get) == []
    assert walk(Source("direct", "gone"), ("k",), None, exchanges.get) == []


def test_thousand_exchanges_in_a_row_do_not_recurse():
    chain = [Source("fanout", None) for _ in range(2_000)]
    for before, after in itertools.pairwise(chain):
        before.bind("", {}, after)
    chain[-1].bind("", {}, "q")
    assert walk(chain[0], ("",), None, nowhere) == ["q"]
