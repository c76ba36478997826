"""`ctl export_definitions` and `import_definitions`: files, differences, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.cli.ctl import commands
from tests.unit.cli.fake_api import FakeApi

SUMMARY = {"added": 3, "changed": 1, "left": ["x stays"], "unchanged": 2}


@pytest.fixture
def api():
    served = FakeApi()
    yield served
    served.close()


def ctl(api: FakeApi, *words: str) -> int:
    return commands.run(words, {"WARRENMQ_URL": api.url})


def test_an_export_is_written_to_a_file_that_only_its_user_reads(api, tmp_path: Path, capsys):
    found = {"rabbit_version": "3.13.7", "users": [{"name": "é"}]}
    api.answers[("GET", "/api/definitions")] = (200, found)
    path = tmp_path / "defs.json"
    assert ctl(api, "export_definitions", str(path)) == 0
    assert json.loads(path.read_text()) == found
    assert path.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == f'Exporting definitions in JSON to a file at "{path}" ...\n'


def test_an_export_to_standard_output_is_nothing_but_json(api, capsys):
    api.answers[("GET", "/api/definitions/my%2Fv")] = (200, {"queues": []})
    assert ctl(api, "export_definitions", "-", "-p", "my/v") == 0
    assert json.loads(capsys.readouterr().out) == {"queues": []}


def test_an_import_sends_the_file_as_it_is_and_says_what_was_done(api, tmp_path: Path, capsys):
    api.answers[("POST", "/api/definitions?summary=true")] = (200, SUMMARY)
    path = tmp_path / "defs.json"
    path.write_text('{"queues": []}')
    assert ctl(api, "import_definitions", str(path)) == 0
    assert api.asked[-1][2] == {"queues": []}
    assert capsys.readouterr().out == (
        f'Importing definitions in JSON from a file at "{path}" ...\n'
        "= x stays\n3 added, 1 changed, 1 left as they are, 2 unchanged\n"
    )
    assert ctl(api, "-q", "import_definitions", str(path)) == 0
    assert capsys.readouterr().out == ""


def test_a_dry_run_prints_the_difference(api, tmp_path: Path, capsys):
    difference = {
        "add": ["queue 'q' in vhost '/'"],
        "change": [{"what": "user 'ann'", "differs": "tags"}],
        "left": [],
        "unchanged": 7,
    }
    api.answers[("POST", "/api/definitions?dry_run=true")] = (200, difference)
    path = tmp_path / "defs.json"
    path.write_text("{}")
    assert ctl(api, "import_definitions", str(path), "--dry-run") == 0
    assert capsys.readouterr().out == (
        "+ queue 'q' in vhost '/'\n~ user 'ann': tags\n"
        "1 to add, 1 to change, 0 left as they are, 7 unchanged; nothing was done\n"
    )
    queue = {"name": "q", "changes": {"max-length": [None, 1], "overflow": ["drop-head", None]}}
    renamed = {"name": "r", "changes": {}, "policy": "old", "policy_after": "p", "added": True}
    exchange = {"name": "e", "policy": None, "policy_after": "p"}
    difference["policies"] = [
        {
            "what": "policy 'p' in vhost '/'",
            "queues_changed": 7,
            "queues": [queue, renamed],
            "exchanges_changed": 1,
            "exchanges": [exchange],
        },
        {
            "what": "policy 'o' in vhost '/'",
            "queues_changed": 0,
            "queues": [],
            "exchanges_changed": 0,
            "exchanges": [],
        },
    ]
    assert ctl(api, "import_definitions", str(path), "--dry-run") == 0
    assert (
        "~ user 'ann': tags\n"
        "policy 'p' in vhost '/' touches 7 queues and 1 exchange\n"
        "  queue 'q': max-length none -> 1, overflow drop-head -> none\n"
        "  new queue 'r': policy old -> p\n"
        "  exchange 'e': policy none -> p\n"
        "  and 5 more\n"
        "1 to add"
    ) in capsys.readouterr().out
    assert ctl(api, "import_definitions", str(path), "--dry-run", "--formatter", "json") == 0
    assert json.loads(capsys.readouterr().out) == difference


def test_every_fault_of_a_file_is_a_line_and_ends_with_65(api, tmp_path: Path, capsys):
    faults = {"error": "bad_request", "reason": "a (and 1 more)", "faults": ["a", "b"]}
    api.answers[("POST", "/api/definitions?summary=true")] = (400, faults)
    path = tmp_path / "defs.json"
    path.write_text("{}")
    assert ctl(api, "import_definitions", str(path)) == 65
    assert capsys.readouterr().err == "Error:\na\nb\n"


def test_what_was_imported_last_is_skipped_where_asked(api, tmp_path: Path, capsys):
    path = tmp_path / "defs.json"
    path.write_text("{}")
    where = ("POST", "/api/definitions?summary=true&skip_if_unchanged=true")
    api.answers[where] = (200, {"skipped": True})
    assert ctl(api, "import_definitions", str(path), "--skip-if-unchanged") == 0
    assert "nothing was done" in capsys.readouterr().out


def test_files_that_are_not_there_and_other_formats_are_errors(api, tmp_path: Path, capsys):
    assert ctl(api, "import_definitions", str(tmp_path / "none.json")) == 65
    assert "No such file" in capsys.readouterr().err
    assert ctl(api, "export_definitions", "x", "--format", "erlang") == 64
    assert ctl(api, "export_definitions") == 64
    assert not api.asked
