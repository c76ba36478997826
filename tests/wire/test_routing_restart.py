"""Exchanges, bindings and routes that remain after all nodes were stopped."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from broker.cli.ctl.commands import run
from tests.nodes import Node, wait_until
from tests.wire.exchanges import drained, publish, refused

pytestmark = pytest.mark.slow
KEYS = [f"k{number}" for number in range(40)]


def placed(channel: BlockingChannel, exchange: str, queues: list[str]) -> list[list[str]]:
    """Where each key goes."""
    for key in KEYS:
        assert publish(channel, exchange, key, key)
    return [drained(channel, queue) for queue in queues]


def test_what_is_durable_is_there_and_chooses_as_before(tmp_path: Path) -> None:
    """Rows: 1.2 Binding durability"""
    node = Node("restart", tmp_path)
    node.start()
    try:
        _restarted(node)
    finally:
        node.end()


def _restarted(node: Node) -> None:
    url = f"http://127.0.0.1:{node.management_port}"
    words = ("set_policy", "sharded", "^shard", '{"shards-per-node": 3}', "--apply-to", "exchanges")
    assert run(["--url", url, *words], {}) == 0
    hashed = [f"hashed-{number}" for number in range(4)]
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("lasting", durable=True)
        channel.queue_declare("passing")
        for exchange, durable in (("firm", True), ("frail", False)):
            channel.exchange_declare(exchange, "direct", durable=durable)
            channel.queue_bind("lasting", exchange, "lasting")
            channel.queue_bind("passing", exchange, "passing")
        channel.exchange_declare("hash", "x-consistent-hash", durable=True)
        for queue in hashed:
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "hash", "1")
        channel.exchange_declare("shard", "x-modulus-hash", durable=True)
        channel.exchange_declare("history", "x-recent-history", durable=True)
        before = placed(channel, "hash", hashed)
        for key in KEYS:
            assert publish(channel, "shard", key, key, delivery_mode=2)
        assert not publish(channel, "history", "k", "kept", delivery_mode=2)

    assert node.stop() == 0
    node.start()

    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        assert publish(channel, "firm", "lasting")
        assert not publish(channel, "firm", "passing")
        assert refused(node, lambda each: each.exchange_declare("frail", passive=True))[0] == 404
        assert refused(node, lambda each: each.queue_declare("passing", passive=True))[0] == 404
        assert placed(channel, "hash", hashed) == before
        shards = [f"sharding: shard - rabbit@restart - {number}" for number in range(3)]
        found = [drained(channel, shard) for shard in shards]
        assert all(found)
        assert sorted(key for some in found for key in some) == sorted(KEYS)
        queue = channel.queue_declare("").method.queue
        channel.queue_bind(queue, "history")
        wait_until(lambda: drained(channel, queue) == ["kept"], "history")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_purge("shard")
