"""Bad input of streams that clients bring (docs/bad-input.md, Streams), on a real node."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.amqp import spec
from broker.amqp.fields import Timestamp
from broker.amqp.frames import method_frame
from tests.nodes import Node, wait_until
from tests.wire.raw import Raw, content_header, frame
from tests.wire.raw import publish as publish_frame
from tests.wire.test_stream_suite import facts
from tests.wire.test_streams import STREAM, exactly, numbered, publish, read
from tests.wire.test_streams_refusals import closed

UNIT_BYTES_MAX = 32 << 20


@pytest.fixture
def stream(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    yield name
    with node.connect() as connection:
        connection.channel().queue_delete(name)


def named(publisher: object, number: object) -> pika.BasicProperties:
    headers = {"x-warren-publisher": publisher, "x-warren-publishing-id": number}
    return pika.BasicProperties(headers=headers)


def test_156_ages_that_are_none(channel: BlockingChannel, name: str) -> None:
    """Case 156"""
    text = f"PRECONDITION_FAILED - invalid arg 'x-max-age' for queue '{name}' in vhost '/'"
    for age in ("0D", "1", "D", "-1D", "1 D", "1d", "9" * 19 + "Y"):
        given = {**STREAM, "x-max-age": age}
        with channel.connection.channel() as refused:
            closed(
                refused,
                lambda c, given=given: c.queue_declare(name, durable=True, arguments=given),
                406,
                f"{text}: invalid_max_age",
            )


@pytest.mark.parametrize(
    ("publisher", "number"),
    [
        ("", 1),
        ("n" * 256, 1),
        ("ł" * 128, 1),
        (7, 1),
        ("n", -1),
        ("n", "1"),
        ("n", None),
        ("n", True),
    ],
)
def test_157_a_publisher_or_an_id_out_of_bounds(
    node: Node, channel: BlockingChannel, stream: str, publisher: object, number: object
) -> None:
    """Case 157: nack, and nothing is stored; what is within them is."""
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", stream, b"x", named(publisher, number))
    channel.basic_publish("", stream, b"0", named("n" * 255, 2**63 - 1))
    channel.basic_publish("", stream, b"x", named("n" * 255, 2**63 - 1))
    channel.basic_publish("", stream, b"1", named("ł" * 127, 0))
    assert read(node, stream, 2) == numbered(0, 2)
    assert channel.queue_declare(stream, passive=True).method.message_count == 2


def test_158_a_unit_of_one_byte_too_much(node: Node, stream: str) -> None:
    """Case 158: what fits by one byte less is stored."""
    half = UNIT_BYTES_MAX // 2
    with node.connect() as connection:
        sending = connection.channel()
        sending.tx_select()
        sending.basic_publish("", stream, bytes(half), named("u", 1))
        sending.basic_publish("", stream, bytes(half + 1), named("u", 1))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            sending.tx_commit()
    assert caught.value.reply_text == (
        f"PRECONDITION_FAILED - a unit for queue '{stream}' in vhost '/' is larger than"
        f" {UNIT_BYTES_MAX} bytes"
    )
    assert facts(node, stream)["next_offset"] == 0


def test_159_a_connection_that_is_lost_within_a_unit(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    """Case 159: nothing of it is stored; under the same id it may come again."""
    properties = b"".join(named("u", 3).encode())
    with Raw(node.amqp_port) as lost:  # it ends without a word of goodbye
        lost.to_channel().call(1, spec.TxSelect(), spec.TxSelectOk)
        for number in range(5):
            header = content_header(1, 1, properties=properties)
            lost.send(publish_frame(1, stream), header, frame(3, 1, b"%d" % number))
        lost.call(1, spec.QueueDeclare(stream, passive=True), spec.QueueDeclareOk)
    publish(channel, stream, 0, 1)
    with node.connect() as connection:
        sending = connection.channel()
        sending.tx_select()
        for number in range(1, 6):
            sending.basic_publish("", stream, b"%d" % number, named("u", 3))
        sending.tx_commit()
    assert read(node, stream, 6) == numbered(0, 6)
    assert facts(node, stream)["next_offset"] == 6


@pytest.mark.parametrize(
    ("offset", "shown"),
    [
        (str(2**63), f'{{longstr,<<"{2**63}">>}}'),
        ("-1", '{longstr,<<"-1">>}'),
        ("", "{longstr,<<>>}"),
        ("10", '{longstr,<<"10">>}'),
        (True, "{bool,true}"),
        ([1], None),
        ({"a": 1}, None),
        (None, None),
    ],
)
def test_160_an_offset_that_says_nothing(
    channel: BlockingChannel, stream: str, offset: object, shown: str | None
) -> None:
    """Case 160"""
    channel.basic_qos(prefetch_count=1)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_consume(stream, lambda *_: None, arguments={"x-stream-offset": offset})
    assert caught.value.reply_code == 406
    where = f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue '{stream}' in vhost '/'"
    text = caught.value.reply_text
    assert text.startswith(f"{where}: {{invalid_stream_offset_arg,{{")
    assert shown is None or text == f"{where}: {{invalid_stream_offset_arg,{shown}}}"


@pytest.mark.parametrize("offset", [2**63 - 1, Timestamp(2**64 - 1), Timestamp(2**63)])
def test_161_the_farthest_offsets_and_times(
    raw: Raw, channel: BlockingChannel, stream: str, offset: object
) -> None:
    """Case 161: an offset is waited for; a time that is to come is `next`."""
    publish(channel, stream, 0, 3)
    raw.call(1, spec.BasicQos(prefetch_count=10), spec.BasicQosOk)
    consume = spec.BasicConsume(stream, "far", arguments={"x-stream-offset": offset})
    raw.call(1, consume, spec.BasicConsumeOk)
    publish(channel, stream, 3, 1)
    if isinstance(offset, Timestamp):
        assert raw.expect(spec.BasicDeliver).delivery_tag == 1
        for _ in range(2):
            raw.read()  # the content
    raw.send(method_frame(1, spec.QueueDeclare(stream, passive=True)))
    assert raw.expect(spec.QueueDeclareOk).message_count == 4


def test_162_a_time_that_is_to_come_is_next(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    """Case 162: also of a message that is written an hour before it."""
    publish(channel, stream, 0, 3)
    got: list[int] = []
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=10)
        later = datetime.now(tz=UTC) + timedelta(hours=1)
        reading.basic_consume(
            stream,
            lambda _c, _m, _p, body: got.append(int(body)),
            arguments={"x-stream-offset": later},
        )
        publish(channel, stream, 3, 2)
        exactly(connection, got, 2)
    assert got == [3, 4]


def test_163_limits_below_one_segment_keep_the_newest(
    node: Node, channel: BlockingChannel, name: str
) -> None:
    """Case 163: what is written is there, however old or large."""
    given = {**STREAM, "x-max-age": "1s", "x-max-length-bytes": 1}
    channel.queue_declare(name, durable=True, arguments=given)
    publish(channel, name, 0, 20)
    last_ms = facts(node, name)["last_timestamp"]
    too_old_s = last_ms / 1_000 + 1.1
    wait_until(lambda: datetime.now(tz=UTC).timestamp() > too_old_s, "all is too old")
    publish(channel, name, 20, 1)
    assert read(node, name, 21) == numbered(0, 21)
    channel.queue_delete(name)


def test_164_tens_of_thousands_of_different_properties(
    node: Node, channel: BlockingChannel, stream: str
) -> None:
    """Case 164: each message has a key and headers of its own."""
    exchange = f"{stream}.x"
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(stream, exchange)
    count = 3_000
    with node.connect() as connection:
        sending = connection.channel()
        for number in range(count):
            headers = {f"h{number}": number}
            properties = pika.BasicProperties(headers=headers, message_id=str(number))
            sending.basic_publish(exchange, f"key.{number}", b"%d" % number, properties)
        found = connection.channel()
        found.basic_qos(prefetch_count=500)
        given = {"x-stream-offset": "first"}
        for number, (method, properties, body) in enumerate(found.consume(stream, arguments=given)):
            assert (method.routing_key, int(body)) == (f"key.{number}", number)
            assert properties.headers == {f"h{number}": number, "x-stream-offset": number}
            assert properties.message_id == str(number)
            found.basic_ack(method.delivery_tag)
            if number + 1 == count:
                break
        found.cancel()
    channel.exchange_delete(exchange)
