"""Quorum queues get the replicas they should have, without a command (decision 0050)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.typed import ctl
from tests.nodes import Node, Trio, wait_until

QUORUM = {"x-queue-type": "quorum"}
REPAIR = "quorum_queue.continuous_membership_reconciliation"
MINUTE_S = 60.0


def grown(directory: Path, *settings: str) -> Iterator[Trio]:
    """Three nodes of which only the later ones know of others."""
    trio = Trio(directory, settings=settings)
    trio.nodes[0].settings = ["cluster.secret=test-secret", *settings]
    try:
        yield trio
    finally:
        trio.end()


def complete(node: Node) -> dict[str, list[str]]:
    """Members of the queues that lack none."""
    found = node.api("GET", "/queues?columns=name,members,missing_members")
    return {each["name"]: sorted(each["members"]) for each in found if each["missing_members"] == 0}


def grow(trio: Trio, count: int) -> float:
    """Seconds from the last node's start until all queues have three replicas."""
    first, *others = trio.nodes
    first.start()
    names = [f"q{number}" for number in range(count)]
    with first.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in names:
            channel.queue_declare(name, durable=True, arguments=QUORUM)
            channel.basic_publish("", name, b"1", mandatory=True)
    assert ctl(first, "check_for_quorum_queues_below_target_size") == 0, "more it can't give"
    for node in others:
        node.start()
    assert ctl(first, "check_for_quorum_queues_below_target_size") != 0
    wanted = dict.fromkeys(names, sorted(node.user_name for node in trio.nodes))
    took_s = wait_until(lambda: complete(first) == wanted, "three replicas each", MINUTE_S)
    assert ctl(first, "check_for_quorum_queues_below_target_size") == 0
    first.kill()
    with others[0].connect() as connection:
        channel = connection.channel()
        for name in names:
            assert channel.basic_get(name, auto_ack=True)[2] == b"1"
    return took_s


@pytest.mark.long
def test_a_cluster_grown_from_one_node_has_all_its_replicas(tmp_path: Path) -> None:
    for trio in grown(tmp_path, f"{REPAIR}.trigger_interval=500"):
        grow(trio, 3)


@pytest.mark.soak
def test_within_a_minute_with_the_settings_as_they_come(tmp_path: Path) -> None:
    for trio in grown(tmp_path):
        assert grow(trio, 100) < MINUTE_S


@pytest.mark.long
def test_the_replicas_of_a_lost_node_are_replaced(tmp_path: Path) -> None:
    """On the fourth node, which had none of that queue; and not before the delay is over."""
    soon = (f"{REPAIR}.trigger_interval=500", f"{REPAIR}.replace_after=4000")
    nodes = Trio(tmp_path, count=4, settings=soon)
    try:
        nodes.start()
        first, lost = nodes.nodes[0], nodes.nodes[3]
        with first.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(8):
                channel.queue_declare(f"q{number}", durable=True, arguments=QUORUM)
                channel.basic_publish("", f"q{number}", b"1", mandatory=True)
        before = complete(first)
        assert any(lost.user_name in members for members in before.values())
        lost.kill()
        left = sorted(node.user_name for node in nodes.nodes if node is not lost)
        took_s = wait_until(
            lambda: complete(first) == dict.fromkeys(before, left), "replaced", MINUTE_S
        )
        assert took_s > 3
        with first.connect() as connection:
            channel = connection.channel()
            for name in before:
                assert channel.basic_get(name, auto_ack=True)[2] == b"1"
    finally:
        nodes.end()
