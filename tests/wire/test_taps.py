"""Taps over the HTTP API."""

from __future__ import annotations

from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node
from tests.wire.test_super_streams import reason

PATH = "/taps/%2F/queue/taps.wire"


def streams(node: Node) -> list[str]:
    return [each["name"] for each in node.api("GET", "/queues") if each["name"].startswith("tap.")]


def test_added_listed_and_deleted(node: Node) -> None:
    node.api("PUT", "/queues/%2F/taps.wire", {"durable": True})
    assert reason(node, "DELETE", PATH)[0] == 404
    node.api("PUT", PATH, {"arguments": {"x-max-age": "7D"}})
    node.api("PUT", PATH, {})
    wanted = {
        "vhost": "/",
        "kind": "queue",
        "source": "taps.wire",
        "stream": "tap.queue.taps.wire",
        "routing_key": "",
    }
    assert node.api("GET", "/taps") == node.api("GET", "/taps/%2F") == [wanted]
    assert node.api("GET", "/definitions")["taps"] == [wanted]
    stream = node.api("GET", "/queues/%2F/tap.queue.taps.wire")
    assert stream["arguments"] == {"x-queue-type": "stream", "x-max-age": "7D"}
    node.api("DELETE", PATH)
    assert node.api("GET", "/taps") == []
    assert streams(node) == ["tap.queue.taps.wire"]
    for name in ("taps.wire", "tap.queue.taps.wire"):
        node.api("DELETE", f"/queues/%2F/{name}")


def test_no_stream_stays_of_a_tap_that_is_refused(node: Node) -> None:
    node.api("PUT", "/exchanges/%2F/taps.hash", {"type": "x-consistent-hash", "durable": True})
    code, text = reason(node, "PUT", "/taps/%2F/exchange/taps.hash", {"routing_key": "1"})
    assert (code, "tap its queues instead" in text) == (400, True)
    assert reason(node, "PUT", "/taps/%2F/exchange/nowhere", {})[0] == 404
    assert reason(node, "PUT", "/taps/%2F/shovel/taps.hash", {})[0] == 404
    assert streams(node) == []
    node.api("DELETE", "/exchanges/%2F/taps.hash")


def taken(channel: BlockingChannel, stream: str, count: int) -> list[tuple[str, bytes]]:
    """So many messages of a stream from its beginning: routing key and body."""
    channel.basic_qos(prefetch_count=count)
    found: list[tuple[str, bytes]] = []
    arguments = {"x-stream-offset": "first"}
    for method, _, body in channel.consume(stream, arguments=arguments, inactivity_timeout=10):
        assert method is not None, f"only {found} came"
        channel.basic_ack(method.delivery_tag)
        found.append((method.routing_key, body))
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_what_a_queue_got_is_in_its_tap_after_it_was_consumed(node: Node) -> None:
    """By the default exchange, by a binding, and as dead letters."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("taps.dead", durable=True)
        channel.queue_declare(
            "taps.first",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "taps.dead"},
        )
        channel.queue_bind("taps.dead", "amq.direct", "by-binding")
        channel.confirm_delivery()
        channel.basic_publish("", "taps.dead", b"before")
        node.api("PUT", "/taps/%2F/queue/taps.dead", {})
        channel.basic_publish("", "taps.dead", b"direct")
        channel.basic_publish("amq.direct", "by-binding", b"bound")
        channel.basic_publish("", "taps.first", b"dies")
        method, _, _ = channel.basic_get("taps.first")
        channel.basic_reject(method.delivery_tag, requeue=False)
        wanted = [("taps.dead", b"direct"), ("by-binding", b"bound"), ("taps.dead", b"dies")]
        assert taken(channel, "tap.queue.taps.dead", 3) == wanted
        assert channel.queue_purge("taps.dead").method.message_count == 4
        assert taken(channel, "tap.queue.taps.dead", 3) == wanted, "still there"
        for name in ("taps.first", "taps.dead", "tap.queue.taps.dead"):
            channel.queue_delete(name)


def test_what_passes_an_exchange_is_in_its_tap(node: Node) -> None:
    with node.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare("taps.topic", "topic", durable=True)
        node.api("PUT", "/taps/%2F/exchange/taps.topic", {})
        channel.confirm_delivery()
        for key in ("a", "a.b"):
            channel.basic_publish("taps.topic", key, b"x", mandatory=True)
        assert taken(channel, "tap.exchange.taps.topic", 2) == [("a", b"x"), ("a.b", b"x")]
        channel.exchange_delete("taps.topic")
        assert node.api("GET", "/taps") == []
        channel.queue_delete("tap.exchange.taps.topic")
