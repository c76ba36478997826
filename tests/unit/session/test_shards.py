"""The name of a sharded exchange used as a queue name."""

from __future__ import annotations

import pytest

from broker.amqp import spec
from broker.metadata import commands
from broker.metadata.applying.sharding import shard_name
from tests.unit.session.rig import NODE, Client, World, publish

HERE = [shard_name("x", NODE, number) for number in range(2)]
THERE = [shard_name("x", "rabbit@b", number) for number in range(2)]


@pytest.fixture
def client() -> Client:
    client = Client(World()).open()
    policy = {"shards-per-node": 2, "routing-key": "k"}
    client.world.apply(commands.SetPolicy("/", "sharded", "^x$", policy, 0, "exchanges"))
    client.call(spec.ExchangeDeclare(exchange="x", type="x-modulus-hash"))
    return client


def consume(tag: str, queue: str = "x") -> spec.BasicConsume:
    return spec.BasicConsume(queue=queue, consumer_tag=tag)


def test_consumers_go_to_shards_that_have_fewest_and_to_those_of_this_node_first(client):
    order = []
    for number in range(5):
        assert client.call(consume(f"t{number}")) == [f"1 basic.consume-ok consumer_tag=t{number}"]
        counts = {
            queue.name: client.world.consumer_count(queue.uid)
            for queue in client.world.catalogue.shards("/", "x")
        }
        order.append(counts)
    assert [name for name, count in order[1].items() if count] == HERE
    assert set(order[3].values()) == {1}
    assert sum(order[4].values()) == 5


def test_get_and_declare_take_a_shard(client):
    assert client.call(spec.QueueDeclare(queue="x", passive=True)) == ["1 queue.declare-ok queue=x"]
    assert client.call(spec.QueueDeclare(queue="x", durable=True)) == ["1 queue.declare-ok queue=x"]
    assert client.call(spec.BasicGet(queue="x")) == ["1 basic.get-empty"]
    assert client.call(spec.BasicGet(queue="")) == ["1 basic.get-empty"]


@pytest.mark.parametrize(
    ("method", "verb"),
    [
        (spec.QueueDelete(queue="x"), "delete"),
        (spec.QueuePurge(queue="x"), "purge"),
        (spec.QueueBind(queue="x", exchange="amq.direct"), "bind"),
        (spec.QueueUnbind(queue="x", exchange="amq.direct"), "unbind"),
    ],
)
def test_what_would_mean_all_shards_is_refused(client, method, verb):
    (line,) = client.call(method)
    assert "reply_code=406" in line
    assert f'Can\'t {verb} sharded queue: <<"x">>' in line


def test_a_queue_of_the_name_comes_first():
    client = Client(World()).open()
    client.call(spec.ExchangeDeclare(exchange="x", type="x-modulus-hash"))
    client.call(spec.QueueDeclare(queue="x", durable=True))
    policy = {"shards-per-node": 1}
    client.world.apply(commands.SetPolicy("/", "sharded", "^x$", policy, 0, "exchanges"))
    assert client.call(spec.QueuePurge(queue="x")) == ["1 queue.purge-ok"]


def test_what_is_published_is_there_for_consumers_of_all_shards(client):
    for number in range(4):
        client.call(consume(f"t{number}"))
    lines = client.feed(*[publish(str(n), "x") for n in range(40)])
    tags = {line.split("consumer_tag=")[1].split()[0] for line in lines if "basic.deliver" in line}
    assert tags == {"t0", "t1", "t2", "t3"}
