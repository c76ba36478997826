"""The firehose on three nodes: switched at one, seen of clients of all, on each type of queue."""

from __future__ import annotations

import pika
import pytest

from broker.cli.ctl import commands as ctl
from tests.nodes import Node, Trio

TRACE = "amq.rabbitmq.trace"
QUORUM = {"x-queue-type": "quorum"}


def _ctl(node: Node, *words: str) -> int:
    return ctl.run(words, {"WARRENMQ_URL": f"http://127.0.0.1:{node.management_port}"})


def _take(channel: pika.adapters.blocking_connection.BlockingChannel, count: int) -> list[tuple]:
    """So many copies of the queue `copies`, and no more."""
    found = []
    for method, properties, body in channel.consume("copies", auto_ack=True, inactivity_timeout=30):
        assert method is not None, f"{len(found)} of {count} copies"
        found.append((method.routing_key, properties.headers, body))
        if len(found) == count:
            break
    channel.cancel()
    assert channel.queue_declare("copies", passive=True).method.message_count == 0
    return found


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("traced.classic", {}), ("traced.quorum", QUORUM), ("traced.ha", {})],
    ids=["classic", "quorum", "mirrored"],
)
def test_every_type_of_queue_is_traced_on_all_nodes(
    trio: Trio, capsys: pytest.CaptureFixture[str], name: str, arguments: dict[str, str]
):
    first, second, third = trio.nodes
    policy = {"pattern": r"^traced\.ha$", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
    first.api("PUT", "/policies/%2F/traced", policy)
    with first.connect() as one, second.connect() as two, third.connect() as three:
        channel = one.channel()
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_declare("copies", exclusive=True)
        channel.queue_bind("copies", TRACE, "#")
        try:
            assert _ctl(third, "trace_on", "--acks") == 0
            assert "Trace enabled for vhost /" in capsys.readouterr().out
            for node in trio.nodes:
                shown = node.api("GET", "/vhosts/%2F")
                assert (shown["tracing"], shown["tracing_acks"]) == (True, True)
            publisher = two.channel()
            publisher.confirm_delivery()
            publisher.basic_publish("", name, b"tea", pika.BasicProperties(message_id="m1"))
            consumer = three.channel()
            for method, _, body in consumer.consume(name, inactivity_timeout=30):
                assert body == b"tea"
                consumer.basic_ack(method.delivery_tag)
                break
            copies = sorted(_take(channel, 3), key=lambda each: each[0], reverse=True)
            published, delivered, acked = copies
        finally:
            assert _ctl(second, "trace_off") == 0
        publisher.basic_publish("", name, b"untraced")
        assert channel.queue_declare("copies", passive=True).method.message_count == 0
        channel.queue_delete(name)
    first.api("DELETE", "/policies/%2F/traced")
    assert (published[0], published[2]) == ("publish.", b"tea")
    assert published[1]["routed_queues"] == [name]
    assert published[1]["properties"] == {"message_id": "m1"}
    assert published[1]["node"] == second.user_name
    assert (delivered[0], delivered[2]) == (f"deliver.{name}", b"tea")
    assert (delivered[1]["node"], delivered[1]["redelivered"]) == (third.user_name, 0)
    assert (acked[0], acked[1]["node"]) == (f"ack.{name}", third.user_name)
    assert acked[1]["message_ids"] == ["m1"]
    assert acked[1]["message_numbers"] == [delivered[1]["message_number"]]
    times = [copy[1]["timestamp_in_us"] for copy in (published, delivered, acked)]
    assert times == sorted(times)  # all nodes have this machine's clock


def test_tracing_of_a_vhost_that_is_not_there_is_refused(
    trio: Trio, capsys: pytest.CaptureFixture[str]
):
    assert _ctl(trio.nodes[0], "trace_on", "-p", "nowhere") == 65
    assert "Virtual host 'nowhere' does not exist" in capsys.readouterr().err
