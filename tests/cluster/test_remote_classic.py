"""Classic queues used from nodes that are not their home, and the death of the home."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.cluster.load import drain
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
VANISH_S = 5.0


def unique(kind: str) -> str:
    return f"{kind}.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def home(trio: Trio) -> Iterator[BlockingChannel]:
    """A channel on the node where queues are declared, and so live."""
    with trio.nodes[0].connect() as connection:
        yield connection.channel()


@pytest.fixture
def away(trio: Trio) -> Iterator[BlockingChannel]:
    """A confirming channel on another node."""
    with trio.nodes[1].connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def closed_with(code: int, act: Callable[[], object]) -> str:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        act()
    assert closed.value.reply_code == code, closed.value.reply_text
    return str(closed.value.reply_text)


def test_publish_consume_and_settle(home: BlockingChannel, away: BlockingChannel) -> None:
    """Order, prefetch, ack of many, nack with requeue at the old place, reject, redelivered."""
    queue = unique("remote")
    home.queue_declare(queue, durable=True)
    for number in range(50):
        away.basic_publish("", queue, b"%d" % number, PERSISTENT, mandatory=True)
    away.basic_qos(prefetch_count=10)
    received = []
    for method, _, body in away.consume(queue, inactivity_timeout=5):
        received.append((int(body), method.redelivered))
        if len(received) == 10:
            away.basic_ack(method.delivery_tag - 5, multiple=True)  # 0..4
            away.basic_nack(method.delivery_tag - 4)  # 5 goes back to the front
            away.basic_reject(method.delivery_tag - 3, requeue=False)  # 6 is gone
            away.basic_ack(method.delivery_tag, multiple=True)
        if len(received) > 10:
            away.basic_ack(method.delivery_tag)
        if len(received) == 51:
            break
    away.cancel()
    numbers = [number for number, _ in received]
    assert numbers[:10] == list(range(10))
    assert sorted(numbers[10:]) == [5, *range(10, 50)]
    assert (5, True) in received[10:]
    assert [n for n, again in received if again] == [5]
    assert away.queue_declare(queue, durable=True, passive=True).method.message_count == 0
    away.queue_delete(queue)


def test_get_purge_and_counts(home: BlockingChannel, away: BlockingChannel) -> None:
    queue = unique("remote")
    home.queue_declare(queue)
    assert away.basic_get(queue)[0] is None
    for number in range(10):
        away.basic_publish("", queue, b"%d" % number)
    method, _, body = away.basic_get(queue)
    assert (method.message_count, body) == (9, b"0")
    away.basic_nack(method.delivery_tag)
    method, _, body = away.basic_get(queue)
    assert (method.redelivered, body) == (True, b"0")
    assert away.basic_get(queue, auto_ack=True)[2] == b"1"
    found = away.queue_declare(queue, passive=True).method
    assert (found.message_count, found.consumer_count) == (8, 0)
    assert away.queue_purge(queue).method.message_count == 8
    away.basic_ack(method.delivery_tag)
    assert away.queue_delete(queue).method.message_count == 0
    assert away.queue_delete(queue).method.message_count == 0


def test_requeued_when_the_channel_goes(trio: Trio, home: BlockingChannel) -> None:
    queue = unique("remote")
    home.queue_declare(queue)
    with trio.nodes[2].connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(5):
            channel.basic_publish("", queue, b"%d" % number)
        for _ in range(3):
            channel.basic_get(queue)
    wait_until(
        lambda: home.queue_declare(queue, passive=True).method.message_count == 5, "all are back"
    )
    got = [home.basic_get(queue, auto_ack=True) for _ in range(5)]
    assert [int(body) for _, _, body in got] == list(range(5))
    assert [method.redelivered for method, _, _ in got] == [True] * 3 + [False] * 2


def test_conditional_deletes(home: BlockingChannel, trio: Trio) -> None:
    queue = unique("remote")
    home.queue_declare(queue)
    home.basic_publish("", queue, b"x")
    with trio.nodes[1].connect() as connection:
        text = closed_with(406, lambda: connection.channel().queue_delete(queue, if_empty=True))
        assert f"queue '{queue}' in vhost '/' not empty" in text
        tag = home.basic_consume(queue, lambda *_: None)
        text = closed_with(406, lambda: connection.channel().queue_delete(queue, if_unused=True))
        assert f"queue '{queue}' in vhost '/' in use" in text
        home.basic_cancel(tag)
        channel = connection.channel()
        channel.queue_purge(queue)
        channel.queue_delete(queue, if_empty=True, if_unused=True)
    closed_with(404, lambda: home.queue_declare(queue, passive=True))


def test_exclusive_consumer_and_exclusive_queue(trio: Trio, home: BlockingChannel) -> None:
    queue = unique("remote")
    home.queue_declare(queue)
    owned = home.queue_declare("", exclusive=True).method.queue
    with trio.nodes[1].connect() as one, trio.nodes[2].connect() as two:
        one.channel().basic_consume(queue, lambda *_: None, exclusive=True)
        text = closed_with(403, lambda: two.channel().basic_consume(queue, lambda *_: None))
        assert f"queue '{queue}' in vhost '/' in exclusive use" in text
        for act in ("basic_get", "queue_purge", "queue_delete"):
            closed_with(405, lambda: getattr(two.channel(), act)(owned))  # noqa: B023
    home.queue_delete(queue)


def test_auto_delete_from_afar(home: BlockingChannel, away: BlockingChannel) -> None:
    """It goes with its last consumer, wherever that was; never before it had one."""
    queue = unique("auto")
    home.queue_declare(queue, auto_delete=True)
    away.basic_publish("", queue, b"x")
    assert away.basic_get(queue, auto_ack=True)[2] == b"x"
    tag = away.basic_consume(queue, lambda *_: None)
    away.basic_cancel(tag)

    def is_gone() -> bool:
        channel = away.connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return closed.reply_code == 404
        channel.close()
        return False

    wait_until(is_gone, "it is gone", VANISH_S)


def test_server_named_queue_is_reached_from_everywhere(
    home: BlockingChannel, away: BlockingChannel
) -> None:
    queue = home.queue_declare("", auto_delete=True).method.queue
    assert queue.startswith("amq.gen-")
    received = []

    def got(channel: BlockingChannel, method: object, _props: object, body: bytes) -> None:
        received.append(body)
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    home.basic_consume(queue, got)
    away.basic_publish("", queue, b"hello", mandatory=True)
    deadline = time.monotonic() + 5
    while not received and time.monotonic() < deadline:
        home.connection.process_data_events(time_limit=0.1)
    assert received == [b"hello"]


def test_deleting_tells_consumers_elsewhere(home: BlockingChannel, away: BlockingChannel) -> None:
    queue = unique("remote")
    home.queue_declare(queue)
    cancelled = []
    away.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = away.basic_consume(queue, lambda *_: None)
    home.queue_delete(queue)
    away.connection.process_data_events(time_limit=5)
    assert cancelled == [tag]


class Flood(threading.Thread):
    """Publishes with asynchronous confirms, without waiting; keeps every verdict."""

    def __init__(self, node: Node, queue: str) -> None:
        super().__init__(daemon=True)
        self.acked: set[int] = set()
        self.nacked: set[int] = set()
        self.published = 0
        self._queue = queue
        self._is_ended = False
        self._parameters = node.parameters()

    def run(self) -> None:
        connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=self._opened,
            on_close_callback=lambda closed, _why: closed.ioloop.stop(),
        )
        self._connection = connection
        connection.ioloop.start()
        connection.ioloop.close()

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: pika.channel.Channel) -> None:
        channel.confirm_delivery(self._verdict, callback=lambda _frame: self._publish(channel))

    def _publish(self, channel: pika.channel.Channel) -> None:
        if self._is_ended:
            return
        for _ in range(20):
            self.published += 1
            channel.basic_publish("", self._queue, b"%d" % self.published, PERSISTENT)
        self._connection.ioloop.call_later(0.01, lambda: self._publish(channel))

    def _verdict(self, frame: pika.frame.Method) -> None:
        method = frame.method
        into = self.acked if isinstance(method, pika.spec.Basic.Ack) else self.nacked
        done = self.acked | self.nacked
        if method.multiple:
            into.update(n for n in range(1, method.delivery_tag + 1) if n not in done)
        else:
            assert method.delivery_tag not in done, "two verdicts"
            into.add(method.delivery_tag)

    def end(self) -> None:
        wait_until(lambda: self.published > 0, "it is connected")  # pika can't close before
        self._is_ended = True
        wait_until(lambda: len(self.acked) + len(self.nacked) == self.published, "all verdicts")
        self._connection.ioloop.add_callback_threadsafe(self._connection.close)
        self.join(5)


@pytest.mark.slow
def test_home_is_killed(own_trio: Trio) -> None:
    """Confirms that were out become nacks, consumers hear of it, and what was confirmed is back.

    Rows: 1.3 Transient queue on dead node; 1.3 Durable non-mirrored queue on dead node; 1.8
    cancel notify
    """
    one, two, home = own_trio.nodes
    durable, transient = unique("durable"), unique("transient")
    owner = home.connect()
    declares = owner.channel()
    declares.queue_declare(durable, durable=True)
    declares.queue_declare(transient)
    owned = declares.queue_declare("", exclusive=True).method.queue
    cancelled: list[str] = []
    listening = two.connect()
    consumer = listening.channel()
    consumer.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    consumer.basic_qos(prefetch_count=5)
    held: list[int] = []
    tag = consumer.basic_consume(durable, lambda _c, _m, _p, body: held.append(int(body)))
    with one.connect() as connection:  # an exclusive queue of a node that lives stays
        connection.channel().queue_declare("mine", exclusive=True)
        flood = Flood(one, durable)
        flood.start()
        wait_until(lambda: len(flood.acked) > 500, "load flows")
        listening.process_data_events(time_limit=1)
        home.kill()
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            owner.process_data_events(time_limit=5)
        killed = time.monotonic()
        deadline = killed + VANISH_S
        while not cancelled and time.monotonic() < deadline:
            listening.process_data_events(time_limit=0.1)
        assert cancelled == [tag]
        assert held == [1, 2, 3, 4, 5]
        wait_until(lambda: bool(flood.nacked), "nacks", VANISH_S)
        flood.end()
        for queue in (transient, owned):
            closed_with(404, lambda: connection.channel().queue_declare(queue, passive=True))  # noqa: B023
        assert time.monotonic() - killed < (VANISH_S + 1) * lateness()
        connection.channel().queue_declare("mine", passive=True)
        text = closed_with(404, lambda: connection.channel().basic_get(durable))
        assert "is down or inaccessible" in text
    listening.close()
    home.start()
    left = drain(one, durable)
    assert left == sorted(left)
    assert len(set(left)) == len(left)
    assert flood.acked <= set(left), sorted(flood.acked - set(left))[:10]
    assert set(left) <= flood.acked | flood.nacked
    with two.connect() as connection:
        closed_with(404, lambda: connection.channel().queue_declare(transient, passive=True))


@pytest.mark.slow
def test_conditional_delete_under_concurrent_publish(trio: Trio) -> None:
    """if-empty never removes a message that was confirmed before (P5)."""
    refusals: list[int] = []
    for turn in range(20):
        queue = unique("p5")
        with trio.nodes[0].connect() as home, trio.nodes[turn % 3].connect() as other:
            home.channel().queue_declare(queue, durable=True)
            flood = Flood(trio.nodes[1 + turn % 2], queue)
            flood.start()
            channel = other.channel()
            try:
                channel.queue_delete(queue, if_empty=True)
            except pika.exceptions.ChannelClosedByBroker as closed:
                refusals.append(closed.reply_code)
                flood.end()
                left = drain(trio.nodes[0], queue)
                assert flood.acked <= set(left)
                other.channel().queue_delete(queue)
            else:
                flood.end()  # confirmed as unroutable; the queue went while it was empty
    assert set(refusals) <= {406}
