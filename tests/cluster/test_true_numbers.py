"""What the HTTP API of any node says of messages, beside what clients have counted themselves."""

from __future__ import annotations

import time
from typing import Any

import pika
import pytest

from tests.nodes import Trio, wait_until

PER_S = 200
LOAD_S = 9.0
AGE_S = 5
AGES = f"msg_rates_age={AGE_S}&msg_rates_incr=1&lengths_age={AGE_S}&lengths_incr=1"
SAMPLED_S = 3.0
"""The last sample of a node may be so old."""
STEP_S = 0.25


def check_rates(stats: dict[str, Any], at_s: list[float], end_s: float) -> None:
    """`rate` and `avg_rate` are what clients did in such a time, of those that ended lately.

    A busy machine slows the test's own clients down for seconds; what nodes show follows them.
    """
    for which, spans_s in {"rate": (1, AGE_S), "avg_rate": (AGE_S - 1, AGE_S)}.items():
        found = [
            sum(until_s - span_s < each <= until_s for each in at_s) / span_s
            for step in range(int(SAMPLED_S / STEP_S) + 1)
            for until_s in [end_s - step * STEP_S]
            for span_s in spans_s
        ]
        for key in ("publish", "deliver", "ack"):
            rate = stats[f"{key}_details"][which]
            assert min(found) * 0.95 < rate < max(found) * 1.05, (key, which, found)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize(
    "kind", ["mirrored", "quorum", pytest.param("classic", marks=pytest.mark.soak)]
)
def test_every_node_shows_the_numbers_and_rates_that_clients_have_counted(trio: Trio, kind: str):
    name = f"true.{kind}"
    publisher, consumer = trio.nodes[0].connect(), trio.nodes[1].connect()
    sent, acked = 0, 0
    out, back = publisher.channel(), consumer.channel()
    out.confirm_delivery()
    if kind == "mirrored":
        mirrored = {"pattern": "^true.mirrored$", "definition": {"ha-mode": "all"}}
        trio.nodes[0].api("PUT", "/policies/%2F/true", mirrored)
    queue_type = "quorum" if kind == "quorum" else "classic"
    out.queue_declare(name, durable=True, arguments={"x-queue-type": queue_type})

    def on_message(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        nonlocal acked
        acked += 1
        channel.basic_ack(method.delivery_tag)

    tag = back.basic_consume(name, on_message)
    begun = time.monotonic()
    sent_s: list[float] = []
    while (passed_s := time.monotonic() - begun) < LOAD_S:
        if sent < passed_s * PER_S:
            out.basic_publish("", name, b"true")
            sent += 1
            sent_s.append(time.monotonic())
        consumer.process_data_events(0)
    ended_s = time.monotonic()
    path = f"/queues/%2F/{name}"
    while_loaded = [node.api("GET", f"{path}?{AGES}")["message_stats"] for node in trio.nodes]
    wait_until(lambda: consumer.process_data_events(0) or acked == sent, "all are acknowledged")
    wait_until(
        lambda: trio.nodes[2].api("GET", path)["message_stats"].get("ack") == sent,
        "the acknowledgements have arrived",
    )
    for node, stats in zip(trio.nodes, while_loaded, strict=True):
        check_rates(stats, sent_s, ended_s)
        found = node.api("GET", path)
        numbers = {key: found["message_stats"][key] for key in ("publish", "deliver", "ack")}
        assert numbers == {"publish": sent, "deliver": sent, "ack": sent}
        assert (found["messages"], found["consumers"]) == (0, 1)
        assert found["consumer_capacity"] > 0.9  # it never had to wait
        assert (found["messages_persistent"], found["head_message_timestamp"]) == (0, None)
        (came,), (went,) = found["incoming"], found["deliveries"]
        assert (came["exchange"]["name"], came["stats"]["publish"]) == ("", sent)
        assert (went["stats"]["deliver"], went["stats"]["ack"]) == (sent, sent)
        channels = node.api("GET", "/channels")
        (mine,) = [each for each in channels if each["message_stats"].get("confirm") == sent]
        assert mine["message_stats"]["publish"] == sent
    back.basic_cancel(tag)
    held = pika.BasicProperties(delivery_mode=2, timestamp=1_700_000_000)
    out.basic_publish("", name, b"true", held)
    for node in trio.nodes:
        found = node.api("GET", path)
        assert (found["messages_persistent"], found["message_bytes_persistent"]) == (1, 4)
        assert found["head_message_timestamp"] == held.timestamp
    for node in trio.nodes:  # asked of one that it is not
        parts = trio.nodes[0].api("GET", f"/nodes/{node.user_name}/memory")["memory"]
        total = parts.pop("total")["rss"]
        assert parts.pop("strategy") == "rss"
        assert sum(parts.values()) == pytest.approx(total, rel=0.05)
        assert parts["quorum_ets"] > 0 < parts["msg_index"]
        shares = trio.nodes[0].api("GET", f"/nodes/{node.user_name}/memory/relative")["memory"]
        assert shares.pop("total") == 100
        assert 90 < sum(shares.values()) < 120  # what is there at all is at least 1
    out.queue_delete(name)
    if kind == "mirrored":
        trio.nodes[0].api("DELETE", "/policies/%2F/true")
    publisher.close()
    consumer.close()
