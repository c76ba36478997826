"""Policy commands: requests, and the lines and exit codes of RabbitMQ 3.10.8's rabbitmqctl."""

from __future__ import annotations

import json

import pytest

from broker.cli.ctl.commands import run
from tests.unit.cli.fake_api import FakeApi

DEFINITION = '{"ha-mode":"exactly","ha-params":2}'
POLICY = {
    "vhost": "/",
    "name": "HA",
    "pattern": "^ha\\.",
    "apply-to": "queues",
    "definition": json.loads(DEFINITION),
    "priority": 3,
}
KINDS = pytest.mark.parametrize(
    ("kind", "path", "noun"),
    [
        ("policy", "/api/policies", "policy"),
        ("operator_policy", "/api/operator-policies", "operator policy"),
    ],
)


@pytest.fixture
def api():
    fake = FakeApi()
    yield fake
    fake.close()


def ctl(api: FakeApi, *words: str) -> int:
    return run(["--url", api.url, *words], {})


@KINDS
def test_set(api: FakeApi, capsys, kind, path, noun):
    api.answers["PUT", f"{path}/v%2F1/HA"] = (201, None)
    words = ("HA", "^ha\\.", DEFINITION, "--priority", "3", "--apply-to", "queues", "-p", "v/1")
    assert ctl(api, f"set_{kind}", *words) == 0
    body = {key: POLICY[key] for key in ("pattern", "definition", "priority", "apply-to")}
    assert api.asked == [("PUT", f"{path}/v%2F1/HA", body)]
    noun = noun if kind == "policy" else f"{noun} override"
    assert capsys.readouterr().out == (
        f'Setting {noun} "HA" for pattern "^ha\\." to "{DEFINITION}" with priority "3" for vhost '
        '"v/1" ...\n'
    )


@KINDS
def test_clear(api: FakeApi, capsys, kind, path, noun):
    assert ctl(api, f"clear_{kind}", "HA") == 69
    said = capsys.readouterr()
    assert said.out == f'Clearing {noun} "HA" on vhost "/" ...\n'
    assert said.err == "Error:\nParameter does not exist\n"
    api.answers["DELETE", f"{path}/%2F/HA"] = (204, None)
    assert ctl(api, f"clear_{kind}", "HA") == 0


@KINDS
def test_list(api: FakeApi, capsys, kind, path, noun):
    api.answers["GET", f"{path}/%2F"] = (200, [POLICY])
    plural = {"policy": "list_policies", "operator_policy": "list_operator_policies"}[kind]
    noun = "policies" if kind == "policy" else "operator policy overrides"
    assert ctl(api, plural) == 0
    assert capsys.readouterr().out == (
        f'Listing {noun} for vhost "/" ...\n'
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority\n"
        f"/\tHA\t^ha\\.\tqueues\t{DEFINITION}\t3\n"
    )
    assert ctl(api, plural, "--formatter", "json") == 0
    assert json.loads(capsys.readouterr().out) == [{**POLICY, "definition": DEFINITION}]


@pytest.mark.parametrize(
    ("words", "exit_code", "text"),
    [
        (("HA", "x", "{"), 69, "JSON decoding error. Reason: "),
        (("HA", "x", "{}", "--priority", "a"), 64, "--priority must be a whole number"),
        (("HA", "x", '{"foo":2}'), 69, 'Validation failed\n\n[{<<"foo">>,2}] are not recogn'),
    ],
)
def test_what_goes_wrong(api: FakeApi, capsys, words, exit_code, text):
    reason = 'Validation failed\n\n[{<<"foo">>,2}] are not recognised policy settings\n'
    api.answers["PUT", "/api/policies/%2F/HA"] = (400, {"error": "bad_request", "reason": reason})
    assert ctl(api, "set_policy", *words) == exit_code
    assert capsys.readouterr().err.startswith(f"Error:\n{text}")


def test_what_is_no_policy_of_any_vhost(api: FakeApi, capsys):
    assert ctl(api, "set_policy", "-p", "nope", "HA", "x", "{}") == 65
    assert capsys.readouterr().err == "Virtual host 'nope' does not exist\n"
    assert ctl(api, "set_policy", "HA", "x") == 64
    assert capsys.readouterr().err.startswith("Error (argument validation): not enough arguments.")


def test_a_policymaker_who_may_not_is_told_so(api: FakeApi, capsys):
    answer = {"error": "not_authorised", "reason": "User not administrator"}
    api.answers["PUT", "/api/operator-policies/%2F/HA"] = (403, answer)
    assert ctl(api, "set_operator_policy", "HA", "x", "{}") == 77


def test_names_with_braces_are_shown_as_they_are(api: FakeApi, capsys):
    api.answers["PUT", "/api/policies/%2F/%7B2%7D"] = (201, None)
    assert ctl(api, "set_policy", "{2}", "{priority}", "{}") == 0
    assert capsys.readouterr().out == (
        'Setting policy "{2}" for pattern "{priority}" to "{}" with priority "0" for vhost "/" '
        "...\n"
    )


def test_queues_and_exchanges_have_columns_for_policies(api: FakeApi, capsys):
    queue = {
        "name": "q",
        "policy": "p",
        "operator_policy": None,
        "effective_policy_definition": {"max-length": 1},
    }
    api.answers["GET", "/api/queues/%2F"] = (200, [queue])
    api.answers["GET", "/api/exchanges/%2F"] = (200, [{"name": "x", "policy": "p"}])
    columns = ("name", "policy", "operator_policy", "effective_policy_definition")
    assert ctl(api, "-s", "list_queues", *columns) == 0
    assert capsys.readouterr().out == 'q\tp\t\t[{"max-length",1}]\n'
    assert ctl(api, "-s", "list_exchanges", "name", "policy") == 0
    assert capsys.readouterr().out == "x\tp\n"
