"""Commands of rabbitmq-diagnostics and rabbitmq-queues at a real node."""

from __future__ import annotations

import json

import pytest

from broker.cli.ctl.commands import run
from tests.nodes import Node

Said = pytest.CaptureFixture[str]


def ctl(node: Node, said: Said, *words: str) -> tuple[int, str]:
    code = run(["--url", f"http://127.0.0.1:{node.management_port}", *words], {})
    return code, "".join(said.readouterr())


def test_ports_protocols_and_the_boot_are_checked(node: Node, capsys: Said):
    code, text = ctl(node, capsys, "check_port_connectivity")
    assert (code, "Successfully connected to all ports" in text) == (0, True)
    assert ctl(node, capsys, "check_protocol_listener", "amqp")[0] == 0
    assert ctl(node, capsys, "check_protocol_listener", "mqtt")[0] != 0
    assert ctl(node, capsys, "is_booting") == (
        0,
        f"Asking node http://127.0.0.1:{node.management_port} for its boot status ...\n"
        "the node has booted\n",
    )
    assert ctl(node, capsys, "wait", "-t", "5")[0] == 0


def test_alarms_and_memory_are_told(node: Node, capsys: Said):
    assert "No alarms are set" in ctl(node, capsys, "alarms")[1]
    assert json.loads(ctl(node, capsys, "alarms", "--formatter", "json")[1])["alarms"] == []
    parts = json.loads(ctl(node, capsys, "memory_breakdown", "--formatter", "json")[1])
    assert parts["code"]["bytes"] > parts["binary"]["bytes"] >= 0
    assert sum(part["percentage"] for part in parts.values()) == pytest.approx(100, abs=0.2)
    sizes = [part["bytes"] for part in parts.values()]
    assert sizes == sorted(sizes, reverse=True)
    lines = ctl(node, capsys, "memory_breakdown", "--unit", "bytes")[1].splitlines()[1:]
    assert {line.split(":")[0] for line in lines} == {*parts}
    assert ctl(node, capsys, "memory_breakdown", "--unit", "kb")[0] == 64
    report = json.loads(ctl(node, capsys, "report", "--formatter", "json")[1])
    assert {"overview", "queues", "connections"} <= {*report}


def test_a_quorum_queue_shows_its_members_and_matching_policies(node: Node, capsys: Said):
    node.api(
        "PUT", "/queues/%2F/diag.q", {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    )
    for name, priority in (("low", 1), ("high", 9)):
        body = {"pattern": "^diag", "definition": {"max-length": 5}, "priority": priority}
        node.api("PUT", f"/policies/%2F/{name}", body | {"apply-to": "queues"})
    (member,) = json.loads(ctl(node, capsys, "quorum_status", "diag.q", "--formatter", "json")[1])
    assert (member["Raft State"], member["Online"]) == ("leader", True)
    words = ("list_policies_that_match", "diag.q", "--formatter", "json")
    found = json.loads(ctl(node, capsys, *words)[1])
    assert [each["name"] for each in found] == ["high", "low"]
    for name in ("low", "high"):
        node.api("DELETE", f"/policies/%2F/{name}")
    node.api("DELETE", "/queues/%2F/diag.q")


def test_a_lone_node_waits_for_nobody(node: Node, capsys: Said):
    for name in ("await_online_quorum_plus_one", "await_online_synchronized_mirror"):
        assert ctl(node, capsys, name, "-t", "5")[0] == 0


def test_feature_flags_are_on_and_can_be_enabled_again(node: Node, capsys: Said):
    found = json.loads(ctl(node, capsys, "list_feature_flags", "--formatter", "json")[1])
    states = {each["name"]: each["state"] for each in found}
    assert (states["quorum_queue"], states["stream_queue"]) == ("enabled", "enabled")
    assert states["stream_filtering"] == "unavailable"
    assert ctl(node, capsys, "enable_feature_flag", "all")[0] == 0
    assert ctl(node, capsys, "enable_feature_flag", "quorum_queue")[0] == 0
    after = json.loads(ctl(node, capsys, "list_feature_flags", "--formatter", "json")[1])
    assert {each["name"]: each["state"] for each in after}["quorum_logs"] == "enabled"
    assert ctl(node, capsys, "enable_feature_flag", "stream_filtering")[0] != 0
    code, text = ctl(node, capsys, "enable_feature_flag", "made_up")
    assert (code != 0, "unsupported" in text) == (True, True)
