"""The servers that clients are tested with: one node, and a cluster with the queue elsewhere."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from tests.nodes import Node


class Place(NamedTuple):
    """Nodes of a client's two ends and of its queue; in a cluster these are three.

    Attributes:
        here: Where one end connects: the caller, the publisher.
        there: Where the other end connects: the worker, the consumer.
        home: Where queues are declared first, and so where classic ones live.
    """

    here: Node
    there: Node
    home: Node

    def declare(self, queue: str, **arguments: object) -> str:
        """Declare a durable queue at its home, with the arguments its client will send."""
        with self.home.connect() as connection:
            connection.channel().queue_declare(queue, durable=True, arguments=arguments or None)
        return queue

    def depth(self, queue: str) -> int:
        """Ready messages."""
        with self.here.connect() as connection:
            answer = connection.channel().queue_declare(queue, passive=True)
            return int(answer.method.message_count)

    def delete(self, *queues: str) -> None:
        """Delete queues; it is none if there is none."""
        with self.here.connect() as connection:
            channel = connection.channel()
            for queue in queues:
                channel.queue_delete(queue)


def url(node: Node) -> str:
    """A node as an AMQP URL."""
    return f"amqp://guest:guest@127.0.0.1:{node.amqp_port}/"


def name(of: str) -> str:
    """A name nobody has."""
    return f"{of}.{uuid.uuid4().hex[:8]}"
