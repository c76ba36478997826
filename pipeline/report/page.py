"""The report as one HTML file: nothing is loaded from anywhere, and no script runs.

All that comes from messages, names of queues included, is escaped; the page's own policy forbids
scripts and loading besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Final

from pipeline.report import charts
from pipeline.report.document import Bars, Cell, Lines, Report, Table, shown

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5c6577; --paper: #fbfbfd; --card: #fff;
  --edge: #dfe3ea; --bad: #b3261e; --good: #1b7a43; --c0: #3566c9; --c1: #c9653a; --c2: #2b8a6b;
  --c3: #8452b8; --c4: #a8862a; --c5: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #9aa4b5; --paper: #14171d;
  --card: #1c2028; --edge: #333a46; --bad: #ff8a80; --good: #6fd39a; --c0: #7ea6ff; --c1: #f0a07c;
  --c2: #6fcfae; --c3: #c4a1ee; --c4: #dcc06a; --c5: #a3acba; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 0 0 .6rem; }
.soft { color: var(--soft); } .bad { color: var(--bad); } .good { color: var(--good); }
section { background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  padding: 1rem 1.2rem; margin: 1rem 0; overflow-x: auto; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 1rem; }
.facts b { display: block; font-size: 1.25rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--edge);
  overflow-wrap: anywhere; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: var(--soft); }
svg .label { fill: var(--ink); } .grid { stroke: var(--edge); } polyline { fill: none;
  stroke-width: 2; } .key { margin-right: 1.2rem; } .key i { display: inline-block; width: .8rem;
  height: .8rem; border-radius: 2px; margin-right: .35rem; }
"""
_COLOURS: Final = "".join(
    f".c{n} {{ fill: var(--c{n}); }} .l{n} {{ stroke: var(--c{n}); }} "
    f".b{n} {{ background: var(--c{n}); }}"
    for n in range(charts.COLOURS)
)


def html(reports: Sequence[Report], made: datetime) -> str:
    """The file's text.

    Args:
        reports: Of one run of the command.
        made: When.
    """
    title = ", ".join(report.name for report in reports)
    parts = "".join(_report(report) for report in reports)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{_COLOURS}</style></head><body>"
        f'{parts}<p class="soft">WarrenMQ pipeline, {made:%Y-%m-%d %H:%M:%S %Z}</p></body></html>\n'
    )


def write(path: Path, reports: Sequence[Report], made: datetime) -> None:
    """Write the file, whole or not at all.

    Args:
        path: Where; its folder is made.
        reports: Of one run of the command.
        made: When.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(html(reports, made), "utf-8")
    partial.replace(path)


def _report(report: Report) -> str:
    state = '<b class="good">done</b>' if report.is_fine else (
        f'<b class="bad">{len(report.findings)} found</b>'
    )  # fmt: skip
    facts = "".join(
        f'<div><span class="soft">{escape(name)}</span><b>{escape(shown(value))}</b></div>'
        for name, value in report.facts.items()
    )
    took = f"{charts.duration(report.duration_s)}"
    return "".join(
        (
            f"<h1>{escape(report.name)}</h1>",
            f'<p class="soft">{escape(report.title)}; took {took}</p>',
            f'<section><div class="facts"><div><span class="soft">result</span>{state}</div>'
            f"{facts}</div></section>",
            _list("Found", report.findings, "bad"),
            *(_chart(chart) for chart in report.charts),
            *(_table(table) for table in report.tables),
            _list("Notes", report.notes, ""),
        )
    )


def _list(title: str, items: Sequence[str], style: str) -> str:
    if not items:
        return ""
    rows = "".join(f'<li class="{style}">{escape(item)}</li>' for item in items)
    return f"<section><h2>{title}</h2><ul>{rows}</ul></section>"


def _chart(chart: Bars | Lines) -> str:
    head = f'<h2>{escape(chart.title)} <span class="soft">{escape(chart.unit)}</span></h2>'
    if isinstance(chart, Bars):
        return f"<section>{head}{charts.bars(chart)}</section>" if chart.items else ""
    keys = "".join(
        f'<span class="key"><i class="b{n % charts.COLOURS}"></i>{escape(name)}</span>'
        for n, name in enumerate(chart.lines)
    )
    return f"<section>{head}{charts.lines(chart)}<p>{keys}</p></section>"


def _table(table: Table) -> str:
    numbers = [
        bool(table.rows) and all(isinstance(row[at], int | float | None) for row in table.rows)
        for at in range(len(table.columns))
    ]
    head = "".join(
        f"<th{_style(n)}>{escape(c)}</th>" for c, n in zip(table.columns, numbers, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(_cell(c, n) for c, n in zip(row, numbers, strict=True))}</tr>"
        for row in table.rows
    )
    more = ""
    if table.total is not None and table.total > len(table.rows):
        more = f'<p class="soft">{table.total - len(table.rows):,} more</p>'
    return (
        f"<section><h2>{escape(table.title)}</h2><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{more}</section>"
    )


def _cell(value: Cell, is_number: bool) -> str:  # noqa: FBT001  of one column
    return f"<td{_style(is_number)}>{escape(shown(value))}</td>"


def _style(is_number: bool) -> str:  # noqa: FBT001  as above
    return ' class="n"' if is_number else ""
