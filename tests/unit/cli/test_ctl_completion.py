"""Shells complete the command line of `ctl`: names, options, columns, values."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete

from broker.cli.cluster.layout import Layout
from broker.cli.ctl.commands import command
from broker.cli.main import main


def completed(*words: str) -> list[str]:
    """What bash would offer for the last word of `warrenmq ctl WORDS`."""
    complete = BashComplete(main, {}, "warrenmq", "_WARRENMQ_COMPLETE")
    return [item.value for item in complete.get_completions(["ctl", *words[:-1]], words[-1])]


def test_commands_of_warrenmq_are_completed():
    complete = BashComplete(main, {}, "warrenmq", "_WARRENMQ_COMPLETE")
    assert "ctl" in [item.value for item in complete.get_completions([], "c")]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("list_qu",), ["list_queues"]),
        (("-n", "node1", "list_qu"), ["list_queues"]),
        (("help", "set_pol"), ["set_policy"]),
        (
            ("list_queues", "message_bytes_p"),
            ["message_bytes_paged_out", "message_bytes_persistent"],
        ),
        (("list_queues", "--formatter", "pre"), ["pretty_table"]),
        (("delete_queue", "--if-e"), ["--if-empty"]),
        (("set_policy", "--ap"), ["--apply-to"]),
        (("--form",), ["--formatter"]),
        (("is_enabled", "rabbitmq_prom"), ["rabbitmq_prometheus"]),
        (("purge_queue", "x"), []),
        (("--nonsense", "list_q"), ["list_queues"]),
    ],
    ids=" ".join,
)
def test_words_are_completed(words: tuple[str, ...], wanted: list[str]):
    assert completed(*words) == wanted


def test_nodes_of_the_local_cluster_are_completed(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WARRENMQ_DIR", str(tmp_path / "cluster"))
    assert completed("-n", "") == []
    Layout(str(tmp_path / "cluster")).create(3, 5672, 15672)
    assert completed("-n", "") == ["node1", "node2", "node3"]


def test_a_tool_of_rabbitmq_completes_its_own_commands():
    complete = BashComplete(command, {}, "rabbitmq-plugins", "_RABBITMQ_PLUGINS_COMPLETE")
    assert [item.value for item in complete.get_completions([], "is_")] == ["is_enabled"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str):
    environ = {**os.environ, "_WARRENMQ_COMPLETE": f"{shell}_source"}
    code = "from broker.cli.main import main; main(prog_name='warrenmq')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert f"_WARRENMQ_COMPLETE={shell}_complete" in done.stdout
