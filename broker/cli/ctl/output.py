"""Prints rows and answers as rabbitmqctl does: tabs by default, JSON, CSV, a drawn table, terms."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from broker.cli.ctl.api import EXIT_USAGE, CtlError

Row = Mapping[str, Any]
FORMATTERS = ("tab", "table", "json", "csv", "pretty_table", "string", "erlang")
SCRIPTED = ("json", "csv")
"""Formatters of scripts: no banners."""


class Answer(NamedTuple):
    """What a command found, in each form that a formatter may ask for.

    Attributes:
        text: For people.
        facts: The same for `--formatter json`; "node" and "result" are added.
        columns: Of `rows`, where the answer is a table, too.
        rows: The table, for csv, pretty_table and erlang.
    """

    text: str
    facts: Mapping[str, Any]
    columns: Sequence[str] = ()
    rows: Sequence[Row] = ()


def table(columns: Sequence[str], found: Sequence[Row], key: str, empty: str) -> Answer:
    """An answer that is a table.

    Args:
        columns: Which, in this order.
        found: The rows.
        key: What JSON calls them.
        empty: The text where there are none.
    """
    lines = rows("tab", columns, found, headers=True).removesuffix("\n")
    return Answer(lines or empty, {key: list(found)}, tuple(columns), tuple(found))


def answered(formatter: str, said: str | Answer | None, node: str) -> str | None:
    """Render what a command that is no listing said.

    Args:
        formatter: One of FORMATTERS.
        said: A text that is JSON already is left as it is.
        node: Whom the command was about.

    Returns:
        The text, perhaps without a line end; None for nothing to print.

    Source:
        RabbitMQ.CLI.Formatters.Json, RabbitMQ.CLI.DefaultOutput ({"node","result":"ok"}).
    """
    if formatter == "json":
        if isinstance(said, str) and said.lstrip()[:1] in {"{", "["}:
            return said
        facts = {"node": node, "result": "ok"}
        if isinstance(said, str):
            return json.dumps(facts | {"message": said.strip()}, ensure_ascii=False)
        return json.dumps(facts | dict(said.facts) if said else facts, ensure_ascii=False)
    if isinstance(said, Answer):
        if said.columns and formatter in ("csv", "pretty_table", "erlang"):
            return rows(formatter, said.columns, said.rows, headers=True)
        return said.text
    return said


def failed(formatter: str, text: str, node: str) -> str:
    """Render an error for standard error.

    Args:
        formatter: Of the command.
        text: With "Error:" where it has it; one that is JSON already is left as it is.
        node: Whom the command was about.
    """
    if formatter != "json" or text.startswith("{"):
        return text
    message = text.removeprefix("Error:\n").strip()
    facts = {"node": node, "result": "error", "message": message}
    return json.dumps(facts, ensure_ascii=False)


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
        csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(head + cells)
        return buffer.getvalue()
    if formatter == "erlang":
        return term([{name: row.get(name, "") for name in columns} for row in found]) + "\n"
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


def term(value: Any) -> str:
    """One value as an Erlang term.

    Source:
        RabbitMQ.CLI.Formatters.Erlang; `list_queues --formatter erlang` of rabbitmqctl 3.10.8.
    """
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "[" + ",".join(f"{{{_atom(k)},{term(item)}}}" for k, item in value.items()) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(term(item) for item in value) + "]"
    quoted = json.dumps(str(value), ensure_ascii=False)
    return f"<<{quoted}>>" if quoted.isascii() else f"<<{quoted}/utf8>>"


def _atom(name: object) -> str:
    word = str(name)
    if word.replace("_", "a").isalnum() and word.isascii() and word[:1].islower():
        return word
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


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
