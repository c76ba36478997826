"""Single messages that are followed: who got them, and what became of that."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.amqp.assembler import Ack
from broker.amqp.content import Properties, build_message
from broker.session.effects import PublishTo
from tests.unit.session.rig import Client, World, publish


def client_of(world: World) -> Client:
    client = Client(world).open()
    client.call(spec.QueueDeclare(queue="q"))
    return client


def steps(world: World, message_id: str = "followed") -> list[str]:
    return [each.what for each in world.traced.followed[message_id].steps]


def send(client: Client) -> None:
    """Three messages, of which the second is followed; another speaks of its id."""
    client.feed(publish(body=b"followed"), publish(message_id="followed"), publish(message_id="x"))


def test_delivery_and_ack_of_the_one_message_are_noted() -> None:
    world = World()
    client = client_of(world)
    world.traced.follow("/", "followed")
    send(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    (delivered,) = world.traced.followed["followed"].steps
    assert (delivered.what, delivered.queue, delivered.consumer_tag) == ("delivered", "q", "c")
    assert (delivered.connection, delivered.channel) == ("client 1", 1)
    client.feed(Ack(1, 1, False))
    assert steps(world) == ["delivered"]
    client.feed(Ack(1, 3, True))
    assert steps(world) == ["delivered", "ack"]


def test_requeue_redelivery_and_rejection_are_noted() -> None:
    world = World()
    client = client_of(world)
    world.traced.follow("/", "followed")
    send(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.call(spec.BasicNack(delivery_tag=2, requeue=True))
    client.call(spec.BasicReject(delivery_tag=4))
    found = world.traced.followed["followed"].steps
    assert [(each.what, each.redelivered) for each in found] == [
        ("delivered", False),
        ("requeue", False),
        ("delivered", True),
        ("reject", False),
    ]


def test_a_death_is_noted_once_of_the_message_that_is_followed() -> None:
    world = World()
    client = client_of(world)
    client.call(spec.QueueDeclare(queue="dead"))
    work, dead = (world.catalogue.queue("/", name) for name in ("q", "dead"))
    world.traced.follow("/", "followed")
    mine = build_message("", "q", Properties(message_id="followed"), b"")
    other = build_message("", "q", Properties(message_id="x"), b"followed")
    for message in (other, mine, mine):  # the last: tried again
        world.traced.died(work, "expired", message, [dead], "")
    world.traced.died(dead, "rejected", mine, [], "unroutable")
    found = [
        (each.what, each.queue, each.reason) for each in world.traced.followed["followed"].steps
    ]
    assert found == [
        ("dead_lettered", "q", "expired"),
        ("routed", "dead", ""),
        ("dead_lettered", "dead", "rejected"),
        ("unroutable", "", ""),
    ]


def test_a_channel_that_ends_gives_it_back() -> None:
    world = World()
    client = client_of(world)
    world.traced.follow("/", "followed")
    send(client)
    client.call(spec.BasicGet(queue="q"), spec.BasicGet(queue="q"))
    client.call(spec.ChannelClose(200, "bye", 0, 0))
    assert steps(world) == ["delivered", "requeue"]


def test_what_needs_no_ack_ends_with_its_delivery() -> None:
    world = World()
    client = client_of(world)
    world.traced.follow("/", "followed")
    send(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c", no_ack=True))
    (delivered,) = world.traced.followed["followed"].steps
    assert delivered.no_ack


def test_following_publishes_no_copies() -> None:
    world = World()
    client = client_of(world)
    client.call(spec.QueueDeclare(queue="copies"))
    client.call(spec.QueueBind(queue="copies", exchange="amq.rabbitmq.trace", routing_key="#"))
    world.traced.follow("/", "followed")
    world.log.clear()
    send(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    client.feed(Ack(1, 0, True))
    published = [each.queue.name for each in world.log if isinstance(each, PublishTo)]
    assert set(published) == {"q"}
    assert steps(world) == ["delivered", "ack"]


@pytest.mark.parametrize("is_first", [True, False])
def test_the_firehose_tells_beside_it(*, is_first: bool) -> None:
    """Whichever began first."""
    world = World()
    client = client_of(world)
    client.call(spec.QueueDeclare(queue="copies"))
    client.call(spec.QueueBind(queue="copies", exchange="amq.rabbitmq.trace", routing_key="ack.#"))
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    if is_first:
        world.traced.set("/", is_traced=True, with_acks=True)
        client.feed(publish(message_id="earlier"))
    world.traced.follow("/", "followed")
    send(client)
    if not is_first:
        world.traced.set("/", is_traced=True, with_acks=True)
    client.feed(publish(message_id="later"))
    world.log.clear()
    client.feed(Ack(1, 0, True))
    copies = [each for each in world.log if isinstance(each, PublishTo)]
    assert [each.queue.name for each in copies] == ["copies"]
    assert steps(world) == ["delivered", "ack"]


def test_after_its_time_deliveries_are_looked_at_no_more_and_acks_still_are() -> None:
    world = World()
    client = client_of(world)
    world.traced.follow("/", "followed")
    send(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    world.traced.await_no_more("followed")
    assert world.traced.names == set()
    client.feed(Ack(1, 0, True))
    assert steps(world) == ["delivered", "ack"]
    client.feed(publish(message_id="followed"))
    assert steps(world) == ["delivered", "ack"]


def test_other_vhosts_are_not_looked_at() -> None:
    world = World()
    client = client_of(world)
    world.traced.follow("other", "followed")
    send(client)
    client.call(spec.BasicConsume(queue="q", consumer_tag="c"))
    assert steps(world) == []
