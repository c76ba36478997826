"""Families as rows of tables: a name, its type and help, and what it shows of an object. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from broker.management.metrics.exposition import Columns, Family, FamilyType

PREFIX: Final = "rabbitmq_"
DETAILED: Final = "rabbitmq_detailed_"
OURS: Final = "warrenmq_"
OURS_DETAILED: Final = "warrenmq_detailed_"

SUMMED: Final = 512
"""Objects that are added up between two steps: some 50 us."""

T = TypeVar("T")

_TYPES: Final[dict[str, FamilyType]] = {
    "c": "counter",
    "g": "gauge",
    "h": "histogram",
    "u": "untyped",
}


class Labelled(Protocol):
    """An object with labels of its own."""

    @property
    def labels(self) -> str:
        """As they stand behind a name (`broker.management.metrics.exposition.labelled`)."""
        ...


L = TypeVar("L", bound=Labelled)


class Row(NamedTuple, Generic[T]):
    """One family: `value` reads it of an object.

    Attributes:
        name: Of the metric, as `/metrics` shows it.
        kind: Counter, gauge or untyped.
        help: What it counts.
        value: Reads it.
    """

    name: str
    kind: Literal["c", "g", "u"]
    help: str
    value: Callable[[T], float]


def family(name: str, kind: str, text: str, samples: Sequence[tuple[str, float]]) -> Family:
    """A family that is no row of a table."""
    return Family(name, _TYPES[kind], text, samples)


def of_one(
    rows: Sequence[Row[T]], thing: T, labels: str = "", *, prefix: str = PREFIX
) -> list[Family]:
    """One sample for each row.

    Args:
        rows: What to show.
        thing: Of which.
        labels: Of each sample.
        prefix: The names' beginning, in place of `PREFIX`.
    """
    return [_family(row, prefix, [(labels, row.value(thing))]) for row in rows]


def of_each(
    rows: Sequence[Row[L]], things: Sequence[L], *, prefix: str = PREFIX
) -> Iterator[Family]:
    """A sample for each row and object.

    Args:
        rows: What to show.
        things: Of which.
        prefix: The names' beginning, in place of `PREFIX`.
    """
    labels = [thing.labels for thing in things]
    for row in rows:
        yield _family(row, prefix, Columns(labels, map(row.value, things)))


def of_sum(
    rows: Sequence[Row[T]], things: Sequence[T], labels: str = ""
) -> Generator[None, None, list[Family]]:
    """One sample for each row, the sum over all objects; in steps.

    Args:
        rows: What to show.
        things: Of which.
        labels: Of each sample.
    """
    found = []
    for row in rows:
        sum_of_all: float = 0
        for start in range(0, len(things), SUMMED):
            sum_of_all += sum(map(row.value, things[start : start + SUMMED]))
            yield
        found.append(_family(row, PREFIX, [(labels, sum_of_all)]))
    return found


def _family(row: Row[T], prefix: str, samples: Iterable[tuple[str, float]] | Columns) -> Family:
    name = row.name
    if prefix != PREFIX:
        is_ours = name.startswith(OURS)
        name = (
            OURS_DETAILED + name.removeprefix(OURS)
            if is_ours
            else prefix + name.removeprefix(PREFIX)
        )
    return Family(name, _TYPES[row.kind], row.help, samples)
