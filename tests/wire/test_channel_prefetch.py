"""basic.qos for a whole channel (global): counted messages and waiting consumers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests import reference
from tests.nodes import Node
from tests.wire.raw import BODY, METHOD, Raw, content_header, frame, publish

SILENCE_S = 0.1
"""How long nothing comes, once the node has answered what was asked last."""

ANSWER_S = 20.0


class Client:
    """A channel with a queue of its own that is full of messages.

    Attributes:
        queue: Its name.
    """

    def __init__(self, raw: Raw, messages: int = 12) -> None:
        self.raw = raw
        self.queue = self.declare(messages)

    def declare(self, messages: int) -> str:
        raw = self.raw
        answer = raw.call(1, spec.QueueDeclare(exclusive=True), spec.QueueDeclareOk)
        for _ in range(messages):
            raw.send(publish(1, answer.queue), content_header(1, 1), frame(BODY, 1, b"x"))
        return answer.queue

    def qos(self, limit: int, *, whole: bool = True) -> list[str]:
        return self.does(spec.BasicQos(0, limit, whole))

    def consume(self, tag: str, *, no_ack: bool = False, queue: str = "") -> list[str]:
        return self.does(spec.BasicConsume(queue or self.queue, tag, no_ack=no_ack))

    def get(self) -> None:
        assert self.does(spec.BasicGet(self.queue)) == ["get"]

    def ack(self, tag: int, *, multiple: bool = False) -> list[str]:
        return self.does(spec.BasicAck(tag, multiple))

    def does(self, method: spec.Method) -> list[str]:
        """Send it; returns the tags of consumers that get something then, in order."""
        self.raw.send(method_frame(1, method))
        return self.hears()

    def hears(self) -> list[str]:
        """Read until the node has answered, however slow it is, and nothing more comes."""
        self.raw.send(method_frame(1, spec.QueueDeclare(self.queue, passive=True)))
        self.raw.socket.settimeout(ANSWER_S)
        found = []
        try:
            while True:
                piece = self.raw.read()
                assert piece is not None
                if piece.kind == METHOD:
                    answer = piece.method
                    if isinstance(answer, spec.BasicDeliver):
                        found.append(answer.consumer_tag)
                    elif isinstance(answer, spec.BasicGetOk):
                        found.append("get")
                    elif isinstance(answer, spec.QueueDeclareOk):
                        self.raw.socket.settimeout(SILENCE_S)
        except TimeoutError:
            return found


@pytest.fixture
def client(node: Node) -> Iterator[Client]:
    with Raw(node.amqp_port) as raw:
        yield Client(raw.to_channel())


def test_what_get_takes_after_the_limit_was_set_does_not_count(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.qos(2)
    client.get()
    client.get()
    assert client.consume("c") == ["c", "c"]  # 3 and 4
    client.get()
    assert client.ack(2, multiple=True) == []
    assert client.ack(5) == []
    assert client.ack(3) == ["c"]


def test_one_ack_of_gets_and_deliveries_makes_room_for_the_deliveries(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.qos(2)
    client.get()
    assert client.consume("c") == ["c", "c"]
    client.get()
    assert client.ack(4, multiple=True) == ["c", "c"]


def test_what_is_unacknowledged_when_the_limit_is_set_counts(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.qos(2, whole=False)
    assert client.consume("c") == ["c", "c"]
    assert client.qos(1) == []
    assert client.ack(1) == []
    assert client.ack(2) == ["c"]


def test_a_get_before_the_limit_counts_until_its_ack(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.get()
    client.qos(1)
    assert client.consume("c") == []
    if not reference.IS_SET:  # RabbitMQ's limiter never hears of that ack: the consumer is stuck
        assert client.ack(1) == ["c"]


def test_consumers_without_acks_wait_while_the_limit_is_reached(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    other = client.declare(3)
    client.qos(2)
    assert client.consume("c") == ["c", "c"]
    assert client.consume("n", no_ack=True, queue=other) == []
    client.does(spec.BasicCancel("c"))
    assert client.ack(1) == ["n", "n", "n"]


def test_consumers_without_acks_that_came_first_wait_too(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    other = client.declare(0)
    client.qos(1)
    assert client.consume("n", no_ack=True, queue=other) == []
    client.raw.send(publish(1, other), content_header(1, 0))
    assert client.hears() == ["n"]
    assert client.consume("c") == ["c"]
    client.raw.send(publish(1, other), content_header(1, 0))
    assert client.hears() == []
    client.does(spec.BasicCancel("c"))
    assert client.qos(0) == ["n"]


def test_consumers_without_acks_count_for_nothing(client: Client) -> None:
    """Rows: 1.8 prefetch"""
    client.qos(2)
    assert client.consume("n", no_ack=True) == ["n"] * 12
