"""A quorum queue's bodies are on disk, and the event loop never reads them itself."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
import urllib.request
from typing import Any

import pika
import pytest

from broker.embedded import HOST, EmbeddedNode
from broker.storage.log_files import LogFolder

COUNT = 3_000
BODY_BYTES = 4_000
SOURCE, TARGET = "source", "target"
WAIT_S = 120.0


class Reads:
    """Reads of logs' segments, by those on the loop's thread and others."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.on_loop: list[str] = []
        self.elsewhere: list[str] = []
        loop, real = threading.get_ident(), LogFolder._read_file

        def read(files: LogFolder, name: str, position: int, size_bytes: int) -> bytes:
            found = self.on_loop if threading.get_ident() == loop else self.elsewhere
            found.append(name)
            return real(files, name, position, size_bytes)

        patch.setattr(LogFolder, "_read_file", read)


def peeked(port: int, position: int) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://{HOST}:{port}/api/queues/quorum/%2F/{SOURCE}/peek/{position}",
        headers={"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def fill(port: int, strategy: str) -> None:
    """Publish to a queue whose dead go to another."""
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port, heartbeat=0)) as connection:
        channel = connection.channel()
        kind = {"x-queue-type": "quorum"}
        dead = {
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": TARGET,
            "x-dead-letter-strategy": strategy,
        }
        channel.queue_declare(TARGET, durable=True, arguments=kind)
        channel.queue_declare(SOURCE, durable=True, arguments={**kind, **dead})
        for number in range(COUNT):
            channel.basic_publish("", SOURCE, b"%05d" % number + bytes(BODY_BYTES))
        wait_for(channel, SOURCE)


def wait_for(channel: Any, queue: str) -> None:
    end_s = time.monotonic() + WAIT_S
    while channel.queue_declare(queue, passive=True).method.message_count < COUNT:
        assert time.monotonic() < end_s, f"{COUNT} messages do not come to {queue}"
        time.sleep(0.05)


def reject_all(port: int) -> list[int]:
    """Take all messages and reject them; return what the other queue then has."""
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port, heartbeat=0)) as connection:
        channel = connection.channel()
        for method, _, _ in channel.consume(SOURCE):  # a consumer holds 2,000 at most
            if method.delivery_tag % 1_000 == 0:
                channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
            if method.delivery_tag == COUNT:
                break
        channel.cancel()
        wait_for(channel, TARGET)
        found = []
        for _, _, body in channel.consume(TARGET, auto_ack=True):
            found.append(int(body[:5]))
            if len(found) == COUNT:
                return found
    raise AssertionError("the connection ended")


@pytest.mark.asyncio
@pytest.mark.parametrize("strategy", ["at-most-once", "at-least-once"])
async def test_dead_letters_and_peeks_are_read_in_another_thread(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = EmbeddedNode()
    await node.start()
    try:
        await asyncio.to_thread(fill, node.amqp_port, strategy)
        reads = Reads(monkeypatch)
        found = await asyncio.to_thread(peeked, node.management_port, COUNT // 2)
        assert found["payload (max 64 bytes)"].startswith(f"{COUNT // 2 - 1:05d}")
        assert reads.elsewhere
        assert await asyncio.to_thread(reject_all, node.amqp_port) == list(range(COUNT))
        assert len(reads.elsewhere) > COUNT * BODY_BYTES >> 21
        assert reads.on_loop == []
    finally:
        await node.stop()
