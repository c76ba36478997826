"""Spark writes exactly once after a shuffle, while leaders are killed and tasks fail at random."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import audit
from pipeline.connector import connections, options
from pipeline.connector.places import Places
from pipeline.connector.planning import Range
from pipeline.connector.reading import RangeReader
from pipeline.wire.contents import properties
from pipeline.wire.publisher import Publisher
from tests.cluster.test_streams import declare
from tests.nodes import Trio

# In `make ci-long` the example kills leaders of what Spark reads and writes.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[4]
PROGRAM = "tests.unit.pipeline.connector.writing_program"
ROWS = 200
"""Of a batch, as the program has it."""

KILL_EVERY = 9
"""Batches."""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    lacking = audit.why_not()
    if lacking:
        pytest.skip(lacking)
    yield
    connections.close_all()


def fill(given: dict[str, str], stream: str, count: int) -> None:
    source = options.source({**given, "stream": stream})
    with connections.borrowed(source.broker, 0) as connection:
        publisher = Publisher(connection)
        one, content = publisher.publishes.message, properties({"delivery_mode": 2})
        publisher.send([one("", stream, content, b"%d" % n) for n in range(count)])
        publisher.confirmed(0, 60)
        publisher.close()


def written(given: dict[str, str], stream: str) -> list[int]:
    source = options.source({**given, "stream": stream})
    places = Places(source)
    end = places.extents([stream])[stream].next
    rows = RangeReader(source, Range(stream, "", 0, end), places).rows()
    found = [int(body) for piece in rows for body in piece.bodies]
    places.close()
    return found


@pytest.mark.parametrize("batches", [30, 200])
def test_rows_out_are_rows_in_while_leaders_are_killed_and_tasks_fail(
    own_trio: Trio, tmp_path: Path, batches: int
):
    nodes = own_trio.nodes
    given = {
        "url": ",".join(f"amqp://127.0.0.1:{node.amqp_port}" for node in nodes),
        "httpUrl": ",".join(f"http://127.0.0.1:{node.management_port}" for node in nodes),
    }
    origin, target = declare(own_trio), declare(own_trio)
    count = batches * ROWS
    fill(given, origin, count)
    failures = tmp_path / "failures"
    failures.mkdir()
    wanted = {"given": given, "from": origin, "to": target, "seed": batches}
    wanted |= {"checkpoint": str(tmp_path / "checkpoint"), "failures": str(failures)}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    kills = 0
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", PROGRAM, json.dumps(wanted)],
            cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=errors,
        ) as program,
    ):  # fmt: skip
        assert program.stdout is not None
        for line in program.stdout:
            if int(line.removeprefix("batch ")) % KILL_EVERY == 0:
                leader = own_trio.leader(target)
                if leader is not None:
                    leader.kill()
                    kills += 1
                    leader.start()
    assert program.returncode == 0, (tmp_path / "errors").read_text()[-3000:]
    assert kills >= batches // KILL_EVERY
    assert len(list(failures.iterdir())) >= batches // KILL_EVERY, "tasks have failed"
    assert sorted(written(given, target)) == list(range(count))
