"""pika beyond the tutorials, with publisher and consumer on different nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from tests.clients.place import Place, name
from tests.nodes import wait_until

PATIENCE_S = 60.0


@pytest.fixture
def ends(place: Place) -> Iterator[tuple[BlockingChannel, ...]]:
    """Channels on three nodes of a cluster, or on one."""
    connections = [node.connect() for node in (place.home, place.there, place.here)]
    yield tuple(connection.channel() for connection in connections)
    for connection in connections:
        if connection.is_open:
            connection.close()


@pytest.fixture(params=["classic", "quorum"])
def queue(request: pytest.FixtureRequest, place: Place) -> Iterator[str]:
    """A durable queue of either kind."""
    kept = place.declare(name(request.param), **{"x-queue-type": request.param})
    yield kept
    place.delete(kept)


def fill(channel: BlockingChannel, queue: str, count: int, **properties: Any) -> None:
    """Publish "0", "1", …, confirmed."""
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(**properties))


def take(channel: BlockingChannel, queue: str) -> list[bytes]:
    """All that is ready."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


class Inbox:
    """A consumer that gathers."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: Any) -> None:
        self.channel = channel
        self.got: list[tuple[int, bytes, bool]] = []
        self.cancelled: list[str] = []
        channel.add_on_cancel_callback(
            lambda frame: self.cancelled.append(frame.method.consumer_tag)
        )
        self.tag = channel.basic_consume(queue, self._take, **options)

    def _take(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.got.append((method.delivery_tag, body, method.redelivered))

    def wait(self, count: int) -> list[bytes]:
        """Read until so many are here, and once more to see that no further one comes."""

        def is_full() -> bool:
            self.channel.connection.process_data_events(time_limit=0.05)
            return len(self.got) >= count

        wait_until(is_full, f"{count} messages", PATIENCE_S)
        self.channel.connection.process_data_events(time_limit=0.1)
        return [body for _, body, _ in self.got]


# Notices of the broker


def test_consumers_hear_that_their_queue_was_deleted(ends: tuple[BlockingChannel, ...]) -> None:
    """Rows: 1.8 cancel notify"""
    here, there, _ = ends
    queue = name("gone")
    here.queue_declare(queue)
    inbox = Inbox(there, queue)
    here.queue_delete(queue)

    def is_told() -> bool:
        there.connection.process_data_events(time_limit=0.05)
        return inbox.cancelled == [inbox.tag]

    wait_until(is_told, "basic.cancel", PATIENCE_S)
    assert there.is_open
    there.queue_declare(queue, exclusive=True)


def test_unroutable_mandatory_messages_come_back_before_their_confirm(place: Place) -> None:
    """Rows: 1.10 mandatory; 1.10 when acked"""
    seen: list[str] = []

    def opened(connection: Any) -> None:
        connection.channel(on_open_callback=ready)

    def ready(channel: Any) -> None:
        channel.add_on_return_callback(
            lambda _c, method, properties, body: seen.append(
                f"return {method.reply_code} {method.reply_text} {properties.message_id} {body!r}"
            )
        )
        channel.confirm_delivery(confirmed, callback=lambda _: publish(channel))

    def publish(channel: Any) -> None:
        for number in range(3):
            properties = pika.BasicProperties(message_id=str(number))
            channel.basic_publish("amq.direct", "nowhere", b"x", properties, mandatory=True)
        channel.basic_publish("amq.direct", "nowhere", b"x")

    def confirmed(frame: Any) -> None:
        seen.append(f"{type(frame.method).__name__} {frame.method.delivery_tag}")
        if frame.method.delivery_tag == 4:
            connection.close()

    connection = pika.SelectConnection(
        place.there.parameters(),
        on_open_callback=opened,
        on_close_callback=lambda closed, _reason: closed.ioloop.stop(),
    )
    try:
        connection.ioloop.start()
    finally:
        connection.ioloop.close()
    returns = [each for each in seen if each.startswith("return")]
    assert returns == [f"return 312 NO_ROUTE {number} b'x'" for number in range(3)]
    # A confirm, alone or for several, never overtakes the return of its message.
    for at, each in enumerate(seen):
        if each.startswith("Ack"):
            through = int(each.split()[1])
            assert sum(s.startswith("return") for s in seen[:at]) >= min(through, 3)


def test_a_blocking_publisher_learns_of_the_return(ends: tuple[BlockingChannel, ...]) -> None:
    """Rows: 1.10 mandatory"""
    here = ends[2]
    here.confirm_delivery()
    with pytest.raises(UnroutableError) as error:
        here.basic_publish("amq.topic", "no.where", b"lost", mandatory=True)
    assert [each.body for each in error.value.messages] == [b"lost"]


# Prefetch, ack, nack, recover


def test_prefetch_per_consumer_counts_each_alone(
    ends: tuple[BlockingChannel, ...], queue: str
) -> None:
    """Rows: 1.8 prefetch"""
    here, there, _ = ends
    fill(here, queue, 20)
    there.basic_qos(prefetch_count=3)
    one = Inbox(there, queue)
    there.basic_qos(prefetch_count=5)
    two = Inbox(there, queue)
    one.wait(3)
    two.wait(5)
    assert (len(one.got), len(two.got)) == (3, 5)
    there.basic_ack(one.got[-1][0])
    one.wait(4)
    assert (len(one.got), len(two.got)) == (4, 5)


def test_prefetch_per_channel_counts_all_together(ends: tuple[BlockingChannel, ...]) -> None:
    """Rows: 1.8 prefetch"""
    here, there, _ = ends
    queue = name("prefetch")
    here.queue_declare(queue)
    fill(here, queue, 20)
    there.basic_qos(prefetch_count=4, global_qos=True)
    one, two = Inbox(there, queue), Inbox(there, queue)

    def come(total: int) -> int:
        def is_full() -> bool:
            there.connection.process_data_events(time_limit=0.1)
            return len(one.got) + len(two.got) >= total

        wait_until(is_full, f"{total} messages", PATIENCE_S)
        there.connection.process_data_events(time_limit=0.1)
        return len(one.got) + len(two.got)

    assert come(4) == 4
    there.basic_ack(0, multiple=True)
    assert come(8) == 8
    here.queue_delete(queue)


def test_nack_of_several_gives_them_back_in_order(
    ends: tuple[BlockingChannel, ...], queue: str
) -> None:
    """A classic queue puts them where they were; a quorum queue behind the others, as RabbitMQ.

    Rows: 1.9 ack / nack / reject; 1.9 requeue position; 1.16 requeue position
    """
    here, there, _ = ends
    fill(here, queue, 6)
    tags = [there.basic_get(queue)[0].delivery_tag for _ in range(4)]
    there.basic_nack(tags[2], multiple=True, requeue=True)
    there.basic_nack(tags[3], requeue=False)
    wait_until(lambda: count(here, queue) == 5, "three of four are back")
    again = [there.basic_get(queue) for _ in range(5)]
    back, others = [b"0", b"1", b"2"], [b"4", b"5"]
    is_classic = queue.startswith("classic")
    assert [body for _, _, body in again] == (back + others if is_classic else others + back)
    assert {body for method, _, body in again if method.redelivered} == set(back)


def test_recover_delivers_again(ends: tuple[BlockingChannel, ...], queue: str) -> None:
    """Rows: 1.9 basic.recover(requeue=true)"""
    here, there, _ = ends
    fill(here, queue, 3)
    inbox = Inbox(there, queue)
    assert inbox.wait(3) == [b"0", b"1", b"2"]
    there.basic_ack(inbox.got[0][0])
    there.basic_recover(requeue=True)
    assert inbox.wait(5)[3:] == [b"1", b"2"]
    assert all(redelivered for _, _, redelivered in inbox.got[3:])


def test_cancel_leaves_unacked_messages_with_the_channel(
    ends: tuple[BlockingChannel, ...], queue: str
) -> None:
    """Rows: 1.8 basic.cancel"""
    here, there, _ = ends
    fill(here, queue, 2)
    inbox = Inbox(there, queue)
    inbox.wait(2)
    there.basic_cancel(inbox.tag)
    assert count(here, queue) == 0
    there.basic_ack(inbox.got[0][0])
    there.close()
    wait_until(lambda: take(here, queue) == [b"1"], "the other one is back")


def count(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


# Queues of a connection


def test_an_exclusive_queue_is_locked_on_every_node(
    ends: tuple[BlockingChannel, ...], place: Place
) -> None:
    """Rows: 1.3 exclusive access; 1.3 durable / exclusive / auto_delete"""
    here = ends[0]
    queue = here.queue_declare(name("mine"), exclusive=True).method.queue
    for node in {place.here, place.there, place.home}:
        with node.connect() as connection:
            for use in ("queue_declare", "basic_get", "queue_purge", "queue_delete"):
                channel = connection.channel()
                with pytest.raises(ChannelClosedByBroker) as error:
                    getattr(channel, use)(queue)
                assert error.value.reply_code == 405
                assert error.value.reply_text.startswith(
                    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
                    f"'{queue}' in vhost '/'"
                )
    here.connection.close()
    with place.here.connect() as connection, pytest.raises(ChannelClosedByBroker, match="404"):
        connection.channel().queue_declare(queue, passive=True)


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    ends: tuple[BlockingChannel, ...],
) -> None:
    """Rows: 1.3 durable / exclusive / auto_delete"""
    here, there, third = ends
    queue = name("auto")
    here.queue_declare(queue, auto_delete=True)
    one, two = Inbox(there, queue), Inbox(third, queue)
    there.basic_cancel(one.tag)
    assert here.queue_declare(queue, passive=True).method.consumer_count == 1
    third.connection.close()
    assert two.tag

    def is_gone() -> bool:
        try:
            here.connection.channel().queue_declare(queue, passive=True)
        except ChannelClosedByBroker as error:
            return bool(error.reply_code == 404)
        return False

    wait_until(is_gone, "the queue goes")


def test_server_named_queues_are_all_different(ends: tuple[BlockingChannel, ...]) -> None:
    """Rows: 1.3 server-named"""
    names = [each.queue_declare("", exclusive=True).method.queue for each in ends for _ in range(5)]
    assert len(set(names)) == 15
    assert all(each.startswith("amq.gen-") for each in names)


def test_the_last_declared_queue_is_meant_by_an_empty_name(
    ends: tuple[BlockingChannel, ...],
) -> None:
    here, there, _ = ends
    queue = here.queue_declare("", exclusive=True).method.queue
    here.queue_bind("", "amq.fanout")
    here.queue_bind("", "amq.direct")
    there.basic_publish("amq.direct", queue, b"bound by its own name")
    wait_until(lambda: count(here, queue) == 1, "the message")
    assert here.basic_get("", auto_ack=True)[2] == b"bound by its own name"
    there.connection.channel()
    with pytest.raises(ChannelClosedByBroker, match="no previously declared queue"):
        there.basic_get("")


# Routing


def test_exchanges_bound_to_exchanges(ends: tuple[BlockingChannel, ...]) -> None:
    """Rows: 1.2 e2e bindings"""
    here, there, third = ends
    source, middle = name("source"), name("middle")
    here.exchange_declare(source, "topic")
    there.exchange_declare(middle, "fanout")
    third.exchange_bind(middle, source, "a.#")
    here.exchange_bind(source, middle)  # round in a circle
    queue = third.queue_declare("", exclusive=True).method.queue
    third.queue_bind(queue, middle)
    there.basic_publish(source, "a.b", b"one")
    there.basic_publish(source, "b.a", b"none")
    there.basic_publish(middle, "z", b"two")
    wait_until(lambda: count(third, queue) == 2, "two messages")
    assert take(third, queue) == [b"one", b"two"]
    here.exchange_unbind(middle, source, "a.#")
    there.confirm_delivery()
    there.basic_publish(source, "a.b", b"none")
    assert take(third, queue) == []
    for exchange in (source, middle):
        here.exchange_delete(exchange)


def test_alternate_exchange_takes_what_has_no_route(ends: tuple[BlockingChannel, ...]) -> None:
    """Rows: 1.2 Alternate exchange; 1.10 mandatory"""
    here, there, third = ends
    main, other = name("main"), name("other")
    here.exchange_declare(other, "fanout")
    here.exchange_declare(main, "direct", arguments={"alternate-exchange": other})
    lost = third.queue_declare("", exclusive=True).method.queue
    third.queue_bind(lost, other)
    found = there.queue_declare("", exclusive=True).method.queue
    there.queue_bind(found, main, "key")
    here.confirm_delivery()
    here.basic_publish(main, "key", b"routed", mandatory=True)
    here.basic_publish(main, "no key", b"not routed", mandatory=True)
    assert take(third, lost) == [b"not routed"]
    assert take(there, found) == [b"routed"]
    for exchange in (main, other):
        here.exchange_delete(exchange)


@pytest.mark.parametrize(
    ("match", "arguments", "taken"),
    [
        ("all", {"a": 1, "b": "two"}, [b"both"]),
        ("any", {"a": 1, "b": "two"}, [b"both", b"a", b"b"]),
        ("all", {"a": None}, [b"both", b"a", b"other"]),
        ("any-with-x", {"x-kind": "k"}, [b"x"]),
    ],
)
def test_headers_exchange(
    ends: tuple[BlockingChannel, ...], match: str, arguments: dict[str, Any], taken: list[bytes]
) -> None:
    """Rows: 1.2 headers x-match"""
    here, there, _ = ends
    queue = here.queue_declare("", exclusive=True).method.queue
    here.queue_bind(queue, "amq.headers", arguments={"x-match": match, **arguments})
    there.confirm_delivery()
    for body, headers in (
        (b"both", {"a": 1, "b": "two"}),
        (b"a", {"a": 1}),
        (b"b", {"b": "two", "c": 3}),
        (b"other", {"a": "1"}),
        (b"x", {"x-kind": "k"}),
        (b"none", None),
    ):
        there.basic_publish("amq.headers", "", body, pika.BasicProperties(headers=headers))
    assert take(here, queue) == taken


# Properties


def test_every_property_comes_back_as_it_went(ends: tuple[BlockingChannel, ...]) -> None:
    here, there, _ = ends
    queue = here.queue_declare("", exclusive=True).method.queue
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"n": 1, "big": 1 << 40, "s": "ключ", "t": True, "l": [1, {"x": None}], "e": {}},
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
        cluster_id="k",
    )
    body = bytes(range(256)) * 2_000  # four frames
    there.basic_publish("", queue, body, sent)
    wait_until(lambda: count(here, queue) == 1, "the message")
    _, properties, got = here.basic_get(queue, auto_ack=True)
    assert got == body
    assert properties == sent


def test_priorities_are_accepted(ends: tuple[BlockingChannel, ...]) -> None:
    here, there, _ = ends
    queue = name("priority")
    here.queue_declare(queue, durable=True, arguments={"x-max-priority": 10})
    fill(there, queue, 3, priority=5)
    inbox = Inbox(here, queue, arguments={"x-priority": 7})
    assert inbox.wait(3) == [b"0", b"1", b"2"]
    with pytest.raises(ChannelClosedByBroker, match="inequivalent arg 'x-max-priority'"):
        there.queue_declare(queue, durable=True, arguments={"x-max-priority": 9})
    here.queue_delete(queue)
