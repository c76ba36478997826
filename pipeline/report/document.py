"""The report of a job: facts, findings, charts, tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Cell = str | int | float | None


@dataclass(frozen=True)
class Bars:
    """A number for each of several names, the largest first.

    Attributes:
        title: What it shows.
        unit: Of the numbers.
        items: Name and number.
    """

    title: str
    unit: str
    items: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Lines:
    """Numbers over time, a line for each name.

    Attributes:
        title: What it shows.
        unit: Of the numbers.
        lines: Name -> seconds since the beginning, and number, in order.
    """

    title: str
    unit: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Table:
    """Rows for people.

    Attributes:
        title: What they are.
        columns: Their names.
        rows: As many cells as columns each.
        total: How many rows there were, if not all are shown.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    total: int | None = None


@dataclass(frozen=True)
class Report:
    """What one run of a job did and found.

    Attributes:
        name: Of the run.
        title: One line.
        facts: Name -> value, the most important first.
        findings: What is wrong, a line each: the exit code is 1 if there are any.
        notes: What a reader should know or do next.
        charts: In order.
        tables: In order.
        duration_s: How long the job took.
    """

    name: str
    title: str
    facts: Mapping[str, Cell] = field(default_factory=dict)
    findings: Sequence[str] = ()
    notes: Sequence[str] = ()
    charts: Sequence[Bars | Lines] = ()
    tables: Sequence[Table] = ()
    duration_s: float = 0.0

    @property
    def is_fine(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def shown(value: Cell) -> str:
    """A value for people: 1,234,567 and 0.25."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return (
            f"{value:,.0f}"
            if value.is_integer()
            else f"{value:,.3g}"
            if value < 1
            else f"{value:,.1f}"
        )
    return value


def lines(report: Report) -> list[str]:
    """The report as plain lines; control characters of messages are shown as `?`."""
    width = max((len(name) for name in report.facts), default=0)
    found = [f"{report.name}: {report.title}"]
    found += [f"  {name:<{width}}  {shown(value)}" for name, value in report.facts.items()]
    for table in report.tables:
        found += ["", *_table(table)]
    found += [f"  FOUND: {each}" for each in report.findings]
    found += [f"  {each}" for each in report.notes]
    return [_printable(line) for line in found]


def _table(table: Table) -> list[str]:
    cells = [list(table.columns), *([shown(cell) for cell in row] for row in table.rows)]
    widths = [min(max(len(row[at]) for row in cells), 48) for at in range(len(table.columns))]
    found = [f"  {table.title}"]
    for row in cells:
        fitted = (f"{_cut(cell, width):<{width}}" for cell, width in zip(row, widths, strict=True))
        found.append(("    " + "  ".join(fitted)).rstrip())
    if table.total is not None and table.total > len(table.rows):
        found.append(f"    ... {table.total - len(table.rows):,} more")
    return found


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in line)
