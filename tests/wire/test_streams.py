"""Streams on a real node: what is published is read again, from anywhere, by anyone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until

STREAM: dict[str, object] = {"x-queue-type": "stream"}
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
Got = list[tuple[int, bytes]]


@pytest.fixture
def stream(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    yield name
    with node.connect() as connection:
        connection.channel().queue_delete(name)


def publish(channel: BlockingChannel, stream: str, first: int, count: int, **given: object) -> None:
    """Publish messages "first", "first + 1" ...; each is confirmed before this returns."""
    properties = pika.BasicProperties(**given)
    for number in range(first, first + count):
        channel.basic_publish("", stream, b"%d" % number, properties)


def read(
    node: Node,
    stream: str,
    count: int,
    offset: object = "first",
    prefetch: int = 7,
    **given: object,
) -> Got:
    """Read so many messages with acknowledgements; none comes for half a second after them."""
    arguments = {"x-stream-offset": offset, **given}
    got: Got = []
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=prefetch)
        for method, properties, body in channel.consume(
            stream, arguments=arguments, inactivity_timeout=5 if count else 0.5
        ):
            if method is None:
                break
            assert not method.redelivered
            got.append((properties.headers["x-stream-offset"], body))
            channel.basic_ack(method.delivery_tag)
            if len(got) == count:
                break
        channel.cancel()
    return got


def numbered(first: int, last: int) -> Got:
    return [(number, b"%d" % number) for number in range(first, last)]


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("first", 0),
        (0, 0),
        (33, 33),
        ("last", 59),
        ("1h", 0),
        (LONG_AGO, 0),
    ],
)
def test_a_consumer_begins_where_it_asks(
    node: Node, channel: BlockingChannel, stream: str, offset: object, first: int
) -> None:
    """Rows: 1.19 offset"""
    publish(channel, stream, 0, 60)
    assert read(node, stream, 60 - first, offset) == numbered(first, 60)


def test_next_and_offsets_to_come_wait(node: Node, channel: BlockingChannel, stream: str) -> None:
    """Rows: 1.19 offset"""
    publish(channel, stream, 0, 5)
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=100)
        got: dict[str, Got] = {"next": [], "later": []}

        def take(tag: str) -> object:
            return lambda _c, _m, p, body: got[tag].append((p.headers["x-stream-offset"], body))

        reading.basic_consume(stream, take("next"))
        reading.basic_consume(stream, take("later"), arguments={"x-stream-offset": 8})
        publish(channel, stream, 5, 5)
        deadline = time.monotonic() + 5
        while len(got["later"]) < 2 and time.monotonic() < deadline:
            connection.process_data_events(time_limit=0.1)
    assert got == {"next": numbered(5, 10), "later": numbered(8, 10)}


def test_a_timestamp_is_that_of_the_chunk(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    """Rows: 1.19 offset"""
    publish(channel, stream, 0, 3)
    begun = datetime.now(tz=UTC).replace(microsecond=0)
    wait_until(  # AMQP's timestamps are whole seconds
        lambda: datetime.now(tz=UTC) > begun + timedelta(seconds=1.1), "a second passed"
    )
    since = begun + timedelta(seconds=1)
    publish(channel, stream, 3, 3)
    assert read(node, stream, 3, since) == numbered(3, 6)


def test_unsettled_messages_never_exceed_the_prefetch(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    """Rows: 1.19 ack"""
    publish(channel, stream, 0, 30)
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=10)
        tags: list[int] = []
        reading.basic_consume(
            stream, lambda _c, m, _p, _b: tags.append(m.delivery_tag), arguments=FIRST
        )
        given = partial(exactly, connection, tags)
        given(10)
        reading.basic_nack(tags[2])
        reading.basic_reject(tags[3], requeue=True)
        reading.basic_ack(tags[6], multiple=True)
        given(17)
        reading.basic_recover(requeue=True)
        given(27)


def exactly(connection: pika.BlockingConnection, got: list[int], count: int) -> None:
    """So many come, and no more within a fifth of a second."""
    deadline = time.monotonic() + 5
    while len(got) < count and time.monotonic() < deadline:
        connection.process_data_events(time_limit=0.1)
    quiet = time.monotonic() + 0.2
    while time.monotonic() < quiet:
        connection.process_data_events(time_limit=0.1)
    assert len(got) == count


FIRST: dict[str, object] = {"x-stream-offset": "first"}


def test_every_consumer_gets_everything(node: Node, channel: BlockingChannel, stream: str) -> None:
    """Rows: 1.19 consume"""
    publish(channel, stream, 0, 20)
    assert [read(node, stream, 20) for _ in range(3)] == [numbered(0, 20)] * 3
    declared = channel.queue_declare(stream, passive=True)
    assert declared.method.message_count == 20


def test_messages_keep_what_they_brought(node: Node, channel: BlockingChannel, stream: str) -> None:
    channel.exchange_declare(f"{stream}.x", "topic")
    channel.queue_bind(stream, f"{stream}.x", "#")
    body = bytes(range(256)) * 20_000  # 5 MB: more than an entry and a frame hold
    properties = pika.BasicProperties(
        content_type="text/plain", headers={"a": 1}, delivery_mode=1, priority=3, message_id="m"
    )
    channel.basic_publish(f"{stream}.x", "a.b", body, properties)
    channel.basic_publish(f"{stream}.x", "c", b"")
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=10)
        found = reading.consume(stream, arguments=FIRST, inactivity_timeout=5)
        method, got, content = next(found)
        assert (method.exchange, method.routing_key) == (f"{stream}.x", "a.b")
        assert content == body
        assert got.headers == {"a": 1, "x-stream-offset": 0}
        assert (got.content_type, got.delivery_mode, got.priority) == ("text/plain", 1, 3)
        assert got.message_id == "m"
        method, got, content = next(found)
        assert (method.routing_key, content, got.headers) == ("c", b"", {"x-stream-offset": 1})
        reading.cancel()
    channel.exchange_delete(f"{stream}.x")


def test_a_filter_is_exact(node: Node, channel: BlockingChannel, stream: str) -> None:
    """Rows: 1.19 filter"""
    for number, value in enumerate(["a", "b", None, "a", "c"] * 4):
        headers = {} if value is None else {"x-stream-filter-value": value}
        publish(channel, stream, number, 1, headers=headers)
    found = [number for number, _ in read(node, stream, 8, **{"x-stream-filter": ["a"]})]
    assert found == [0, 3, 5, 8, 10, 13, 15, 18]
    both = {"x-stream-filter": "c", "x-stream-match-unfiltered": True}
    assert [number for number, _ in read(node, stream, 8, **both)] == [2, 4, 7, 9, 12, 14, 17, 19]


def test_a_publishing_id_is_stored_once(node: Node, channel: BlockingChannel, stream: str) -> None:
    for number in [0, 1, 1, 0, 2]:
        headers = {"x-warren-publisher": "orders", "x-warren-publishing-id": number}
        publish(channel, stream, number, 1, headers=headers)
    assert read(node, stream, 3) == numbered(0, 3)
    with pytest.raises(pika.exceptions.NackError):
        publish(
            channel, stream, 9, 1, headers={"x-warren-publisher": "", "x-warren-publishing-id": 1}
        )


def test_deleting_ends_its_consumers(node: Node, channel: BlockingChannel, name: str) -> None:
    """Rows: 1.19 consume"""
    channel.queue_declare(name, durable=True, arguments=STREAM)
    with node.connect() as connection:
        reading = connection.channel()
        cancelled: list[object] = []
        reading.add_on_cancel_callback(cancelled.append)
        reading.basic_qos(prefetch_count=1)
        reading.basic_consume(name, lambda *_: None)
        channel.queue_delete(name)
        deadline = time.monotonic() + 5
        while not cancelled and time.monotonic() < deadline:
            connection.process_data_events(time_limit=0.1)
        assert len(cancelled) == 1


def test_a_transaction_of_a_named_publisher_is_a_unit(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    """Its messages are stored all and once, also where they need several batches."""
    sent = [bytes([number]) * 300_000 for number in range(10)]
    with node.connect() as connection:
        sending = connection.channel()
        sending.tx_select()
        for bodies in (sent, sent[::-1]):
            for body in bodies:
                sending.basic_publish("", stream, body, pika.BasicProperties(headers=UNIT))
            sending.tx_commit()
        sending.basic_publish("", stream, b"other", pika.BasicProperties(headers=UNIT | NEXT_ID))
        sending.tx_rollback()
        sending.tx_commit()
    assert [body for _, body in read(node, stream, 10)] == sent
    assert channel.queue_declare(stream, passive=True).method.message_count == 10


UNIT: dict[str, object] = {"x-warren-publisher": "u", "x-warren-publishing-id": 7}
NEXT_ID: dict[str, object] = {"x-warren-publishing-id": 8}


def test_a_unit_that_is_too_large_is_refused_whole(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    with node.connect() as connection:
        sending = connection.channel()
        sending.tx_select()
        for _ in range(33):
            sending.basic_publish("", stream, bytes(1 << 20), pika.BasicProperties(headers=UNIT))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="larger than 33554432"):
            sending.tx_commit()
    assert channel.queue_declare(stream, passive=True).method.message_count == 0


def test_a_listing_shows_offsets_and_consumers(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    publish(channel, stream, 0, 12)
    path = f"/queues/%2F/{stream}"
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=1)
        reading.basic_consume(stream, lambda *_: None)
        wait_until(lambda: node.api("GET", path)["consumers"] == 1, "the consumer is shown")
        reading.cancel()
        found = node.api("GET", path)
        facts = found["stream"]
        assert (found["messages"], found["committed_offset"], found["type"]) == (12, 11, "stream")
        assert (facts["first_offset"], facts["next_offset"], facts["segments"]) == (0, 12, 1)
        assert 0 < facts["first_timestamp"] <= facts["last_timestamp"]
    wait_until(lambda: node.api("GET", path)["consumers"] == 0, "it is gone")
