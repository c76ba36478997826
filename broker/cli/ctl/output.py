"""Prints rows as rabbitmqctl does: tab separated by default, JSON, CSV, a drawn table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from broker.cli.ctl.api import EXIT_USAGE, CtlError

Row = Mapping[str, Any]
FORMATTERS = ("tab", "table", "json", "csv", "pretty_table", "string", "erlang")


def rows(formatter: str, columns: Sequence[str], found: Sequence[Row], *, headers: bool) -> str:
    """Render rows.

    Args:
        formatter: One of FORMATTERS; "table" is rabbitmqctl's name for tabs.
        columns: Which columns, in this order.
        found: The rows; a missing column is empty.
        headers: Whether a line of column names comes first; JSON has none.

    Raises:
        CtlError: 64, no such formatter.
    """
    if formatter == "json":
        return json.dumps([{name: row.get(name, "") for name in columns} for row in found]) + "\n"
    cells = [[text(row.get(name)) for name in columns] for row in found]
    head = [list(columns)] if headers else []
    if formatter == "csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(head + cells)
        return buffer.getvalue()
    if formatter == "pretty_table":
        return _drawn(list(columns), cells)
    if formatter not in FORMATTERS:
        raise CtlError(EXIT_USAGE, f"unknown formatter {formatter}; known: {', '.join(FORMATTERS)}")
    lines = cells if not found else head + cells
    return "".join("\t".join(line) + "\n" for line in lines)


def text(value: Any) -> str:
    """One value as rabbitmqctl prints it in a column.

    Source:
        rabbitmqctl's format_helpers and formatter_helpers: tables as [{"name","value"}], lists as
        [a, b], control characters escaped.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        inner = ",".join(f'{{"{key}",{_term(item)}}}' for key, item in value.items())
        return f"[{inner}]"
    if isinstance(value, list):
        return "[" + ", ".join(text(item) for item in value) + "]"
    shown = str(value)
    return shown if shown.isprintable() else shown.encode("unicode_escape").decode("ascii")


def _term(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return text(value)


def _drawn(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right + "\n"

    def line(words: Sequence[str]) -> str:
        return "│" + "│".join(f" {w:<{n}} " for w, n in zip(words, widths, strict=True)) + "│\n"

    body = rule("├", "┼", "┤").join(line(words) for words in cells)
    return (
        rule("┌", "┬", "┐") + line(columns) + (rule("├", "┼", "┤") + body if cells else "")
        + rule("└", "┴", "┘")
    )  # fmt: skip
