"""`warrenmq cluster restart --rolling`: the order of its steps, over nodes that only note them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.cli.cluster.layout import Layout, NodePlace
from broker.cli.cluster.local import ClusterError
from broker.cli.ctl.upgrades import Reason
from broker.cli.restart.commands import command
from broker.cli.restart.rolling import STATE_FILE, RollingRestart
from broker.cli.restart.telling import Lines

BEHIND = Reason("quorum", "1 queues would lose their quorum")
ALONE = Reason("classic", "1 queues have messages on this node alone")


class Nodes:
    """Processes and what the cluster says of them; every step is noted."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.layout = Layout(folder)
        self.layout.create(count, 20_000, 21_000)
        self.pids: dict[str, int | None] = {f"node{i}": 100 + i for i in range(1, count + 1)}
        self.steps: list[str] = []
        self.against: list[list[Reason]] = []
        self.missing: list[list[Reason]] = []
        self.why_not_drained = ""
        self.fails_at = ""

    def pid(self, place: NodePlace) -> int | None:
        return self.pids[place.name]

    def stop(self, names: tuple[str, ...] = ()) -> list[str]:
        self.note(f"stop {names[0]}")
        self.pids[names[0]] = None
        return []

    def start_node(self, name: str, timeout_s: float) -> NodePlace:
        self.note(f"start {name}")
        self.pids[name] = 200 + int(name[-1])
        return self.layout.node(name)

    def leader(self) -> str:
        return "rabbit@node1"

    def against_stop(self, place: NodePlace) -> list[Reason]:
        return self.against.pop(0) if self.against else []

    def lacks(self, place: NodePlace) -> list[Reason]:
        return self.missing.pop(0) if self.missing else []

    def drain(self, place: NodePlace) -> str:
        self.note(f"drain {place.name}")
        return self.why_not_drained

    def stop_serving(self, place: NodePlace) -> None:
        self.note(f"stop_app {place.name}")

    def revive(self, place: NodePlace) -> None:
        self.note(f"revive {place.name}")

    def note(self, step: str) -> None:
        if step == self.fails_at:
            raise KeyboardInterrupt
        self.steps.append(step)

    def restart(self, looks: int = 4) -> None:
        RollingRestart(
            self, self, Lines(), timeout_s=looks / 2, pause=lambda _: self.steps.append("wait")
        ).run()


def steps_of(*names: str) -> list[str]:
    return [f"{verb} {n}" for n in names for verb in ("drain", "stop", "start", "revive")]


def test_one_node_after_another_and_the_leader_of_group_0_last(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.restart()
    assert nodes.steps == steps_of("node2", "node3", "node1")
    assert not (tmp_path / STATE_FILE).exists()


def test_a_node_is_stopped_when_that_is_safe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes(tmp_path)
    nodes.against = [[BEHIND], [BEHIND]]
    nodes.restart()
    assert nodes.steps[:4] == ["wait", "wait", "drain node2", "stop node2"]
    told = capsys.readouterr().out
    assert told.count(BEHIND.text) == 1, "told once, not at each look"


def test_the_next_node_waits_until_the_one_before_has_caught_up(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.missing = [[BEHIND]]
    nodes.restart()
    assert nodes.steps[:5] == ["drain node2", "stop node2", "start node2", "wait", "revive node2"]


def test_what_stays_unsafe_is_refused_with_the_reason(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.against = [[BEHIND]] * 9
    with pytest.raises(ClusterError, match=r"not safe to stop rabbit@node2(.|\n)*lose their quor"):
        nodes.restart()
    assert nodes.steps == ["wait"] * 3


def test_a_reason_that_does_not_go_away_is_refused_at_once(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    nodes.against = [[ALONE]]
    with pytest.raises(ClusterError, match="on this node alone"):
        nodes.restart()
    assert nodes.steps == []


@pytest.mark.parametrize("fails_at", ["drain node3", "stop node3", "start node3", "revive node3"])
def test_an_interrupted_restart_goes_on_where_it_was(tmp_path: Path, fails_at: str) -> None:
    nodes = Nodes(tmp_path)
    nodes.fails_at = fails_at
    with pytest.raises(KeyboardInterrupt):
        nodes.restart()
    nodes.fails_at, nodes.steps = "", []
    nodes.restart()
    assert "stop node2" not in nodes.steps, "that was restarted before"
    assert nodes.pids == {"node1": 201, "node2": 202, "node3": 203}
    if fails_at == "start node3":  # a stopped node first: no other may stop before it runs
        assert nodes.steps[0] == "start node3"
    assert not (tmp_path / STATE_FILE).exists()


def test_a_node_that_can_t_be_drained_is_stopped_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = Nodes(tmp_path)
    nodes.why_not_drained = "its version knows no maintenance mode"
    nodes.restart()
    first = ["drain node2", "stop_app node2", "stop node2", "start node2", "revive node2"]
    assert nodes.steps[:5] == first
    assert "rabbit@node2: not drained, its version knows no" in capsys.readouterr().out


def test_two_nodes_can_t_be_restarted_one_by_one(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 2)
    with pytest.raises(ClusterError, match="no majority"):
        nodes.restart()
    assert nodes.steps == []


def test_restart_says_that_it_needs_rolling(tmp_path: Path) -> None:
    found = CliRunner().invoke(command, ["restart", "--dir", str(tmp_path)])
    assert found.exit_code == 2
    assert "--rolling" in found.output


def test_a_kind_of_reason_that_is_none_is_refused(tmp_path: Path) -> None:
    words = ["restart", "--rolling", "--dir", str(tmp_path), "--tolerate", "colour"]
    found = CliRunner().invoke(command, words)
    assert found.exit_code == 1
    assert "no reason of kind colour" in found.output
