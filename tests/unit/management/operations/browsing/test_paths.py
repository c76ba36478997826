from __future__ import annotations

import pytest

from broker.management.operations.browsing.paths import MISSING, equals, found_at, parsed

ORDER = {"a": {"b": [1, {"c d": "x"}]}, "dot.ted": True, "": 0, "1": "one"}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a", ("a",), None),
        ("a.b[0]=1", ("a", "b", 0), "1"),
        ("$.a.b[1].c d=x=y", ("a", "b", 1, "c d"), "x=y"),
        ('["dot.ted"]=', ("dot.ted",), ""),
        ('a["b"][12]', ("a", "b", 12), None),
        ("[3]", (3,), None),
        ("naïve.ключ=€", ("naïve", "ключ"), "€"),
    ],
)
def test_a_path_is_names_and_indexes(text: str, path: object, value: str | None) -> None:
    assert parsed(text) == (path, value)


@pytest.mark.parametrize(
    "text", ["", "=1", ".a", "a..b", "a[", "a[-1]", "a[x]", 'a["]', "a]", "a.", "x" * 300, "$"]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|longer"):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b[0]", 1),
        ('a.b[1]["c d"]', "x"),
        ('["dot.ted"]', True),
        ("a.b[2]", MISSING),
        ("a[0]", MISSING),
        ("a.b.c", MISSING),
        ("1", "one"),
        ("dot.ted", MISSING),
    ],
)
def test_a_path_leads_to_one_value_or_nowhere(text: str, value: object) -> None:
    assert found_at(ORDER, parsed(text)[0]) is value or found_at(ORDER, parsed(text)[0]) == value


@pytest.mark.parametrize(
    ("value", "text", "is_equal"),
    [
        ("7", "7", True),
        (7, "7", True),
        (7, "7.0", True),
        (1, "true", False),
        (True, "true", True),
        (True, "1", False),
        (None, "null", True),
        (None, "", False),
        ("", "", True),
        ([1], "[1]", True),
        ({"a": 1}, '{ "a": 1 }', True),
        ("x", '"x"', False),
        (1, "[" * 5_000, False),
    ],
)
def test_a_value_is_what_a_text_says(value: object, text: str, is_equal: bool) -> None:
    assert equals(value, text) is is_equal
