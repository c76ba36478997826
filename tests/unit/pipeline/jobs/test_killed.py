"""Ingest is killed again and again while others read and compact: each message once, always."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.connector import connections, options
from pipeline.connector.connections import borrowed
from pipeline.lake.compaction import compact
from pipeline.lake.table import Table
from pipeline.wire.contents import properties
from pipeline.wire.publisher import Publisher
from tests.nodes import Node

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3000)]

COUNT = 10_000
BATCH = 250
KILLS = 4
STREAM: dict[str, object] = {"x-queue-type": "stream"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark's own: sockets of its gateway
        yield
    connections.close_all()


def fill(node: Node, stream: str) -> None:
    with node.connect() as connection:
        connection.channel().queue_declare(stream, durable=True, arguments=STREAM)
    source = options.source({"url": f"amqp://127.0.0.1:{node.amqp_port}", "stream": stream})
    with borrowed(source.broker, 0) as connection:
        publisher = Publisher(connection)
        one, content = publisher.publishes.message, properties({"message_id": "m"})
        publisher.send([one("", stream, content, b"%d" % n) for n in range(COUNT)])
        publisher.confirmed(0, 60)
        publisher.close()


def driver(node: Node, stream: str, lake: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "pipeline", "ingest", "-q", "--once", "--stream", stream,
        "--lake", str(lake), "--max-rows", str(BATCH), "--compact-files", "4",
        "--url", f"amqp://127.0.0.1:{node.amqp_port}",
        "--http-url", f"http://127.0.0.1:{node.management_port}",
    ]  # fmt: skip
    # A group of its own: the JVM and its workers die with it.
    return subprocess.Popen(command, start_new_session=True)


def check(spark: Any, lake: Path) -> int:
    """What a reader sees: the first messages, each once; returns how many."""
    frame = spark.read.parquet(str(lake)).selectExpr("int(string(body)) n", "offset")
    row = frame.selectExpr(
        "count(*)", "count(distinct n)", "max(n) + 1", "count_if(n != offset)"
    ).first()
    assert tuple(row) == (row[0], row[0], row[0], 0)
    return int(row[0])


def test_each_message_is_seen_once_at_every_time(spark: Any, node: Node, tmp_path: Path):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    fill(node, "killed")
    lake = tmp_path / "messages"
    table = Table(lake)
    looks = compactions = 0
    seen = 0
    for kill in range(KILLS + 1):
        process = driver(node, "killed", tmp_path)
        try:
            last = table.manifest().number + chance.randrange(2, 12)
            while process.poll() is None and (kill == KILLS or table.manifest().number < last):
                if not table.manifest().files:
                    continue
                if chance.random() < 0.3:
                    compactions += compact(spark, table, 1 << 20, 3, 3600).joined
                now = check(spark, lake)
                assert now >= seen, f"seed {seed}"
                seen = now
                looks += 1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        assert code == (0 if kill == KILLS else -signal.SIGKILL), f"seed {seed}"
    assert check(spark, lake) == COUNT, f"seed {seed}"
    assert looks > KILLS
    assert compactions, f"seed {seed}: nothing was compacted meanwhile"
