"""Streams: what is refused on a real node, in RabbitMQ's words, and what is taken.

What closes a channel leaves the connection; what is not implemented ends it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest

from tests.nodes import Node

WHERE = "queue 'streams.refusals' in vhost '/'"
NAME = "streams.refusals"
STREAM: dict[str, object] = {"x-queue-type": "stream"}

Channel = pika.adapters.blocking_connection.BlockingChannel


@pytest.fixture
def channel(node: Node) -> Iterator[Channel]:
    with node.connect() as connection:
        yield connection.channel()


@pytest.fixture
def stream(node: Node, channel: Channel) -> Iterator[str]:
    channel.queue_declare(NAME, durable=True, arguments=STREAM)
    yield NAME
    with node.connect() as connection:
        connection.channel().queue_delete(NAME)


def closed(channel: Channel, act: object, code: int, text: str) -> None:
    """The channel closes with this, and a new one opens."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        act(channel)  # type: ignore[operator]
    assert (caught.value.reply_code, caught.value.reply_text) == (code, text)
    channel.connection.channel().close()


def ended(channel: Channel, act: object, text: str) -> None:
    """The connection ends with 540 and this."""
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        act(channel)  # type: ignore[operator]
    assert (caught.value.reply_code, caught.value.reply_text) == (540, f"NOT_IMPLEMENTED - {text}")


def consume(channel: Channel, prefetch: int = 10, **given: object) -> None:
    if prefetch:
        channel.basic_qos(prefetch_count=prefetch)
    channel.basic_consume(NAME, lambda *_: None, **given)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"auto_delete": True, "exclusive": True}, "auto-delete"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({}, "non-durable"),
    ],
)
def test_only_durable_shared_ones(channel: Channel, given: dict[str, bool], word: str) -> None:
    """Rows: 1.19 declare"""
    text = f"PRECONDITION_FAILED - invalid property '{word}' for {WHERE}"
    closed(channel, lambda c: c.queue_declare(NAME, arguments=STREAM, **given), 406, text)


def test_no_names_by_the_server(channel: Channel) -> None:
    """Rows: 1.19 declare"""
    text = "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_stream_queue"
    closed(channel, lambda c: c.queue_declare("", durable=True, arguments=STREAM), 406, text)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("x-max-length", 5, "invalid arg 'x-max-length' for {} of queue type rabbit_stream_queue"),
        (
            "x-message-ttl",
            5,
            "invalid arg 'x-message-ttl' for {} of queue type rabbit_stream_queue",
        ),
        ("x-max-age", "abc", "invalid arg 'x-max-age' for {}: invalid_max_age"),
        (
            "x-stream-max-segment-size-bytes",
            3_000_000_001,
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
        ("x-stream-filter-size-bytes", 8, "Invalid value for  x-stream-filter-size-bytes"),
    ],
)
def test_arguments(channel: Channel, key: str, value: object, text: str) -> None:
    """Rows: 1.3 ST args"""
    given = {**STREAM, key: value}
    text = f"PRECONDITION_FAILED - {text.format(WHERE)}"
    closed(channel, lambda c: c.queue_declare(NAME, durable=True, arguments=given), 406, text)


def test_declared_again_otherwise(channel: Channel, stream: str) -> None:
    assert channel.queue_declare(stream, durable=True, arguments=STREAM).method.message_count == 0
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for {WHERE}: received 'classic' but"
        " current is 'stream'"
    )
    other = {"x-queue-type": "classic"}
    closed(channel, lambda c: c.queue_declare(stream, durable=True, arguments=other), 406, text)


def test_a_consumer_has_a_prefetch(channel: Channel, stream: str) -> None:
    """Rows: 1.19 consume"""
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for '{WHERE}'"
    closed(channel, lambda c: consume(c, 0), 406, text)


def test_a_consumer_acknowledges(channel: Channel, stream: str) -> None:
    """Rows: 1.19 consume"""
    text = f"automatic acknowledgement not supported by stream queues {WHERE}"
    ended(channel, lambda c: consume(c, auto_ack=True), text)


def test_no_prefetch_of_the_channel(channel: Channel, stream: str) -> None:
    """Rows: 1.19 consume"""
    channel.basic_qos(prefetch_count=10)
    channel.basic_qos(prefetch_count=10, global_qos=True)
    ended(channel, lambda c: consume(c, 0), f"{WHERE} does not support global qos")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"x-stream-offset": "x"},
            "invalid arg 'x-stream-offset' for {}: "
            '{{invalid_stream_offset_arg,{{longstr,<<"x">>}}}}',
        ),
        ({"x-priority": 1}, "invalid arg 'x-priority' for {} of queue type rabbit_stream_queue"),
    ],
)
def test_arguments_of_consumers(
    channel: Channel, stream: str, given: dict[str, object], text: str
) -> None:
    """Rows: 1.19 offset"""
    text = f"PRECONDITION_FAILED - {text.format(WHERE)}"
    closed(channel, lambda c: consume(c, arguments=given), 406, text)


def test_nothing_is_got(channel: Channel, stream: str) -> None:
    """Rows: 1.19 consume"""
    ended(
        channel, lambda c: c.basic_get(stream), f"basic.get not supported by stream queues {WHERE}"
    )


def test_nothing_is_purged(channel: Channel, stream: str) -> None:
    """Rows: 1.19 consume"""
    text = f"queue.purge not supported by stream queues {WHERE}"
    ended(channel, lambda c: c.queue_purge(stream), text)


def test_conditions_of_a_delete_are_ignored(channel: Channel) -> None:
    channel.queue_declare("streams.gone", durable=True, arguments=STREAM)
    channel.queue_delete("streams.gone", if_unused=True, if_empty=True)
    text = "NOT_FOUND - no queue 'streams.gone' in vhost '/'"
    closed(channel, lambda c: c.queue_declare("streams.gone", passive=True), 404, text)


def test_a_stream_is_shown_with_its_members(node: Node, stream: str) -> None:
    found = node.api("GET", f"/queues/%2F/{stream}")
    assert (found["type"], found["members"]) == ("stream", [found["node"]])
    assert {"leader", "online"} <= found.keys()
    assert found.keys().isdisjoint(("target_group_size", "recoverable_slaves"))
