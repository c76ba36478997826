"""`warrenmq cluster restart --rolling` under confirmed load: nothing lost, no long silence."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.cluster.layout import free_ports
from broker.cli.cluster.local import Cluster
from tests.cluster.steady import SteadyLoad, collect
from tests.cluster.typed import ctl, declare, set_policy, shown
from tests.cluster.versions import ROOT, LocalCluster, warrenmq
from tests.machine import standstills
from tests.nodes import Node, wait_until

pytestmark = pytest.mark.long

RATE_PER_S = 600.0
GAP_S = 2.0
QUEUES = ("rolling.quorum", "rolling.mirrored")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that no process of the test is the parent of."""
    made = LocalCluster(tmp_path / "cluster", *free_ports(3))
    made.start(ROOT)
    yield Cluster(made.directory)
    made.end()


def node_of(cluster: Cluster, number: int, folder: Path) -> Node:
    """A node of the cluster as tests ask it; its process is the cluster's."""
    place = cluster.layout.nodes()[number]
    node = Node(place.name, folder / f"asked-{number}")
    node.amqp_port, node.management_port = place.amqp_port, place.management_port
    return node


def restart(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as people do; the nodes outlive it."""
    directory = str(cluster.layout.directory)
    return warrenmq(ROOT, "cluster", "restart", "--rolling", "--dir", directory, *words)


@pytest.mark.timeout(400)
def test_a_rolling_restart_under_load_loses_nothing_and_is_not_noticed(
    cluster: Cluster, tmp_path: Path
) -> None:
    places = cluster.layout.nodes()
    nodes = [node_of(cluster, number, tmp_path) for number in range(3)]
    set_policy(nodes[0], "ha", r"^rolling\.m", ha_mode="all", ha_sync_mode="automatic")
    declare(nodes[0], "rolling.quorum", **{"x-queue-type": "quorum"})
    declare(nodes[1], "rolling.mirrored")
    wait_until(
        lambda: len(shown(nodes[0], "rolling.mirrored").get("synchronised_slave_nodes", [])) == 2,
        "mirrors are synchronised",
    )
    before = {row.place.name: row.pid for row in cluster.status()}
    load = SteadyLoad([place.amqp_port for place in places], QUEUES, RATE_PER_S / len(QUEUES))
    with standstills() as machine:
        load.start()
        wait_until(lambda: load.total() > RATE_PER_S, "load flows")
        restarted = restart(cluster)
        confirmed = load.total()
        wait_until(lambda: load.total() > confirmed + RATE_PER_S, "load flows on")
        load.end()
        gaps = {queue: load.longest_gap_s(queue, machine)[0] for queue in QUEUES}
    print(restarted.stdout, json.dumps(gaps), load.total(), load.unknown)
    assert restarted.returncode == 0, restarted.stderr
    assert restarted.stdout.count(": drained") == 3
    after = {row.place.name: row.pid for row in cluster.status()}
    assert all(after[name] not in {None, pid} for name, pid in before.items())
    for queue in QUEUES:
        assert set(load.confirmed[queue]) <= load.received[queue] | collect(nodes[2], queue)
    assert max(gaps.values()) < GAP_S, gaps
    assert ctl(nodes[0], "post_upgrade") == 0


@pytest.mark.timeout(200)
def test_what_is_not_safe_is_refused_and_the_nodes_go_on(cluster: Cluster, tmp_path: Path) -> None:
    node = node_of(cluster, 1, tmp_path)
    declare(node, "alone")
    with node.connect() as connection:
        connection.channel().basic_publish("", "alone", b"x")
    before = {row.place.name: row.pid for row in cluster.status()}
    found = restart(cluster)
    assert found.returncode == 1
    assert "queue 'alone' in vhost '/'" in found.stderr
    after = {row.place.name: row.pid for row in cluster.status()}
    assert after["node2"] == before["node2"]
    found = restart(cluster, "--tolerate", "classic")
    assert found.returncode == 0, found.stderr
    restarted = {row.place.name: row.pid for row in cluster.status()}
    assert restarted["node2"] != before["node2"]
