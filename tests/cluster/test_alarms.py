"""An alarm on one node stops publishers on all; its end, or its node's death, frees them.

Recipes are the rows of docs/recipes.md.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.cluster.typed import ctl
from tests.machine import lateness
from tests.nodes import Node, Trio, wait_until
from tests.wire.test_alarms import ON_DISK, ON_MEMORY, OVER, Client

SPREAD_S = 2.0
QUEUE = "alarms.q"


def block(node: Node) -> None:
    assert ctl(node, "-q", "set_vm_memory_high_watermark", "0") == 0


def free(node: Node) -> None:
    assert ctl(node, "-q", "set_vm_memory_high_watermark", "0.4") == 0


def alarmed(node: Node) -> list[str]:
    """Nodes that say they have a memory alarm; a node asked hands on what each says of itself."""
    return [each["name"] for each in node.api("GET", "/nodes") if each.get("mem_alarm")]


def all_know(nodes: Iterable[Node], resource: str, of: Node) -> None:
    """Wait until all have heard of an alarm: it goes to each by a way of its own."""
    line = f"{resource} resource limit alarm set on node {of.user_name}."
    wait_until(lambda: all(line in node.full_log() for node in nodes), line)


@pytest.mark.slow
def test_an_alarm_on_one_node_blocks_publishers_of_all(own_trio: Trio) -> None:
    """Recipe 15. Rows: 1.1 connection.blocked / unblocked"""
    one, two, three = own_trio.nodes
    publisher, consumer = Client(one, "publisher"), Client(two, "consumer")
    publisher.channel.queue_declare(QUEUE, durable=True)
    publisher.put(QUEUE, b"1")
    consumer.consume(QUEUE)
    consumer.has_got(b"1")

    block(three)
    wait_until(lambda: publisher.state() == "blocking", "node 1 knows", SPREAD_S)
    publisher.put(QUEUE, b"2")
    publisher.hears(ON_MEMORY)
    all_know(own_trio.nodes, "memory", of=three)
    assert (publisher.state(), consumer.state()) == ("blocked", "blocking")
    assert alarmed(one) == alarmed(two) == [three.user_name]
    assert ctl(one, "-q", "check_alarms") == 69
    assert ctl(one, "-q", "check_local_alarms") == 0
    assert ctl(two, "-q", "set_disk_free_limit", "mem_relative", "1000000") == 0
    all_know(own_trio.nodes, "disk", of=two)
    free(three)  # node 2 is still short
    late = Client(three, "late")
    late.put(QUEUE, b"late")
    late.hears(ON_DISK)
    assert publisher.state() == "blocked"
    consumer.has_got(b"1")
    assert ctl(two, "-q", "set_disk_free_limit", "50MB") == 0
    assert publisher.hears(ON_MEMORY, OVER) < SPREAD_S * lateness()
    consumer.has_got_all(b"1", b"2", b"late")
    for each in (publisher, consumer, late):
        each.connection.close()


@pytest.mark.slow
def test_who_joins_hears_of_an_alarm_and_the_dead_have_none(own_trio: Trio) -> None:
    one, two, three = own_trio.nodes
    publisher = Client(one, "publisher")
    publisher.channel.queue_declare(QUEUE, durable=True)
    block(three)
    wait_until(lambda: publisher.state() == "blocking", "node 1 knows", SPREAD_S)
    publisher.put(QUEUE, b"1")
    publisher.hears(ON_MEMORY)

    assert two.stop() == 0
    two.start()
    joined = Client(two, "joined")
    wait_until(lambda: joined.state() == "blocking", "node 2 knows", SPREAD_S)
    joined.put(QUEUE, b"2")
    joined.hears(ON_MEMORY)

    three.kill()
    for each in (publisher, joined):
        each.hears(ON_MEMORY, OVER)
        assert each.state() == "running"
    assert alarmed(one) == []
    three.start()  # a watermark set at run time is over
    wait_until(lambda: len([n for n in one.api("GET", "/nodes") if n["running"]]) == 3, "all run")
    assert alarmed(one) == []
    assert publisher.state() == "running"
    publisher.put(QUEUE, b"3")
    joined.consume(QUEUE)
    joined.has_got_all(b"1", b"2", b"3")
    for each in (publisher, joined):
        each.connection.close()
