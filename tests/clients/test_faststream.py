"""FastStream on aio-pika: publishers, subscribers, answers, with FastStream's own declarations."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.rabbit import (
    ExchangeType,
    QueueType,
    RabbitBroker,
    RabbitExchange,
    RabbitMessage,
    RabbitQueue,
)

from tests.clients.place import Place, name, url

PATIENCE_S = 60.0


def broker(node_url: str) -> RabbitBroker:
    return RabbitBroker(node_url, logger=None, log_level=logging.CRITICAL, graceful_timeout=5)


@pytest.mark.asyncio
@pytest.mark.parametrize("queue_type", [QueueType.CLASSIC, QueueType.QUORUM])
async def test_messages_reach_a_subscriber_at_another_node(
    place: Place, queue_type: QueueType
) -> None:
    """It declares `x-queue-type: classic` where the queue was declared without: they are equal."""
    arguments = {"x-queue-type": "quorum"} if queue_type is QueueType.QUORUM else {}
    kept = place.declare(name("stream"), **arguments)
    here, there = broker(url(place.here)), broker(url(place.there))
    queue = RabbitQueue(kept, durable=True, queue_type=queue_type, routing_key="orders.*")
    exchange = RabbitExchange(f"{kept}.in", type=ExchangeType.TOPIC, auto_delete=True)
    got: list[tuple[int | None, Any, str]] = []
    full = asyncio.Event()

    @there.subscriber(queue, exchange)
    async def took(body: dict[str, int], message: RabbitMessage) -> None:
        got.append((message.raw_message.delivery_tag, body, message.headers["who"]))
        if len(got) == 20:
            full.set()

    await there.start()
    await here.connect()
    try:
        for number in range(20):
            await here.publish(
                {"n": number}, exchange=exchange, routing_key="orders.new", headers={"who": "me"}
            )
        async with asyncio.timeout(PATIENCE_S):
            await full.wait()
    finally:
        await here.stop()
        await there.stop()
    # Handlers run side by side and may overtake each other; tags say in which order it came.
    assert sorted(got) == [(number + 1, {"n": number}, "me") for number in range(20)]
    assert place.depth(kept) == 0
    place.delete(kept)


@pytest.mark.asyncio
async def test_a_request_is_answered_over_direct_reply_to(place: Place) -> None:
    kept = place.declare(name("stream.rpc"))
    here, there = broker(url(place.here)), broker(url(place.there))

    @there.subscriber(RabbitQueue(kept, durable=True))
    async def double(body: int) -> int:
        return body * 2

    await there.start()
    await here.connect()
    try:
        answers = await asyncio.gather(
            *(here.request(number, kept, timeout=PATIENCE_S) for number in range(10))
        )
        assert [await each.decode() for each in answers] == [number * 2 for number in range(10)]
    finally:
        await here.stop()
        await there.stop()
    place.delete(kept)


@pytest.mark.asyncio
async def test_a_failing_handler_gives_the_message_back(place: Place) -> None:
    """NACK_ON_ERROR: basic.nack with requeue, and it comes again, redelivered."""
    kept = place.declare(name("stream.retry"))
    there = broker(url(place.there))
    seen: list[bool] = []
    done = asyncio.Event()

    @there.subscriber(RabbitQueue(kept, durable=True), ack_policy=AckPolicy.NACK_ON_ERROR)
    async def fails_once(body: str, message: RabbitMessage) -> None:
        seen.append(bool(message.raw_message.redelivered))
        if len(seen) == 1:
            raise ValueError("once")
        done.set()

    await there.start()
    try:
        await there.publish("x", kept)
        async with asyncio.timeout(PATIENCE_S):
            await done.wait()
    finally:
        await there.stop()
    assert seen == [False, True]
    assert place.depth(kept) == 0
    place.delete(kept)
