"""Direct and fanout matchers count bindings that differ in what they don't look at."""

from __future__ import annotations

import pytest

from broker.routing.direct import DirectMatcher
from broker.routing.fanout import FanoutMatcher
from tests.unit.routing.shorthands import Shorthand


def test_direct_key_is_compared_whole():
    matcher = Shorthand(DirectMatcher())
    matcher.bind("a.b", "q")
    assert list(matcher.match("a.b")) == ["q"]
    assert list(matcher.match("a.*")) == []
    assert list(matcher.match("")) == []


@pytest.mark.parametrize("times", [1, 2, 3])
def test_direct_destination_stays_until_its_last_binding_goes(times):
    matcher = Shorthand(DirectMatcher())
    for _ in range(times):
        matcher.bind("k", "q")
    for _ in range(times - 1):
        matcher.unbind("k", "q")
    assert list(matcher.match("k")) == ["q"]
    matcher.unbind("k", "q")
    assert list(matcher.match("k")) == []
    assert not matcher.matcher._by_key


def test_fanout_destination_stays_until_its_last_binding_goes():
    matcher = Shorthand(FanoutMatcher())
    matcher.bind("", "q")
    matcher.bind("", "q")
    matcher.unbind("", "q")
    assert list(matcher.match("")) == ["q"]
    matcher.unbind("", "q")
    assert list(matcher.match("")) == []
