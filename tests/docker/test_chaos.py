"""Masters in containers killed and cut off under load, judged like every chaos run.

Publishers and consumers come through the ports published on 127.0.0.1, all the time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.compose import ROOT, Compose, running
from tests.machine import lateness

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

KILL_LIMIT_MS, CUT_LIMIT_MS = 6_000, 8_000


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    with running("guest", "guest") as made:
        yield made


def judged(compose: Compose, store: Path, *arguments: str) -> dict:
    ended = subprocess.run(
        [
            sys.executable, "-m", "chaos.run", *arguments, "--seed", "1",
            "--compose", compose.project, "--dir", str(store),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    return json.loads((next(store.iterdir()) / "verdict.json").read_text())


@pytest.mark.parametrize(
    ("queue", "times"),
    [
        ("mirrored", 1),
        pytest.param("mirrored", 2, marks=pytest.mark.soak),
        pytest.param("quorum", 2, marks=pytest.mark.soak),
    ],
)
def test_nothing_confirmed_is_lost_when_the_masters_container_is_killed(
    compose: Compose, tmp_path: Path, queue: str, times: int
):
    fault = ("--fault", "kill-master", "--times", str(times))
    verdict = judged(compose, tmp_path, "--queue", queue, *fault)
    assert verdict["valid"] is True
    assert verdict["counts"]["leader_changes"] >= times
    assert len(verdict["recoveries"]) == times
    assert max(one["silence_ms"] for one in verdict["recoveries"]) <= KILL_LIMIT_MS * lateness()


@pytest.mark.soak
@pytest.mark.parametrize("queue", ["quorum", "mirrored"])
def test_nothing_confirmed_is_lost_when_the_masters_container_is_off_the_network(
    compose: Compose, tmp_path: Path, queue: str
):
    verdict = judged(compose, tmp_path, "--queue", queue, "--fault", "cut-master-from-all")
    assert verdict["valid"] is True
    assert verdict["counts"]["leader_changes"] >= 1
    assert verdict["recoveries"][0]["silence_ms"] <= CUT_LIMIT_MS * lateness()
