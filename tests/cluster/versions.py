"""Nodes of earlier versions, from this repository's own history."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli.cluster.layout import Layout
from broker.cli.cluster.local import Cluster

ROOT = Path(__file__).parents[2]
V0_2_0 = "6c93358"
V0_1_0 = "f1a498a"


def source_of(commit: str, folder: Path) -> Path:
    """The tree of a commit; skips the test where the history is not there."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"commit {commit} is not in this repository's history: {found.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=found.stdout, check=True)
    return folder


def warrenmq(source: Path, *words: str, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
    """Run the command line of a version; its folder decides which, and what nodes it starts."""
    return subprocess.run(
        [sys.executable, "-m", "broker", *words],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class LocalCluster:
    """A local cluster whose nodes any version may start.

    Args:
        directory: Where it lives.
        amqp_port: Of node1.
        management_port: Of node1.
    """

    def __init__(self, directory: Path, amqp_port: int, management_port: int) -> None:
        self.directory = directory
        self._ports = ("--amqp-port", str(amqp_port), "--management-port", str(management_port))

    @property
    def layout(self) -> Layout:
        return Layout(self.directory)

    def start(self, source: Path) -> None:
        words = ("cluster", "start", "--dir", str(self.directory), *self._ports)
        started = warrenmq(source, *words)
        assert started.returncode == 0, started.stdout + started.stderr + self.logs()

    def stop(self) -> None:
        assert Cluster(self.directory).stop() == [], "none had to be killed"

    def end(self) -> None:
        """For clean-up."""
        Cluster(self.directory).stop()

    def logs(self) -> str:
        return "".join(
            f"\n{path}:\n{path.read_text(errors='replace')[-2000:]}"
            for path in sorted(self.directory.glob("node*/node.*"))
            if path.suffix in {".log", ".out"}
        )
