"""A stream where messages come by other ways than a publish to its name; confirms stay right."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.amqp import spec
from tests.nodes import Node, wait_until
from tests.wire.raw import Raw, content_header, frame
from tests.wire.raw import publish as publish_frame
from tests.wire.test_streams import FIRST, STREAM, numbered, publish, read


@pytest.fixture
def stream(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    channel.queue_declare(name, durable=True, arguments=STREAM)
    yield name
    with node.connect() as connection:
        connection.channel().queue_delete(name)


@pytest.fixture
def exchange(node: Node, channel: BlockingChannel, name: str) -> Iterator[str]:
    """A fanout that the stream is bound to."""
    channel.exchange_declare(f"{name}.x", "fanout", durable=True)
    yield f"{name}.x"
    with node.connect() as connection:
        connection.channel().exchange_delete(f"{name}.x")


@pytest.fixture
def source(node: Node, name: str) -> Iterator[str]:
    """The name of a queue beside the stream; it is deleted at the end."""
    yield f"{name}.source"
    with node.connect() as connection:
        connection.channel().queue_delete(f"{name}.source")


def count(channel: BlockingChannel, queue: str) -> int:
    found: int = channel.queue_declare(queue, passive=True).method.message_count
    return found


def first_headers(node: Node, stream: str) -> dict[str, object]:
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        _, properties, _ = next(channel.consume(stream, arguments=FIRST, inactivity_timeout=10))
        found: dict[str, object] = properties.headers
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-type": "classic"},
        {"x-queue-type": "quorum"},
        {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        },
    ],
    ids=["classic", "quorum", "at-least-once"],
)
@pytest.mark.parametrize("way", ["rejected", "expired"])
def test_dead_letters_come_once_and_in_order(
    node: Node,
    channel: BlockingChannel,
    stream: str,
    source: str,
    arguments: dict[str, object],
    way: str,
) -> None:
    """dead_letter_target"""
    to_stream = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream}
    channel.queue_declare(source, durable=True, arguments={**arguments, **to_stream})
    given = {"expiration": "1"} if way == "expired" else {}
    publish(channel, source, 0, 20, delivery_mode=2, **given)
    if way == "rejected":
        with node.connect() as connection:
            rejecting = connection.channel()
            for method, _, _ in rejecting.consume(source, inactivity_timeout=5):
                rejecting.basic_nack(method.delivery_tag, requeue=False)
                if method.delivery_tag == 20:
                    break
            rejecting.cancel()
    assert read(node, stream, 20) == numbered(0, 20)
    wait_until(lambda: count(channel, source) == 0, "nothing is left")
    death = first_headers(node, stream)["x-death"]
    assert isinstance(death, list)
    assert [(each["reason"], each["queue"]) for each in death] == [(way, source)]


def test_what_a_full_queue_drops_comes(
    node: Node, channel: BlockingChannel, stream: str, source: str
) -> None:
    given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream, "x-max-length": 5}
    channel.queue_declare(source, durable=True, arguments=given)
    publish(channel, source, 0, 20)
    assert read(node, stream, 15) == numbered(0, 15)


def test_delayed_messages_come_when_they_are_due(
    node: Node, channel: BlockingChannel, stream: str, name: str
) -> None:
    delayed = f"{name}.delayed"
    arguments = {"x-delayed-type": "direct"}
    channel.exchange_declare(delayed, "x-delayed-message", durable=True, arguments=arguments)
    channel.queue_bind(stream, delayed, "k")
    for number, delay_ms in ((2, 600), (1, 300), (0, 0)):
        headers = {"x-delay": delay_ms} if delay_ms else {}
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        channel.basic_publish(delayed, "k", b"%d" % number, properties)
    assert read(node, stream, 3) == numbered(0, 3)
    channel.exchange_delete(delayed)


def test_an_alternate_exchange_leads_to_it(
    node: Node, channel: BlockingChannel, stream: str, exchange: str, name: str
) -> None:
    channel.queue_bind(stream, exchange)
    narrow = f"{name}.narrow"
    channel.exchange_declare(narrow, "direct", arguments={"alternate-exchange": exchange})
    for number in range(5):  # pika raises for what is returned or refused
        channel.basic_publish(narrow, "no one's", b"%d" % number, mandatory=True)
    assert read(node, stream, 5) == numbered(0, 5)
    channel.exchange_delete(narrow)


def test_a_mandatory_message_is_returned_only_if_no_stream_is_bound(
    node: Node, channel: BlockingChannel, stream: str, name: str
) -> None:
    direct = f"{name}.direct"
    channel.exchange_declare(direct, "direct")
    channel.queue_bind(stream, direct, "k")
    channel.basic_publish(direct, "k", b"0", mandatory=True)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(direct, "other", b"x", mandatory=True)
    channel.basic_publish("", stream, b"1", mandatory=True)
    assert read(node, stream, 2) == numbered(0, 2)
    assert count(channel, stream) == 2
    channel.exchange_delete(direct)


def test_several_ways_to_it_give_one_copy(
    node: Node, channel: BlockingChannel, stream: str, exchange: str, name: str
) -> None:
    """Two bindings between exchanges, a binding of its own, and CC with its name."""
    outer = f"{name}.outer"
    channel.exchange_declare(outer, "topic")
    channel.exchange_bind(exchange, outer, "#")
    channel.exchange_bind(exchange, outer, "a.*")
    channel.queue_bind(stream, exchange)
    channel.queue_bind(stream, outer, "a.b")
    channel.basic_publish(outer, "a.b", b"0", mandatory=True)
    both = pika.BasicProperties(headers={"CC": [stream, "a.b"], "BCC": [stream]})
    channel.basic_publish("", stream, b"1", both, mandatory=True)
    channel.basic_publish(outer, "c", b"2", mandatory=True)
    assert read(node, stream, 3) == numbered(0, 3)
    assert count(channel, stream) == 3
    channel.exchange_delete(outer)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_for_a_queue_beside_it_are_confirmed_once_each(
    node: Node,
    channel: BlockingChannel,
    raw: Raw,
    stream: str,
    exchange: str,
    source: str,
    kind: str,
) -> None:
    """Also if many are under way; both have all then, the queue's as if there were no stream."""
    channel.queue_declare(source, durable=True, arguments={"x-queue-type": kind})
    for each in (stream, source):
        channel.queue_bind(each, exchange)
    raw.call(1, spec.ConfirmSelect(), spec.ConfirmSelectOk)
    for number in range(300):
        body = b"%d" % number
        content = content_header(1, len(body)) + frame(3, 1, body)
        raw.send(publish_frame(1, "", exchange), content)
    open_tags = set(range(1, 301))
    while open_tags:
        ack = raw.expect(spec.BasicAck)
        tags = {tag for tag in open_tags if tag <= ack.delivery_tag} if ack.multiple else set()
        assert ack.delivery_tag in open_tags, "each is confirmed once"
        open_tags -= tags | {ack.delivery_tag}
    raw.call(1, spec.QueueDeclare(stream, passive=True), spec.QueueDeclareOk)  # and nothing more
    assert read(node, stream, 300, prefetch=100) == numbered(0, 300)
    assert count(channel, source) == 300
    method, properties, body = channel.basic_get(source, auto_ack=True)
    assert (method.redelivered, properties.headers, body) == (False, None, b"0")


def test_a_queue_that_rejects_makes_it_a_nack_though_the_stream_has_it(
    node: Node, channel: BlockingChannel, stream: str, exchange: str, source: str
) -> None:
    """As of any two queues: nack says that not all took it."""
    given = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(source, durable=True, arguments=given)
    for each in (stream, source):
        channel.queue_bind(each, exchange)
    nacked = []
    for number in range(5):
        try:
            channel.basic_publish(exchange, "", b"%d" % number)
        except pika.exceptions.NackError:
            nacked.append(number)
    assert nacked == [2, 3, 4]
    assert read(node, stream, 5) == numbered(0, 5)
    assert count(channel, source) == 2


def test_a_transaction_through_an_exchange_ends_for_all_at_once(
    node: Node, channel: BlockingChannel, stream: str, exchange: str, source: str
) -> None:
    channel.queue_declare(source, durable=True)
    for each in (stream, source):
        channel.queue_bind(each, exchange)
    with node.connect() as connection:
        sending = connection.channel()
        sending.tx_select()
        for number in range(5):
            sending.basic_publish(exchange, "", b"%d" % number, mandatory=True)
        assert (count(channel, stream), count(channel, source)) == (0, 0)
        sending.tx_commit()
        assert (count(channel, stream), count(channel, source)) == (5, 5)
        sending.basic_publish(exchange, "", b"x")
        sending.tx_rollback()
        sending.tx_commit()
    assert read(node, stream, 5) == numbered(0, 5)
    assert (count(channel, stream), count(channel, source)) == (5, 5)


def test_a_stream_that_goes_leaves_the_others_their_confirms(
    node: Node, channel: BlockingChannel, stream: str, exchange: str, source: str
) -> None:
    channel.queue_declare(source, durable=True)
    for each in (stream, source):
        channel.queue_bind(each, exchange)
    channel.basic_publish(exchange, "", b"0", mandatory=True)
    channel.queue_delete(stream)
    channel.basic_publish(exchange, "", b"1", mandatory=True)
    assert count(channel, source) == 2
