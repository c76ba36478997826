"""Confirmed publishing and consuming in threads, for tests that break nodes meanwhile."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

import pika
import pika.exceptions

from tests.nodes import Node

RATE_PER_S = 200


class Publisher(threading.Thread):
    """Publishes numbers with confirms at a steady rate; goes on to the next node when one fails.

    Attributes:
        confirmed: Number -> monotonic time of its confirm.
        unknown: Numbers whose outcome nobody knows.
    """

    def __init__(self, nodes: Sequence[Node], queue: str) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._queue = queue
        self._ended = threading.Event()
        self.confirmed: dict[int, float] = {}
        self.unknown: list[int] = []

    def run(self) -> None:
        number, turn = 0, 0
        while not self._ended.is_set():
            node = self._nodes[turn % len(self._nodes)]
            turn += 1
            try:
                with node.connect(blocked_connection_timeout=10, socket_timeout=3) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self._ended.wait(1 / RATE_PER_S):
                        number += 1
                        try:
                            channel.basic_publish(
                                "", self._queue, b"%d" % number,
                                pika.BasicProperties(delivery_mode=2), mandatory=True,
                            )  # fmt: skip
                        except pika.exceptions.NackError:
                            self.unknown.append(number)
                        except BaseException:
                            self.unknown.append(number)
                            raise
                        else:
                            self.confirmed[number] = time.monotonic()
            except (pika.exceptions.AMQPError, OSError):
                self._ended.wait(0.2)

    def end(self) -> None:
        self._ended.set()
        self.join(30)
        assert not self.is_alive()

    def longest_gap_after(self, moment: float) -> float:
        """The longest time without a confirm from `moment` on, seconds."""
        times = [moment, *sorted(at for at in self.confirmed.values() if at >= moment)]
        return max(b - a for a, b in itertools.pairwise(times))


class Consumer(threading.Thread):
    """Consumes and acks; attaches again where it can.

    Attributes:
        received: (number, redelivered, monotonic time of the delivery) in order.
        acked: Number -> monotonic time when the ack was sent.
    """

    def __init__(self, nodes: Sequence[Node], queue: str) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._queue = queue
        self._ended = threading.Event()
        self.received: list[tuple[int, bool, float]] = []
        self.acked: dict[int, float] = {}

    def run(self) -> None:
        turn = 0
        while not self._ended.is_set():
            node = self._nodes[turn % len(self._nodes)]
            turn += 1
            try:
                with node.connect(socket_timeout=3) as connection:
                    channel = connection.channel()
                    channel.basic_qos(prefetch_count=50)
                    for method, _, body in channel.consume(self._queue, inactivity_timeout=0.5):
                        if self._ended.is_set():
                            return
                        if method is None:
                            continue
                        number = int(body)
                        self.received.append((number, method.redelivered, time.monotonic()))
                        channel.basic_ack(method.delivery_tag)
                        self.acked.setdefault(number, time.monotonic())
            except (pika.exceptions.AMQPError, OSError):
                self._ended.wait(0.2)

    def end(self) -> None:
        self._ended.set()
        self.join(30)
        assert not self.is_alive()


def drain(node: Node, queue: str) -> list[int]:
    """Everything left in a queue, acked."""
    with node.connect() as connection:
        channel = connection.channel()
        found = []
        while True:
            method, _, body = channel.basic_get(queue)
            if method is None:
                return found
            found.append(int(body))
            channel.basic_ack(method.delivery_tag)
