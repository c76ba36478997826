"""Recipe 17: one logical queue over several, in order, with the client of docs/sharding.md.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from broker.cli.ctl.commands import run
from tests.nodes import Trio, wait_until

DOCUMENT = Path(__file__).parents[2] / "docs" / "sharding.md"
COUNT = 600
NAME = "shard.orders"


@pytest.fixture(scope="module")
def documented() -> dict[str, Any]:
    """What the document's long code block defines."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "class OrderedConsumer" in block)
    found: dict[str, Any] = {}
    exec(code, found)
    return found


@pytest.fixture
def sharded(trio: Trio) -> Iterator[list[str]]:
    """The policy as people type it; gives the shards' names."""
    here, there, _ = trio.nodes
    url = f"http://127.0.0.1:{here.management_port}"
    words = ("sharded", r"^shard\.", '{"shards-per-node": 2, "routing-key": "1234"}')
    assert run(["--url", url, "set_policy", *words, "--apply-to", "exchanges"], {}) == 0
    with there.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare(NAME, "x-modulus-hash", durable=True)
        bindings = here.api("GET", f"/exchanges/%2F/{NAME}/bindings/source")
        shards = [each["destination"] for each in bindings]
        yield shards
        for shard in shards:
            channel.queue_delete(shard)
        channel.exchange_delete(NAME)
    assert run(["--url", url, "clear_policy", "sharded"], {}) == 0


def consumed(documented: dict[str, Any], channel: Any, shards: list[str]) -> list[int]:
    """What the ordered consumer gives, until it has all."""
    got: list[int] = []

    def on_message(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        got.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == COUNT:
            channel.stop_consuming()

    documented["OrderedConsumer"](channel, shards, on_message, prefetch=20)
    channel.connection.call_later(30, channel.stop_consuming)
    channel.start_consuming()
    return got


def test_a_sharded_exchange_keeps_the_order_of_all_messages(
    trio: Trio, sharded: list[str], documented: dict[str, Any]
) -> None:
    """Two shards on each of three nodes, every one with its sixth of the messages."""
    _, there, third = trio.nodes
    expected = [f"sharding: {NAME} - {node.user_name} - {n}" for node in trio.nodes for n in (0, 1)]
    assert sorted(sharded) == sorted(expected)
    with there.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        publisher = documented["OrderedPublisher"](channel, NAME, sharded)
        for number in range(COUNT):
            publisher.publish(str(number).encode())
        counts = {
            channel.queue_declare(shard, passive=True).method.message_count for shard in sharded
        }
        assert counts == {COUNT // 6}
    with third.connect() as connection:
        assert consumed(documented, connection.channel(), sharded) == list(range(COUNT))


def test_four_queues_made_by_hand_keep_the_order_too(
    trio: Trio, documented: dict[str, Any]
) -> None:
    queues = [f"queue_{slot}" for slot in range(4)]
    with trio.nodes[0].connect() as connection:
        channel = connection.channel()
        for slot, queue in enumerate(queues):
            with trio.nodes[slot % 3].connect() as other:
                other.channel().queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.direct", f"rk_{slot}")
        channel.confirm_delivery()
        publisher = documented["OrderedPublisher"](channel, "amq.direct", queues)
        publisher.keys = [f"rk_{slot}" for slot in range(4)]
        for number in range(COUNT):
            publisher.publish(str(number).encode())
        with trio.nodes[1].connect() as other:
            assert consumed(documented, other.channel(), queues) == list(range(COUNT))
        for queue in queues:
            channel.queue_delete(queue)


def test_consumers_by_the_exchanges_name_share_the_shards(trio: Trio, sharded: list[str]) -> None:
    """Two consumers on each node: every shard has one."""
    connections = [node.connect() for node in trio.nodes]
    channels = [connection.channel() for connection in connections]
    got: list[bytes] = []

    def on_message(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        got.append(body)
        channel.basic_ack(method.delivery_tag)

    for channel in channels:
        for _ in range(2):
            channel.basic_consume(NAME, on_message)
    for shard in sharded:
        assert channels[0].queue_declare(shard, passive=True).method.consumer_count == 1
    channels[0].confirm_delivery()
    for number in range(60):
        channels[0].basic_publish(
            NAME, str(number), str(number).encode(), pika.BasicProperties(), mandatory=True
        )
    for _ in range(100):
        for connection in connections:
            connection.process_data_events(0.05)
        if len(got) == 60:
            break
    assert sorted(map(int, got)) == list(range(60))
    for connection in connections:
        connection.close()


@pytest.mark.slow
def test_a_node_that_comes_back_gets_the_shards_it_lacks(own_trio: Trio) -> None:
    """It was down when the policy came; clients of the others had their shards at once."""
    here, there, late = own_trio.nodes
    late.stop()
    url = f"http://127.0.0.1:{here.management_port}"
    words = ("sharded", r"^shard\.", '{"shards-per-node": 2}', "--apply-to", "exchanges")
    wait_until(lambda: run(["--url", url, "set_policy", *words], {}) == 0, "the policy is set")

    def homes() -> set[str]:
        bindings = there.api("GET", f"/exchanges/%2F/{NAME}/bindings/source")
        return {each["destination"].split(" - ")[1] for each in bindings}

    with there.connect() as connection:
        channel = connection.channel()
        channel.exchange_declare(NAME, "x-modulus-hash", durable=True)
        assert homes() == {here.user_name, there.user_name}
    late.start()
    assert homes() == {node.user_name for node in own_trio.nodes}
    with late.connect() as connection:
        channel = connection.channel()
        assert channel.queue_declare(NAME, passive=True).method.queue == NAME
        own = f"sharding: {NAME} - {late.user_name} - 0"
        channel.basic_consume(NAME, lambda *_: None)
        assert channel.queue_declare(own, passive=True).method.consumer_count == 1
