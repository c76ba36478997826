"""What sessions and queues count (`broker.counters`)."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.assembler import MethodCommand
from broker.counters import MESSAGE_KEYS, MessageCounts
from broker.session.listing import flows_of
from tests.unit.session.rig import Client, World, publish


@pytest.fixture
def client() -> Client:
    found = Client(World(), 1).open()
    found.call(spec.QueueDeclare(queue="q"))
    return found


def counted(counts: MessageCounts) -> dict[str, int]:
    """The counters that are not 0."""
    return {name: n for name, n in zip(MESSAGE_KEYS, counts.values(), strict=True) if n}


def places(client: Client) -> list[dict[str, int]]:
    """The counters of the channel, of the vhost, and of the queue q."""
    world = client.world
    settle(client)
    (fifo,) = world.fifos.values()
    channel = client.session._channels[1]
    return [
        counted(channel.counts),
        counted(world.counts.of_vhost("/")),
        counted(fifo.messages.counts),
    ]


def settle(client: Client) -> None:
    for _ in client.world.counts.settle():
        pass


def exchange(client: Client, name: str) -> tuple[int, int]:
    settle(client)
    counts = client.world.counts.of_exchange("/", name)
    return counts.publish_in, counts.publish_out


def test_a_batch_is_counted_at_its_channel_vhost_queue_and_exchange(client: Client):
    client.call(spec.ConfirmSelect())
    client.call(spec.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    client.feed(*[publish("q") for _ in range(7)])
    whole = {"publish": 7, "confirm": 7, "deliver_no_ack": 7}
    assert places(client) == [whole, whole, {"publish": 7, "deliver_no_ack": 7}]
    assert exchange(client, "") == (7, 7)


def test_an_exchange_counts_what_came_and_a_copy_for_each_queue(client: Client):
    client.call(spec.QueueDeclare(queue="q2"))
    for queue in ("q", "q2"):
        client.call(spec.QueueBind(queue=queue, exchange="amq.fanout"))
    client.feed(*[publish("", "amq.fanout") for _ in range(5)], publish("q"))
    assert (exchange(client, "amq.fanout"), exchange(client, "")) == ((5, 10), (1, 1))
    settle(client)
    assert counted(client.world.counts.of_vhost("/")) == {"publish": 6}

    counts = client.world.counts
    fanout = counts.of_exchange("/", "amq.fanout").by_queue
    assert list(fanout.values()) == [5, 5]
    gone, kept = fanout
    counts.gone_queues.add(gone)
    assert list(counts.forget_queues())
    assert fanout == {kept: 5}
    assert list(counts.forget_queues()) == []


def test_exchanges_that_lead_to_the_same_queue_are_told_apart(client: Client):
    client.call(spec.QueueBind(queue="q", exchange="amq.fanout"))
    mixed = [publish("", "amq.fanout"), publish("q"), publish("q"), publish("", "amq.fanout")]
    client.feed(*mixed)
    client.feed(*mixed)
    assert (exchange(client, "amq.fanout"), exchange(client, "")) == ((4, 4), (4, 4))


def test_channels_and_queues_in_turn_within_a_read_are_told_apart(client: Client):
    """What is counted once a read belongs to the channel that published it."""
    client.call(spec.QueueDeclare(queue="q2"))
    client.open(2)
    client.feed(*[each for _ in range(3) for each in (publish("q"), publish("q2"))])
    mixed = [publish("q"), publish("q2", channel=2), publish("q"), publish("q2", channel=2)]
    client.feed(*mixed, publish("nowhere", channel=2), publish("q", channel=2))
    flows = {each.number: each.by_exchange for each in flows_of(client.session.channels())}
    assert flows == {1: {"": 8}, 2: {"": 4}}
    counts = dict(client.session.channel_counts())
    assert sorted(each.publish for each in counts.values()) == [4, 8]
    assert counted(client.world.counts.of_vhost("/")) == {"publish": 12, "drop_unroutable": 1}
    assert exchange(client, "") == (12, 11)
    assert list(client.world.counts.of_exchange("/", "").by_queue.values()) == [6, 5]


def test_who_reads_the_counters_sees_all_that_was_published(client: Client):
    """Messages are counted when somebody is about to read, by the session itself too."""
    counts = client.world.counts
    client.feed(publish("q"), publish("q"))
    ((_, of_channel),) = client.session.channel_counts()
    assert (of_channel.publish, counts.uncounted) == (2, set())
    client.feed(publish("q"))
    (listed,) = client.session.listing()
    assert (listed.counts.publish, exchange(client, "")) == (3, (3, 3))

    client.feed(publish("q"))
    assert len(counts.uncounted) == 1
    client.session.close_channels()
    assert (counts.of_exchange("/", "").publish_in, counts.uncounted) == (4, set())


def test_who_reads_the_counters_sees_all_that_was_delivered(client: Client):
    """A consumer that is cancelled, or whose channel closes, is counted with the rest."""
    of_vhost = client.world.counts.of_vhost("/")
    client.call(spec.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    client.feed(publish("q"), publish("q"))
    ((_, of_channel),) = client.session.channel_counts()
    assert (of_channel.deliver_no_ack, of_vhost.deliver_no_ack) == (2, 2)
    client.feed(publish("q"))
    client.call(spec.BasicCancel(consumer_tag="c"))
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.feed(publish("q"))
    (listed,) = client.session.listing()
    assert (listed.counts.deliver_no_ack, listed.counts.deliver) == (3, 1)
    (flows,) = flows_of(client.session.channels())
    assert counted(flows.by_queue.popitem()[1]) == {"deliver_no_ack": 3, "deliver": 1}

    client.feed(publish("q"))
    client.call(spec.ChannelClose())
    assert (of_vhost.deliver_no_ack, of_vhost.deliver) == (3, 2)


def test_a_deleted_queue_is_not_counted_again_by_late_messages(client: Client):
    counts = client.world.counts
    client.feed(publish("q"))
    (queue,) = client.world.fifos
    counts.gone_queues.add(queue)
    list(counts.forget_queues())
    assert counts.of_exchange("/", "").by_queue == {}
    assert exchange(client, "") == (1, 1)


def test_messages_before_their_channel_closes_are_counted(client: Client):
    client.open(2)
    client.feed(
        publish("q", channel=2),
        publish("q", channel=2),
        MethodCommand(2, spec.ChannelClose()),
        publish("q"),
    )
    assert exchange(client, "") == (3, 3)
    assert counted(client.world.counts.of_vhost("/")) == {"publish": 3}


def test_deliveries_acks_and_what_comes_again(client: Client):
    client.feed(*[publish("q") for _ in range(4)])
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.call(spec.BasicAck(delivery_tag=2, multiple=True))
    client.call(spec.BasicReject(delivery_tag=3, requeue=True))
    client.call(spec.BasicReject(delivery_tag=4))
    found = {"publish": 4, "deliver": 5, "redeliver": 1, "ack": 3}
    assert places(client) == [found] * 3


def test_get_counts_by_what_it_found(client: Client):
    client.feed(publish("q"), publish("q"))
    client.call(spec.BasicGet(queue="q"), spec.BasicNack(delivery_tag=1, requeue=True))
    client.call(spec.BasicGet(queue="q"), spec.BasicGet(queue="q", no_ack=True))
    client.call(spec.BasicGet(queue="q"))
    found = {"publish": 2, "get": 2, "get_no_ack": 1, "get_empty": 1, "redeliver": 1}
    assert places(client) == [found] * 3


def test_messages_without_a_route_are_dropped_or_returned(client: Client):
    client.feed(publish("nowhere"), publish("nowhere", mandatory=True))
    found = {"publish": 2, "return_unroutable": 1, "drop_unroutable": 1}
    assert places(client) == [found, found, {}]
    assert exchange(client, "") == (2, 0)
    client.feed(publish("nowhere", "amq.direct"), publish("q"))
    (flows,) = flows_of(client.session.channels())
    assert flows.unroutable == {"": (1, 1), "amq.direct": (0, 1)}
    of_exchange = client.world.counts.of_exchange("/", "amq.direct")
    assert (of_exchange.return_unroutable, of_exchange.drop_unroutable) == (0, 1)


def test_channels_that_come_and_go(client: Client):
    churn = client.world.counts.churn
    client.open(2)
    client.call(spec.ChannelClose(), channel=2)
    assert (churn.channel_created, churn.channel_closed, churn.queue_declared) == (2, 1, 1)
    client.session.close_channels()
    assert churn.channel_closed == 2


def test_sums_never_fall_when_a_vhost_is_deleted(client: Client):
    client.feed(publish("q"))
    counts = client.world.counts
    counts.forget_vhost("/")
    assert (counts.vhosts, counts.exchanges) == ({}, {})
    assert (counts.messages()[0], counts.routed()) == (1, 1)
