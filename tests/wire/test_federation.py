"""Federation is not supported: setting it up is refused with an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.ctl.commands import run
from broker.metadata.policy_keys import NO_FEDERATION
from tests.nodes import Node


def ctl(node: Node, *words: str) -> int:
    return run(["--url", f"http://127.0.0.1:{node.management_port}", *words], {})


def test_setting_it_is_refused_with_what_to_do(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ctl(node, "set_policy", "fed", ".*", '{"federation-upstream-set":"all"}') != 0
    told = capsys.readouterr().err
    assert "are not recognised policy settings" in told
    assert NO_FEDERATION in told
    upstream = ("set_parameter", "federation-upstream", "up", '{"uri":"amqp://elsewhere"}')
    assert ctl(node, *upstream) != 0
    told = capsys.readouterr().err
    assert f"component federation-upstream not found: {NO_FEDERATION}" in told
    assert node.api("GET", "/policies/%2F") == []


def test_a_stored_policy_is_warned_of_at_the_start_and_stays(tmp_path: Path) -> None:
    node = Node("older", tmp_path)
    try:
        node.module = "tests.older_policies"
        node.start()
        body = {"pattern": "^f", "definition": {"federation-upstream-set": "all"}}
        node.api("PUT", "/policies/%2F/fed", body)
        assert "policy.without_effect" not in node.full_log()
        assert node.stop() == 0
        node.module = "broker"
        node.start()
        assert f"policy.without_effect: 'fed' in vhost '/': {NO_FEDERATION}" in node.full_log()
        (stored,) = node.api("GET", "/policies/%2F")
        assert stored["definition"] == body["definition"]
    finally:
        node.end()
