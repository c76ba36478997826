"""`warrenmq pipeline audit`: verdicts of runs as one report."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")
from chaos import history, options
from pipeline.audit import SETTINGS, STARTING
from pipeline.command.configuration import ConfigRefused, read
from pipeline.command.declared import JOBS
from pipeline.command.files import read_runs
from pipeline.command.main import FOUND, _settings, main
from pipeline.jobs import audit
from pipeline.verdict import VERDICT, Finding, Report
from tests.unit.chaos import forge

COUNTS = {
    "events": 10, "published": 3, "confirmed": 3, "delivered": 3, "lost_allowed": 0, "faults": 1,
}  # fmt: skip


def test_the_report_has_each_claim_once_and_every_run():
    lost = [Finding("lost", f"p1|{number}", "q") for number in range(3)]
    found = audit.report(
        "audit",
        {
            "store/good": Report("good", [], COUNTS, {"fault-1": 12}),
            "store/bad": Report("bad", [*lost, Finding("history", "c1", "")], COUNTS, {}),
        },
        {"store/none": "no history in store/none"},
    )
    assert found.findings == [
        "store/bad: history: c1",
        "store/bad: lost: p1|0 in queue 'q', and 2 more",
        "store/none cannot be judged: no history in store/none",
    ]
    assert found.facts == {"runs": 3, "all promises kept": 1, "events": 20}
    assert [row[:2] for row in found.tables[0].rows] == [
        ("store/good", "pass"), ("store/bad", "VIOLATED"),
    ]  # fmt: skip
    assert found.charts[0].items == [("good fault-1", 12.0)]
    assert not found.is_fine


def test_runs_are_a_list_in_a_file_and_must_be_there():
    declared = {"jobs": {"soak": {"job": "audit", "runs": ["store/a", "store/b"]}}}
    (config,), problems = read_runs(declared, JOBS)
    assert (config.texts("runs"), config.text("format"), problems) == (
        ["store/a", "store/b"], "ndjson", [],
    )  # fmt: skip
    with pytest.raises(ConfigRefused, match="runs is missing: directories of chaos runs"):
        read(JOBS["audit"], "audit", {"runs": []})
    with pytest.raises(ConfigRefused, match="'store/a' is not a list"):
        read(JOBS["audit"], "audit", {"runs": "store/a"})


def test_a_jvm_that_is_started_for_audits_alone_is_one_for_short_runs():
    runs = {"job": "audit", "runs": ["store/a"]}
    both, _ = read_runs({"jobs": {"one": runs, "two": runs}}, JOBS)
    assert _settings(both) == STARTING
    key = "spark.driver.extraJavaOptions"
    given, _ = read_runs({"jobs": {"one": {**runs, "spark": [f"{key}=-Xss4m"]}}}, JOBS)
    assert _settings(given) == {key: "-Xss4m"}
    compact = {"job": "compact", "lake": "lake"}
    mixed, problems = read_runs({"jobs": {"one": runs, "two": compact}}, JOBS)
    assert (_settings(mixed), problems) == ({}, [])


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_runs_are_judged_and_one_that_is_not_there_is_a_finding(
    spark, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(spark, "stop", lambda: None)  # the session of all tests
    run = tmp_path / "run"
    run.mkdir()
    history.save(run / history.FILE, forge.MUTATIONS["drop delivered"][0](forge.clean()))
    options.save(run, forge.OPTIONS)
    before = {key: spark.conf.get(key) for key in SETTINGS}
    page = tmp_path / "audit.html"
    code = main(["audit", str(run), str(tmp_path / "none"), "--report", str(page), "-q"])
    said = capsys.readouterr().out
    assert code == FOUND, said
    assert f"FOUND: {run}: lost: p1.1|5 in queue 'q'" in said
    assert f"FOUND: {tmp_path / 'none'} cannot be judged: " in said
    assert "p1.1|5" in page.read_text()
    assert json.loads((run / VERDICT).read_text())["findings"] == [["lost", "p1.1|5", "q"]]
    assert {key: spark.conf.get(key) for key in SETTINGS} == before
