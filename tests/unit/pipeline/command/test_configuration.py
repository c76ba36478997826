"""Settings of jobs: what is refused, with which words, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.command.configuration import ConfigRefused, read
from pipeline.command.declared import JOBS
from pipeline.command.files import read_file, with_password
from pipeline.command.main import main

INGEST = JOBS["ingest"]
FILE = """
[broker]
url = "amqp://node1,amqp://node2"
user = "lake"
password_env = "LAKE_PASSWORD"

[jobs.orders]
job = "ingest"
tap = "queue/orders"
lake = "lake"
once = true

[jobs.orders.tables.orders]
columns = { order_id = "string NOT NULL", amount = "decimal(10,2)" }
checks = { positive = "amount > 0" }
partition = ["date"]

[jobs.small]
job = "compact"
lake = "lake"
"""


def problems(**given: object) -> list[str]:
    with pytest.raises(ConfigRefused) as refused:
        read(INGEST, "ingest", given)
    return refused.value.problems


def test_all_that_is_wrong_is_told_at_once_with_what_was_meant():
    found = problems(
        laek="x", tap="queue/a", stream="b", once="yes", max_rows=-1, data_loss="ignore"
    )
    assert found == [
        "there is no setting 'laek' of ingest; did you mean lake?",
        "once: 'yes' is neither true nor false",
        "max_rows: -1 is not a whole number from 0",
        "data_loss: 'ignore'; there are fail, go-on",
        "lake is missing: folder of the lake",
        "exactly one of tap, stream and super_stream is needed; given are tap, stream",
    ]


def test_a_true_is_no_number_and_a_text_no_list():
    assert problems(lake="x", tap="queue/a", max_rows=True) == [
        "max_rows: True is not a whole number from 0"
    ]
    assert problems(lake="x", tap="queue/a", spark="a=b") == ["spark: 'a=b' is not a list"]
    assert problems(lake="x", tap="queue/a", spark=["a=b", "c"]) == ["spark: 'c' is not KEY=VALUE"]


def test_a_password_in_a_url_is_refused_and_not_repeated():
    (found,) = problems(lake="x", tap="queue/a", url="amqp://a,amqp://me:hunter2@b")
    assert found.startswith("url has a password, which others would see")
    assert "hunter2" not in found


def test_a_password_comes_from_the_environment_or_a_file_and_is_not_shown(tmp_path: Path):
    given = {"lake": "x", "tap": "queue/a"}
    config = with_password(read(INGEST, "i", {**given, "password_env": "P"}), {"P": "hunter2"})
    assert config.connector()["password"] == "hunter2"
    assert "hunter2" not in f"{config!r} {config}"
    path = tmp_path / "password"
    path.write_text("hunter3\n")
    config = with_password(read(INGEST, "i", {**given, "password_file": str(path)}), {})
    assert config.connector()["password"] == "hunter3"
    with pytest.raises(ConfigRefused, match="no environment variable 'Q'"):
        with_password(read(INGEST, "i", {**given, "password_env": "Q"}), {})


def test_a_file_declares_runs_with_the_broker_they_share(tmp_path: Path):
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE)
    orders, small = read_file(path, JOBS)
    assert (orders.name, small.name) == ("orders", "small")
    assert orders.connector() == {
        "url": "amqp://node1,amqp://node2",
        "user": "lake",
        "timeout": "60",
    }
    (table,) = orders.tables
    assert table.schema == "`order_id` string, `amount` decimal(10,2)"
    assert [column.is_needed for column in table.columns] == [True, False]
    assert not orders.never_ends


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[broker]", "[brokers]", "there is no part [brokers]; did you mean broker?"),
        (
            'user = "lake"',
            'usr = "lake"',
            "[broker]: there is no setting 'usr'; did you mean user?",
        ),
        (
            'job = "ingest"',
            'job = "ingets"',
            "[jobs.orders]: there is no job 'ingets'; did you mean",
        ),
        ('job = "ingest"', "", "[jobs.orders]: job is missing: one of ingest"),
        ("once = true", "", "[jobs.orders] never ends, so what follows would never run"),
        (
            "checks =",
            "cheks =",
            "table 'orders': there is no setting 'cheks'; did you mean checks?",
        ),
        (
            '["date"]',
            '["dat"]',
            "table 'orders': partition: there is no column 'dat'; did you mean",
        ),
        ("amount =", "offset =", "table 'orders': column 'offset': each table has that already"),
        ("tables.orders]", "tables.messages]", "table 'messages': a name has a-z"),
        ("[jobs.small]", "[jobs.small", "Expected ']'"),
    ],
)
def test_a_file_is_refused(tmp_path: Path, old: str, new: str, said: str):
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigRefused) as refused:
        read_file(path, JOBS)
    assert any(said in each for each in refused.value.problems), refused.value.problems


def test_wrong_use_exits_with_2_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["ingest", "--laek", "x"]) == 2
    assert "did you mean --lake?" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "no.toml")]) == 2
    assert "No such file" in capsys.readouterr().err
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE)
    assert main(["run", str(path), "ordres"]) == 2
    assert "the file has no job 'ordres'; it has orders, small" in capsys.readouterr().err


def test_without_java_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["compact", "--lake", "x"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_every_job_has_settings_of_different_names():
    for job in JOBS.values():
        names = [setting.name for setting in job.settings]
        assert len(set(names)) == len(names), job.name
        assert set(job.exactly_one) <= set(names)
