from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

import warrenmq
from broker.cli.cluster.layout import LayoutError
from broker.cli.cluster.local import Cluster, ClusterError
from broker.cli.cluster.single import Broker

STUB = (sys.executable, str(Path(__file__).with_name("stub_node.py")))


def test_a_broker_serves_while_it_is_open_and_leaves_nothing():
    with Broker(server=STUB) as broker:
        folder = broker._cluster.layout.directory
        port = int(broker.url.split(":")[3].split("/")[0])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        broker.kill()
        broker.start_again()
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        assert broker.management_url.startswith("http://127.0.0.1:")
    assert not folder.exists()


def test_a_broker_that_was_not_started_has_no_address(tmp_path: Path):
    with pytest.raises(ClusterError, match="not started"):
        _ = Broker(tmp_path).url


def test_the_facade_hands_out_its_names():
    assert warrenmq.Broker is Broker
    assert warrenmq.Cluster is Cluster
    assert warrenmq.__version__
    with pytest.raises(AttributeError):
        _ = warrenmq.Rabbit


def test_a_damaged_cluster_file_is_said_so(tmp_path: Path):
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(LayoutError, match="damaged"):
        Cluster(tmp_path).status()
