"""Ingest from a real node into a lake: each message once, for every reader."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from pipeline.command.configuration import Config, ConfigRefused, read
from pipeline.command.declared import JOBS
from pipeline.connector import connections
from pipeline.jobs import compact, ingest
from pipeline.lake import reading
from pipeline.lake.manifest import LakeBroken, Manifest
from pipeline.lake.table import Table
from tests.nodes import Node

pytestmark = [pytest.mark.spark, pytest.mark.long]

STREAM: dict[str, object] = {"x-queue-type": "stream"}
TABLES = {
    "orders": {
        "columns": {"id": "bigint not null", "amount": "double"},
        "checks": {"positive": "amount > 0"},
    }
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark's own: sockets of its gateway
        yield
    connections.close_all()


@pytest.fixture
def stream(node: Node, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"{request.node.name[:40]}/007"
    with node.connect() as connection:
        connection.channel().queue_declare(name, durable=True, arguments=STREAM)
    yield name
    with node.connect() as connection:
        connection.channel().queue_delete(name)


def config(node: Node, stream: str, lake: Path, **more: object) -> Config:
    given = {
        "url": f"amqp://127.0.0.1:{node.amqp_port}",
        "http_url": f"http://127.0.0.1:{node.management_port}",
        "stream": stream,
        "lake": str(lake),
        "once": True,
        "max_rows": 20,
    }
    return read(JOBS["ingest"], "ingest", {**given, **more})


def publish(node: Node, stream: str, bodies: list[bytes], first: int = 0) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, body in enumerate(bodies, first):
            channel.basic_publish("", stream, body, pika.BasicProperties(message_id=str(number)))


def ids(frame: Any) -> list[int]:
    return sorted(int(row["message_id"]) for row in frame.select("message_id").collect())


def test_each_message_is_in_the_lake_once_for_every_reader_whatever_is_joined(
    spark: Any, node: Node, stream: str, tmp_path: Path
):
    publish(node, stream, [b"x"] * 50)
    report = ingest.run(spark, config(node, stream, tmp_path, compact_files=0))
    assert report.is_fine
    assert report.facts["rows read"] == report.facts["messages in the lake"] == 50
    messages = tmp_path / "messages"
    assert len(Table(messages).manifest().files) == 3
    before = spark.read.parquet(str(messages))  # has the files of before, and reads them later
    publish(node, stream, [b"x"] * 10, 50)
    ingest.run(spark, config(node, stream, tmp_path, compact_files=4))
    assert len(Table(messages).manifest().files) == 1
    assert len(list(messages.rglob("*.parquet"))) == 5
    assert ids(before) == list(range(50))
    assert ids(spark.read.parquet(str(messages))) == list(range(60))
    frame = reading.read(spark, messages)
    assert ids(frame) == list(range(60))
    assert frame.select("stream").distinct().first()[0] == stream
    job = read(JOBS["compact"], "compact", {"lake": str(tmp_path), "keep_s": 0, "compact_files": 2})
    compact.run(spark, job)
    assert len(list(messages.rglob("*.parquet"))) == 1
    assert ids(reading.read(spark, messages)) == list(range(60))


def test_rejected_rows_are_kept_apart_and_a_batch_that_fails_between_tables_is_whole(
    spark: Any, node: Node, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    good = [json.dumps({"id": n, "amount": 1.5}).encode() for n in range(20)]
    bad = [b"\xff\x00", b"[1]", b'{"id": "x"}', b'{"amount": 1}', b'{"id": 1, "amount": -1}', b""]
    publish(node, stream, [*good, *bad])
    given = config(node, stream, tmp_path, tables=TABLES)
    changed, change = [], Table.change

    def fails(table: Table, wanted: Any) -> bool:
        done = change(table, wanted)
        changed.append(table.path.name)
        if len(changed) == 1:
            raise RuntimeError("the driver dies here")
        return done

    monkeypatch.setattr(Table, "change", fails)
    with pytest.raises(Exception, match="the driver dies here"):
        ingest.run(spark, given)
    report = ingest.run(spark, given)
    assert changed[:2] == ["messages", "orders"]
    assert ids(reading.read(spark, tmp_path / "messages")) == list(range(26))
    orders = reading.read(spark, tmp_path / "orders")
    assert sorted(row["id"] for row in orders.collect()) == list(range(20))
    rejected = reading.read(spark, tmp_path / "orders_rejected")
    assert sorted(int(row["message_id"]) for row in rejected.collect()) == list(range(20, 26))
    (table,) = report.tables
    said = {str(row[0]): row[2] for row in table.rows}
    assert (said["accepted"], said["rejected"]) == (20, 6)
    assert said["rejected: id is missing"] == 1
    assert said["rejected: check positive"] == 1


def test_a_lake_refuses_a_second_checkpoint(spark: Any, node: Node, stream: str, tmp_path: Path):
    publish(node, stream, [b"x"] * 3)
    given = config(node, stream, tmp_path)
    ingest.run(spark, given)
    (tmp_path / "_checkpoints").rename(tmp_path / "_lost")
    with pytest.raises(Exception, match="from another checkpoint: they would be in it twice"):
        ingest.run(spark, given)
    assert ids(reading.read(spark, tmp_path / "messages")) == [0, 1, 2]


def test_a_condition_that_spark_does_not_know_is_refused_before_anything_is_read(
    spark: Any, node: Node, stream: str, tmp_path: Path
):
    tables = {"orders": {"columns": {"id": "bigint"}, "checks": {"a": "nothing > 0"}}}
    with pytest.raises(ConfigRefused, match=r"table 'orders': .*nothing"):
        ingest.run(spark, config(node, stream, tmp_path, tables=tables))
    assert Table(tmp_path / "messages").manifest() == Manifest()
    with pytest.raises(LakeBroken, match="there is no table in"):
        reading.read(spark, tmp_path / "messages")
