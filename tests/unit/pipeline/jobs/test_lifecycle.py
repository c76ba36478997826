"""A trace's lives and percentiles: by Spark from forged copies, and from those of a real node."""

from __future__ import annotations

import json
import math
import random
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

pytest.importorskip("pyspark")
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from broker.cli.ctl import commands as ctl
from pipeline.command.configuration import Config, read
from pipeline.command.declared import JOBS
from pipeline.connector import connections
from pipeline.jobs.lifecycle import job, path
from pipeline.jobs.lifecycle.steps import lives, path_of, spans, steps
from tests.nodes import Node

pytestmark = [pytest.mark.spark, pytest.mark.long]

TRACE = "amq.rabbitmq.trace"
SCHEMA = StructType(
    [
        StructField("offset", LongType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("headers", MapType(StringType(), StringType())),
    ]
)
COUNT = 1000


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark's own: sockets of its gateway
        yield
    connections.close_all()


class Forged:
    """A trace of messages that two queues get, and what is known of it beforehand.

    Attributes:
        copies: Rows of the connector.
        known: (message, queue) -> first delivery, deliveries, ack, delivery that was acked, state.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.copies: list[tuple[int, str, str, dict[str, str]]] = []
        self.known: dict[tuple[str, str | None], list[Any]] = {}
        self.published: dict[str, tuple[int, int]] = {}
        self._now_us = 1_700_000_000_000_000

    def _copy(self, key: str, channel: int = 1, **headers: object) -> int:
        self._now_us += self._random.randrange(1, 5000)
        has = {"node": "a", "connection": "c", "channel": channel, "user": "guest", **headers}
        has["timestamp_in_us"] = self._now_us
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in has.items()}
        self.copies.append((len(self.copies), TRACE, key, texts))
        return self._now_us

    def publish(self, message: str, queues: list[str]) -> None:
        read_us = self._now_us - 1000
        properties = {"message_id": message}
        at_us = self._copy(
            "publish.orders.all", properties=properties, received_in_us=read_us,
            exchange_name="orders.all", routing_keys=["eu.1"], routed_queues=queues,
        )  # fmt: skip
        self.published[message] = read_us, at_us
        for queue in queues or [None]:
            self.known[message, queue] = [
                None, 0, None, None, path.WAITING if queue else path.UNROUTABLE
            ]  # fmt: skip

    def deliver(self, message: str, queue: str, number: int, channel: int, *, no_ack: bool) -> int:
        at_us = self._copy(
            f"deliver.{queue}", channel, properties={"message_id": message}, queue=queue,
            message_number=number, no_ack=no_ack, redelivered=0,
        )  # fmt: skip
        known = self.known[message, queue]
        known[0] = known[0] or at_us
        known[1] += 1
        known[4] = path.TAKEN if no_ack else path.HELD
        return at_us

    def settle(self, kind: str, queue: str, numbers: list[int], channel: int) -> int:
        return self._copy(f"{kind}.{queue}", channel, queue=queue, message_numbers=numbers)

    def live(self, number: int) -> None:
        """A message is published, delivered some times, and settled or not."""
        message, chance = f"m{number}", self._random.random
        queues = [queue for queue in ("q.1", "q.2") if chance() < 0.8]
        self.publish(message, queues)
        for queue in queues:
            while chance() < 0.85:
                channel, no_ack = self._random.randrange(1, 4), chance() < 0.2
                delivered_us = self.deliver(message, queue, number, channel, no_ack=no_ack)
                if no_ack:
                    break
                kind = self._random.choice(["ack", "requeue", "reject", "none"])
                if kind == "none":
                    break
                # Others of the batch are of messages that were delivered before the trace began.
                at_us = self.settle(kind, queue, [number, 10**9 + number], channel)
                known = self.known[message, queue]
                known[4] = path.SETTLED[kind]
                if kind == "ack":
                    known[2:4] = at_us, delivered_us
                if kind != "requeue":
                    break


def percentile(values: list[float], share: float) -> float:
    """As Spark's: the least of which so many are not above it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def test_lives_percentiles_and_paths_are_those_that_were_forged(spark: Any):
    forged = Forged(seed=19)
    for number in range(1, 301):
        forged.live(number)
    others = [(len(forged.copies), "amq.topic", "publish.", {}), (10**6, TRACE, "odd", None)]
    rows = forged.copies + others
    found = steps(spark.createDataFrame(rows, SCHEMA)).cache()
    each = lives(found).cache()
    by_key = {(row["message"], row["queue"]): row for row in each.collect()}
    assert len(by_key) == each.count()
    assert set(by_key) == set(forged.known)
    for (message, queue), (first_us, deliveries, acked_us, of_us, state) in forged.known.items():
        row, (read_us, routed_us) = by_key[message, queue], forged.published[message]
        assert (row["exchange"], row["routing_key"]) == ("orders.all", "eu.1")
        assert (row["delivered_us"], row["deliveries"]) == (first_us, deliveries)
        assert (row["acked_us"], row["state"]) == (acked_us, state), (message, queue)
        assert row["publish_route"] == (routed_us - read_us) / 1000
        assert row["publish_ack"] == (acked_us and (acked_us - read_us) / 1000)
        assert row["deliver_ack"] == (acked_us and (acked_us - of_us) / 1000)
    for row in spans(each).collect():
        ms = [
            has[row["span"]] for (_, queue), has in by_key.items()
            if queue == row["queue"] and has[row["span"]] is not None
        ]  # fmt: skip
        assert row["messages"] == len(ms)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            assert row[name] == percentile(ms, share), (row["queue"], row["span"], name)
    for number in (1, 2, 3, 4, 5):
        told = path.states(path_of(found, f"m{number}"))
        known = {q: k[4] for (m, q), k in forged.known.items() if m == f"m{number}"}
        assert told == known
    found.unpersist()
    each.unpersist()


def test_what_a_trace_lacks_is_said(spark: Any):
    forged = Forged(seed=1)
    forged.publish("m1", ["q"])
    place, exchange, key, headers = forged.copies[0]
    rabbit = {k: v for k, v in headers.items() if not k.endswith("_in_us")}
    unnamed = {**headers, "properties": "{}"}
    rows = [(place, exchange, key, rabbit), (1, exchange, key, unnamed)]
    found = steps(spark.createDataFrame(rows, SCHEMA))
    config = read(JOBS["lifecycle"], "lifecycle", {"tap": f"exchange/{TRACE}", "message": "m2"})
    report = job.report(config, job._counted(found), lives(found), path_of(found, "m2"))
    assert report.findings == ["message 'm2' is not in the trace"]
    assert report.facts["messages without an id"] == 1
    assert [note.split(":")[0] for note in report.notes[:2]] == [
        "acknowledgements are not in the trace", "1 copies have no time"
    ]  # fmt: skip


def _ctl(node: Node, *words: str) -> None:
    assert ctl.run(words, {"WARRENMQ_URL": f"http://127.0.0.1:{node.management_port}"}) == 0


@pytest.fixture
def traced(node: Node) -> Iterator[Node]:
    """A node that is traced with acknowledgements into a tap."""
    _ctl(node, "add_tap", "exchange", TRACE)
    _ctl(node, "trace_on", "--acks")
    yield node
    _ctl(node, "trace_off")
    _ctl(node, "delete_tap", "exchange", TRACE)
    with node.connect() as connection:
        connection.channel().queue_delete(f"tap.exchange.{TRACE}")


def played(node: Node) -> dict[str, list[int]]:
    """A thousand messages through a queue; by id microseconds before and after each step.

    One is rejected once and requeued, one waits in the end, one is acknowledged last of all.

    Returns:
        Message -> before its publish, after its confirm, after it came, before its ack.
    """
    saw: dict[str, list[int]] = {}
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("lives", durable=True)
        channel.confirm_delivery()
        for number in range(COUNT):
            saw[f"id-{number}"] = [time.time_ns() // 1000]
            properties = pika.BasicProperties(message_id=f"id-{number}")
            channel.basic_publish("", "lives", b"x", properties, mandatory=True)
            saw[f"id-{number}"].append(time.time_ns() // 1000)
        channel.basic_qos(prefetch_count=50)
        held, acked = 0, 0
        for method, properties, _ in channel.consume("lives", inactivity_timeout=30):
            assert method is not None, f"{acked} of {COUNT}"
            name = properties.message_id
            if name == "id-7" and not method.redelivered:
                channel.basic_nack(method.delivery_tag, requeue=True)
                continue
            saw[name].append(time.time_ns() // 1000)
            if name == "id-3":
                held = method.delivery_tag
                continue
            saw[name].append(time.time_ns() // 1000)
            channel.basic_ack(method.delivery_tag)
            acked += 1
            if acked == COUNT - 1:
                break
        saw["id-3"].append(time.time_ns() // 1000)
        channel.basic_ack(held)
        channel.cancel()
        waits = pika.BasicProperties(message_id="waits")
        channel.basic_publish("", "lives", b"x", waits, mandatory=True)
    return saw


def stored(node: Node) -> None:
    """End the trace, and wait until all of it is in the stream: it is not confirmed itself."""
    _ctl(node, "trace_off")
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", f"tap.exchange.{TRACE}", b"end")


def configured(node: Node, **more: object) -> Config:
    given = {
        "url": f"amqp://127.0.0.1:{node.amqp_port}",
        "http_url": f"http://127.0.0.1:{node.management_port}",
        "tap": f"exchange/{TRACE}",
    }
    return read(JOBS["lifecycle"], "lifecycle", {**given, **more})


def test_a_thousand_messages_of_a_real_node_from_publish_to_ack(
    spark: Any, traced: Node, tmp_path: Path
):
    saw = played(traced)
    stored(traced)
    ended_us = time.time_ns() // 1000
    out = tmp_path / "lives"
    report = job.run(spark, configured(traced, message="id-7", out=str(out), slow_ms=1))
    assert report.facts["published"] == COUNT + 1
    assert report.facts["delivered"] == COUNT + 1  # one of them twice
    assert report.facts["in queues: acked"] == COUNT
    assert report.facts["in queues: waiting"] == 1

    rows = {row["message"]: row for row in spark.read.parquet(str(out)).collect()}
    assert set(rows) == {*saw, "waits"}
    for name, (before_us, confirmed_us, came_us, acks_us) in saw.items():
        row = rows[name]
        # The node tells when it read a message to a millisecond.
        assert before_us - 1000 <= row["published_us"] <= row["routed_us"] <= confirmed_us
        assert row["routed_us"] <= row["delivered_us"] <= came_us
        assert acks_us <= row["acked_us"] <= ended_us
        assert row["deliveries"] == (2 if name == "id-7" else 1)
    longest = rows["id-3"]["deliver_ack"]
    assert longest >= (saw["id-3"][3] - saw["id-3"][2]) / 1000

    title = {table.title: table for table in report.tables}
    measured = {row[1]: row for row in title["How long it takes"].rows}
    ms = [row["publish_ack"] for row in rows.values() if row["publish_ack"] is not None]
    assert measured["publish to ack"][2:] == (
        COUNT, percentile(ms, 0.5), percentile(ms, 0.9), percentile(ms, 0.99), max(ms)
    )  # fmt: skip
    assert measured["deliver to ack"][6] == longest
    assert [row[2] for row in title["The path of id-7"].rows] == [
        "published to the default exchange with key 'lives', routed to lives",
        "delivered from 'lives'",
        "requeued in 'lives'",
        "delivered again from 'lives'",
        "acked in 'lives'",
    ]
    assert "id-7 in lives: acked" in report.notes
    assert [each.split(":")[0] for each in report.findings] == ["queue 'lives'"] * 2
    assert "publish to ack takes" in report.findings[1]
