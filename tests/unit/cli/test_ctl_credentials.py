"""Without a user `ctl` logs in as the one that the settings of the node on this machine name."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.cli.ctl import arguments
from broker.cli.ctl.commands import find_node
from broker.cli.ctl.node import credentials
from broker.cli.ctl.node.credentials import of_node


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "rabbitmq.conf").write_text(
        "default_user = first\n# default_pass = no\ndefault_pass=one\nheartbeat = 5\n"
    )
    (tmp_path / "conf.d").mkdir()
    return str(tmp_path / "rabbitmq.conf"), str(tmp_path / "conf.d")


def test_nothing_said_anywhere_is_guest(tmp_path: Path):
    assert of_node({}, (str(tmp_path / "none.conf"),)) == ("guest", "guest")


def test_files_count_in_their_order(paths: tuple[str, str]):
    assert of_node({}, paths) == ("first", "one")
    Path(paths[1], "11-default_user.conf").write_text("default_user = 'op'\ndefault_pass = 'a=b'\n")
    assert of_node({}, paths) == ("op", "a=b")


def test_a_configuration_file_may_be_named(paths: tuple[str, str], tmp_path: Path):
    (tmp_path / "own.conf").write_text("default_user = own\ndefault_pass = two\n")
    for named in ("own", "own.conf"):  # RabbitMQ leaves the ending out
        environ = {"RABBITMQ_CONFIG_FILE": str(tmp_path / named)}
        assert of_node(environ, paths) == ("own", "two")


def test_variables_count_above_files(paths: tuple[str, str], tmp_path: Path):
    (tmp_path / "password").write_text("secret\n")
    environ = {
        "RABBITMQ_DEFAULT_USER": "u",
        "RABBITMQ_DEFAULT_PASS_FILE": str(tmp_path / "password"),
    }
    assert of_node(environ, paths) == ("u", "secret")


def header(*words: str, **environ: str) -> str:
    environ |= {"WARRENMQ_DIR": "/nonexistent"}
    api, _ = find_node(arguments.parse([*words, "list_queues"]), environ)
    return api._headers["Authorization"]


def test_they_are_for_the_node_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(credentials, "_CONFIG_FILES", ())
    own = {"RABBITMQ_DEFAULT_USER": "u", "RABBITMQ_DEFAULT_PASS": "p"}
    guest = header()
    assert header(**own) != guest
    assert header("--url", "http://127.0.0.1:15672", **own) == guest
    assert header("-n", "rabbit@elsewhere", **own) == guest
    said = header("--user", "me", "--password", "x")
    assert header("--user", "me", "--password", "x", **own) == said
    assert header("--user", "me", **own) == header("--user", "me"), "not with another's password"
