"""The process of a node by its API: listeners closed and opened, names, what it runs on."""

from __future__ import annotations

import json

import pika
import pika.exceptions
import pytest

from broker.cli.ctl.commands import run
from broker.management.resources.node.process import variables, without_secrets
from tests.nodes import Node

Said = pytest.CaptureFixture[str]


def ctl(node: Node, said: Said, *words: str) -> tuple[int, str]:
    code = run(["--url", f"http://127.0.0.1:{node.management_port}", *words], {})
    return code, "".join(said.readouterr())


def test_suspended_listeners_let_nobody_in_and_keep_who_is_there(node: Node, capsys: Said):
    with node.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("suspended", auto_delete=True)
        code, text = ctl(node, capsys, "suspend_listeners")
        assert (code, "The node will no longer accept client connections!" in text) == (0, True)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            node.connect()
        channel.basic_publish("", "suspended", b"still here")
        assert channel.basic_get("suspended", auto_ack=True)[2] == b"still here"
        assert ctl(node, capsys, "check_running")[0] == 0
        assert ctl(node, capsys, "await_startup", "-t", "0.3")[0] == 75
        assert ctl(node, capsys, "suspend_listeners")[0] == 0, "a second time, too"
        code, text = ctl(node, capsys, "resume_listeners")
        assert (code, "The node will now accept client connections" in text) == (0, True)
        node.connect().close()
        assert ctl(node, capsys, "await_startup", "-t", "5")[0] == 0
    log = node.log_path.read_text()
    assert "listeners.suspended" in log
    assert "listeners.resumed" in log


def test_the_node_tells_its_surroundings(node: Node, capsys: Said):
    code, text = ctl(node, capsys, "erlang_version")
    assert (code, "Python 3." in text) == (0, True)
    code, text = ctl(node, capsys, "command_line_arguments", "--formatter", "json")
    assert (code, "server" in json.loads(text)["arguments"]) == (0, True)
    found = json.loads(ctl(node, capsys, "list_network_interfaces", "--formatter", "json")[1])
    assert found["interfaces"]["lo"]["addresses"][0]["addr"] in {"127.0.0.1", "::1"}
    code, text = ctl(node, capsys, "list_network_interfaces")
    assert "Interface lo\n\nhwaddr: 00:00:00:00:00:00\n" in text
    found = json.loads(ctl(node, capsys, "resolver_info", "--formatter", "json")[1])
    assert found["resolver"]["hosts_file"] == "/etc/hosts"
    code, text = ctl(node, capsys, "os_env")
    assert (code, "Listing RabbitMQ-specific environment variables" in text) == (0, True)
    code, text = ctl(node, capsys, "discover_peers")
    assert (code, "No peers discovered" in text) == (0, True)


def test_the_settings_that_act_are_shown_to_administrators(node: Node, capsys: Said):
    code, text = ctl(node, capsys, "environment", "--formatter", "json")
    assert code == 0
    found = {each["key"]: each for each in json.loads(text)["settings"]}
    port = {"value": f"127.0.0.1:{node.management_port}", "source": "command line", "at": ["--set"]}
    assert found["management.tcp"] == {"key": "management.tcp", **port}
    assert (found["heartbeat"]["value"], found["heartbeat"]["source"]) == (60, "default")
    assert found["default_pass"]["value"] == "***"
    assert ctl(node, capsys, "set_disk_free_limit", "60MB")[0] == 0
    code, text = ctl(node, capsys, "environment", "-q")
    assert "disk_free_limit.absolute = 60000000  # warrenmq ctl\n" in text
    assert ctl(node, capsys, "set_disk_free_limit", "50000000")[0] == 0
    assert ctl(node, capsys, "add_user", "onlooker", "hush")[0] == 0
    assert ctl(node, capsys, "set_user_tags", "onlooker", "monitoring")[0] == 0
    code, text = ctl(node, capsys, "environment", "--user", "onlooker", "--password", "hush")
    assert (code, "User not administrator" in text) == (77, True)
    assert ctl(node, capsys, "delete_user", "onlooker")[0] == 0


def test_names_are_resolved_at_the_node(node: Node, capsys: Said):
    code, text = ctl(node, capsys, "resolve_hostname", "localhost", "-q")
    assert (code, text) == (0, "127.0.0.1\n")
    code, text = ctl(node, capsys, "resolve_hostname", "no-host.invalid", "-q")
    assert (code, text) == (
        65,
        "Error:\nHostname does not resolve (resolution failed with an nxdomain)\n",
    )
    assert ctl(node, capsys, "resolve_hostname", "x", "--address-family", "ipv5")[0] == 64


def test_the_event_loop_is_measured(node: Node, capsys: Said):
    code, text = ctl(node, capsys, "runtime_thread_stats", "--sample-interval", "0.2")
    assert (code, "event_loop" in text) == (0, True)
    code, text = ctl(node, capsys, "force_gc")
    assert (code, "schedule a full sweep GC" in text) == (0, True)


@pytest.mark.long
@pytest.mark.alone  # a turn lasts longer when the machine runs something else meanwhile
def test_a_node_with_nothing_to_do_is_not_stuck(node: Node, capsys: Said):
    code, text = ctl(node, capsys, "maybe_stuck", "-q", "--timeout", "5")
    assert code == 0
    assert "Found 0 suspicious" in text, text


def test_secrets_are_hidden():
    line = ["python", "-m", "broker", "--set", "cluster.secret=abc", "--set", "node.name=x"]
    assert [*without_secrets(line)][4:] == ["cluster.secret=***", "--set", "node.name=x"]
    environ = {
        "RABBITMQ_DEFAULT_PASS": "x",
        "RABBITMQ_DEFAULT_PASS_FILE": "/run/secret",
        "RABBITMQ_ERLANG_COOKIE": "x",
        "WARRENMQ_SET": "heartbeat=5 cluster.secret=abc",
        "HOME": "/root",
    }
    assert variables(environ) == {
        "RABBITMQ_DEFAULT_PASS": "***",
        "RABBITMQ_DEFAULT_PASS_FILE": "/run/secret",
        "RABBITMQ_ERLANG_COOKIE": "***",
        "WARRENMQ_SET": "heartbeat=5 cluster.secret=***",
    }
