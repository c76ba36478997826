from __future__ import annotations

import json
import logging

import pytest
from click.testing import CliRunner

from broker.cli import log_output
from broker.cli.main import main
from broker.config import LogSettings
from broker.logs.formatting import JsonFormatter, PlainFormatter


def test_a_bad_configuration_is_exit_78_with_one_line(tmp_path):
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("\nheartbeet = 3\n")
    result = CliRunner().invoke(main, ["server", "--conf", str(conf), "--check"])
    assert result.exit_code == 78
    assert result.stderr == f"warrenmq: {conf}:2: unknown key heartbeet; did you mean heartbeat?\n"


def test_warnings_go_to_stderr():
    result = CliRunner().invoke(main, ["server", "--set", "mqtt.exchange=x", "--check"])
    assert result.exit_code == 0
    assert "warning: --set: mqtt.exchange" in result.stderr


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    for handler in set(root.handlers) - set(before[0]):
        handler.close()
    root.handlers[:], root.level = before


def record(**extra) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": "queue.promoted", "levelname": "INFO", "created": 0})
    vars(made).update(extra)
    return made


def test_plain_lines_carry_fields_and_no_raw_control_characters():
    line = PlainFormatter().format(record(queue="a\nb", view=3, text="two words"))
    assert line == (
        "1970-01-01 00:00:00.000+00:00 [info] queue.promoted "
        r'queue="a\nb" view=3 text="two words"'
    )


def test_json_lines_carry_fields():
    found = json.loads(JsonFormatter().format(record(view=3)))
    assert (found["msg"], found["level"], found["view"]) == ("queue.promoted", "info", 3)


def test_the_log_file_is_rotated(tmp_path, root_logger):
    path = tmp_path / "log" / "node.log"
    log_output.configure(
        LogSettings(console=False, file=str(path), rotation_size_bytes=200, rotation_count=2)
    )
    for number in range(20):
        root_logger.info("event", extra={"number": number})
    assert sorted(p.name for p in path.parent.iterdir()) == ["node.log", "node.log.1", "node.log.2"]


@pytest.mark.parametrize("check", [["--check"], []])
def test_a_cluster_port_open_to_strangers_ends_with_one_line_that_says_what_to_set(
    check: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RABBITMQ_CONFIG_FILE", raising=False)
    monkeypatch.setenv("RABBITMQ_ERLANG_COOKIE", "QWXJRTZKDPLMVBNCFGHS")
    result = CliRunner().invoke(main, ["server", "--set", "cluster.listen=0.0.0.0:25672", *check])
    assert result.exit_code == 78
    assert result.stderr.count("\n") == 1
    assert "cluster.secret has at most 94 random bits" in result.stderr
    assert "QWXJ" not in result.stderr
