"""A majority is lost for good, and an operator repairs the cluster (docs/protocol-rules.md P8)."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pika
import pytest

from tests.cluster.load import drain
from tests.nodes import Node, Trio, wait_until

QUORUM = {"x-queue-type": "quorum"}
MESSAGES = 40


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "broker", "ctl", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def declare(node: Node, queue: str, arguments: dict[str, str] | None = None) -> None:
    """Declare a durable queue at a node."""
    with node.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)


def fill(node: Node, queue: str, arguments: dict[str, str] | None = None) -> set[int]:
    """Declare a queue at a node and publish; the numbers, all confirmed."""
    declare(node, queue, arguments)
    with node.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(MESSAGES):
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", queue, str(number).encode(), properties, mandatory=True)
    return set(range(MESSAGES))


def whole_log(node: Node) -> str:
    return node.log_path.read_text(errors="replace")


def running_nodes(node: Node) -> list[str]:
    found: list[str] = node.api("GET", "/cluster/status")["running_nodes"]
    return found


def fresh(trio: Trio, name: str, directory: Path) -> Node:
    """A node that was never part of anything, with the survivors as configured peers."""
    node = Node(name, directory)
    peers = [*trio.nodes[2:3], node]
    node.settings = [
        "cluster.secret=test-secret",
        *(f"cluster.peers.{each.user_name}=127.0.0.1:{each.cluster_port}" for each in peers),
    ]
    return node


def a_newcomer_joins(trio: Trio, tag: str, tmp_path: Path) -> None:
    """A fresh node joins the forced one, and holds what is confirmed from then on."""
    alone = trio.nodes[2]
    newcomer = fresh(trio, "node4", tmp_path / "node4")
    trio.nodes.append(newcomer)
    newcomer.start()
    both = ["rabbit@node3", "rabbit@node4"]
    wait_until(lambda: running_nodes(newcomer) == both, "node4 is a member")
    fill(newcomer, f"both.{tag}", QUORUM)
    assert set(drain(alone, f"both.{tag}")) == set(range(MESSAGES))

    # queues that were left with one replica get a second
    fill(alone, f"quorum.{tag}", QUORUM)
    left = [f"quorum.{tag}", f"quorum.own.{tag}"]
    promoted = "queue.promoted queue="

    def is_grown(queue: str) -> bool:
        return sorted(alone.api("GET", f"/queues/%2F/{queue}")["online"]) == both

    wait_until(lambda: whole_log(alone).count(promoted) >= len(left), "they have caught up")
    wait_until(lambda: all(map(is_grown, left)), "each has a second replica")
    assert set(drain(newcomer, f"quorum.{tag}")) == set(range(MESSAGES))


@pytest.mark.long
@pytest.mark.slow
def test_force_boot_of_the_last_node(own_trio: Trio, tmp_path: Path) -> None:
    """Two nodes die one after the other, so that the third is in the majority that confirmed.

    Two that die at once may have confirmed what the third did not get.
    """
    trio = own_trio
    lost, alone = trio.nodes[:2], trio.nodes[2]
    tag = uuid.uuid4().hex[:8]
    declare(lost[0], f"quorum.{tag}", QUORUM)
    declare(alone, f"quorum.own.{tag}", QUORUM)
    fill(alone, f"classic.{tag}")
    fill(lost[0], f"classic.lost.{tag}")
    lost[1].kill()
    fill(lost[0], f"quorum.{tag}", QUORUM)
    fill(alone, f"quorum.own.{tag}", QUORUM)
    lost[0].kill()
    data = str(alone.directory / "data")

    running = ctl("force_boot", "--data-dir", data)
    assert running.returncode == 69, running
    assert alone.process is not None
    assert f"process {alone.process.pid}" in running.stderr, running.stderr

    alone.kill()
    planned = ctl("force_boot", "--data-dir", data, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    done = ctl("force_boot", "--data-dir", data)
    assert done.returncode == 0, done.stderr
    assert "given up for good: rabbit@node1, rabbit@node2" in done.stdout
    assert f"'classic.lost.{tag}'" in done.stdout

    alone.start()
    for queue in (f"quorum.{tag}", f"quorum.own.{tag}", f"classic.{tag}"):
        wait_until(lambda q=queue: trio.leader(q, alone) is alone, f"{queue} is served")
        assert set(drain(alone, queue)) == set(range(MESSAGES)), queue
    log = whole_log(alone)
    assert "membership.force_boot: an operator gave up rabbit@node1, rabbit@node2" in log
    assert f"queue.lost: queue 'classic.lost.{tag}' in vhost '/'" in log
    status = alone.api("GET", "/cluster/status")
    assert status["disk_nodes"] == ["rabbit@node3"]
    queues = {queue["name"] for queue in alone.api("GET", "/queues")}
    assert f"classic.lost.{tag}" not in queues
    fill(alone, f"after.{tag}", QUORUM)

    # one of the dead comes back with its old data: refused, and both say so
    lost[0].start(wait=False)
    refused = "link.refused node=rabbit@node3 reason=wrong_cluster"
    wait_until(lambda: refused in whole_log(lost[0]), "node1 is refused")
    refuses = "link.refused node=rabbit@node1 reason=wrong_cluster"
    wait_until(lambda: refuses in whole_log(alone), "node3 refuses it")
    assert not lost[0].is_ready()

    a_newcomer_joins(trio, tag, tmp_path)

    # it waits, says what to do, and is let in when it was wiped
    advice = "node.waiting: this node is refused: the cluster id of rabbit@node3"
    wait_until(lambda: advice in whole_log(lost[0]), "node1 says what to do", 15)
    lost[0].kill()
    (lost[0].directory / "data").rename(lost[0].directory / "data.old")
    lost[0].start()
    wait_until(lambda: "rabbit@node1" in running_nodes(alone), "node1 is a member again")


@pytest.mark.long
def test_forget_offline_on_both_survivors(own_trio: Trio) -> None:
    """Each survivor is told on its own; one that was not told is refused by the other."""
    trio = own_trio
    one, other = trio.nodes[1:]
    tag = uuid.uuid4().hex[:8]
    fill(one, f"quorum.{tag}", QUORUM)
    fill(other, f"classic.{tag}")
    for node in trio.nodes:
        node.kill()
    words = ("forget_cluster_node", "--offline", "rabbit@node1", "--data-dir")

    assert ctl(*words, str(one.directory / "data")).returncode == 0
    one.start(wait=False)
    other.start(wait=False)
    refused = "link.refused node=rabbit@node2 reason=wrong_cluster"
    wait_until(lambda: refused in whole_log(other), "node3 was not told, and is refused")
    other.kill()

    done = ctl(*words, str(other.directory / "data"))
    assert done.returncode == 0, done.stderr
    assert "the cluster is now: rabbit@node2, rabbit@node3" in done.stdout
    other.start()
    one.wait_ready()
    assert set(drain(one, f"quorum.{tag}")) == set(range(MESSAGES))
    assert set(drain(one, f"classic.{tag}")) == set(range(MESSAGES))
    assert one.api("GET", "/cluster/status")["disk_nodes"] == ["rabbit@node2", "rabbit@node3"]

    # a node that lost its store but not its identity, alone: it says what can be done
    store = other.directory / "data" / "store"
    for node in (one, other):
        node.kill()
    store.rename(store.with_name("gone"))
    other.start(wait=False)
    wait_until(lambda: "copy of the cluster's data is lost" in whole_log(other), "it says so", 15)
    other.kill()
    nothing = ctl("force_boot", "--data-dir", str(other.directory / "data"))
    assert nothing.returncode == 65, nothing
    assert "holds no copy of the cluster's metadata" in nothing.stderr
