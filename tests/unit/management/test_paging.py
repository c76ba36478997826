from __future__ import annotations

import json
import re

import pytest

from broker.management.answers import ApiError
from broker.management.paging import chosen, only_columns, shown

ITEMS = [
    {"name": "b", "messages": 2, "owner": {"name": "x"}},
    {"name": "a", "messages": 10, "owner": None},
    {"name": "Ab", "messages": None},
]


def ended(work):
    """What a generator returns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def arranged(items, query):
    choice = ended(chosen(items, query, lambda item: item.get("name", "")))
    return json.loads(b"".join(ended(shown(choice, query, dict))))


def names(found):
    return [item["name"] for item in found]


def test_without_a_query_everything_comes_as_it_is():
    assert arranged(ITEMS, {}) == ITEMS


def test_columns_may_be_nested():
    found = arranged(ITEMS[:2], {"columns": "name,owner.name"})
    assert found == [{"name": "b", "owner": {"name": "x"}}, {"name": "a"}]
    assert only_columns(ITEMS[0], {"columns": "messages,nope"}) == {"messages": 2}


def test_names_are_filtered_by_part_or_by_expression():
    assert names(arranged(ITEMS, {"name": "A"})) == ["a", "Ab"]
    assert names(arranged(ITEMS, {"name": "^a$", "use_regex": "true"})) == ["a"]


@pytest.mark.parametrize("expression", ["^q\\d+5$", "B|5", "", "\u00e9", "\\.", "(q0){2}", "Q"])
def test_expressions_match_as_a_search_does(expression):
    """Small ones are looked for in another way than large ones."""
    texts = ["q05", "q5", "xq055", "b", "\u00c9t\u00e9", "a.b", "q0q0", "", "\ufffd\n5"]
    items = [{"name": name} for name in texts]
    for found in (expression, f"(?:{expression})|{chr(0x10FFFF)}{{1000}}"):
        matches = arranged(items, {"name": found, "use_regex": "true"})
        if expression:
            pattern = re.compile(expression, re.IGNORECASE)
            assert names(matches) == [name for name in texts if pattern.search(name)]


def test_a_column_that_is_null_everywhere_can_be_sorted_by():
    items = [{"name": "a", "policy": None}, {"name": "b", "policy": None}]
    assert arranged(items, {"sort": "policy"}) == items


def test_numbers_sort_as_numbers():
    assert names(arranged(ITEMS, {"sort": "messages"})) == ["Ab", "b", "a"]
    assert names(arranged(ITEMS, {"sort": "messages", "sort_reverse": "true"})) == ["a", "b", "Ab"]


def test_a_page_says_where_it_stands():
    found = arranged(ITEMS, {"page": "2", "page_size": "2", "pagination": "true"})
    assert names(found.pop("items")) == ["Ab"]
    assert found == {
        "filtered_count": 3,
        "item_count": 1,
        "page": 2,
        "page_count": 2,
        "page_size": 2,
        "total_count": 3,
    }


def test_an_empty_listing_has_a_first_page():
    assert arranged([], {"page": "1"})["items"] == []


@pytest.mark.parametrize(
    "query",
    [
        {"page": "0"},
        {"page": "-1"},
        {"page": "x"},
        {"page": "²"},
        {"page": "9" * 30},
        {"page": "3", "page_size": "2"},
        {"page": "1", "page_size": "501"},
        {"page": "1", "page_size": "0"},
        {"sort": "nope"},
        {"name": "(", "use_regex": "true"},
        {"name": "a" * 1025, "use_regex": "true"},
    ],
)
def test_nonsense_is_refused(query):
    with pytest.raises(ApiError) as caught:
        arranged(ITEMS, query)
    assert caught.value.status == 400


def test_no_expression_takes_for_ever():
    items = [{"name": "a" * 5000 + "!"}]
    assert arranged(items, {"name": "(a+)+$", "use_regex": "true"}) == []
