"""Tables that a data-quality step makes of messages: columns, checks and partitions, declared."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

COLUMN_KEYS: Final = ("columns", "checks", "partition")
PLACES: Final = ("date", "stream", "offset", "routing_key", "message_id", "ingested")
"""Columns that each table has beside its own: where a row came from."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NOT_NULL: Final = " not null"
RESERVED: Final = ("messages", "dead_letters")
REJECTED: Final = "_rejected"


@dataclass(frozen=True)
class Column:
    """A column, read from the JSON object that a message's body is.

    Attributes:
        name: Its name, that of the field as well.
        type: In Spark's SQL.
        is_needed: Whether a row without it is rejected.
    """

    name: str
    type: str
    is_needed: bool


@dataclass(frozen=True)
class TableSpec:
    """A table.

    Attributes:
        name: Its name; rejected rows go to NAME_rejected.
        columns: Of the body.
        checks: Name -> condition in Spark's SQL that a row must meet.
        partition: Columns that its folders are named after.
    """

    name: str
    columns: Sequence[Column]
    checks: Mapping[str, str]
    partition: Sequence[str]

    @property
    def rejected(self) -> str:
        """The table of the rows that were rejected."""
        return self.name + REJECTED

    @property
    def schema(self) -> str:
        """Of the body, in Spark's DDL."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)


def read_tables(value: object) -> tuple[list[TableSpec], list[str]]:
    """Read `[jobs.NAME.tables.TABLE]`.

    Returns:
        The tables, and what is wrong with them, a line each.
    """
    if not isinstance(value, Mapping):
        return [], ["tables: it is no table of tables: [jobs.NAME.tables.TABLE]"]
    tables: list[TableSpec] = []
    problems: list[str] = []
    for name, given in value.items():
        if not _NAME.fullmatch(name) or name in RESERVED or name.endswith(REJECTED):
            problems.append(f"table '{name}': a name has a-z, 0-9 and _; {_reserved()} are ours")
        elif not isinstance(given, Mapping):
            problems.append(f"table '{name}': it has no columns")
        else:
            table, found = _table(name, given)
            tables += [table]
            problems += [f"table '{name}': {each}" for each in found]
    return tables, problems


def _reserved() -> str:
    return f"{', '.join(RESERVED)} and names that end with {REJECTED}"


def _table(name: str, given: Mapping[str, object]) -> tuple[TableSpec, list[str]]:
    problems: list[str] = []
    for key in given:
        if key not in COLUMN_KEYS:
            near = difflib.get_close_matches(key, COLUMN_KEYS, 1)
            names = near[0] if near else " or ".join(COLUMN_KEYS)
            problems.append(f"there is no setting '{key}'; did you mean {names}?")
    columns = _texts(given, "columns", problems)
    if not columns:
        problems.append("columns is missing: { order_id = 'string not null', amount = 'double' }")
    for column in columns:
        if column in PLACES:
            problems.append(f"column '{column}': each table has that already")
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", column):
            problems.append(f"column '{column}': a name has letters, digits and _")
    partition = given.get("partition", ["date"])
    if not isinstance(partition, list) or not all(isinstance(each, str) for each in partition):
        problems.append("partition: it is no list of columns")
        partition = []
    for each in partition:
        if each not in (*columns, *PLACES):
            near = difflib.get_close_matches(each, (*columns, *PLACES), 1)
            problems.append(
                f"partition: there is no column '{each}'"
                + (f"; did you mean {near[0]}?" if near else "")
            )
    made = [
        Column(
            column,
            kind[: -len(_NOT_NULL)] if kind.lower().endswith(_NOT_NULL) else kind,
            kind.lower().endswith(_NOT_NULL),
        )
        for column, kind in columns.items()
    ]
    return TableSpec(name, made, _texts(given, "checks", problems), partition), problems


def _texts(given: Mapping[str, object], name: str, problems: list[str]) -> dict[str, str]:
    value = given.get(name, {})
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()):
        return {str(key): str(each).strip() for key, each in value.items()}
    problems.append(f"{name}: it is no table of names and texts")
    return {}
