"""Users' regular expressions."""

from __future__ import annotations

import re2
from hypothesis import example, given
from hypothesis import strategies as st

from broker.patterns import compile_pattern, pattern_fault, searcher


def test_faults_are_what_re2_refuses():
    assert pattern_fault("^q[0-9]+$") is None
    assert pattern_fault("(?=a)")
    assert pattern_fault("(") == "missing ): ("
    assert pattern_fault("a" * 1025) == "longer than 1024 characters"
    assert pattern_fault("\udcff") == "not UTF-8"


def test_a_bad_expression_or_name_matches_nothing():
    assert not searcher("(?=a)")("a")
    assert not searcher("[a]")("a\udcff")


@given(st.text("^$.*\\ab-[é", max_size=8), st.text("ab.-^\\\né", max_size=5))
@example("^a\\.b.*", "a.b")
@example("a\\.*", "a...")
@example("a\\\\.*", "a\\")
@example("^.*$", "a\nb")
@example("^*", "")
@example("^[é].$", "éü")
def test_string_operations_say_what_re2_says(pattern: str, name: str):
    try:
        expected = compile_pattern(pattern).search(name) is not None
    except re2.error:
        expected = False
    assert searcher(pattern)(name) == expected
