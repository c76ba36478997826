"""Help: commands by scope, usage, completion of names, and the forms of answers."""

from __future__ import annotations

import json

import pytest

from broker.cli.ctl import output
from broker.cli.ctl.absent import ABSENT
from broker.cli.ctl.commands import run
from broker.cli.ctl.help import scopes, usage
from broker.cli.ctl.help.tools import COMMANDS
from tests.unit.cli.fake_api import FakeApi

Said = pytest.CaptureFixture[str]


@pytest.fixture
def api():
    fake = FakeApi()
    yield fake
    fake.close()


def test_every_command_has_a_line_in_one_scope():
    rows = [name for lines in scopes.SCOPES.values() for name in lines]
    assert len(rows) == len(set(rows))
    assert sorted({*usage.names(), *ABSENT} - set(rows)) == []
    assert [line for line in scopes.LINES.values() if not 10 < len(line) < 100] == []


def test_the_overview_groups_commands_by_scope(capsys: Said):
    assert run(["help"], {}) == 0
    text = capsys.readouterr().out
    assert text.index("\nQueues:\n") < text.index("   purge_queue") < text.index("\nUpgrade:\n")
    assert all(f"   {name} " in text for name in usage.names())
    assert run([], {}) == 64


@pytest.mark.parametrize("tool", ["rabbitmq-queues", "rabbitmq-plugins", "rabbitmq-upgrade"])
def test_a_tool_of_rabbitmq_lists_its_own_commands(tool: str, capsys: Said):
    assert run(["help"], {}, tool) == 0
    text = capsys.readouterr().out
    assert f"{tool} [OPTIONS] COMMAND" in text
    assert all(name in text for name in COMMANDS[tool])
    assert "list_queues" not in text


@pytest.mark.parametrize("words", [["help", "set_policy"], ["set_policy", "--help"]], ids=" ".join)
def test_one_commands_help_shows_usage_and_purpose(words: list[str], capsys: Said):
    assert run(words, {}, "rabbitmqctl") == 0
    text = capsys.readouterr().out
    assert "rabbitmqctl set_policy [-p VHOST] [--priority N]" in text
    assert "Sets a policy." in text


def test_the_help_of_a_listing_names_its_columns(capsys: Said):
    assert run(["help", "list_queues"], {}) == 0
    assert "consumer_utilisation" in capsys.readouterr().out


def test_help_on_what_is_not_here_says_why(capsys: Said):
    assert run(["help", "eval"], {}) == 0
    assert ABSENT["eval"] in capsys.readouterr().out


@pytest.mark.parametrize("words", [["help", "lst_queues"], ["lst_queues"]], ids=" ".join)
def test_a_mistyped_name_is_guessed(words: list[str], capsys: Said):
    assert run(words, {}) == 64
    assert "not found. \nDid you mean 'list_queues'? \n" in capsys.readouterr().err


def test_a_name_like_no_other_is_not_guessed(capsys: Said):
    assert run(["zzqqxx"], {}) == 64
    assert "Did you mean" not in capsys.readouterr().err


def test_names_are_completed(capsys: Said):
    assert run(["autocomplete", "list_q"], {}) == 0
    assert capsys.readouterr().out == "list_queues\n"
    assert run(["autocomplete", "zzz"], {}) == 0
    assert capsys.readouterr().out == ""


def test_a_change_answers_in_json(api: FakeApi, capsys: Said):
    api.answers["PUT", "/api/cluster-name"] = (204, None)
    assert run(["--url", api.url, "set_cluster_name", "x", "--formatter", "json"], {}) == 0
    assert json.loads(capsys.readouterr().out) == {"node": api.url, "result": "ok"}


def test_an_error_is_json_too_with_the_same_exit_code(api: FakeApi, capsys: Said):
    assert run(["--url", api.url, "delete_queue", "q", "--formatter", "json"], {}) == 64
    said = capsys.readouterr()
    error = {"node": api.url, "result": "error", "message": "Queue not found"}
    assert (said.out, json.loads(said.err)) == ("", error)


def test_texts_of_checks_are_messages_in_json(api: FakeApi, capsys: Said):
    api.answers["GET", "/healthz"] = (200, {"status": "ok"})
    assert run(["--url", api.url, "ping", "--formatter", "json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["message"] == "Ping succeeded"


def test_the_version_is_a_value_in_json(api: FakeApi, capsys: Said):
    api.answers["GET", "/api/overview"] = (200, {"rabbitmq_version": "3.13.7"})
    assert run(["--url", api.url, "server_version", "--formatter", "json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["value"] == "3.13.7"
    assert run(["--url", api.url, "version", "--formatter", "json"], {}) == 0
    assert json.loads(capsys.readouterr().out)["value"] == {"version": "3.13.7"}


def test_rows_as_erlang_terms():
    found = [{"name": "cq", "messages": 0}, {"name": "é", "messages": None}]
    text = output.rows("erlang", ["name", "messages"], found, headers=True)
    assert text == ('[[{name,<<"cq">>},{messages,0}],[{name,<<"é"/utf8>>},{messages,undefined}]]\n')
    assert output.term({"x-max-length": [1, True], "a": {}}) == "[{'x-max-length',[1,true]},{a,[]}]"
