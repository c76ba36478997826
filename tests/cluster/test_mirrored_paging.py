"""Long mirrored queues on real nodes: members keep little of them in memory."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest

from tests.cluster.test_failover import KILL_LIMIT_S
from tests.cluster.test_recipes_mirrored import is_whole
from tests.cluster.typed import declare, set_policy, shown
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until

BATCH = 1_000
LAZY = {"ha_mode": "all", "ha_sync_mode": "automatic", "queue_mode": "lazy"}


def put(node: Node, queue: str, count: int, size: int) -> None:
    """Publish numbers, persistent; a transaction is committed when all of it is safe."""
    properties = pika.BasicProperties(delivery_mode=2)
    with node.connect() as connection:
        channel = connection.channel()
        channel.tx_select()
        for start in range(0, count, BATCH):
            for number in range(start, min(count, start + BATCH)):
                channel.basic_publish("", queue, (b"%d" % number).rjust(size), properties)
            channel.tx_commit()


def taken(node: Node, queue: str, count: int) -> list[tuple[int, bool]]:
    """So many messages from the head, acked: number, redelivered."""
    found: list[tuple[int, bool]] = []
    with node.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        for method, _, body in channel.consume(queue, inactivity_timeout=20):
            assert method is not None, f"nothing more came after {len(found)} of {count}"
            found.append((int(body), method.redelivered))
            if len(found) % 100 == 0 or len(found) == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if len(found) == count:
                break
    return found


def rss_bytes(node: Node) -> int:
    """What a node's process takes of the memory."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


def new_master(trio: Trio, left: list[Node], queue: str, lost: Node) -> Node:
    """Who serves a queue whose master was killed."""
    wait_until(lambda: shown(left[0], queue)["node"] != lost.user_name, "a mirror is promoted")
    return trio.named(shown(left[0], queue)["node"])


def serves_within(node: Node, queue: str, since: float) -> float:
    """Wait until a publish is confirmed; seconds since a moment."""
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"-1", pika.BasicProperties(delivery_mode=2))
    return time.monotonic() - since


def test_a_lazy_mirrored_queue_outlives_its_masters_in_order(own_trio: Trio) -> None:
    """Mirrors page out, are promoted from disk, and fill others from there."""
    count, (one, two, three) = 3_000, own_trio.nodes
    set_policy(one, "deep", "^deep$", **LAZY)
    declare(one, "deep")
    wait_until(lambda: is_whole(one, "deep", 2), "two mirrors")
    put(two, "deep", count, 1_000)
    stat = shown(one, "deep")
    assert stat["messages"] == count
    assert stat["messages_paged_out"] > count // 2
    assert taken(three, "deep", 10) == [(number, False) for number in range(10)]

    one.kill()
    second = new_master(own_trio, [two, three], "deep", one)
    assert taken(two, "deep", 10) == [(number, True) for number in range(10, 20)]
    one.start()
    wait_until(lambda: is_whole(second, "deep", 2), "the node that is back is filled", 40)

    second.kill()
    left = [node for node in own_trio.nodes if node is not second]
    third = new_master(own_trio, left, "deep", second)
    assert taken(third, "deep", count - 20) == [(number, True) for number in range(20, count)]
    assert shown(third, "deep")["messages"] == 0


@pytest.mark.long
@pytest.mark.alone  # three nodes keep both processors busy: 27 s, and 79 beside others
def test_deep_mirrored_queues_take_little_memory_anywhere(own_trio: Trio) -> None:
    """200,000 messages of 1 KB: what members keep, how fast one is promoted, how one is filled."""
    count, size, queue = 200_000, 1_000, "very.deep"
    one, two, three = own_trio.nodes
    set_policy(one, "deep", "^very.deep$", **LAZY)
    declare(one, queue)
    wait_until(lambda: is_whole(one, queue, 2), "two mirrors")
    before = {node.name: rss_bytes(node) for node in own_trio.nodes}
    put(two, queue, count, size)
    for node in own_trio.nodes:
        assert rss_bytes(node) - before[node.name] < count * size // 2, node.name

    killed = time.monotonic()
    one.kill()
    second = new_master(own_trio, [two, three], queue, one)
    assert serves_within(second, queue, killed) < KILL_LIMIT_S * lateness()
    one.start()
    fresh = rss_bytes(one)
    wait_until(lambda: is_whole(second, queue, 2), "the node that is back is filled", 120)
    assert rss_bytes(one) - fresh < count * size // 2

    second.kill()
    left = [node for node in own_trio.nodes if node is not second]
    third = new_master(own_trio, left, queue, second)
    found = taken(third, queue, count + 1)
    assert [number for number, _ in found] == [*range(count), -1]
