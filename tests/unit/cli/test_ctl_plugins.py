"""rabbitmq-plugins: what is built in, what is not, and what scripts do with it."""

from __future__ import annotations

import json
import re

import pytest

from broker.cli.ctl.commands import run
from broker.cli.ctl.node.plugins import PLUGINS
from broker.routing.types import TYPES
from tests.unit.cli.fake_api import FakeApi

Said = pytest.CaptureFixture[str]


@pytest.fixture
def api():
    fake = FakeApi()
    fake.answers["GET", "/healthz"] = (200, {"status": "ok"})
    yield fake
    fake.close()


def plugins(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, "-n", "rabbit@x", *words], {}, "rabbitmq-plugins")


def test_they_are_listed_as_rabbitmq_plugins_draws_them(api: FakeApi, capsys: Said):
    assert plugins(api, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        'Listing plugins with pattern ".*" ...',
        " Configured: E = explicitly enabled; e = implicitly enabled",
        " | Status: * = running on rabbit@x",
        " |/",
    ]
    rows = [re.fullmatch(r"\[([Ee ])([* ])\] (\w+) +(.*)", line) for line in lines[4:]]
    states = {row[3]: row[1] + row[2] for row in rows if row is not None}
    assert len(states) == len(PLUGINS)
    assert (states["rabbitmq_management"], states["rabbitmq_mqtt"]) == ("E*", "  ")
    assert states["rabbitmq_web_dispatch"] == "e*"


def test_minimal_and_enabled_give_names_to_scripts(api: FakeApi, capsys: Said):
    assert plugins(api, "list", "-m", "-E", "-s") == 0
    assert "rabbitmq_prometheus\n" in (names := capsys.readouterr().out)
    assert {"rabbitmq_mqtt", "rabbitmq_web_dispatch"} & {*names.split()} == set()
    assert plugins(api, "list", "-m", "-e", "-s") == 0
    assert "rabbitmq_web_dispatch\n" in capsys.readouterr().out


def test_the_list_is_json_too(api: FakeApi, capsys: Said):
    assert plugins(api, "list", "mqtt", "--formatter", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "running"
    assert {each["name"]: each["enabled"] for each in found["plugins"]} == {
        "rabbitmq_mqtt": "not_enabled",
        "rabbitmq_web_mqtt": "not_enabled",
    }


def test_without_a_node_nothing_runs_and_the_list_is_the_same(capsys: Said):
    assert run(["--url", "http://127.0.0.1:1", "list", "^rabbitmq_management$"], {}) == 0
    assert "[E ] rabbitmq_management built in" in capsys.readouterr().out


def test_is_enabled_answers_in_rabbitmqs_words(api: FakeApi, capsys: Said):
    assert plugins(api, "is_enabled", "rabbitmq_management") == 0
    assert capsys.readouterr().out == (
        "Asking node rabbit@x if plugin rabbitmq_management is enabled...\n"
        "Plugin rabbitmq_management is enabled on node rabbit@x\n"
    )
    assert plugins(api, "is_enabled", "rabbitmq_mqtt", "rabbitmq_management", "no") == 69
    said = capsys.readouterr()
    assert "if plugins rabbitmq_mqtt, rabbitmq_management, no are enabled..." in said.out
    assert "Plugins rabbitmq_mqtt, no are not enabled on node rabbit@x. Enabled" in said.err


@pytest.mark.parametrize("verb", ["enable", "set"])
def test_what_is_built_in_is_enabled_without_a_node(verb: str, capsys: Said):
    words = [verb, "--offline", "rabbitmq_management", "rabbitmq_prometheus"]
    assert run(["--url", "http://127.0.0.1:1", *words], {}) == 0
    text = capsys.readouterr().out
    assert "The following plugins have been configured:\n  rabbitmq_auth_mechanism_ssl\n" in text


def test_what_is_not_there_is_not_enabled(api: FakeApi, capsys: Said):
    assert plugins(api, "enable", "rabbitmq_stream") == 69
    error = "Error:\nnot there yet: rabbitmq_stream (there is no stream protocol yet)\n"
    assert capsys.readouterr().err == error
    assert plugins(api, "enable", "nonsense") == 70
    assert capsys.readouterr().err == "Error:\n{:plugins_not_found, [:nonsense]}\n"
    assert plugins(api, "enable") == 64


def test_disabling_says_that_it_stays(api: FakeApi, capsys: Said):
    assert plugins(api, "disable", "rabbitmq_management") == 0
    assert "rabbitmq_management: built in, and on all the same" in capsys.readouterr().out
    assert plugins(api, "disable", "rabbitmq_mqtt") == 0


def test_exchange_types_of_plugins_are_there_as_said():
    types = {
        "rabbitmq_consistent_hash_exchange": "x-consistent-hash",
        "rabbitmq_delayed_message_exchange": "x-delayed-message",
        "rabbitmq_random_exchange": "x-random",
        "rabbitmq_recent_history_exchange": "x-recent-history",
        "rabbitmq_sharding": "x-modulus-hash",
        "rabbitmq_jms_topic_exchange": "x-jms-topic",
    }
    assert {name: PLUGINS[name].is_there for name in types} == {
        name: type_ in TYPES for name, type_ in types.items()
    }


def test_directories_are_none(api: FakeApi, capsys: Said):
    assert plugins(api, "directories", "-s") == 0
    assert "Enabled plugins file: (none, plugins are built in)" in capsys.readouterr().out
