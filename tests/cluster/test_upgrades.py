"""Nodes of 0.2.0 beside nodes of this version, upgrades from 0.2.0 and 0.1.0, and the way back."""

from __future__ import annotations

import datetime as dt
import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker

from broker.cli.certificates.folder import CertificateFolder
from broker.cli.cluster.layout import free_ports
from tests.cluster.load import drain
from tests.cluster.steady import SteadyLoad, collect
from tests.cluster.test_streams import read_all
from tests.cluster.typed import ctl, declare, fill, set_policy, shown
from tests.cluster.versions import ROOT, V0_1_0, V0_2_0, LocalCluster, source_of, warrenmq
from tests.machine import standstills
from tests.nodes import Node, Trio, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

RATE_PER_S = 600.0
GAP_S = 2.0
FLAG = "maintenance_mode_status"
MESSAGES = range(200)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of 0.2.0."""
    return source_of(V0_2_0, tmp_path_factory.mktemp("0.2.0"))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "cluster", *free_ports(3))
    yield cluster
    cluster.end()


def asked(cluster: LocalCluster, folder: Path) -> list[Node]:
    """The nodes of a local cluster as tests ask them; their processes are the cluster's."""
    found = []
    for place in cluster.layout.nodes():
        node = Node(place.name, folder / f"asked-{place.name}")
        node.amqp_port, node.management_port = place.amqp_port, place.management_port
        found.append(node)
    return found


def flags(node: Node) -> dict[str, str]:
    return {each["name"]: each["state"] for each in node.api("GET", "/feature-flags")}


def lead(trio: Trio, node: Node) -> None:
    """Stop the others' leading of group 0 until a node leads it."""
    for _ in range(6):
        leader = trio.named(metadata_leader(trio))
        if leader is node:
            return
        leader.stop()
        leader.start()
    raise AssertionError(f"{node.name} does not come to lead group 0")


def metadata_leader(trio: Trio) -> str:
    leaders: list[str] = []

    def is_there() -> bool:
        found = trio.nodes[0].api("GET", "/cluster/status")["metadata_leader"]
        leaders.append(found)
        return bool(found)

    wait_until(is_there, "group 0 has a leader")
    return leaders[-1]


def said(node: Node, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = ctl(node, *words)
    told = capsys.readouterr()
    return code, told.out + told.err


def refused(node: Node, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The answer to a request that the node refuses."""
    with pytest.raises(urllib.error.HTTPError) as found:
        node.api(method, path, {} if body is None and method != "GET" else body)
    answer: dict[str, Any] = json.loads(found.value.read())
    return answer


def streams_are_refused(nodes: list[Node]) -> None:
    for node in nodes:
        with pytest.raises(ChannelClosedByBroker, match=r"stream"):
            declare(node, "stream", **{"x-queue-type": "stream"})


def streams_serve(nodes: list[Node]) -> None:
    declare(nodes[0], "stream", **{"x-queue-type": "stream"})
    fill(nodes[1], "stream", MESSAGES)
    for node in nodes:
        assert [number for _, number in read_all(node, "stream", 200)] == list(MESSAGES)


def wait_hears_all(node: Node, nodes: list[Node]) -> None:
    names = {each.user_name for each in nodes}
    status = "/cluster/status"
    wait_until(lambda: set(node.api("GET", status)["running_nodes"]) == names, "it hears all")


def wait_synchronised(node: Node, names: list[str]) -> None:
    wait_until(
        lambda: all(len(shown(node, name)["synchronised_slave_nodes"]) == 2 for name in names),
        "mirrors are synchronised",
    )


def test_a_node_of_0_2_0_joins_leads_and_follows(
    older: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trio = Trio(tmp_path)
    old, new, other = trio.nodes
    old.source = other.source = older  # two of three: they found the cluster
    CertificateFolder(tmp_path / "certificates", dt.datetime.now(dt.UTC)).make(
        [node.user_name for node in trio.nodes]
    )
    both = ["cluster.tls.mode=optional", f"cluster.tls.folder={tmp_path / 'certificates'}"]
    new.settings = [*new.settings, *both]  # a node on its way to TLS, beside some that know none
    try:
        for node in (old, other):
            node.start(wait=False)
        wait_until(lambda: "membership.cluster" in old.full_log(), "the older nodes founded it")
        new.start()
        for node in trio.nodes:
            node.wait_ready()
        other.stop()
        other.source = None
        other.start()
        set_policy(new, "ha", r"^m\.", ha_mode="all", ha_sync_mode="automatic")
        for leader in (new, old):
            lead(trio, leader)
            for place, node in enumerate((old, new)):
                quorum, mirrored = f"q.{leader.name}.{place}", f"m.{leader.name}.{place}"
                local = {"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
                declare(node, quorum, **local)
                declare(node, mirrored)
                for name in (quorum, mirrored):
                    fill((new, old)[place], name, MESSAGES)
                    assert shown(other, name)["node"] == node.user_name
        names = [
            f"{kind}.{leader.name}.{place}"
            for kind in "qm"
            for leader in (new, old)
            for place in (0, 1)
        ]
        wait_synchronised(other, [name for name in names if name.startswith("m")])
        assert flags(new)[FLAG] == "disabled"
        assert FLAG in refused(new, "POST", "/node/drain")["reason"]
        streams_are_refused([new, old])
        led_by_the_older = f"q.{old.name}.0"
        for method, way in (("GET", "browse"), ("GET", "dead-letters")):
            answer = refused(new, method, f"/queues/%2F/{led_by_the_older}/{way}")
            assert f"node {old.user_name} runs a version that does not know" in answer["reason"]
        code, told = said(new, capsys, "enable_feature_flag", FLAG)
        assert code == 69
        assert f"node {old.user_name} knows no feature flags" in told
        assert len(new.api("GET", "/queues")) == len(old.api("GET", "/queues")) == len(names)
        old.stop()
        for name in names:
            assert sorted(drain(new, name)) == list(MESSAGES)
        code, told = said(new, capsys, "enable_feature_flag", FLAG)
        assert code == 69
        assert f"node {old.user_name} is not running" in told
        old.source = None
        old.start()
        wait_hears_all(new, trio.nodes)
        assert said(new, capsys, "enable_feature_flag", "all")[0] == 0
        streams_serve(trio.nodes)
        assert ctl(old, "drain") == 0
    finally:
        trio.end()


def test_a_rolling_upgrade_under_load_loses_nothing_and_is_not_noticed(
    older: Path, local: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From three nodes of 0.2.0; at the end those can't go back, and say so."""
    local.start(older)
    places, nodes = local.layout.nodes(), asked(local, tmp_path)
    queues = ("upgraded.quorum", "upgraded.mirrored")
    set_policy(nodes[0], "ha", r"^upgraded\.m", ha_mode="all", ha_sync_mode="automatic")
    declare(nodes[0], queues[0], **{"x-queue-type": "quorum"})
    declare(nodes[1], queues[1])
    wait_until(
        lambda: len(shown(nodes[0], queues[1]).get("synchronised_slave_nodes", [])) == 2,
        "mirrors are synchronised",
    )
    load = SteadyLoad([place.amqp_port for place in places], queues, RATE_PER_S / len(queues))
    with standstills() as machine:
        load.start()
        wait_until(lambda: load.total() > RATE_PER_S, "load flows")
        words = ("cluster", "restart", "--rolling", "--dir", str(local.directory))
        upgraded = warrenmq(ROOT, *words)
        confirmed = load.total()
        wait_until(lambda: load.total() > confirmed + RATE_PER_S, "load flows on")
        load.end()
        gaps = {queue: load.longest_gap_s(queue, machine)[0] for queue in queues}
    with capsys.disabled():
        print(upgraded.stdout, json.dumps(gaps), load.total(), load.unknown)
    assert upgraded.returncode == 0, upgraded.stdout + upgraded.stderr + local.logs()
    assert upgraded.stdout.count("its version knows no maintenance mode") == 3
    for queue in queues:
        assert set(load.confirmed[queue]) <= load.received[queue] | collect(nodes[2], queue)
    assert max(gaps.values()) < GAP_S, gaps

    assert flags(nodes[0])[FLAG] == "disabled"
    assert said(nodes[0], capsys, "enable_feature_flag", "all")[0] == 0
    assert {flags(node)[FLAG] for node in nodes} == {"enabled"}
    assert ctl(nodes[0], "drain") == 0
    local.stop()
    words = ("server", "--conf", str(local.directory / "node1" / "node.conf"))
    back = warrenmq(older, *words, timeout_s=60)
    assert back.returncode != 0
    told = back.stdout + back.stderr + local.logs()
    assert "start the newer version that wrote it" in told


def test_what_0_1_0_wrote_is_served_after_a_full_stop(
    local: LocalCluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    oldest = source_of(V0_1_0, tmp_path_factory.mktemp("0.1.0"))
    local.start(oldest)
    nodes = asked(local, tmp_path)
    set_policy(nodes[0], "ha", r"^kept\.m", ha_mode="all", ha_sync_mode="automatic")
    declare(nodes[0], "kept.classic")
    declare(nodes[1], "kept.mirrored")
    declare(nodes[2], "kept.quorum", **{"x-queue-type": "quorum"})
    names = ("kept.classic", "kept.mirrored", "kept.quorum")
    for node, name in zip(nodes, names, strict=True):
        fill(node, name, MESSAGES)
    wait_until(
        lambda: len(shown(nodes[0], "kept.mirrored").get("synchronised_slave_nodes", [])) == 2,
        "mirrors are synchronised",
    )
    local.stop()
    local.start(ROOT)
    for name in names:
        wait_until(lambda name=name: shown(nodes[0], name)["state"] == "running", f"{name} serves")
        fill(nodes[0], name, range(len(MESSAGES), len(MESSAGES) + 10))
        assert sorted(drain(nodes[2], name)) == list(range(len(MESSAGES) + 10))
    assert ctl(nodes[0], "enable_feature_flag", "all") == 0
    assert flags(nodes[1])[FLAG] == "enabled"


def test_a_node_of_0_2_0_that_can_t_join_keeps_its_queues(older: Path, tmp_path: Path) -> None:
    """The cluster that a newer node has founded has flags from the beginning."""
    new, old = Node("new", tmp_path / "new"), Node("old", tmp_path / "old")
    old.source = older
    for node in (new, old):
        node.settings = [
            "cluster.secret=test-secret",
            f"cluster.peers.{node.user_name}=127.0.0.1:{node.cluster_port}",
        ]
    try:
        new.start()
        assert flags(new)[FLAG] == "enabled"
        old.start()
        declare(old, "own")
        fill(old, "own", MESSAGES)
        old.stop()
        old.settings.append(f"cluster.peers.{new.user_name}=127.0.0.1:{new.cluster_port}")
        old.start()
        old.api("POST", "/node/stop_app")
        answer = refused(old, "POST", "/node/join_cluster", body={"node": new.user_name})
        assert f"node {new.user_name} at" in answer["reason"]
        assert "does not let this node in" in answer["reason"]
        old.api("POST", "/node/start_app")
        assert sorted(drain(old, "own")) == list(MESSAGES)
        assert [each["name"] for each in new.api("GET", "/nodes")] == [new.user_name]
    finally:
        for node in (new, old):
            node.end()
