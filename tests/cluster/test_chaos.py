"""Short chaos runs pass, and Spark says the same of their histories; `make chaos` runs more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import matrix
from pipeline import audit, verdict
from tests.machine import lateness

ROOT = Path(__file__).parents[2]
RUNS = {
    ("quorum", "kill-leader"): 6_000,
    ("mirrored", "kill-leader"): 6_000,
}
"""Type of queue and fault -> the longest time without a confirm, milliseconds."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module", params=RUNS, ids="-".join)
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, int]:
    """The directory of one run, and its limit."""
    store = tmp_path_factory.mktemp("store")
    queue, fault = request.param
    ended = run(
        "chaos.run", "--queue", queue, "--fault", fault, "--seed", "1",
        "--seconds", "12", "--times", "1", "--dir", str(store),
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return next(store.iterdir()), RUNS[request.param]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_nothing_confirmed_is_lost(stored: tuple[Path, int]) -> None:
    directory, limit_ms = stored
    verdict = json.loads((directory / "verdict.json").read_text())
    assert verdict["valid"] is True
    assert verdict["counts"]["faults"] == 1
    assert verdict["counts"]["leader_changes"] >= 1
    assert verdict["recoveries"][0]["silence_ms"] <= limit_ms * lateness()
    assert (
        f"python -m chaos.run --queue {directory.name.partition('-')[0]}"
        in (directory / "report.md").read_text()
    )


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_spark_agrees(stored: tuple[Path, int]) -> None:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    directory, _ = stored
    ended = run("pipeline.audit", str(directory))
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    ours = json.loads((directory / "verdict.json").read_text())
    theirs = json.loads((directory / verdict.VERDICT).read_text())
    assert matrix.agrees(ours, theirs)
    assert ours["findings"] == []
