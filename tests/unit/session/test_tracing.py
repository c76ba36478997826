"""The firehose: what a traced vhost's messages leave at amq.rabbitmq.trace."""

from __future__ import annotations

import pytest

from broker.amqp import fields, spec
from broker.amqp.content import Properties, decode_properties
from broker.amqp.frames import body_of
from broker.message import Message
from broker.metadata.commands import SetPolicy
from broker.session.effects import PublishTo
from broker.session.tracing.settlements import NUMBERS_MAX
from tests.unit.session.rig import Client, World, publish

TRACE = "amq.rabbitmq.trace"
DAY_US = 86_400_000_000  # the epoch began a day before the rig's clock did


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
    world.clock.us, client.now_ms = 7_000_250, 6_998
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
        # ours: when it was routed, and when its bytes were read
        "timestamp_in_us": DAY_US + 7_000_250,
        "received_in_us": DAY_US + 6_998_250,
    }


@pytest.mark.parametrize("paused_clock", ["now_us", "monotonic_ms"])
def test_a_message_is_not_said_to_be_read_before_it_was_sent(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch, paused_clock: str
):
    """The machine may give the processor to others while the two clocks are read."""
    world.clock.us, client.now_ms = 7_000_250, 7_000  # what is read is read in this millisecond
    read = getattr(world.clock, paused_clock)

    def read_and_pause() -> int:
        found: int = read()
        world.clock.us += 3_000
        return found

    monkeypatch.setattr(world.clock, paused_clock, read_and_pause)
    client.feed(publish("q"))
    found = headers(copies(world)[0])
    read_us, routed_us = found["received_in_us"], found["timestamp_in_us"]
    assert isinstance(read_us, int)
    assert isinstance(routed_us, int)
    assert DAY_US + 7_000_250 - 1_000 <= read_us <= routed_us


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
    assert headers(got[0]) == {
        "exchange_name": "",
        "routing_keys": ["q"],
        "properties": {},
        "node": "rabbit@a",
        "vhost": "/",
        "connection": "client 1",
        "channel": 1,
        "user": "guest",
        "redelivered": 0,
        "queue": "q",
        "no_ack": True,
        "message_number": 1,
        "timestamp_in_us": DAY_US,
    }


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


def test_a_batch_of_messages_is_one_batch_of_copies(world: World, client: Client):
    world.log.clear()
    client.feed(*[publish("q") for _ in range(50)])
    sent = [len(each.messages) for each in world.log if isinstance(each, PublishTo)]
    assert sent == [50, 50]


def consumed(world: World, client: Client, count: int, **more: object) -> None:
    """Have a consumer hold `count` messages of q, whose ids are m0, m1, ..."""
    client.feed(*[publish("q", message_id=f"m{n}") for n in range(count)])
    client.call(spec.BasicConsume(queue="q", consumer_tag="c", **more))


def settlements(world: World) -> list[tuple[str, object, object]]:
    """Key, numbers and ids of the copies that are about acknowledgements."""
    told = [each for each in copies(world) if each.routing_key.partition(".")[0] in KINDS]
    found = [(each.routing_key, headers(each)) for each in told]
    return [(key, has["message_numbers"], has["message_ids"]) for key, has in found]


KINDS = ("ack", "requeue", "reject")


def test_acks_are_not_copied_unless_that_was_asked_for(world: World, client: Client):
    consumed(world, client, 3)
    client.call(spec.BasicAck(delivery_tag=3, multiple=True))
    assert {copy.routing_key for copy in copies(world)} == {"publish.", "deliver.q"}


def test_acks_of_a_chunk_are_one_copy_that_names_the_messages(world: World, client: Client):
    world.traced.set("/", is_traced=True, with_acks=True)
    consumed(world, client, 4)
    world.clock.us = 3_000_000
    client.call(*[spec.BasicAck(delivery_tag=tag) for tag in (1, 3, 2)])
    *others, copy = copies(world)
    assert [each.routing_key for each in others] == ["publish."] * 4 + ["deliver.q"] * 4
    assert [headers(each)["message_number"] for each in others[4:]] == [1, 2, 3, 4]
    assert (copy.exchange, copy.routing_key, body_of(copy)) == (TRACE, "ack.q", b"")
    assert headers(copy) == {
        "node": "rabbit@a",
        "vhost": "/",
        "connection": "client 1",
        "channel": 1,
        "user": "guest",
        "queue": "q",
        "timestamp_in_us": DAY_US + 3_000_000,
        "message_numbers": [1, 3, 2],
        "message_ids": ["m0", "m2", "m1"],
    }


def test_requeues_and_rejects_are_told_apart_and_where_dead_letters_go(
    world: World, client: Client
):
    world.traced.set("/", is_traced=True, with_acks=True)
    definition = {"dead-letter-exchange": "dead"}
    world.apply(SetPolicy("/", "dlx", "^q$", definition))
    consumed(world, client, 3, no_ack=False)
    client.call(spec.BasicNack(delivery_tag=2, multiple=True, requeue=False))
    client.call(spec.BasicReject(delivery_tag=3, requeue=True))
    keyed = {copy.routing_key: headers(copy) for copy in copies(world)}
    assert keyed["reject.q"]["message_ids"] == ["m0", "m1"]
    assert keyed["reject.q"]["dead_letter_exchange"] == "dead"
    assert keyed["requeue.q"]["message_ids"] == ["m2"]
    assert "dead_letter_exchange" not in keyed["requeue.q"]


def test_what_a_closed_channel_held_is_requeued_and_what_was_acked_before_is_not(
    world: World, client: Client
):
    world.traced.set("/", is_traced=True, with_acks=True)
    consumed(world, client, 3)
    client.call(spec.BasicAck(delivery_tag=1))
    client.call(spec.ChannelClose())
    assert settlements(world) == [("ack.q", [1], ["m0"]), ("requeue.q", [2, 3], ["m1", "m2"])]


def test_acks_of_a_transaction_are_told_at_its_commit(world: World, client: Client):
    world.traced.set("/", is_traced=True, with_acks=True)
    consumed(world, client, 2)
    client.call(spec.TxSelect(), spec.BasicAck(delivery_tag=1))
    assert settlements(world) == []
    client.call(spec.TxCommit())
    assert settlements(world) == [("ack.q", [1], ["m0"])]


def test_a_message_that_was_got_is_told_as_well(world: World, client: Client):
    world.traced.set("/", is_traced=True, with_acks=True)
    client.feed(publish("q"))
    client.call(spec.BasicGet(queue="q"), spec.BasicAck(delivery_tag=1))
    assert settlements(world) == [("ack.q", [1], [""])]


def test_who_reads_and_acknowledges_copies_does_not_make_more_of_them(world: World, client: Client):
    world.traced.set("/", is_traced=True, with_acks=True)
    client.feed(publish("q"))
    client.call(spec.BasicGet(queue="copies"), spec.BasicAck(delivery_tag=1))
    assert copies(world) == []


def test_many_acks_are_told_in_copies_of_limited_size(world: World, client: Client):
    world.traced.set("/", is_traced=True, with_acks=True)
    count = NUMBERS_MAX + 1
    consumed(world, client, count)
    client.call(spec.BasicAck(delivery_tag=0, multiple=True))
    assert [len(each[1]) for each in settlements(world)] == [NUMBERS_MAX, 1]  # type: ignore[arg-type]


def test_when_tracing_ends_acks_are_told_no_more_and_nothing_is_kept_for_them(
    world: World, client: Client
):
    world.traced.set("/", is_traced=True, with_acks=True)
    consumed(world, client, 3)
    world.traced.set("/", is_traced=True)
    client.call(spec.BasicAck(delivery_tag=1))
    world.traced.set("/", is_traced=True, with_acks=True)
    client.call(spec.BasicAck(delivery_tag=2))
    assert settlements(world) == []


def test_what_was_delivered_before_tracing_began_is_not_told(world: World, client: Client):
    world.traced.set("/", is_traced=False)
    consumed(world, client, 2)
    world.traced.set("/", is_traced=True, with_acks=True)
    client.call(spec.BasicAck(delivery_tag=0, multiple=True))
    assert copies(world) == []
