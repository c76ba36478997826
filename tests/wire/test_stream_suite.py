"""RabbitMQ's own cases of streams on one node: those that `test_streams` does not tell already.

docs/stream-cases.md has a row for each case of rabbit_stream_queue_SUITE.erl.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, wait_until
from tests.wire.test_events import EXCHANGE, Watcher
from tests.wire.test_streams import FIRST, STREAM, exactly, numbered, publish, read
from tests.wire.test_streams_refusals import closed

BODY = b"1" * 100


@pytest.fixture
def declared(node: Node, name: str) -> Iterator[Callable[..., str]]:
    """Declares a stream with more arguments; it is deleted at the end."""

    def declare(**more: object) -> str:
        with node.connect() as connection:
            arguments = {**STREAM, **{key.replace("_", "-"): more[key] for key in more}}
            connection.channel().queue_declare(name, durable=True, arguments=arguments)
        return name

    yield declare
    with node.connect() as connection:
        connection.channel().queue_delete(name)


def fill(channel: BlockingChannel, stream: str, count: int) -> None:
    """Publish `BODY` so often; each is confirmed before the next is sent."""
    for _ in range(count):
        channel.basic_publish("", stream, BODY)


def shown(node: Node, stream: str) -> dict[str, object]:
    found: dict[str, object] = node.api("GET", f"/queues/%2F/{stream}")
    return found


def facts(node: Node, stream: str) -> dict[str, int]:
    found: dict[str, int] = node.api("GET", f"/queues/%2F/{stream}")["stream"]
    return found


def consumers(node: Node, stream: str) -> list[str]:
    """Tags of its consumers, by the listing of consumers."""
    found = node.api("GET", "/consumers/%2F")
    return [each["consumer_tag"] for each in found if each["queue"]["name"] == stream]


# Declaring.


def test_a_stream_takes_all_its_arguments_at_once(node: Node, declared: Callable[..., str]) -> None:
    """declare_args"""
    given = {
        "x-max-length-bytes": 2_000_000,
        "x-max-age": "10D",
        "x-stream-max-segment-size-bytes": 5_000_000,
        "x-stream-filter-size-bytes": 32,
    }
    found = shown(node, declared(**given))
    assert found["type"] == "stream"
    assert found["arguments"] == {**STREAM, **given}


def test_an_age_has_a_unit(node: Node, channel: BlockingChannel, name: str) -> None:
    """declare_max_age"""
    where = f"queue '{name}' in vhost '/'"
    text = f"PRECONDITION_FAILED - invalid arg 'x-max-age' for {where}: invalid_max_age"
    with node.connect() as connection:
        refused = connection.channel()
        given = {**STREAM, "x-max-age": "1A"}
        closed(refused, lambda c: c.queue_declare(name, durable=True, arguments=given), 406, text)
    channel.queue_declare(name, durable=True, arguments={**STREAM, "x-max-age": "1Y"})
    channel.queue_delete(name)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "x-overflow",
            "reject-publish",
            "invalid arg 'x-overflow' for {} of queue type rabbit_stream_queue",
        ),
        ("x-stream-filter-size-bytes", 256, "Invalid value for  x-stream-filter-size-bytes"),
        ("x-stream-filter-size-bytes", 15, "Invalid value for  x-stream-filter-size-bytes"),
        (
            "x-stream-max-segment-size-bytes",
            3_000_001_000,
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ),
    ],
)
def test_arguments_that_are_refused(
    channel: BlockingChannel, name: str, key: str, value: object, text: str
) -> None:
    """declare_invalid_arg, declare_invalid_filter_size, max_segment_size_bytes_validation"""
    given = {**STREAM, key: value}
    text = "PRECONDITION_FAILED - " + text.format(f"queue '{name}' in vhost '/'")
    closed(channel, lambda c: c.queue_declare(name, durable=True, arguments=given), 406, text)


# Publishing and consuming.


def test_a_message_without_a_confirm_is_stored(node: Node, declared: Callable[..., str]) -> None:
    """publish"""
    stream = declared()
    with node.connect() as connection:
        connection.channel().basic_publish("", stream, b"0")
    assert read(node, stream, 1) == numbered(0, 1)


def test_an_ack_takes_nothing_and_the_channel_goes_on(
    node: Node, channel: BlockingChannel, declared: Callable[..., str]
) -> None:
    """consume_and_ack"""
    stream = declared()
    publish(channel, stream, 0, 1)
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=10)
        method, _, _ = next(reading.consume(stream, arguments=FIRST, inactivity_timeout=5))
        reading.basic_ack(method.delivery_tag)
        found = reading.queue_declare(stream, durable=True, arguments=STREAM)
        assert found.method.message_count == 1


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("100s", 0),
        (timedelta(seconds=-60), 0),
        (timedelta(seconds=60), 30),
        ("last", 29),
        ("next", 30),
        (None, 30),
    ],
)
def test_who_begins_somewhere_gets_what_comes_later_too(
    node: Node,
    channel: BlockingChannel,
    declared: Callable[..., str],
    offset: object,
    first: int,
) -> None:
    """consume_timestamp_offset, consume_timestamp_last_offset, consume_from_last,
    consume_from_next, consume_from_default, consume_from_relative_time_offset
    """
    stream = declared()
    publish(channel, stream, 0, 30)
    if isinstance(offset, timedelta):
        offset = datetime.now(tz=UTC) + offset
    got: list[tuple[int, bytes]] = []
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=100)
        reading.basic_consume(
            stream,
            lambda _c, _m, p, body: got.append((p.headers["x-stream-offset"], body)),
            arguments={} if offset is None else {"x-stream-offset": offset},
        )
        publish(channel, stream, 30, 30)
        exactly(connection, got, 60 - first)
    assert got == numbered(first, 60)


def test_acks_out_of_order_and_of_many_give_as_much_as_they_settle(
    node: Node, channel: BlockingChannel, declared: Callable[..., str]
) -> None:
    """consume_credit, consume_credit_out_of_order_ack, consume_credit_multiple_ack

    RabbitMQ sends the rest of a chunk above the prefetch; here the prefetch is never exceeded.
    """
    stream = declared()
    publish(channel, stream, 0, 30)
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=2)
        tags: list[int] = []
        reading.basic_consume(
            stream, lambda _c, m, _p, _b: tags.append(m.delivery_tag), arguments=FIRST
        )
        given = partial(exactly, connection, tags)
        given(2)
        reading.basic_ack(tags[1])
        given(3)
        reading.basic_ack(tags[2])
        given(4)
        reading.basic_ack(tags[3], multiple=True)
        given(6)


def test_a_cancelled_consumer_is_listed_no_more(
    node: Node, channel: BlockingChannel, declared: Callable[..., str]
) -> None:
    """basic_cancel, consumer_metrics_cleaned_on_connection_close"""
    stream = declared()
    publish(channel, stream, 0, 3)
    with node.connect() as connection:
        reading = connection.channel()
        reading.basic_qos(prefetch_count=1)
        tags: list[int] = []
        tag = reading.basic_consume(
            stream, lambda _c, m, _p, _b: tags.append(m.delivery_tag), arguments=FIRST
        )
        wait_until(lambda: consumers(node, stream) == [tag], "it is listed")
        exactly(connection, tags, 1)
        reading.basic_cancel(tag)
        wait_until(lambda: consumers(node, stream) == [], "it is gone")
        reading.basic_ack(tags[0])
        exactly(connection, tags, 1)
        again = reading.basic_consume(stream, lambda *_: None)
        wait_until(lambda: consumers(node, stream) == [again], "another is listed")
    wait_until(lambda: consumers(node, stream) == [], "it went with its connection")


def test_consumers_are_told_as_events(node: Node, declared: Callable[..., str]) -> None:
    """consume_cancel_should_create_events"""
    stream = declared()
    with node.connect() as connection:
        watcher = Watcher(connection.channel(), "consumer.*")
        reading = connection.channel()
        reading.basic_qos(prefetch_count=1)
        tag = reading.basic_consume(stream, lambda *_: None)
        watcher.until("consumer.created", consumer_tag=tag, queue=stream)
        reading.basic_cancel(tag)
        watcher.until("consumer.deleted", consumer_tag=tag, queue=stream)
        connection.channel().queue_unbind(watcher.queue, EXCHANGE, "consumer.*")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ({"x-stream-filter": ["apple", "banana"]}, [0, 1, 3, 4]),
        ({"x-stream-filter": "apple"}, [0, 3]),
        ({"x-stream-filter": "apple", "sac": True}, [0, 3]),
        ({"x-stream-filter": "apple", "x-stream-match-unfiltered": True}, [0, 2, 3, 5]),
        ({"foo": "bar"}, [0, 1, 2, 3, 4, 5]),
        ({}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_what_a_filter_may_say(
    node: Node,
    channel: BlockingChannel,
    declared: Callable[..., str],
    arguments: dict[str, object],
    wanted: list[int],
) -> None:
    """filter_spec"""
    stream = declared()
    for number, value in enumerate(["apple", "banana", None] * 2):
        headers = {} if value is None else {"x-stream-filter-value": value}
        publish(channel, stream, number, 1, headers=headers)
    assert [number for number, _ in read(node, stream, len(wanted), **arguments)] == wanted


def test_a_long_chunk_is_filtered_with_a_small_prefetch(
    node: Node, declared: Callable[..., str]
) -> None:
    """filtering: what is picked of one chunk comes in several turns, none twice, none missing."""
    stream = declared()
    with node.connect() as connection:
        sending = connection.channel()
        sending.tx_select()  # a unit: one chunk
        for number in range(300):
            headers = {
                "x-warren-publisher": "unit",
                "x-warren-publishing-id": 1,
                "x-stream-filter-value": ("apple", "banana", "banana")[number % 3],
            }
            sending.basic_publish("", stream, b"%d" % number, pika.BasicProperties(headers=headers))
        sending.tx_commit()
    assert read(node, stream, 300, "last") == numbered(0, 300), "it is one chunk"
    for value, picked in (("banana", (1, 2)), ("apple", (0,))):
        wanted = [(number, b"%d" % number) for number in range(300) if number % 3 in picked]
        for prefetch in (1, 7):
            given = {"x-stream-filter": value}
            assert read(node, stream, len(wanted), prefetch=prefetch, **given) == wanted
    late = [(number, b"%d" % number) for number in range(149, 300) if number % 3]
    assert read(node, stream, len(late), 149, 3, **{"x-stream-filter": "banana"}) == late


# Retention.


def test_the_oldest_segments_go_when_all_are_larger(
    node: Node, channel: BlockingChannel, declared: Callable[..., str]
) -> None:
    """max_length_bytes"""
    given = {"x-max-length-bytes": 10_000, "x-stream-max-segment-size-bytes": 1_000}
    stream = declared(**given)
    fill(channel, stream, 200)
    wait_until(lambda: facts(node, stream)["bytes"] <= 10_000, "they went")
    found = facts(node, stream)
    kept = 200 - found["first_offset"]
    assert 0 < kept < 100
    assert found["next_offset"] == 200
    offsets = [offset for offset, _ in read(node, stream, kept)]
    assert offsets == list(range(200 - kept, 200))


def test_segments_go_when_their_last_message_is_old(
    node: Node, channel: BlockingChannel, declared: Callable[..., str]
) -> None:
    """max_age"""
    stream = declared(**{"x-max-age": "1s", "x-stream-max-segment-size-bytes": 250})
    fill(channel, stream, 20)
    old_ms = facts(node, stream)["last_timestamp"]
    wait_until(lambda: datetime.now(tz=UTC).timestamp() * 1_000 > old_ms + 1_000, "they are old")
    fill(channel, stream, 20)
    # The segment under way when the age was over holds an old message and a new one.
    assert 18 <= facts(node, stream)["first_offset"] <= 20
    first = read(node, stream, 20)[0][0]
    assert first == facts(node, stream)["first_offset"]


# Policies.


@pytest.fixture
def policy(node: Node, name: str) -> Iterator[Callable[..., None]]:
    """Sets the policy `name` for queues of that name."""

    def put(**definition: object) -> None:
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        body = {"pattern": f"^{name}$", "definition": named, "apply-to": "queues"}
        node.api("PUT", f"/policies/%2F/{name}", body)

    yield put
    node.api("DELETE", f"/policies/%2F/{name}")


@pytest.mark.parametrize("definition", [{"ha_mode": "all"}, {"message_ttl": 5}])
def test_a_policy_of_other_queues_leaves_a_stream_alone(
    node: Node,
    declared: Callable[..., str],
    policy: Callable[..., None],
    definition: dict[str, object],
) -> None:
    """invalid_policy"""
    stream = declared()
    policy(**definition)
    found = shown(node, stream)
    assert not found.get("policy")
    assert not found.get("operator_policy")
    assert not found.get("effective_policy_definition")


@pytest.mark.parametrize("definition", [{"max-age": "1Y"}, {"stream-max-segment-size-bytes": 5000}])
def test_a_policy_of_streams_is_shown(
    node: Node,
    declared: Callable[..., str],
    policy: Callable[..., None],
    definition: dict[str, object],
) -> None:
    """max_age_policy, max_segment_size_bytes_policy"""
    stream = declared()
    policy(**definition)
    found = shown(node, stream)
    assert found["policy"] == stream
    assert not found.get("operator_policy")
    assert found["effective_policy_definition"] == definition


def test_a_policy_may_not_ask_for_a_larger_segment(node: Node, policy: Callable[..., None]) -> None:
    """max_segment_size_bytes_policy_validation"""
    policy(stream_max_segment_size_bytes=2_999_999_000)
    with pytest.raises(urllib.error.HTTPError) as caught:
        policy(stream_max_segment_size_bytes=3_000_001_000)
    assert caught.value.code == 400
    assert b"3000001000 is not a valid segment size" in caught.value.read()


def test_a_policy_set_later_drops_what_is_too_much(
    node: Node,
    channel: BlockingChannel,
    declared: Callable[..., str],
    policy: Callable[..., None],
) -> None:
    """update_retention_policy"""
    stream = declared(**{"x-stream-max-segment-size-bytes": 200})
    fill(channel, stream, 150)
    before = facts(node, stream)
    assert (before["first_offset"], before["next_offset"]) == (0, 150)
    policy(max_length_bytes=10_000)
    wait_until(lambda: shown(node, stream)["messages"] < 75, "half of them went")
    assert facts(node, stream)["uid"] == before["uid"]
