"""Publishers whose messages are expensive to route pay for it themselves."""

from __future__ import annotations

import time

from broker.amqp import spec
from broker.amqp.content import Properties, build_message
from broker.amqp.frames import method_frame
from tests.cluster.witness import witness
from tests.machine import lateness
from tests.nodes import Node, wait_until
from tests.wire.raw import Raw

SECONDS = 4.0
QUEUES = 400
PUBLISHERS = 4
GONE_S = 4.0
"""A heartbeat a second finds them out."""


def flood(node: Node, data: bytes) -> list[Raw]:
    """Push at a node what it takes, over several connections."""
    flooding = [Raw(node.amqp_port).to_channel(heartbeat=60) for _ in range(PUBLISHERS)]
    left = [memoryview(b"")] * PUBLISHERS
    for raw in flooding:
        raw.socket.setblocking(False)
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s:
        for number, raw in enumerate(flooding):
            part = left[number] or memoryview(data)
            try:
                left[number] = part[raw.socket.send(part) :]
            except BlockingIOError:
                left[number] = part
        time.sleep(0.01)
    return flooding


def test_messages_for_400_queues_each_keep_nobody_waiting(node: Node, name: str) -> None:
    """Nor do they when their publishers have gone: what is left of them is dropped."""
    queues = [f"{name}-{number}" for number in range(QUEUES)]
    with Raw(node.amqp_port).to_channel() as owner:
        owner.send(
            *(
                method_frame(1, spec.QueueDeclare(queue=queue, exclusive=True, no_wait=True))
                for queue in queues
            )
        )
        owner.call(
            1,
            spec.ExchangeDeclare(exchange="amq.fanout", type="fanout", passive=True),
            spec.ExchangeDeclareOk,
        )
        message = build_message(
            "", queues[0], Properties(headers={"CC": queues[1:], "x": "y"}), b"x", channel=1
        )
        publish = method_frame(1, spec.BasicPublish("", queues[0])) + message.content
        count = len(node.api("GET", "/connections"))
        with witness(node) as seen:
            flooding = flood(node, publish * 10)
            for raw in flooding:
                raw.socket.close()
            most_s = GONE_S * lateness()
            wait_until(
                lambda: len(node.api("GET", "/connections")) <= count + 1,
                "the publishers' connections are gone",
                most_s,
            )
        seen.claim()
