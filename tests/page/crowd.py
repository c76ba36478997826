"""A crowded node: ten thousand queues and two thousand connections, within some seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from broker.amqp import spec
from broker.amqp.frames import method_frame
from tests.nodes import Node
from tests.wire.raw import BODY, HEADER, Raw, content_header, frame, open_vhost, publish, start_ok
from tests.wire.raw import tune_ok as tuned

QUEUES, CONNECTIONS = 10_000, 2_000
BUSY = 500
"""Queues with messages, 1 to 500: an order by them is none by name."""

_CONTENT = content_header(1, 3) + frame(BODY, 1, b"abc")


def queue_name(number: int) -> str:
    """ "crowd.00042"."""
    return f"crowd.{number:05}"


@contextmanager
def crowd(node: Node, queues: int = QUEUES, connections: int = CONNECTIONS) -> Iterator[None]:
    """Durable queues, and connections without a heartbeat, for as long as this lasts.

    Args:
        node: Where they are.
        queues: How many; the first 500 have as many messages as their number says.
        connections: How many beside the one of the queues, named "client 0042".
    """
    with ExitStack() as open_now:
        raw = open_now.enter_context(Raw(node.amqp_port))
        raw.to_channel()
        raw.socket.settimeout(120)
        for number in range(queues):
            declare = spec.QueueDeclare(queue_name(number), durable=True, no_wait=True)
            raw.send(method_frame(1, declare))
        last = queue_name(queues - 1)
        raw.call(1, spec.QueueDeclare(last, durable=True), spec.QueueDeclareOk)
        for number in range(min(BUSY, queues)):
            raw.send((publish(1, queue_name(number)) + _CONTENT) * (number + 1))
        raw.call(1, spec.QueueDeclare(last, durable=True), spec.QueueDeclareOk)
        for number in range(connections):
            client = open_now.enter_context(Raw(node.amqp_port))
            client.send(HEADER)
            client.expect(spec.ConnectionStart)
            client.send(start_ok(connection_name=f"client {number:04}"))
            client.expect(spec.ConnectionTune)
            client.send(tuned(), open_vhost())
            client.expect(spec.ConnectionOpenOk)
        yield
