"""The query of a listing: columns, a filter, an order, one page.

    ?columns=name,queue.name   only these keys, dotted for nested ones
    ?name=TEXT&use_regex=true  only items whose name contains TEXT, or matches it (RE2, so no
                               expression takes for ever)
    ?sort=KEY&sort_reverse=true
    ?page=1&page_size=100      an object with `items` instead of a list

It is worked out in steps (`broker.management.pace`). A page is cut before its items are made,
unless they are sorted by what is in them: a page costs little more than its own queues.

Source: rabbit_mgmt_util.erl, reply_list and its pagination; docs/bad-input.md case 122.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import re2

from broker.management.answers import ApiError, bad_request, encode
from broker.management.pace import STEP, mapped, ordered

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
FILTERED: Final = 64
"""Records that the filter looks at between two yields."""
PATTERN_CHARACTERS_MAX: Final = 1024
SET_PROGRAM_MAX: Final = 2_000
"""Instructions up to which an expression is looked for as a set of one: that takes 0.9 us a name,
where a search takes 5 us to say where it found it. A set has nothing to fall back on where its
memory (8 MiB) is too small for its automaton; this is far below that."""

PART_BYTES: Final = 64 * 1024

_MISSING: Final = object()
"""The value of a column that an item has not."""

Item = dict[str, Any]
Rank = tuple[int, float, str]
NO_RANK: Final[Rank] = (-1, 0.0, "")
Query = Mapping[str, str]
R = TypeVar("R")


class _Page(NamedTuple):
    """One page of a listing: its items and the counts around them."""

    around: Item
    first: int
    size: int


class Chosen(NamedTuple, Generic[R]):
    """The records that the query of a listing selects.

    Attributes:
        records: Those of the page if it is known, else all that pass the filter.
        total_count: How many there were before the filter.
        page: None for a listing without pages, or before it is known.
    """

    records: list[R]
    total_count: int
    page: _Page | None


def chosen(
    records: Sequence[R],
    query: Query,
    name: Callable[[R], object],
    arranged: Callable[[list[R]], Generator[None, None, list[R]]] | None = None,
    matching: Callable[[R], bool] | None = None,
) -> Generator[None, None, Chosen[R]]:
    """Apply a query's filter, and cut the page where nothing has to be known for that.

    Args:
        records: Everything the user may see.
        query: The request's.
        name: What the filter looks at.
        arranged: Puts what is left into the default order, in steps; None: it is in it.
        matching: Is the filter, where it is known what passes.

    Raises:
        ApiError: 400.
    """
    found = list(records)
    if matching is not None:
        found = list(filter(matching, found))  # 0.05 us each
        yield
    elif query.get("name", ""):
        is_wanted = wanted_names(query)
        found = yield from filtered(found, lambda record: is_wanted(str(name(record))))
    if arranged is not None:
        found = yield from arranged(found)
    if query.get("sort", "") or "page" not in query:
        return Chosen(found, len(records), None)
    page = _page(query, len(found), len(records))
    return Chosen(found[page.first : page.first + page.size], len(records), page)


def filtered(records: list[R], is_wanted: Callable[[R], bool]) -> Generator[None, None, list[R]]:
    """What passes a filter, in steps of a tenth of a millisecond.

    Args:
        records: What to look at.
        is_wanted: The filter.
    """
    found: list[R] = []
    for start in range(0, len(records), FILTERED):
        found += filter(is_wanted, records[start : start + FILTERED])
        yield
    return found


def shown(
    choice: Chosen[R],
    query: Query,
    item: Callable[[R], Item | None],
    keep: Callable[[list[R], list[Rank]], None] | None = None,
) -> Generator[None, None, list[bytes]]:
    """Write a listing.

    Args:
        choice: From `chosen`.
        query: The request's.
        item: What is shown of a record; None if it is gone by now.
        keep: Gets the records and what places them, if items had to be made for that.

    Returns:
        A JSON list, or RabbitMQ's object around one page of it, in parts.

    Raises:
        ApiError: 400.
    """
    records, page = choice.records, choice.page
    if query.get("sort", ""):
        records = yield from _sorted(records, query, item, keep)
        if "page" in query:
            page = _page(query, len(records), choice.total_count)
            records = records[page.first : page.first + page.size]
    return (yield from written(records, item, _columns(query), page))


def written(
    records: Sequence[R],
    item: Callable[[R], Item | None],
    columns: Sequence[Sequence[str]] = (),
    page: _Page | None = None,
    step: int = STEP,
) -> Generator[None, None, list[bytes]]:
    """Make items and write them at once: there are never more than a few.

    Args:
        records: What to write.
        item: As for `shown`.
        columns: Paths of the keys to keep; none keeps all.
        page: What surrounds the list.
        step: How many items to make between two yields.
    """
    parts: list[bytes] = []
    part = bytearray(b"[" if page is None else b'{"items":[')
    count = 0
    for start in range(0, len(records), step):
        made = map(item, records[start : start + step])
        items = [_cut(each, columns) for each in made if each is not None]
        if items and count:
            part += b","
        part += encode(items)[1:-1]
        count += len(items)
        if len(part) >= PART_BYTES:
            parts.append(bytes(part))
            part.clear()
        yield
    part += b"]" if page is None else b"]," + encode({**page.around, "item_count": count})[1:]
    return [*parts, bytes(part)]


def _page(query: Query, count: int, total_count: int) -> _Page:
    page = _natural(query, "page", 1)
    page_size = _natural(query, "page_size", PAGE_SIZE)
    if page_size > PAGE_SIZE_MAX:
        raise bad_request(f"page_size is {page_size}; the most is {PAGE_SIZE_MAX}")
    page_count = max(1, -(-count // page_size))
    if page > page_count:
        reason = f"Page out of range, page: {page} page count: {page_count}"
        raise ApiError(400, reason, "page_out_of_range")
    around = {
        "filtered_count": count,
        "page": page,
        "page_count": page_count,
        "page_size": page_size,
        "total_count": total_count,
    }
    return _Page(around, (page - 1) * page_size, page_size)


def only_columns(item: Item, query: Query) -> Item:
    """Apply ?columns= to a single object."""
    return _cut(item, _columns(query))


def _natural(query: Query, key: str, default: int) -> int:
    text = query.get(key, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:  # noqa: PLR2004 - fits an int
        raise bad_request(f"{key} must be a number of at least 1, found {text[:20]!r}")
    return int(text)


def wanted_names(query: Query) -> Callable[[str], bool]:
    """Return the test that a name must pass.

    Args:
        query: With `name`.

    Raises:
        ApiError: 400.
    """
    wanted = query["name"]
    if query.get("use_regex") != "true":
        lowered = wanted.lower()
        return lambda name: lowered in name.lower()
    if len(wanted) > PATTERN_CHARACTERS_MAX:
        raise bad_request(f"name is longer than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = False
    try:
        pattern = re2.compile(wanted, options)
    except re2.error as error:
        raise bad_request("name is no regular expression that RE2 takes") from error
    if pattern.programsize <= SET_PROGRAM_MAX:
        alone = re2.Set.SearchSet(options)
        if alone.Add(wanted) == 0:
            alone.Compile()
            return lambda name: bool(alone.Match(name.encode("utf-8", "surrogateescape")))
    return lambda name: pattern.search(name) is not None


def _sorted(
    records: list[R],
    query: Query,
    item: Callable[[R], Item | None],
    keep: Callable[[list[R], list[Rank]], None] | None,
) -> Generator[None, None, list[R]]:
    """Sort by what items would show. They are made, looked at and dropped, for they are large."""
    column = query["sort"]
    path = column.split(".")
    ranks = yield from mapped(records, lambda record: _rank(_value(item(record), path)))
    is_rate = column.startswith("message_stats") or path[-1] == "rate"  # missing while none is
    if records and not is_rate and not any(rank >= 0 for rank, _, _ in ranks):
        raise bad_request(f"cannot sort by {column[:80]!r}: no such column")
    if keep is not None:
        keep(records, ranks)
    order = yield from ordered(
        range(len(records)), ranks.__getitem__, reverse=query.get("sort_reverse") == "true"
    )
    return [records[index] for index in order]


def _rank(value: object) -> Rank:
    """Numbers before texts, what is missing, then what is null first: an order of mixed values."""
    if value is _MISSING:
        return NO_RANK
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))


def _value(item: Item | None, path: Sequence[str]) -> object:
    value: object = _MISSING if item is None else item
    for key in path:
        value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def _columns(query: Query) -> list[list[str]]:
    return [name.split(".") for name in query.get("columns", "").split(",") if name]


def _cut(item: Item, columns: Sequence[Sequence[str]]) -> Item:
    if not columns:
        return item
    kept: Item = {}
    for path in columns:
        if len(path) == 1:
            if path[0] in item:
                kept[path[0]] = item[path[0]]
            continue
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
