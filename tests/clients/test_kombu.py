"""kombu by itself: what it builds from exchanges, queues and consumers, and how it fails over."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from kombu import pools
from kombu.common import Broadcast
from kombu.mixins import ConsumerMixin
from kombu.pidbox import Mailbox

from tests.clients.place import Place, name, url
from tests.nodes import Trio, free_ports, wait_until

PATIENCE_S = 60.0
pytestmark = [
    pytest.mark.usefixtures("forgiven"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(kombu|amqp|vine).*"),
    # py-amqp leaves sockets to the collector
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def ends(place: Place) -> Iterator[tuple[kombu.Connection, kombu.Connection]]:
    with kombu.Connection(url(place.here)) as here, kombu.Connection(url(place.there)) as there:
        yield here, there


def drain(connection: kombu.Connection, got: list[Any], count: int) -> None:
    """Read until so many have come."""
    while len(got) < count:
        connection.drain_events(timeout=PATIENCE_S)


def test_it_takes_us_for_rabbitmq_3(ends: tuple[kombu.Connection, kombu.Connection]) -> None:
    """It looks at product and version, and then sets its prefetch for the whole channel."""
    connection, _ = ends
    properties = connection.connection.server_properties
    assert properties["product"] == "RabbitMQ"
    assert properties["version"].startswith("3.")
    assert connection.transport.implements.asynchronous
    assert connection.qos_semantics_matches_spec is False
    with connection.channel() as channel:
        channel.basic_qos(0, 4, True)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_topic_exchange_and_a_compressed_body(place: Place, mechanism: str) -> None:
    kept = name("kombu")
    exchange = kombu.Exchange(kept, "topic", durable=False, auto_delete=True)
    queue = kombu.Queue(kept, exchange, routing_key="a.#", auto_delete=True, durable=False)
    got: list[Any] = []

    def took(body: Any, message: kombu.Message) -> None:
        got.append((body, message.headers.get("h"), message.properties.get("priority")))
        message.ack()

    with (
        kombu.Connection(url(place.there), login_method=mechanism) as there,
        kombu.Connection(url(place.here), login_method=mechanism) as here,
        there.Consumer(queue, callbacks=[took]),
    ):
        producer = here.Producer()
        for number in range(3):
            producer.publish(
                {"n": number, "text": "ключ" * 1_000},
                exchange=exchange,
                routing_key="a.b",
                headers={"h": number},
                priority=number,
                compression="zlib",
                retry=True,
                declare=[exchange],
            )
        drain(there, got, 3)
    assert [(body["n"], header, priority) for body, header, priority in got] == [
        (0, 0, 0),
        (1, 1, 1),
        (2, 2, 2),
    ]
    assert all(body["text"] == "ключ" * 1_000 for body, _, _ in got)


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_a_simple_queue(
    place: Place, ends: tuple[kombu.Connection, kombu.Connection], queue_type: str
) -> None:
    kept = place.declare(name("simple"), **{"x-queue-type": queue_type})
    here, there = ends
    arguments = {"x-queue-type": queue_type}
    with here.SimpleQueue(kept, queue_args=arguments) as out:
        into = there.SimpleQueue(kept, queue_args=arguments)
        for number in range(5):
            out.put({"n": number})
        for number in range(5):
            message = into.get(timeout=PATIENCE_S)
            assert message.payload == {"n": number}
            message.ack()
        with pytest.raises(into.Empty):
            into.get(block=False)
        into.close()
    wait_until(lambda: place.depth(kept) == 0, "all acked")
    place.delete(kept)


def test_a_broadcast_reaches_every_worker(place: Place) -> None:
    """A fanout exchange with an auto-delete queue for each; `unique` adds a name of its own."""
    kept = name("broadcast")
    got: list[tuple[int, Any]] = []
    with (
        kombu.Connection(url(place.here)) as here,
        kombu.Connection(url(place.there)) as there,
        kombu.Connection(url(place.home)) as third,
    ):
        consumers = []
        for number, connection in enumerate((there, third)):

            def took(body: Any, message: kombu.Message, number: int = number) -> None:
                got.append((number, body))
                message.ack()

            queue = Broadcast(kept, unique=True)
            consumers.append(connection.Consumer(queue, callbacks=[took]).__enter__())
        here.Producer().publish({"to": "all"}, exchange=Broadcast(kept).exchange)
        for connection in (there, third):
            before = len(got)
            drain(connection, got, before + 1)
        for consumer in consumers:
            consumer.cancel()
        here.channel().exchange_delete(kept)
    assert sorted(got) == [(0, {"to": "all"}), (1, {"to": "all"})]


def test_a_mailbox_gathers_replies(place: Place) -> None:
    """pidbox, which Celery's remote control stands on; the reply queue has x-expires."""
    box = Mailbox(name("box"), type="fanout", accept=["json"])
    ended = threading.Event()
    listening = threading.Event()

    def serve() -> None:
        with kombu.Connection(url(place.there)) as there:
            node = box(there).Node("one@there", state={"n": 7}, channel=there.channel())
            node.handlers["add"] = lambda state, plus: {"sum": state["n"] + plus}
            node.listen()
            listening.set()
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    there.drain_events(timeout=0.1)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    assert listening.wait(PATIENCE_S)
    with kombu.Connection(url(place.here)) as here:
        answers = box(here).call(["one@there"], "add", {"plus": 1}, timeout=PATIENCE_S)
    ended.set()
    serving.join(PATIENCE_S)
    assert answers == [{"one@there": {"sum": 8}}]


def test_exchanges_bound_to_exchanges_and_headers(place: Place) -> None:
    kept = name("bound")
    outer = kombu.Exchange(f"{kept}.outer", "topic", durable=False)
    inner = kombu.Exchange(f"{kept}.inner", "headers", durable=False, auto_delete=True)
    some = kombu.Queue(f"{kept}.some", exclusive=True, durable=False)
    some.bindings = {
        kombu.binding(inner, arguments={"x-match": "any", "kind": "a", "size": 1}),
    }
    got: list[Any] = []
    with kombu.Connection(url(place.there)) as there, kombu.Connection(url(place.here)) as here:
        channel = there.channel()
        with there.Consumer(some, callbacks=[lambda body, _: got.append(body)], no_ack=True):
            outer(channel).declare()
            inner(channel).bind_to(outer, routing_key="go.#")
            producer = here.Producer()
            for number, (key, headers) in enumerate(
                [("go.on", {"kind": "a"}), ("go", {"kind": "b"}), ("no", {"kind": "a"}),
                 ("go.x", {"size": 1})]
            ):  # fmt: skip
                producer.publish(number, exchange=outer, routing_key=key, headers=headers)
            drain(there, got, 2)
        outer(here.channel()).delete()
    assert got == [0, 3]


class Worker(ConsumerMixin):  # type: ignore[misc]
    """A program on kombu's consumer loop, as many are."""

    def __init__(self, connection: kombu.Connection, queue: kombu.Queue, count: int) -> None:
        self.connection = connection
        self.queue = queue
        self.count = count
        self.got: list[Any] = []

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        return [consumer([self.queue], callbacks=[self.took], prefetch_count=2)]

    def took(self, body: Any, message: kombu.Message) -> None:
        if body == 1 and not message.delivery_info["redelivered"]:
            message.requeue()
            return
        self.got.append(body)
        message.ack()
        self.should_stop = len(self.got) == self.count


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_a_consumer_loop_and_confirmed_pooled_publishes(place: Place, queue_type: str) -> None:
    kept = place.declare(name("loop"), **{"x-queue-type": queue_type})
    queue = kombu.Queue(kept, queue_arguments={"x-queue-type": queue_type}, max_priority=None)
    options = {"confirm_publish": True}
    with kombu.Connection(url(place.here), transport_options=options) as here:
        with pools.producers[here].acquire(block=True) as producer:
            for number in range(10):
                producer.publish(number, routing_key=kept, delivery_mode=2, declare=[queue])
        pools.reset()
    with kombu.Connection(url(place.there)) as there:
        worker = Worker(there, queue, 10)
        for _ in worker.consume(timeout=PATIENCE_S):
            continue
    assert sorted(worker.got) == list(range(10))
    wait_until(lambda: place.depth(kept) == 0, "all acked")
    place.delete(kept)


def test_an_unroutable_message_comes_back(place: Place) -> None:
    came: list[Any] = []
    with kombu.Connection(url(place.here), transport_options={"confirm_publish": True}) as here:
        producer = here.Producer(
            on_return=lambda error, *_: came.append((error.reply_code, error.message))
        )
        producer.publish("lost", routing_key=name("none"), mandatory=True)
    assert came == [(312, "NO_ROUTE")]


def test_a_refused_declare_is_an_error_with_its_code(place: Place) -> None:
    kept = place.declare(name("other"))
    with kombu.Connection(url(place.here)) as here:
        queue = kombu.Queue(kept, durable=False)(here.channel())
        with pytest.raises(here.channel_errors, match="inequivalent arg 'durable'") as error:
            queue.declare()
        assert error.value.reply_code == 406
        with pytest.raises(here.channel_errors, match="no queue 'none'"):
            kombu.Queue("none")(here.channel()).queue_declare(passive=True)
    place.delete(kept)


def test_a_list_of_urls_is_tried_in_turn(trio: Trio) -> None:
    """The first one is a port where nobody listens."""
    (closed,) = free_ports(1)
    urls = [f"amqp://guest:guest@127.0.0.1:{closed}/", *map(url, trio.nodes)]
    with kombu.Connection(";".join(urls), failover_strategy="round-robin") as connection:
        connection.ensure_connection(max_retries=3, interval_start=0, timeout=PATIENCE_S)
        assert connection.as_uri().endswith(f":{trio.nodes[0].amqp_port}//")
        with connection.SimpleQueue(name("failover"), queue_opts={"exclusive": True}) as queue:
            queue.put("x")
            assert queue.get(timeout=PATIENCE_S).payload == "x"
