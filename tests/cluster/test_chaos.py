"""A short chaos run passes, and Spark says the same of its history."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import audit

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one run, made by the first test that needs it."""
    store = tmp_path_factory.mktemp("store")
    ended = run(
        "chaos.run", "--queue", "quorum", "--fault", "kill-leader", "--seed", "1",
        "--seconds", "12", "--cycles", "1", "--dir", str(store),
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return next(store.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nothing_confirmed_is_lost_when_the_leader_is_killed(store: Path) -> None:
    verdict = json.loads((store / "verdict.json").read_text())
    assert verdict["valid"] is True
    assert verdict["counts"]["faults"] == 1
    assert verdict["counts"]["leader_changes"] >= 1
    assert verdict["recoveries"][0]["silence_ms"] <= 6_000
    assert "python -m chaos.run --queue quorum" in (store / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(180)
def test_spark_agrees(store: Path) -> None:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    ended = run("pipeline.audit", str(store))
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    ours = json.loads((store / "verdict.json").read_text())
    theirs = json.loads((store / audit.VERDICT).read_text())
    assert theirs["valid"] == ours["valid"]
    assert theirs["findings"] == ours["findings"] == []
    assert theirs["counts"] == ours["counts"]
