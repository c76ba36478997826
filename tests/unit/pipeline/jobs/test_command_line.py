"""Dead letters sent back, and a lake replayed, by commands of docs/pipeline-jobs.md with Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.nodes import Node, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

COUNT = 30


def run_job(node: Node, job: str, lake: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable, "-m", "pipeline", job, "--lake", str(lake),
        "--url", f"amqp://127.0.0.1:{node.amqp_port}",
        "--http-url", f"http://127.0.0.1:{node.management_port}", *more,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def taken(node: Node, queue: str) -> list[bytes]:
    found: list[bytes] = []
    with node.connect() as connection:
        channel = connection.channel()
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got[2])
    return sorted(found, key=int)


def test_dead_letters_go_back_and_are_replayed(node: Node, tmp_path: Path):
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("line-dead", durable=True)
        dying = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "line-dead"}
        channel.queue_declare("line-work", durable=True, arguments=dying)
        channel.queue_declare("line-test", durable=True)
        node.api("PUT", "/taps/%2F/queue/line-dead", {})
        for number in range(COUNT):
            own = pika.BasicProperties(message_id=str(number))
            channel.basic_publish("", "line-work", b"%d" % number, own)
            method, _, _ = channel.basic_get("line-work")
            channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: node.api("GET", "/queues/%2F/line-dead")["messages"] == COUNT, "all died")

    read = run_job(node, "dead_letters", tmp_path, "--tap", "queue/line-dead", "--once")
    assert read.returncode == 0, read.stderr
    assert "warrenmq pipeline redrive" in read.stdout

    some = ("--where", "reason = 'rejected' and int(message_id) < 10")
    shown = run_job(node, "redrive", tmp_path, *some)
    assert shown.returncode == 0, shown.stderr
    assert taken(node, "line-work") == []
    sent = run_job(node, "redrive", tmp_path, *some, "--yes")
    assert sent.returncode == 0, sent.stderr
    assert taken(node, "line-work") == [b"%d" % number for number in range(10)]
    again = run_job(node, "redrive", tmp_path, *some, "--yes")
    assert again.returncode == 2
    assert "sent back before" in again.stderr

    lake = ("--stream", "tap.queue.line-dead", "--once")
    kept = run_job(node, "ingest", tmp_path, *lake)
    assert kept.returncode == 0, kept.stderr
    half = ("--where", "int(message_id) >= 20", "--to-queue", "line-test", "--yes")
    replayed = run_job(node, "replay", tmp_path, *half)
    assert replayed.returncode == 0, replayed.stderr
    assert taken(node, "line-test") == [b"%d" % number for number in range(20, COUNT)]
