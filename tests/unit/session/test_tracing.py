"""The firehose: what a traced vhost's messages leave at amq.rabbitmq.trace."""

from __future__ import annotations

import pytest

from broker.amqp import fields, spec
from broker.amqp.content import Properties, decode_properties
from broker.amqp.frames import body_of
from broker.message import Message
from tests.unit.session.rig import Client, World, publish

TRACE = "amq.rabbitmq.trace"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    found = Client(world, 1).open()
    found.call(spec.QueueDeclare(queue="q"), spec.QueueDeclare(queue="copies"))
    found.call(spec.QueueBind(queue="copies", exchange=TRACE, routing_key="#"))
    world.traced.set("/", is_traced=True)
    return found


def copies(world: World) -> list[Message]:
    """What was traced so far."""
    [fifo] = [each for each in world.fifos.values() if each.messages.config.name == "copies"]
    items, _ = fifo.messages.ready.take(1_000)
    return [each.message for each in items]


def headers(message: Message) -> dict[str, object]:
    found = decode_properties(message)
    assert found == Properties(headers=found.headers)
    assert found.headers is not None
    return found.headers


def test_a_publish_is_copied_with_where_it_came_from_and_where_it_goes(
    world: World, client: Client
):
    client.call(spec.QueueBind(queue="q", exchange="amq.topic", routing_key="orders.*"))
    client.feed(publish("orders.eu", "amq.topic", body=b"tea", message_id="m1", priority=3))
    [copy] = copies(world)
    assert (copy.exchange, copy.routing_key, body_of(copy)) == (TRACE, "publish.amq.topic", b"tea")
    assert headers(copy) == {
        "exchange_name": "amq.topic",
        "routing_keys": ["orders.eu"],
        "properties": {"message_id": "m1", "priority": 3},
        "node": "rabbit@a",
        "vhost": "/",
        "connection": "client 1",
        "channel": 1,
        "user": "guest",
        "routed_queues": ["q"],
    }


def test_each_message_of_a_run_is_copied_in_its_order(world: World, client: Client):
    client.feed(*[publish("q", body=b"%d" % n) for n in range(5)])
    assert [body_of(copy) for copy in copies(world)] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_unroutable_message_is_copied_with_no_queue(world: World, client: Client):
    client.feed(publish("nowhere"))
    [copy] = copies(world)
    assert copy.routing_key == "publish."
    assert headers(copy)["routed_queues"] == []


def test_deliveries_and_gets_are_copied_with_their_queue(world: World, client: Client):
    client.feed(publish("q", body=b"one"), publish("q", body=b"two"))
    copies(world)
    client.call(spec.BasicGet(queue="q", no_ack=True))
    client.call(spec.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    got = copies(world)
    assert [(copy.routing_key, body_of(copy)) for copy in got] == [
        ("deliver.q", b"one"),
        ("deliver.q", b"two"),
    ]
    assert headers(got[0])["redelivered"] == 0


def test_a_message_that_comes_again_is_marked(world: World, client: Client):
    client.feed(publish("q"))
    client.call(spec.BasicGet(queue="q"), spec.BasicReject(delivery_tag=1, requeue=True))
    copies(world)
    client.call(spec.BasicGet(queue="q", no_ack=True))
    [copy] = copies(world)
    assert headers(copy)["redelivered"] == 1


def test_copies_are_not_traced_themselves(world: World, client: Client):
    client.feed(publish("q"))
    client.call(spec.BasicConsume(queue="copies", consumer_tag="t", no_ack=True))
    client.call(spec.BasicCancel(consumer_tag="t"))
    client.feed(publish("q"))
    assert [copy.routing_key for copy in copies(world)] == ["publish."]


def test_copies_take_no_confirm_number(world: World, client: Client):
    client.call(spec.ConfirmSelect())
    assert client.feed(publish("q"), publish("q")) == ["1 basic.ack delivery_tag=2 multiple"]
    assert len(copies(world)) == 2


def test_only_traced_vhosts_are_copied_and_the_end_is_at_once(world: World, client: Client):
    world.traced.set("/", is_traced=False)
    world.traced.set("other", is_traced=True)
    client.feed(publish("q"))
    assert copies(world) == []


def test_headers_that_are_too_deep_for_a_copy_are_left_out_of_it(world: World, client: Client):
    deep: dict[str, object] = {"end": 1}
    for _ in range(fields.DEPTH_MAX - 2):
        deep = {"in": deep}
    client.feed(publish("q", headers=deep, message_id="m1"))
    [copy] = copies(world)
    assert headers(copy)["properties"] == {"message_id": "m1"}


def test_a_long_queue_name_is_cut_to_a_routing_key(world: World, client: Client):
    name = "é" * 127
    client.call(spec.QueueDeclare(queue=name))
    client.feed(publish(name))
    client.call(spec.BasicGet(queue=name, no_ack=True))
    key = copies(world)[1].routing_key
    assert len(key.encode("utf-8", "surrogateescape")) == 255
