"""What a listing's query asks for: columns, a filter, an order, one page.

    ?columns=name,queue.name   only these keys, dotted for nested ones
    ?name=TEXT&use_regex=true  only items whose name contains TEXT, or matches it (RE2, so no
                               expression takes for ever)
    ?sort=KEY&sort_reverse=true
    ?page=1&page_size=100      an object with `items` instead of a list

Source: rabbit_mgmt_util.erl, reply_list and its pagination; reliability.md 4 E (bounds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import re2

from broker.management.answers import ApiError, bad_request

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
PATTERN_CHARACTERS_MAX: Final = 1024

Item = dict[str, Any]
Query = Mapping[str, str]


def arranged(items: Sequence[Item], query: Query) -> object:
    """Apply a query to a listing.

    Args:
        items: Everything the user may see, in the default order.
        query: The request's.

    Returns:
        A list, or RabbitMQ's object around one page of it.

    Raises:
        ApiError: 400.
    """
    total_count = len(items)
    found = _sorted(_filtered(items, query), query)
    columns = _columns(query)
    if "page" not in query:
        return [_cut(item, columns) for item in found]
    page = _natural(query, "page", 1)
    page_size = _natural(query, "page_size", PAGE_SIZE)
    if page_size > PAGE_SIZE_MAX:
        raise bad_request(f"page_size is {page_size}; the most is {PAGE_SIZE_MAX}")
    page_count = max(1, -(-len(found) // page_size))
    if page > page_count:
        reason = f"Page out of range, page: {page} page count: {page_count}"
        raise ApiError(400, reason, "page_out_of_range")
    chosen = found[(page - 1) * page_size : page * page_size]
    return {
        "filtered_count": len(found),
        "item_count": len(chosen),
        "items": [_cut(item, columns) for item in chosen],
        "page": page,
        "page_count": page_count,
        "page_size": page_size,
        "total_count": total_count,
    }


def only_columns(item: Item, query: Query) -> Item:
    """Apply ?columns= to a single object."""
    return _cut(item, _columns(query))


def _natural(query: Query, key: str, default: int) -> int:
    text = query.get(key, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:  # noqa: PLR2004 - fits an int
        raise bad_request(f"{key} must be a number of at least 1, found {text[:20]!r}")
    return int(text)


def _filtered(items: Sequence[Item], query: Query) -> list[Item]:
    wanted = query.get("name", "")
    if not wanted:
        return list(items)
    if query.get("use_regex") != "true":
        return [item for item in items if wanted.lower() in str(item.get("name", "")).lower()]
    if len(wanted) > PATTERN_CHARACTERS_MAX:
        raise bad_request(f"name is longer than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    try:
        pattern = re2.compile(wanted, options)
    except re2.error as error:
        raise bad_request("name is no regular expression that RE2 takes") from error
    return [item for item in items if pattern.search(str(item.get("name", ""))) is not None]


def _sorted(items: list[Item], query: Query) -> list[Item]:
    column = query.get("sort", "")
    if not column:
        return items
    path = column.split(".")
    values = [_value(item, path) for item in items]
    if items and all(value is None for value in values):
        raise bad_request(f"cannot sort by {column[:80]!r}: no such column")
    order = sorted(
        range(len(items)),
        key=lambda index: _rank(values[index]),
        reverse=query.get("sort_reverse") == "true",
    )
    return [items[index] for index in order]


def _rank(value: object) -> tuple[int, float, str]:
    """Numbers before texts, what is missing first: an order over mixed values."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))


def _value(item: Item, path: Sequence[str]) -> object:
    value: object = item
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _columns(query: Query) -> list[list[str]]:
    return [name.split(".") for name in query.get("columns", "").split(",") if name]


def _cut(item: Item, columns: list[list[str]]) -> Item:
    if not columns:
        return item
    kept: Item = {}
    for path in columns:
        source: Any = item
        target = kept
        for key in path[:-1]:
            source = source.get(key) if isinstance(source, dict) else None
            if isinstance(source, dict):
                below = target.setdefault(key, {})
                target = below if isinstance(below, dict) else {}
        if isinstance(source, dict) and path[-1] in source:
            target[path[-1]] = source[path[-1]]
    return kept
