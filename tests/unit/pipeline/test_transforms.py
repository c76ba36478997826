"""The Spark judge says what the pure judge says, on the same forged histories."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from chaos import history, options
from chaos.checkers import availability, verdict
from chaos.checkers.facts import Window, gather
from pipeline import judge, tables, transforms
from pipeline.quality import QualityFailed
from pipeline.sources import history as source
from pipeline.verdict import Finding, valid_of
from tests.unit.chaos import forge

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),  # simulators may run beside it (`make ci-long`)
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]

LONG = pytest.mark.long
"""A question costs Spark seconds on two cores: what differs little from another is for CI."""

ABOUT_MESSAGES = {
    "lost", "phantom", "corrupt", "aborted", "unroutable", "duplicated", "flag", "order",
    "held-twice",
    "confirm-twice", "confirm-unasked", "unanswered", "depth", "unhealthy",
}  # fmt: skip
ABOUT_RUNS = [
    name for name, (_, (kind, _)) in forge.MUTATIONS.items() if kind not in ABOUT_MESSAGES
]


# Also with a second look at the windows: which acks are certain depends on them.
ABOUT_RUNS.append("dup after change")


IN_WHOLE_REPORTS = {"no fault", "starved", "gap", "undrained"}
"""`test_sieve.py` compares all that is said of these."""


def rare(names):
    """The first of each kind of finding for CI, the others for `make soak`: 10 to 25 s each."""
    kinds = set()
    for name in names:
        kind = forge.MUTATIONS[name][1][0]
        is_soak = kind in kinds or name in IN_WHOLE_REPORTS
        yield pytest.param(name, marks=pytest.mark.soak if is_soak else LONG)
        kinds.add(kind)


def stored(directory, events, asked=forge.OPTIONS):
    history.save(directory / history.FILE, events)
    options.save(directory, asked)
    return directory


def pure(events, asked=forge.OPTIONS):
    found = verdict.judge(events, asked)
    return [Finding(item.kind, item.subject, item.queue) for item in found.findings], found.valid


@LONG
# All other tests of this file read NDJSON.
@pytest.mark.parametrize("file_format", [pytest.param("ndjson", marks=pytest.mark.soak), "parquet"])
def test_clean_history_passes(spark, tmp_path, file_format):
    report = judge.run(spark, stored(tmp_path, forge.clean()), file_format)
    expected = verdict.judge(forge.clean(), forge.OPTIONS)
    assert (report.findings, report.valid) == ([], True)
    assert dict(report.counts) == expected.counts
    assert report.silences_ms == {"fault-1": expected.recoveries[0].silence_ms}


@LONG
def test_spoilt_messages_give_the_same_findings(spark, tmp_path):
    events = forge.spoiled(forge.clean())
    report = judge.run(spark, stored(tmp_path, events))
    assert (report.findings, report.valid) == pure(events)
    assert {item.kind for item in report.findings} == ABOUT_MESSAGES


@LONG
def test_a_spoilt_stream_gives_the_same_findings(spark, tmp_path):
    events = forge.clean_stream()
    for spoil, _ in forge.STREAM_MUTATIONS.values():
        events = spoil(events)
    report = judge.run(spark, stored(tmp_path, events, forge.STREAM_OPTIONS))
    assert (report.findings, report.valid) == pure(events, forge.STREAM_OPTIONS)
    expected = verdict.judge(events, forge.STREAM_OPTIONS)
    assert dict(report.counts) == expected.counts
    assert {item.kind for item in report.findings} == {"lost", "hole", "stored-twice", "differs"}


@pytest.mark.parametrize("name", list(rare(ABOUT_RUNS)))
def test_spoilt_run_gives_the_same_finding(spark, tmp_path, name):
    events = forge.MUTATIONS[name][0](forge.clean())
    found_tables = tables.gather(source.read(spark, stored(tmp_path, events)))
    silences = transforms.silences(found_tables, is_available=True)
    limits = json.loads((tmp_path / options.FILE).read_text())
    parts = [
        transforms.incomplete(found_tables),
        transforms.undrained(found_tables),
        transforms.lost(found_tables),
        transforms.duplicated(found_tables),
        transforms.recovery(silences, is_available=True),
        transforms.storm(found_tables),
        transforms.starved(found_tables, delivered_after_min=limits["delivered_after_min"]),
        transforms.vacuous(
            found_tables,
            fault="kill-leader",
            is_available=True,
            confirmed_min=limits["confirmed_min"],
            confirmed_in_faults_min=limits["confirmed_in_faults_min"],
        ),
    ]
    found_tables.release()
    found = sorted(Finding(*row) for part in parts for row in part.collect())
    assert (found, valid_of(item.kind for item in found)) == pure(events)


@LONG
@pytest.mark.parametrize("role", ["joined", "synchronised"])
def test_allowed_loss_is_allowed_alike(spark, tmp_path, role):
    events = forge.drop_delivered(forge.drop_delivered(forge.clean(), 5), 35)
    events = forge.joined(events, 6_000_000, role)
    asked = msgspec.structs.replace(forge.OPTIONS, queue="mirrored")
    stored(tmp_path, events)
    options.save(tmp_path, asked)
    report, expected = judge.run(spark, tmp_path), verdict.judge(events, asked)
    assert [item.subject for item in report.findings] == [
        item.subject for item in expected.findings
    ]
    assert report.counts["lost_allowed"] == expected.counts["lost_allowed"]
    assert expected.counts["lost_allowed"] == int(role == "joined")


@pytest.mark.parametrize("fault", [fault for fault in options.FAULTS if fault != "none"])
@pytest.mark.parametrize("queue", options.QUEUES)
def test_both_judges_promise_the_same(queue, fault):
    for on_failure, on_shutdown in itertools.product(options.PROMOTES, options.PROMOTES):
        asked = options.with_defaults(
            queue, fault, 1, promote_on_failure=on_failure, promote_on_shutdown=on_shutdown
        )
        told = msgspec.to_builtins(asked)
        assert judge.is_available(told) == asked.is_available
        assert judge.promotes_unsynchronised(told) == asked.promotes_unsynchronised
        facts = gather([], asked)
        ours = availability.limit_us(facts, Window("fault-1", fault, "n1", 1, 2))
        theirs = transforms.HEALED_LIMIT_US
        if asked.is_available:
            theirs = transforms.SERVING_LIMITS_US[fault]
        assert ours == theirs


@LONG
def test_history_of_nothing_is_no_pass(spark, tmp_path):
    report = judge.run(spark, stored(tmp_path, []))
    assert (report.findings, report.valid) == pure([])


@LONG
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{", "found 1 lines that are none: {"),
        ('{"run_id":"forged","op":"ack"}', "a required column is missing"),
        (
            '{"run_id":"another","recorder":"z","event_no":1,"ts_us":1,"op":"load","type":"ok"}',
            "found 2",
        ),
    ],
)
def test_damaged_history_stops_the_job(spark, tmp_path, line, found):
    stored(tmp_path, forge.clean())
    with (tmp_path / history.FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(QualityFailed, match=found):
        judge.run(spark, tmp_path)


@LONG
def test_run_without_history_is_named(spark, tmp_path):
    options.save(tmp_path, forge.OPTIONS)
    with pytest.raises(FileNotFoundError, match="no history in"):
        judge.run(spark, tmp_path)
