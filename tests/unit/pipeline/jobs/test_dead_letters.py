"""What the report of dead letters tells, without Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from pipeline.jobs.dead_letters import by_hour, how_to_send_back

HOUR = 3600
NINE = 1_795_770_000
"""2026-11-27 09:00 UTC."""


def test_hours_without_deaths_are_zero_and_the_chart_says_when_it_begins():
    chart = by_hour([("rejected", NINE, 7), ("rejected", NINE + 3 * HOUR, 5), ("expired", NINE, 1)])
    assert chart.unit == "messages an hour, from 2026-11-27 09:00 UTC on"
    assert list(chart.lines) == ["rejected", "expired"]
    assert chart.lines["rejected"] == [(0, 7), (HOUR, 0), (2 * HOUR, 0), (3 * HOUR, 5)]
    assert chart.lines["expired"] == [(0, 1), (HOUR, 0), (2 * HOUR, 0), (3 * HOUR, 0)]


def test_six_reasons_are_drawn_those_there_are_most_of():
    chart = by_hour([(f"reason{n}", NINE, n) for n in range(1, 9)])
    assert list(chart.lines) == [f"reason{n}" for n in range(8, 2, -1)]


def test_the_command_for_what_died_most_is_one_for_shells_and_for_sql():
    (note,) = how_to_send_back(Path("my lake"), [(None, None), (r"o'brien\s", "rejected")])
    words = shlex.split(note.partition(": ")[2])
    assert words[:5] == ["warrenmq", "pipeline", "redrive", "--lake", "my lake"]
    assert words[5:] == ["--where", r"queue = 'o\'brien\\s' and reason = 'rejected'"]
    assert how_to_send_back(Path("lake"), [(None, None)]) == []
