"""Confirmed publishing and consuming at a steady rate while nodes come and go."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from functools import partial

import aio_pika
import aiormq.exceptions
import pika

from tests.machine import Standstills
from tests.nodes import Node

TICK_S = 0.01
RETRY_S = 0.05
LATE_S = 0.5
CONFIRM_TIMEOUT_S = 10.0
_BROKEN = (aio_pika.exceptions.AMQPError, aiormq.exceptions.AMQPError, OSError, RuntimeError)


class SteadyLoad(threading.Thread):
    """A publisher and a consumer for each queue; a connection that ends moves to the next node.

    Attributes:
        confirmed: Queue -> number -> monotonic time of its confirm.
        unknown: Queue -> how many publishes ended without a confirm.
        received: Queue -> numbers that were delivered and acknowledged.
    """

    def __init__(self, ports: Sequence[int], queues: Sequence[str], rate_per_s: float) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._rate_per_s = rate_per_s
        self._ended = threading.Event()
        self.confirmed: dict[str, dict[int, float]] = {queue: {} for queue in queues}
        self.unknown: dict[str, int] = dict.fromkeys(queues, 0)
        self.received: dict[str, set[int]] = {queue: set() for queue in queues}

    def run(self) -> None:
        asyncio.run(self._publish_all())

    async def _publish_all(self) -> None:
        queues = list(self.confirmed)
        consumers = [self._consume(place + 1, queue) for place, queue in enumerate(queues)]
        publishers = [self._publish(place, queue) for place, queue in enumerate(queues)]
        await asyncio.gather(*consumers, *publishers)

    def _url(self, turn: int) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._ports[turn % len(self._ports)]}/"

    async def _consume(self, turn: int, queue: str) -> None:
        while not self._ended.is_set():
            turn += 1
            try:
                connection = await aio_pika.connect(self._url(turn), timeout=3)
                async with connection:
                    channel = await connection.channel()
                    await channel.set_qos(prefetch_count=200)
                    source = await channel.get_queue(queue, ensure=False)
                    await source.consume(partial(self._received, queue))
                    while not self._ended.is_set() and not channel.is_closed:
                        await asyncio.sleep(TICK_S)
            except (*_BROKEN, TimeoutError):
                await asyncio.sleep(RETRY_S)

    async def _received(self, queue: str, message: aio_pika.abc.AbstractIncomingMessage) -> None:
        await message.ack()
        self.received[queue].add(int(message.body))

    async def _publish(self, turn: int, queue: str) -> None:
        numbers = itertools.count(1)
        while not self._ended.is_set():
            turn += 1
            try:
                connection = await aio_pika.connect(self._url(turn), timeout=3)
                async with connection:
                    await self._send(await connection.channel(), queue, numbers)
            except (*_BROKEN, TimeoutError):
                await asyncio.sleep(RETRY_S)

    async def _send(
        self, channel: aio_pika.abc.AbstractChannel, queue: str, numbers: itertools.count[int]
    ) -> None:
        """Publish at the rate until the connection ends; what was late by seconds stays away."""
        due, last_s = 0.0, time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            while not self._ended.is_set() and not channel.is_closed:
                now_s = time.monotonic()
                due += self._rate_per_s * min(now_s - last_s, LATE_S)
                last_s = now_s
                for _ in range(int(due)):
                    tasks.create_task(self._one(channel, queue, next(numbers)))
                due -= int(due)
                await asyncio.sleep(TICK_S)

    async def _one(self, channel: aio_pika.abc.AbstractChannel, queue: str, number: int) -> None:
        message = aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        try:
            await channel.default_exchange.publish(
                message, queue, mandatory=True, timeout=CONFIRM_TIMEOUT_S
            )
        except (*_BROKEN, TimeoutError):
            self.unknown[queue] += 1
        else:
            self.confirmed[queue][number] = time.monotonic()

    def end(self) -> None:
        self._ended.set()
        self.join(60)
        assert not self.is_alive()

    def total(self) -> int:
        return sum(map(len, self.confirmed.values()))

    def longest_gap_s(self, queue: str, machine: Standstills) -> tuple[float, float]:
        """The longest time without a confirm, less what the machine stood still; when it began."""
        times = sorted(self.confirmed[queue].values())
        if len(times) < 2:
            raise AssertionError(f"only {len(times)} confirms for {queue}")
        return max((b - a - machine.during(a, b), a) for a, b in itertools.pairwise(times))


def collect(node: Node, queue: str) -> set[int]:
    """All numbers in a queue, settled."""
    found: set[int] = set()
    with pika.BlockingConnection(node.parameters()) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1000)
        for method, _, body in channel.consume(queue, inactivity_timeout=2):
            if method is None:
                return found
            found.add(int(body))
            if len(found) % 500 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
    return found
