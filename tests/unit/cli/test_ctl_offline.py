"""`warrenmq ctl force_boot` and `forget_cluster_node --offline`: finding the folder, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.cluster.layout import Layout
from broker.cli.ctl.arguments import parse
from broker.cli.ctl.commands import run
from broker.cli.ctl.offline import data_folder
from broker.cluster.identity import IdentityFile
from tests.unit.metadata.cluster import ONE
from tests.unit.test_force_boot import folder, identity


def found(*words: str, **environ: str) -> Path:
    return data_folder(parse(words), environ)


def test_where_the_data_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert found("force_boot", "--data-dir", "/x") == Path("/x")
    conf = tmp_path / "node.conf"
    conf.write_text("data_dir = /from/conf\n")
    assert found("force_boot", "--conf", str(conf)) == Path("/from/conf")
    assert found("force_boot", RABBITMQ_MNESIA_DIR="/from/environment") == Path("/from/environment")

    layout = Layout(tmp_path / "local")
    place = layout.create(3, 5672, 15672)[1]
    words = ("force_boot", "-n", "node2", "--dir", str(layout.directory))
    assert found(*words) == layout.path(place, "data")
    layout.write_conf(place, ["data_dir=/elsewhere"])
    assert found(*words) == Path("/elsewhere")


def test_which_node_must_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Layout(tmp_path).create(3, 5672, 15672)
    assert run(["force_boot", "--dir", str(tmp_path)], {}) == 64
    assert "-n NODE; there are node1, node2, node3" in capsys.readouterr().err
    assert run(["force_boot", "--dir", str(tmp_path), "-n", "node9"], {}) == 68


def test_force_boot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = folder(tmp_path)
    assert run(["force_boot", "--data-dir", str(data), "--dry-run"], {}) == 0
    assert "Would force rabbit@node1" in capsys.readouterr().out
    assert identity(data).cluster_id == "old"
    assert run(["force_boot", "--data-dir", str(data)], {}) == 0
    out = capsys.readouterr().out
    assert f"new cluster id {identity(data).cluster_id}; nodes with the old one are refused" in out
    assert "queues that are deleted with all messages, their only copies were there (2):" in out
    assert "'classic two' in vhost '/'" in out
    assert "queues that go on; lost is what had not reached this side (1):" in out


def test_forget_offline_says_where_to_do_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = folder(tmp_path)
    words = ["forget_cluster_node", "--offline", "--data-dir", str(data)]
    assert run([*words, "node3"], {}) == 0
    assert "Do the same on rabbit@node2, stopped" in capsys.readouterr().out
    assert run([*words, "rabbit@node9"], {}) == 65
    assert run([*words, ONE], {}) == 65
    assert run(words, {}) == 64


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["force_boot", "--data-dir", str(tmp_path)], {}) == 68
    assert run(["force_boot", "--data-dir", str(tmp_path / "nowhere")], {}) == 68
    assert run(["force_boot", "rabbit@node1"], {}) == 64
    capsys.readouterr()
    IdentityFile(tmp_path, ONE)
    data = folder(tmp_path)
    assert run(["force_boot", "--data-dir", str(data), "-n", "node2"], {}) == 65
    assert "belongs to rabbit@node1, not to rabbit@node2" in capsys.readouterr().err
