"""`warrenmq config check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from broker.cli.config import EXIT_CONFIG, command


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "rabbitmq.conf"


def check(conf: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["check", str(conf), *options])


def test_what_is_wrong_is_told_with_its_line_all_at_once(conf: Path):
    conf.write_text("heartbeat = often\nchannel_max = 5\nno.such.key = 1\n")
    done = check(conf)
    assert done.exit_code == EXIT_CONFIG
    lines = done.stderr.splitlines()
    assert [line.startswith("wrong: ") for line in lines] == [True, True]
    assert f"{conf}:1" in done.stderr
    assert f"{conf}:3" in done.stderr


def test_what_is_only_accepted_is_told_apart_and_the_rest_is_fine(conf: Path):
    conf.write_text("heartbeat = 30\ndelegate_count = 4\n")
    done = check(conf)
    assert done.exit_code == 0
    first, last = done.stdout.splitlines()
    assert first.startswith(f"no effect: {conf}:2: delegate_count")
    assert last == "The configuration is fine; without effect: 1."


def test_definitions_that_the_file_names_are_read(conf: Path, tmp_path: Path):
    path = tmp_path / "definitions.json"
    conf.write_text(f"load_definitions = {path}\n")
    assert "definitions can't be read" in check(conf).stderr
    path.write_text('{"users": [')
    assert "failed_to_parse_json" in check(conf).stderr
    user = {"name": "u", "password_hash": "x", "hashing_algorithm": "rot13", "tags": ""}
    path.write_text(json.dumps({"users": [user]}))
    done = check(conf)
    assert (done.exit_code, str(path) in done.stderr) == (EXIT_CONFIG, True)
    path.write_text(json.dumps({"users": [], "vhosts": [{"name": "/"}]}))
    assert check(conf).exit_code == 0


def test_a_certificate_that_is_not_there_is_wrong(conf: Path, tmp_path: Path):
    conf.write_text(
        "listeners.ssl.default = 5671\n"
        f"ssl_options.certfile = {tmp_path / 'no.pem'}\n"
        f"ssl_options.keyfile = {tmp_path / 'no.key'}\n"
    )
    done = check(conf)
    assert (done.exit_code, "no.pem" in done.stderr) == (EXIT_CONFIG, True)


def test_set_comes_last(conf: Path):
    conf.write_text("channel_max = 5\n")
    assert check(conf, "--set", "channel_max=many").exit_code == EXIT_CONFIG
