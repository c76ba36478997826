"""What a channel does with deliveries of a stream: the same as with any, but by the chunk."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.content import Properties, build_message, decode_properties
from broker.feature_flags import STREAM_QUEUE
from broker.fifo.commands import Requeue, Settle
from broker.metadata.commands import EnableFeatures
from broker.server.channel_port import ChannelPort
from broker.streams.chunk import Chunk, encode_chunk
from broker.streams.deliveries import StreamDeliveries
from tests.unit.session.rig import Client, World, commands_of
from tests.unit.session.test_tracing import TRACE, copies, headers


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    client = Client(world).open()
    declare(client)
    client.call(spec.QueueDeclare(queue="copies"))
    return client


def declare(client: Client) -> None:
    client.world.apply(EnableFeatures((STREAM_QUEUE,)))
    arguments: dict[str, object] = {"x-queue-type": "stream"}
    assert client.call(spec.QueueDeclare(queue="q", durable=True, arguments=arguments)) == [
        "1 queue.declare-ok queue=q"
    ]


def chunk(count: int = 3) -> Chunk:
    messages = [build_message("ex", "key", Properties(), b"%d" % i) for i in range(count)]
    data = encode_chunk(messages, first_offset=50, timestamp_ms=1, term=1, filter_size=16)
    return Chunk.parse(data)


def deliver(client: Client, some: StreamDeliveries) -> list[str]:
    key = client.session._channels[1].key
    client.world.run(client, client.session.deliver(key, "c", some))
    return client.take()


def consume(client: Client) -> None:
    lines = client.call(
        spec.BasicQos(prefetch_count=100), spec.BasicConsume(queue="q", consumer_tag="c")
    )
    assert lines == ["1 basic.qos-ok", "1 basic.consume-ok consumer_tag=c"]


def line(tag: int, body: int) -> str:
    return f"1 basic.deliver consumer_tag=c delivery_tag={tag} exchange=ex routing_key=key '{body}'"


def test_delivery_tags_go_on_from_batch_to_batch(client: Client) -> None:
    consume(client)
    assert deliver(client, StreamDeliveries(chunk(), 0, 2)) == [line(1, 0), line(2, 1)]
    assert deliver(client, StreamDeliveries(chunk(), 2, 3)) == [line(3, 2)]
    assert deliver(client, StreamDeliveries(chunk(), 3, 3)) == []
    assert deliver(client, StreamDeliveries(chunk(), 0, 3, [0, 2])) == [line(4, 0), line(5, 2)]


def test_acks_name_offsets_plus_one(client: Client, world: World) -> None:
    consume(client)
    deliver(client, StreamDeliveries(chunk(), 0, 3))
    world.log.clear()
    client.call(spec.BasicAck(delivery_tag=2), spec.BasicAck(delivery_tag=3, multiple=True))
    settled = [each.numbers for each in commands_of(world.log, Settle)]
    assert sorted(number for some in settled for number in some) == [51, 52, 53]


def test_they_are_counted(client: Client, world: World) -> None:
    consume(client)
    deliver(client, StreamDeliveries(chunk(), 0, 3))
    assert not list(world.counts.settle()), "a step for so few is not needed"
    counts = world.counts.of_vhost("/")
    assert (counts.deliver, counts.deliver_no_ack, counts.redeliver) == (3, 0, 0)


def test_a_limit_of_the_channel_parks_what_is_above_it(client: Client, world: World) -> None:
    consume(client)
    client.call(spec.BasicQos(prefetch_count=2, global_=True))
    assert deliver(client, StreamDeliveries(chunk(5), 0, 5)) == [line(1, 0), line(2, 1)]
    assert client.call(spec.BasicAck(delivery_tag=1)) == [line(3, 2)]
    world.log.clear()
    client.call(spec.BasicCancel(consumer_tag="c"))
    assert [each.numbers for each in commands_of(world.log, Requeue)] == [[54, 55]]


def test_they_are_traced_as_the_client_gets_them(client: Client, world: World) -> None:
    consume(client)
    client.call(spec.QueueBind(queue="copies", exchange=TRACE, routing_key="#"))
    world.traced.set("/", is_traced=True)
    deliver(client, StreamDeliveries(chunk(), 1, 3))
    got = copies(world)
    assert [copy.routing_key for copy in got] == ["deliver.q", "deliver.q"]
    assert [headers(copy)["properties"]["headers"] for copy in got] == [  # type: ignore[index]
        {"x-stream-offset": 51},
        {"x-stream-offset": 52},
    ]


def test_their_size_is_told_without_looking_at_each() -> None:
    class Heard:
        size_bytes = -1

        def delivered(self, size_bytes: int) -> None:
            self.size_bytes = size_bytes

    client, heard = Client(World()).open(), Heard()
    declare(client)
    consume(client)
    key = client.session._channels[1].key
    port = ChannelPort(client.session, key, None, heard)  # type: ignore[arg-type]
    some = StreamDeliveries(chunk(), 0, 3)
    port.deliver("c", some)
    assert heard.size_bytes == some.size_bytes > 0
    assert decode_properties(some[0].message).headers == {"x-stream-offset": 50}
