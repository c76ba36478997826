"""The exchange types of RabbitMQ's plugins over the wire, on a node and on three.

Cases are the rows of docs/bad-input.md.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.nodes import Node, Trio, wait_until
from tests.wire.exchanges import bound, drained, publish, queues, refused

# The plugins' types


@pytest.fixture
def four(channel: BlockingChannel) -> list[str]:
    return queues(channel, 4)


def test_consistent_hash_shares_by_weight_and_keeps_a_key_in_its_place(
    node: Node, channel: BlockingChannel, name: str, four: list[str]
) -> None:
    """Rows: 1.2 x-consistent-hash, x-modulus-hash(sharding), x-random, x-recent-history, \
x-delayed-message
    """
    bound(channel, name, "x-consistent-hash", four[:2], ["1", "9"])
    for number in range(200):
        assert publish(channel, name, f"k{number}", f"k{number}")
    light, heavy = (drained(channel, queue) for queue in four[:2])
    assert len(light) + len(heavy) == 200
    assert 0 < len(light) < 60
    assert publish(channel, name, light[0], light[0])
    assert drained(channel, four[0]) == [light[0]]
    found = refused(node, lambda each: each.queue_bind(four[2], name, "heavy"))
    assert found[0] == 405 or found == (406, 'The binding key must be an integer: <<"heavy">>')
    shared = channel.queue_declare(f"{name}-shared").method.queue
    assert refused(node, lambda each: each.queue_bind(shared, name, "heavy")) == (
        406,
        'The binding key must be an integer: <<"heavy">>',
    )
    assert refused(node, lambda each: each.queue_bind(shared, name, "0")) == (
        406,
        "The binding key must be greater than 0",
    )


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"hash-header": "user"}, lambda each: {"headers": {"user": each}}),
        ({"hash-property": "message_id"}, lambda each: {"message_id": each}),
        ({"hash-property": "correlation_id"}, lambda each: {"correlation_id": each}),
        ({"hash-property": "timestamp"}, lambda each: {"timestamp": int(each)}),
    ],
)
def test_consistent_hash_of_a_header_or_a_property(
    channel: BlockingChannel, name: str, four: list[str], arguments: Any, properties: Any
) -> None:
    bound(channel, name, "x-consistent-hash", four, ["1"] * 4, arguments)
    for number in range(40):
        for _ in range(2):
            assert publish(channel, name, "same", str(number), **properties(str(number)))
    counts = [Counter(drained(channel, queue)) for queue in four]
    assert sum(map(len, counts)) == 40
    assert all(set(each.values()) == {2} for each in counts if each)
    assert sum(bool(each) for each in counts) >= 3


def test_random_reaches_all_and_each_message_one(
    channel: BlockingChannel, name: str, four: list[str]
) -> None:
    bound(channel, name, "x-random", four, [""] * 4)
    for number in range(120):
        assert publish(channel, name, "same", str(number))
    found = [drained(channel, queue) for queue in four]
    assert sorted(itertools.chain(*found), key=int) == [str(number) for number in range(120)]
    assert all(len(each) > 8 for each in found)


def test_modulus_hash_keeps_a_key_in_its_place(
    channel: BlockingChannel, name: str, four: list[str]
) -> None:
    bound(channel, name, "x-modulus-hash", four, [""] * 4)
    for _ in range(2):
        for number in range(40):
            assert publish(channel, name, str(number), str(number))
    counts = [Counter(drained(channel, queue)) for queue in four]
    assert all(set(each.values()) == {2} for each in counts)
    assert sum(map(len, counts)) == 40


def test_recent_history_is_told_to_new_bindings(
    channel: BlockingChannel, name: str, four: list[str]
) -> None:
    """The latest two; none that did not want to be remembered; exchanges too; then as a fanout."""
    channel.exchange_declare(name, "x-recent-history", arguments={"x-recent-history-length": 2})
    for number in range(4):
        assert not publish(channel, name, "k", str(number))
    no_store = {"x-recent-history-no-store": True}
    assert not publish(channel, name, "k", "forgotten", headers=no_store)

    def arrived(queue: str) -> list[str]:
        found: list[str] = []
        wait_until(
            lambda: bool(found.extend(drained(channel, queue)) or len(found) == 2), "history"
        )
        return found

    channel.queue_bind(four[0], name)
    assert arrived(four[0]) == ["2", "3"]
    channel.queue_bind(four[0], name)  # no new binding, no history
    channel.exchange_declare(f"{name}-onward", "topic")
    channel.queue_bind(four[1], f"{name}-onward", "k")
    channel.exchange_bind(f"{name}-onward", name)
    assert arrived(four[1]) == ["2", "3"]
    assert publish(channel, name, "k", "4")
    assert [drained(channel, queue) for queue in four[:2]] == [["4"], ["4"]]
    channel.queue_bind(four[2], name)
    assert arrived(four[2]) == ["3", "4"]


def test_cc_and_bcc_work_with_every_type(
    channel: BlockingChannel, name: str, four: list[str]
) -> None:
    """Types that take one destination take one for the whole message.

    Rows: 1.11 CC / BCC
    """
    for kind, keys, expected in (
        ("direct", ["a", "b", "c", "d"], 3),
        ("topic", ["a", "b.#", "c", "d"], 3),
        ("fanout", ["", "", "", ""], 4),
        ("x-consistent-hash", ["1", "1", "1", "1"], 1),
        ("x-modulus-hash", ["", "", "", ""], 1),
        ("x-random", ["", "", "", ""], 1),
    ):
        bound(channel, f"{name}-{kind}", kind, four, keys)
        assert publish(channel, f"{name}-{kind}", "a", headers={"CC": ["b"], "BCC": ["c"]})
        assert sum(len(drained(channel, queue)) for queue in four) == expected, kind


# A cluster: every node chooses alike


def test_all_nodes_send_a_key_to_the_same_place(trio: Trio, name: str) -> None:
    """A publisher on each node; the queues were bound on different nodes, in any order."""
    connections = [node.connect() for node in trio.nodes]
    channels = [connection.channel() for connection in connections]
    kinds = ("x-consistent-hash", "x-modulus-hash")
    found = {kind: [f"{name}-{kind}-{number}" for number in range(5)] for kind in kinds}
    for kind, some in found.items():
        channels[0].exchange_declare(f"{name}-{kind}", kind)
        for number, queue in enumerate(reversed(some)):
            channels[number % 3].queue_declare(queue)
            channels[number % 3].queue_bind(queue, f"{name}-{kind}", str(number + 1))
        for channel in channels:
            channel.confirm_delivery()
            for number in range(30):
                assert publish(channel, f"{name}-{kind}", f"k{number}", str(number))
        counts = [Counter(drained(channels[1], queue)) for queue in some]
        assert sum(map(len, counts)) == 30
        assert all(set(each.values()) == {3} for each in counts if each)
    for some in found.values():
        for queue in some:
            channels[0].queue_delete(queue)
    for connection in connections:
        connection.close()


def test_there_is_one_history_wherever_one_publishes_and_binds(trio: Trio, name: str) -> None:
    connections = [node.connect() for node in trio.nodes]
    channels = [connection.channel() for connection in connections]
    channels[0].exchange_declare(name, "x-recent-history", arguments={"x-recent-history-length": 4})
    for number, channel in enumerate([*channels, *channels]):
        channel.confirm_delivery()
        channel.basic_publish(name, "k", str(number).encode())
    for number, channel in enumerate(channels):
        queue = f"{name}-{number}"
        channel.queue_declare(queue)
        channel.queue_bind(queue, name)
        found: list[str] = []

        def arrived(
            channel: BlockingChannel = channel, queue: str = queue, found: list[str] = found
        ) -> bool:
            found += drained(channel, queue)
            return len(found) == 4

        wait_until(arrived, "history")
        assert found == ["2", "3", "4", "5"]
        channel.queue_delete(queue)
    channels[0].exchange_delete(name)
    for connection in connections:
        connection.close()


def test_deleted_queue_with_many_bindings_leaves_nothing(
    channel: BlockingChannel, name: str
) -> None:
    """Case 98 in small: bindings of one queue go with it, from exchanges of all types."""
    channel.exchange_declare(name, "topic")
    queue = channel.queue_declare("").method.queue
    for number in range(200):
        channel.queue_bind(queue, name, f"#.w{number}.#")
    assert publish(channel, name, ".".join(f"w{number}" for number in range(40)))
    channel.queue_delete(queue)
    assert not publish(channel, name, "w7")
    channel.exchange_delete(name, if_unused=True)


def test_http_publishes_choose_like_all_others(node: Node, name: str) -> None:
    """Random and property hashes over HTTP; every type is listed as there."""
    types = {each["name"] for each in node.api("GET", "/overview")["exchange_types"]}
    assert {"topic", "x-consistent-hash", "x-random", "x-delayed-message"} <= types
    with node.connect() as connection:
        channel = connection.channel()
        found = [channel.queue_declare(f"{name}-{n}", durable=True).method.queue for n in range(2)]
        bound(channel, f"{name}-random", "x-random", found, ["", ""])
        by_id = {"hash-property": "message_id"}
        bound(channel, f"{name}-hash", "x-consistent-hash", found, ["1", "1"], by_id)
        for exchange in (f"{name}-random", f"{name}-hash"):
            for number in range(16):
                body = {
                    "routing_key": "k",
                    "payload": "m",
                    "payload_encoding": "string",
                    "properties": {"message_id": str(number)},
                }
                path = f"/exchanges/%2F/{exchange}/publish"
                assert node.api("POST", path, body) == {"routed": True}
            assert all(drained(channel, queue) for queue in found)
        for queue in found:
            channel.queue_delete(queue)
