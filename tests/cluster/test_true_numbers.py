"""What the HTTP API of any node says of messages, beside what clients have counted themselves."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.nodes import Trio, wait_until

PER_S = 200
LOAD_S = 9.0
AGES = "msg_rates_age=5&msg_rates_incr=1&lengths_age=5&lengths_incr=1"


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_every_node_shows_the_numbers_and_rates_that_clients_have_counted(trio: Trio, kind: str):
    name = f"true.{kind}"
    publisher, consumer = trio.nodes[0].connect(), trio.nodes[1].connect()
    sent, acked = 0, 0
    out, back = publisher.channel(), consumer.channel()
    out.confirm_delivery()
    out.queue_declare(name, durable=True, arguments={"x-queue-type": kind})

    def on_message(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        nonlocal acked
        acked += 1
        channel.basic_ack(method.delivery_tag)

    back.basic_consume(name, on_message)
    begun = time.monotonic()
    while (passed_s := time.monotonic() - begun) < LOAD_S:
        if sent < passed_s * PER_S:
            out.basic_publish("", name, b"true")
            sent += 1
        consumer.process_data_events(0)
    rate = sent / (time.monotonic() - begun)
    path = f"/queues/%2F/{name}"
    while_loaded = [node.api("GET", f"{path}?{AGES}")["message_stats"] for node in trio.nodes]
    wait_until(lambda: consumer.process_data_events(0) or acked == sent, "all are acknowledged")
    wait_until(
        lambda: trio.nodes[2].api("GET", path)["message_stats"].get("ack") == sent,
        "the acknowledgements have arrived",
    )
    for node, stats in zip(trio.nodes, while_loaded, strict=True):
        for key in ("publish", "deliver", "ack"):
            assert stats[f"{key}_details"]["rate"] == pytest.approx(rate, rel=0.05), key
            assert stats[f"{key}_details"]["avg_rate"] == pytest.approx(rate, rel=0.05), key
        found = node.api("GET", path)
        numbers = {key: found["message_stats"][key] for key in ("publish", "deliver", "ack")}
        assert numbers == {"publish": sent, "deliver": sent, "ack": sent}
        assert (found["messages"], found["consumers"]) == (0, 1)
        channels = node.api("GET", "/channels")
        (mine,) = [each for each in channels if each["message_stats"].get("confirm") == sent]
        assert mine["message_stats"]["publish"] == sent
    out.queue_delete(name)
    publisher.close()
    consumer.close()
