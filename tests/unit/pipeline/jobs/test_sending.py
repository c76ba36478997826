"""Dead letters into a table and back, and messages of a lake into queues, with a real node."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from pipeline.command.configuration import Config, ConfigRefused, read
from pipeline.command.declared import JOBS
from pipeline.command.progress import Silent
from pipeline.connector import connections
from pipeline.jobs import dead_letters, ingest, redrive, replay, sending
from tests.nodes import Node, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

STREAM: dict[str, object] = {"x-queue-type": "stream"}
COUNT = 12


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark's own: sockets of its gateway
        yield
    connections.close_all()


class _Stopping(Silent):
    """Asks the job to end when the first rows are sent."""

    def __init__(self) -> None:
        self._is_stopped = False

    def show(self, text: str) -> None:
        self._is_stopped = self._is_stopped or (text.endswith("rows sent") and text[0] != "0")

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped


def config(node: Node, job: str, lake: Path, **more: object) -> Config:
    given = {
        "url": f"amqp://127.0.0.1:{node.amqp_port}",
        "http_url": f"http://127.0.0.1:{node.management_port}",
        "lake": str(lake),
    }
    return read(JOBS[job], job, {**given, **more})


def drained(node: Node, queue: str) -> list[pika.BasicProperties]:
    """What a queue has, taken away."""
    found: list[pika.BasicProperties] = []
    with node.connect() as connection:
        channel = connection.channel()
        while True:
            method, properties, _ = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(properties)


def bodies(spark: Any, node: Node, stream: str) -> list[int]:
    frame = (
        spark.read.format("amqp-stream")
        .options(url=f"amqp://127.0.0.1:{node.amqp_port}", stream=stream)
        .option("httpUrl", f"http://127.0.0.1:{node.management_port}")
        .load()
    )
    return sorted(int(row["n"]) for row in frame.selectExpr("string(body) n").collect())


def dead_from(node: Node) -> None:
    """Messages that died: rejected ones of a queue, and those that a stream's publisher sent."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("shop", "topic", durable=True)
        channel.queue_declare("dlq", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        channel.queue_bind("orders", "shop", "eu.#")
    node.api("PUT", "/taps/%2F/queue/dlq", {})
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(COUNT):
            properties = pika.BasicProperties(message_id=str(number), headers={"own": "kept"})
            channel.basic_publish("shop", f"eu.{number % 2}", b"%d" % number, properties)
        for _ in range(COUNT):
            method, _, _ = channel.basic_get("orders")
            channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: node.api("GET", "/queues/%2F/dlq")["messages"] == COUNT, "all died")


def test_dead_letters_are_counted_by_reason_and_go_back_once(
    spark: Any, node: Node, tmp_path: Path
):
    dead_from(node)
    report = dead_letters.run(
        spark, config(node, "dead_letters", tmp_path, tap="queue/dlq", once=True)
    )
    assert (report.facts["dead letters"], report.facts["deaths"]) == (COUNT, COUNT)
    causes, sources = report.tables
    assert [row[:4] for row in causes.rows] == [("orders", "rejected", COUNT, COUNT)]
    assert sorted(row for row in sources.rows) == [("shop", "eu.0", 6), ("shop", "eu.1", 6)]
    first = time.strptime(str(causes.rows[0][4]), "%Y-%m-%d %H:%M:%S")
    assert first.tm_year >= 2024

    given = {"where": "death_key = 'eu.1' and int(message_id) < 9"}
    shown = redrive.run(spark, config(node, "redrive", tmp_path, **given))
    assert (shown.facts["selected"], shown.facts["sent"]) == (4, 0)
    assert drained(node, "orders") == []
    sent = redrive.run(spark, config(node, "redrive", tmp_path, yes=True, **given))
    assert (sent.facts["sent"], sent.findings) == (4, [])
    back = drained(node, "orders")
    assert sorted(properties.message_id for properties in back) == ["1", "3", "5", "7"]
    headers = back[0].headers
    assert headers["own"] == "kept"
    assert not [name for name in headers if name.startswith(("x-death", "x-first", "x-last"))]
    assert headers["x-deduplication-header"].startswith("tap.queue.dlq/")
    with pytest.raises(ConfigRefused, match="sent back before"):
        redrive.run(spark, config(node, "redrive", tmp_path, yes=True, **given))
    with pytest.raises(ConfigRefused, match=r"where: .*reasn"):
        redrive.run(spark, config(node, "redrive", tmp_path, where="reasn = 'x'"))
    rest = redrive.run(spark, config(node, "redrive", tmp_path, where="true", yes=True))
    assert rest.facts["sent"] == COUNT - 4
    assert len(drained(node, "orders")) == COUNT - 4


def forget_the_last_commit(folder: Path) -> None:
    """As if killed when the last slice was sent, and Spark did not know it yet.

    Which batch that is differs: one that was stopped when Spark had chosen its slice, and not yet
    written its offset, has two slices afterwards.
    """
    checkpoint = folder / "checkpoint-0"
    commits = checkpoint / "commits"
    batch = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
    named = (commits / str(batch), commits / f".{batch}.crc")
    for written in (folder / "finished", checkpoint / "done", *named):
        written.unlink()


def test_dead_letters_of_a_queue_that_is_a_stream_now_come_back_once_though_killed(
    spark: Any, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("parked-dead", durable=True)
        channel.queue_declare(
            "parked",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "parked-dead"},
        )
        node.api("PUT", "/taps/%2F/queue/parked-dead", {})
        for number in range(COUNT):
            channel.basic_publish("", "parked", b"%d" % number)
            method, _, _ = channel.basic_get("parked")
            channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: node.api("GET", "/queues/%2F/parked-dead")["messages"] == COUNT, "all died")
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_delete("parked")
        channel.queue_declare("parked", durable=True, arguments=STREAM)
    given = {"tap": "queue/parked-dead", "once": True}
    report = dead_letters.run(spark, config(node, "dead_letters", tmp_path, **given))
    assert report.tables[1].rows == [(dead_letters.DEFAULT_EXCHANGE, "parked", COUNT)]

    monkeypatch.setattr(sending, "_SLICE_BYTES", 1)
    back = config(node, "redrive", tmp_path, where="queue = 'parked'", yes=True)
    stopped = redrive.run(spark, back, _Stopping())
    assert stopped.findings == ["stream parked: stopped; the same command goes on"]
    report = redrive.run(spark, back)
    assert "an earlier run was not finished: this goes on with it" in report.notes
    assert (report.facts["sent"], report.findings) == (COUNT, [])
    assert report.tables[0].rows == [("stream parked", COUNT, COUNT, "exactly once")]
    assert bodies(spark, node, "parked") == list(range(COUNT))
    (folder,) = (tmp_path / "_sent").iterdir()
    forget_the_last_commit(folder)
    assert redrive.run(spark, back).findings == []
    assert bodies(spark, node, "parked") == list(range(COUNT))
    with pytest.raises(ConfigRefused, match="sent back before"):
        redrive.run(spark, back)


def test_a_replay_to_a_stream_that_was_killed_goes_on_and_sends_nothing_twice(
    spark: Any, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("replay-from", "replay-to"):
            channel.queue_declare(name, durable=True, arguments=STREAM)
        channel.queue_declare("replay-queue", durable=True)
        for number in range(COUNT):
            channel.basic_publish("", "replay-from", b"%d" % number)
    ingest.run(spark, config(node, "ingest", tmp_path, stream="replay-from", once=True))

    # One row a slice: a run that ends after some of them has sent a part.
    monkeypatch.setattr(sending, "_SLICE_BYTES", 1)
    given = {"where": "int(string(body)) >= 4", "begin": "2026-01-01", "yes": True}
    to_stream = config(node, "replay", tmp_path, to_stream="replay-to", **given)
    stopped = replay.run(spark, to_stream, _Stopping())
    assert stopped.findings == ["stream replay-to: stopped; the same command goes on"]
    report = replay.run(spark, to_stream)
    assert "an earlier run was not finished: this goes on with it" in report.notes
    assert (report.facts["sent"], report.findings) == (COUNT - 4, [])
    assert bodies(spark, node, "replay-to") == list(range(4, COUNT))
    (folder,) = (tmp_path / "_sent").iterdir()
    assert len(list((folder / "slices" / "target=0").iterdir())) == COUNT - 4
    forget_the_last_commit(folder)
    again = replay.run(spark, to_stream)
    assert (again.facts["sent"], again.findings) == (COUNT - 4, [])
    assert bodies(spark, node, "replay-to") == list(range(4, COUNT))

    monkeypatch.undo()
    to_queue = config(node, "replay", tmp_path, to_queue="replay-queue", rate=4, yes=True)
    paced = replay.run(spark, to_queue)
    assert (paced.facts["sent"], paced.findings) == (COUNT, [])
    # Four rows a second are eight each two seconds.
    newest = max((tmp_path / "_sent").iterdir())
    slices = spark.read.parquet(str(newest / "slices")).groupBy("slice").count()
    assert sorted(row["count"] for row in slices.collect()) == [4, 8]
    assert len(drained(node, "replay-queue")) == COUNT
    with pytest.raises(ConfigRefused, match="there is no queue 'nowhere'"):
        replay.run(spark, config(node, "replay", tmp_path, to_queue="nowhere"))


def choose_another(folder: Path) -> None:
    """As if stopped when Spark had chosen a slice, and not yet written its batch's offset."""
    logs = folder / "checkpoint-0" / "sources" / "0"
    known = "".join(each.read_text("utf-8") for each in logs.iterdir() if each.name.isdigit())
    slices = sorted((folder / "slices" / "target=0").rglob("*.parquet"))
    chosen = next(each for each in slices if str(each) not in known)
    batch = max(int(each.name) for each in logs.iterdir() if each.name.isdigit()) + 1
    timestamp = chosen.stat().st_mtime_ns // 1_000_000
    entry = {"path": f"file://{chosen}", "timestamp": timestamp, "batchId": batch}
    (logs / str(batch)).write_text(f"v1\n{json.dumps(entry, separators=(',', ':'))}", "utf-8")


@pytest.mark.timeout(300)
def test_a_slow_replay_that_was_stopped_between_two_slices_ends(
    spark: Any, node: Node, tmp_path: Path
):
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("slow-from", durable=True, arguments=STREAM)
        channel.queue_declare("slow-to", durable=True)
        for number in range(COUNT):
            properties = pika.BasicProperties(message_id=str(number))
            channel.basic_publish("", "slow-from", b"%d" % number, properties)
    ingest.run(spark, config(node, "ingest", tmp_path, stream="slow-from", once=True))
    slow = config(node, "replay", tmp_path, to_queue="slow-to", rate=1, yes=True)  # six slices
    replay.run(spark, slow, _Stopping())
    (folder,) = (tmp_path / "_sent").iterdir()
    choose_another(folder)
    assert replay.run(spark, slow).findings == []
    back = {int(properties.message_id or "") for properties in drained(node, "slow-to")}
    assert back == set(range(COUNT))
