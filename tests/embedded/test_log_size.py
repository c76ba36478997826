"""What a quorum queue's log takes of the disk while a message at its beginning is held."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from broker.embedded import HOST, EmbeddedNode
from broker.queues.quorum import QuorumQueue

QUEUE: Final = "held"
BODY: Final = bytes(200_000)
AT_ONCE: Final = 50
ROUNDS: Final = 25
PASSED_BYTES: Final = len(BODY) * AT_ONCE * ROUNDS
DISK_BYTES: Final = 100_000_000
"""Two segments, what is written until the third is noticed, and the store."""


def disk_bytes(directory: str) -> int:
    """What the files of a folder take, those that are removed meanwhile aside."""
    found = 0
    for path in Path(directory).rglob("*"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue
    return found


def pass_through(port: int, directory: str) -> int:
    """Have messages published, taken and acked behind one that is held.

    Returns:
        The most that the node's folder took, in bytes.
    """
    with pika.BlockingConnection(pika.ConnectionParameters(HOST, port, heartbeat=0)) as connection:
        holder, channel = connection.channel(), connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("", QUEUE, b"held")
        held: Any = next(holder.consume(QUEUE, inactivity_timeout=30))
        assert held[2] == b"held"
        holder.cancel()
        most = 0
        taken = channel.consume(QUEUE, inactivity_timeout=30)
        for _ in range(ROUNDS):
            for _ in range(AT_ONCE):
                channel.basic_publish("", QUEUE, BODY)
            for _ in range(AT_ONCE):
                method, _, body = next(taken)
                assert body == BODY
                channel.basic_ack(method.delivery_tag)
            most = max(most, disk_bytes(directory))
        assert channel.queue_declare(QUEUE, passive=True).method.message_count == 0
        channel.cancel()
        return most


@pytest.mark.asyncio
async def test_a_message_that_is_held_keeps_no_more_log_however_fast_others_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bytes that are written decide when the log is made smaller: here no second passes."""
    monkeypatch.setattr(QuorumQueue, "tick", lambda _: None)
    node = EmbeddedNode()
    await node.start()
    try:
        most = await asyncio.to_thread(pass_through, node.amqp_port, node.directory)
    finally:
        await node.stop()
    assert 2 * DISK_BYTES < PASSED_BYTES
    assert most < DISK_BYTES
