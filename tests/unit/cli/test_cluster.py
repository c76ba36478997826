from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli.cluster import local
from broker.cli.cluster.commands import command
from broker.cli.cluster.layout import INTER_NODE_OFFSET, Layout, LayoutError, free_ports
from broker.cli.cluster.local import Cluster, ClusterError
from broker.config import Listener
from broker.configuration import sources

STUB = (sys.executable, str(Path(__file__).with_name("stub_node.py")))


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path / "c", server=STUB) as made:
        yield made
        children = list(made._children.values())
    for child in children:  # or one that was killed and is not reaped warns when it is collected
        child.wait(20)


def start(cluster: Cluster, nodes: int = 2, **options):
    port, management_port = free_ports(nodes)
    return cluster.start(
        nodes, amqp_port=port, management_port=management_port, timeout_s=20, **options
    )


def test_start_kill_start_again_pause_stop(cluster: Cluster):
    places = start(cluster)
    assert [row.state for row in cluster.status()] == ["running", "running"]
    assert all(row.is_ready for row in cluster.status())

    cluster.kill("rabbit@node1")
    assert [row.state for row in cluster.status()] == ["stopped", "running"]
    with pytest.raises(ClusterError, match="node1 does not run"):
        cluster.kill("node1")
    assert cluster.start_node("node1") == places[0]

    cluster.pause("node2")
    assert [row.state for row in cluster.status()] == ["running", "paused"]
    cluster.resume("node2")
    assert cluster.status()[1].is_ready

    cluster.pause("node2")
    assert cluster.stop() == []
    assert [row.state for row in cluster.status()] == ["stopped", "stopped"]


def test_a_signal_without_effect_is_not_reported_as_done(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    start(cluster)
    monkeypatch.setattr(local, "STOP_TIMEOUT_S", 0.0)
    monkeypatch.setattr(local, "_is_paused", lambda _pid: False)
    with pytest.raises(ClusterError, match="node2 still runs"):
        cluster.pause("node2")
    cluster.resume("node2")
    monkeypatch.setattr(cluster, "_wait_gone", lambda *_: False)
    with pytest.raises(ClusterError, match="node2 is still there"):
        cluster.kill("node2")
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("last", "ends"),
    [
        (signal.SIGCONT, lambda cluster: cluster.stop(["node1"], timeout_s=0.0)),
        (signal.SIGKILL, lambda cluster: cluster.kill("node1")),
    ],
    ids=["stop", "kill"],
)
def test_a_node_that_another_starts_again_meanwhile_is_left_alone(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    last: signal.Signals,
    ends: Callable[[Cluster], list[str] | None],
):
    (place,) = start(cluster, 1)
    first = cluster.pid(place)
    sends = os.kill

    def kill(pid: int, number: int) -> None:
        sends(pid, number)
        if (pid, number) == (first, last):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is gone, and not reaped
            other.start_node("node1", timeout_s=20)

    with Cluster(cluster.layout.directory, server=STUB) as other:
        monkeypatch.setattr(local, "STOP_TIMEOUT_S", 0.0)
        monkeypatch.setattr(os, "kill", kill)
        assert not ends(cluster)
        monkeypatch.undo()
        assert cluster.pid(place) not in (None, first)
        assert cluster.status()[0].is_ready


def test_starting_twice_starts_only_what_is_missing(cluster: Cluster):
    start(cluster)
    pids = [row.pid for row in cluster.status()]
    cluster.kill("node2")
    start(cluster)
    again = [row.pid for row in cluster.status()]
    assert again[0] == pids[0]
    assert again[1] not in (None, pids[1])


def test_free_ports_are_not_among_those_that_systems_hand_out():
    """Else a node that starts again finds a client's connection on its own port."""
    for _ in range(20):
        port, management_port = free_ports(20)
        assert port + 20 + INTER_NODE_OFFSET < 32_768
        assert management_port + 20 < 32_768


def test_a_busy_port_names_its_owner(cluster: Cluster):
    port, management_port = free_ports(2)
    with (
        socket.create_server(("127.0.0.1", port + 1)),
        pytest.raises(
            ClusterError, match=rf"port {port + 1} \(AMQP of node2\).* process {os.getpid()} "
        ),
    ):
        cluster.start(2, amqp_port=port, management_port=management_port)
    assert [row.state for row in cluster.status()] == ["stopped", "stopped"]


def test_a_node_that_ends_at_start_shows_what_it_printed(cluster: Cluster):
    with pytest.raises(ClusterError, match="heartbeat 13 is bad luck"):
        start(cluster, settings=["heartbeat=13"])


def test_a_reused_pid_is_not_taken_for_a_node(tmp_path: Path):
    layout = Layout(tmp_path)
    place = layout.create(1, 5672, 15672)[0]
    layout.path(place, "pid").write_text(f"{os.getpid()} 12.0\n")
    assert Cluster(tmp_path).pid(place) is None


def test_conf_is_one_the_server_reads(tmp_path: Path):
    layout = Layout(tmp_path)
    places = layout.create(3, 5672, 15672)
    layout.write_conf(places[1], ["heartbeat=7"], {("node2", "node3"): "127.0.0.1:9"})
    outcome = sources.load(str(layout.path(places[1], "node.conf")))
    settings = outcome.settings
    assert outcome.warnings == []
    assert settings.node_name == "rabbit@node2"
    assert settings.amqp_listeners == (Listener("127.0.0.1", 5673),)
    assert settings.inter_node_listener() == Listener("127.0.0.1", 25673)
    assert settings.management_listener == Listener("127.0.0.1", 15673)
    assert settings.metrics_listener == Listener("127.0.0.1", 15693)
    assert settings.peer_address("rabbit@node1") == ("127.0.0.1", 25672)
    assert settings.peer_address("rabbit@node3") == ("127.0.0.1", 9)
    assert settings.heartbeat_s == 7
    assert len(settings.cluster_secret) == 64


def test_a_clusters_directories_and_configurations_are_their_users_alone(tmp_path: Path):
    layout = Layout(tmp_path / "c")
    place = layout.create(1, 5672, 15672)[0]
    layout.path(place).chmod(0o755)  # as 0.1.0 made it
    layout.path(place, "node.conf").touch(mode=0o644)
    layout.write_conf(place, ["default_pass=secret"])
    folders = (layout.directory, layout.path(place))
    files = (layout.directory / "secret", layout.path(place, "node.conf"))
    assert [stat.S_IMODE(path.stat().st_mode) for path in folders] == [0o700] * 2
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 2


def test_what_conf_syntax_gives_a_meaning_to_stays_as_it_was_said(tmp_path: Path):
    layout = Layout(tmp_path / "c#1 of 'us' $(HOME)")
    place = layout.create(1, 5672, 15672)[0]
    layout.write_conf(place, ["default_pass=pa#ss", "default_user='x", "cluster_name = $(HOME)"])
    settings = sources.load(str(layout.path(place, "node.conf"))).settings
    assert settings.data_dir == str(layout.path(place, "data"))
    assert settings.log.file == str(layout.path(place, "node.log"))
    assert settings.default_password == "pa#ss"
    assert settings.default_user == "'x"
    assert settings.cluster_name == "$(HOME)"
    with pytest.raises(LayoutError, match="default_pass: a value must stand in one line"):
        layout.write_conf(place, ["default_pass=a\nb"])
    with pytest.raises(LayoutError, match="expected KEY=VALUE, found 'heartbeat'"):
        layout.write_conf(place, ["heartbeat"])


def test_secret_is_the_users_alone_and_stays(tmp_path: Path):
    Layout(tmp_path).create(1, 5672, 15672)
    secret = (tmp_path / "secret").read_text()
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    Layout(tmp_path).create(1, 5672, 15672)
    assert (tmp_path / "secret").read_text() == secret


def test_another_size_in_the_same_directory_is_refused(tmp_path: Path):
    Layout(tmp_path).create(3, 5672, 15672)
    with pytest.raises(LayoutError, match="holds a cluster of 3 nodes, not 5"):
        Layout(tmp_path).create(5, 5672, 15672)


def test_commands_without_a_cluster_say_how_to_start_one(tmp_path: Path):
    result = CliRunner().invoke(command, ["status", "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "warrenmq cluster start" in result.stderr


def test_status_as_json(tmp_path: Path):
    Layout(tmp_path).create(1, 5672, 15672)
    result = CliRunner().invoke(command, ["status", "--dir", str(tmp_path), "--formatter", "json"])
    assert json.loads(result.output)[0]["name"] == "rabbit@node1"
    assert json.loads(result.output)[0]["state"] == "stopped"


def test_stopping_what_never_ran_is_fine(tmp_path: Path):
    result = CliRunner().invoke(command, ["stop", "--dir", str(tmp_path / "none")])
    assert (result.exit_code, result.output) == (0, "stopped\n")


@pytest.mark.parametrize(
    ("option", "port", "told"),
    [
        ("--amqp-port", "45534", "65536, the inter-node port of node3, is none"),
        ("--amqp-port", "0", "0, the AMQP port of node1, is none"),
        ("--management-port", "65534", "65554, the metrics port of node1, is none"),
    ],
)
def test_a_port_that_is_none_is_said_and_nothing_is_made(
    tmp_path: Path, option: str, port: str, told: str
) -> None:
    folder = tmp_path / "cluster"
    done = CliRunner().invoke(command, ["start", "--dir", str(folder), option, port])
    assert done.exit_code == 1
    assert told in done.output
    assert f"choose another {option}" in done.output
    assert not folder.exists()
