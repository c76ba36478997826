"""The example of examples/pipeline is exact while leaders die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import audit
from tests.nodes import Trio

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROOT = Path(__file__).parents[3]


def test_every_window_is_exact_while_the_leaders_of_both_streams_are_killed(own_trio: Trio) -> None:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    amqp = ",".join(f"amqp://127.0.0.1:{node.amqp_port}" for node in own_trio.nodes)
    http = ",".join(f"http://127.0.0.1:{node.management_port}" for node in own_trio.nodes)
    killed = []
    said = []
    with subprocess.Popen(
        [sys.executable, "examples/pipeline/revenue.py", amqp, http],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        for line in program.stdout:
            said.append(line)
            stream = {"1000 ": "orders", "2000 ": "revenue"}.get(line[:5])
            if stream is not None:
                leader = own_trio.leader(stream)
                assert leader is not None
                leader.kill()
                killed.append(stream)
                leader.start()
    assert (program.returncode, said[-1]) == (0, "exact\n"), "".join(said)[-3000:]
    assert killed == ["orders", "revenue"]
