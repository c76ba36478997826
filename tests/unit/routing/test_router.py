"""The walk between exchanges: once each, cycles and alternates included."""

from __future__ import annotations

import itertools

import pytest

from broker.routing import delays
from broker.routing.router import Source
from broker.routing.router import walk as walk_sources
from broker.routing.traits import Traits
from broker.routing.types import TYPES


def nowhere(name: str) -> Source | None:
    return None


def bind(source: Source, key: str, to: object) -> None:
    source.matcher.bind(key, {}, to, f"queue {to}")


def walk(start, keys, headers, find):
    return walk_sources(start, Traits(keys, headers), find)[0]


@pytest.mark.parametrize("exchange_type", TYPES)
def test_bind_then_match_then_unbind_for_each_type(exchange_type):
    """A key that is a number suits even x-consistent-hash."""
    source = Source(exchange_type, None, {delays.INNER_TYPE: "topic"})
    bind(source, "1", "q")
    assert walk(source, ("1",), {}, nowhere) == ["q"]
    source.matcher.unbind("1", {}, "q", "queue q")
    assert walk(source, ("1",), {}, nowhere) == []


def test_extra_keys_route_too_and_a_queue_is_found_once():
    source = Source("direct", None)
    for key in ("a", "b"):
        bind(source, key, "q1")
    bind(source, "c", "q2")
    assert walk(source, ("a", "b", "c", "c"), None, nowhere) == ["q1", "q2"]


def test_cycle_between_exchanges_ends():
    first, second = Source("fanout", None), Source("fanout", None)
    bind(first, "", second)
    bind(second, "", first)
    bind(second, "", "q")
    bind(first, "", "q")
    assert walk(first, ("k",), None, nowhere) == ["q"]


def test_alternate_is_used_only_where_nothing_matched():
    exchanges = {name: Source("direct", "ae") for name in ("x", "y")}
    exchanges["ae"] = Source("fanout", None)
    bind(exchanges["ae"], "", "lost")
    bind(exchanges["x"], "k", "q")
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
    bind(exchanges["x"], "", exchanges["y"])
    bind(exchanges["ax"], "", "from x")
    bind(exchanges["ay"], "", "from y")
    assert walk(exchanges["x"], ("k",), None, exchanges.get) == ["from y"]


def test_circle_of_alternates_and_a_missing_one_end():
    exchanges = {"x": Source("direct", "y"), "y": Source("direct", "x")}
    assert walk(exchanges["x"], ("k",), None, exchanges.get) == []
    assert walk(Source("direct", "gone"), ("k",), None, exchanges.get) == []


def test_a_missing_alternate_is_told_with_whose_it_is():
    traits = Traits(("k",), None)
    second = Source("direct", "gone", name="second")
    first = Source("fanout", "gone", name="first")
    bind(first, "", second)
    assert walk_sources(first, traits, nowhere)[:3] == ([], [], [("second", "gone")])
    bind(second, "k", "q")
    assert walk_sources(first, traits, nowhere)[:3] == (["q"], [], [])


def test_thousand_exchanges_in_a_row_do_not_recurse():
    chain = [Source("fanout", None) for _ in range(2_000)]
    for before, after in itertools.pairwise(chain):
        bind(before, "", after)
    bind(chain[-1], "", "q")
    assert walk(chain[0], ("",), None, nowhere) == ["q"]
