"""Reports: nothing of a message becomes markup, and nothing is loaded."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.report import charts, page
from pipeline.report.document import Bars, Lines, Report, Table, lines, shown

EVIL = "<script>alert(1)</script>\"'&\x1b[31m"
MADE = datetime(2026, 11, 26, 18, 0, tzinfo=UTC)
REPORT = Report(
    EVIL,
    EVIL,
    {EVIL: EVIL, "rows": 1_234_567},
    findings=[EVIL],
    notes=[EVIL],
    charts=[
        Bars(EVIL, EVIL, [(EVIL, 3.0), ("b", 0.0)]),
        Lines(EVIL, EVIL, {EVIL: [(0.0, 1.0), (60.0, 5.0)]}),
    ],
    tables=[Table(EVIL, (EVIL, "n"), [(EVIL, 1), (None, 2)], total=9)],
)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}


def test_nothing_of_a_message_becomes_markup_and_nothing_is_loaded():
    text = page.html([REPORT], MADE)
    tags = _Tags()
    tags.feed(text)
    assert not tags.tags & {"script", "link", "img", "iframe", "object"}
    assert not {name for name in tags.names if name.startswith("on") or name in ("src", "href")}
    assert "<script" not in text
    assert not re.search(r"url\(|@import|https?://", text)


def test_a_page_shows_findings_and_numbers():
    text = page.html([REPORT], MADE)
    assert "1 found" in text
    assert "1,234,567" in text
    assert "7 more" in text
    assert "prefers-color-scheme: dark" in text


def test_lines_for_terminals_have_no_control_characters():
    text = "\n".join(lines(REPORT))
    assert "\x1b" not in text
    assert "rows" in text
    assert "... 7 more" in text


def test_a_page_is_replaced_whole(tmp_path: Path):
    path = tmp_path / "new" / "report.html"
    page.write(path, [REPORT], MADE)
    page.write(path, [REPORT, REPORT], MADE)
    assert path.read_text("utf-8").count("<h1>") == 2
    assert [found.name for found in path.parent.iterdir()] == ["report.html"]


def test_a_line_of_one_point_is_a_dot():
    drawn = charts.lines(Lines("x", "", {"rejected": [(0.0, 300.0)], "expired": [(0.0, 40.0)]}))
    assert drawn.count("<circle") == 2
    assert "rejected: 300" in drawn
    assert "1 s" not in drawn


def test_a_job_that_looks_for_nothing_does_not_say_that_nothing_was_found():
    text = page.html([Report("dead_letters", "tap", {"dead letters": 360})], MADE)
    assert "nothing found" not in text
    assert '<b class="good">done</b>' in text


def test_many_bars_end_with_the_sum_of_the_rest():
    drawn = charts.bars(Bars("x", "", [(f"q{n}", float(n)) for n in range(100)]))
    assert drawn.count("<rect") == 20
    assert "81 more" in drawn


@pytest.mark.parametrize(
    ("largest", "end"), [(0, 1), (0.3, 0.5), (1, 1), (7, 10), (101, 200), (99_999, 100_000)]
)
def test_an_axis_ends_at_a_round_number(largest: float, end: float):
    assert charts.scale(largest) == pytest.approx(end)


def test_long_lines_keep_their_peaks():
    line = [(float(n), 9.0 if n == 777 else 1.0) for n in range(10_000)]
    thin = charts.thinned(line)
    assert len(thin) <= 600
    assert (777.0, 9.0) in thin


def test_numbers_for_people():
    assert [shown(value) for value in (None, 12_345, 0.25, 2.0, 1234.56)] == [
        "", "12,345", "0.25", "2", "1,234.6",
    ]  # fmt: skip
