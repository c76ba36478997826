"""What the sieve leaves out raises no finding: both judges say the same, with it and without it."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

pytest.importorskip("pyspark")
from chaos import history, options
from chaos.checkers import verdict
from chaos.history import Event
from pipeline import judge, sieve
from pipeline.quality import QualityFailed
from pipeline.sieving import sources
from pipeline.sources import history as source
from pipeline.sources.conversion import NotAlike
from pipeline.verdict import Finding
from tests.perf import long_history
from tests.unit.chaos import forge

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]

Spoil = Callable[..., list[Event]]
OF_ONE_MESSAGE: tuple[Spoil, ...] = (
    forge.drop_delivered, forge.corrupt, forge.dup_after_ack, forge.double_confirm,
    forge.unasked_confirm, forge.returned, forge.aborted, forge.unanswered, forge.reorder,
    forge.held_twice, forge.lost_requeued, forge.lost_unacked,
)  # fmt: skip
"""What spoils the message with the number that it is given."""


def answered_for_another(events: list[Event], seq: int = 5) -> list[Event]:
    """A confirm under the op_id of another message, which has its own."""
    confirm = forge.find(events, "confirm", f"p1.1|{seq}")
    return forge.changed(events, confirm, op_id=f"p1.1/{seq + 2}")


def delivered_elsewhere(events: list[Event], seq: int = 5) -> list[Event]:
    """A delivery from a queue that the message was not published to."""
    return forge.changed(events, forge.find(events, "deliver", f"p1.1|{seq}"), queue="other")


def misnamed(events: list[Event], seq: int = 5) -> list[Event]:
    """A delivery whose publisher and number are not those of its msg_id: a body that is damaged."""
    delivery = forge.find(events, "deliver", f"p1.1|{seq}")
    return forge.changed(events, delivery, publisher="", seq=0)


FORGED_HERE = (answered_for_another, delivered_elsewhere, misnamed)


def renamed(events: list[Event], prefix: str) -> list[Event]:
    """The same events of other clients, messages, faults and another queue."""
    names = (
        "recorder", "op_id", "queue", "connection", "consumer_tag", "publisher", "msg_id",
    )  # fmt: skip
    return [
        msgspec.structs.replace(
            event, **{name: prefix + text for name in names if (text := getattr(event, name))}
        )
        for event in events
    ]


def at_random(seed: int) -> list[Event]:
    """Four messages of a clean history, spoilt in ways that the seed chooses."""
    chosen = random.Random(seed)
    events = forge.clean()
    for seq in chosen.sample(range(10, 36, 2), 4):
        events = chosen.choice([*OF_ONE_MESSAGE, *FORGED_HERE])(events, seq)
    return events


def forged() -> list[Event]:
    """Every forged finding about messages, and random ones, each in a queue of its own."""
    spoils = [
        spoil
        for spoil, (kind, _) in forge.MUTATIONS.values()
        if kind not in ("vacuous", "undrained", "history", "starved", "recovery")
    ]
    histories = [spoil(forge.clean()) for spoil in (*spoils, *FORGED_HERE)]
    histories += [at_random(seed) for seed in range(20)]
    return [event for n, events in enumerate(histories) for event in renamed(events, f"{n}-")]


def pure(events, asked=forge.OPTIONS):
    found = verdict.judge(events, asked)
    return (
        [Finding(item.kind, item.subject, item.queue) for item in found.findings],
        found.counts,
        {item.fault: item.silence_ms for item in found.recoveries},
    )


def stored(directory, events, asked=forge.OPTIONS):
    history.save(directory / history.FILE, events)
    options.save(directory, asked)
    return directory


@pytest.fixture(autouse=True)
def _all_are_long(monkeypatch):
    monkeypatch.setattr(source, "LONG_BYTES", 0)
    monkeypatch.setattr(sources, "PART_BYTES", 50_000)


def check_alike(report, events, asked=forge.OPTIONS):
    findings, counts, silences_ms = pure(events, asked)
    assert report.findings == findings
    assert dict(report.counts) == counts
    assert report.silences_ms == silences_ms
    return {item.kind for item in findings}


# The test of random forgeries reads NDJSON.
@pytest.mark.parametrize("file_format", [pytest.param("ndjson", marks=pytest.mark.soak), "parquet"])
def test_every_forged_finding_is_found_by_way_of_the_sieve(spark, tmp_path, file_format):
    events = forged()
    report = judge.run(spark, stored(tmp_path, events), file_format)
    assert check_alike(report, events) >= {
        "lost", "duplicated", "phantom", "corrupt", "aborted", "unroutable", "order", "flag",
        "held-twice", "confirm-twice", "confirm-unasked", "unanswered",
    }  # fmt: skip
    assert (tmp_path / source.PARQUET).exists() == (file_format == "parquet")


def test_random_forgeries_have_the_same_findings_with_the_sieve_and_without_it(
    spark, tmp_path, monkeypatch
):
    histories = [at_random(seed) for seed in range(20, 60)]
    events = [each for n, some in enumerate(histories) for each in renamed(some, f"{n}-")]
    stored(tmp_path, events)
    with_it = judge.run(spark, tmp_path)
    monkeypatch.setattr(source, "LONG_BYTES", 1 << 40)
    without = judge.run(spark, tmp_path)
    assert with_it == without
    check_alike(with_it, events)


def test_what_arrow_reads_in_another_way_is_read_by_spark_first(spark, tmp_path):
    events = forge.spoiled(forge.clean())
    path = stored(tmp_path, events) / history.FILE
    first, _, rest = path.read_bytes().partition(b"\n")
    # Spark takes the second of two; Arrow refuses.
    path.write_bytes(first[:-1] + b',"epoch":9,"epoch":0}\n' + rest)
    with pytest.raises(NotAlike):
        list(sources.Ndjson(path).read(sources.Ndjson(path).parts()[0]))
    check_alike(judge.run(spark, tmp_path), events)


# NDJSON of a long stream is made Parquet first, and judged in the same way from there on.
@pytest.mark.parametrize("file_format", ["ndjson", pytest.param("parquet", marks=pytest.mark.soak)])
def test_streams_are_judged_whole(spark, tmp_path, monkeypatch, file_format):
    monkeypatch.setattr(sieve, "sieve", None)
    events = forge.STREAM_MUTATIONS["stored twice"][0](forge.clean_stream())
    stored(tmp_path, events, forge.STREAM_OPTIONS)
    report = judge.run(spark, tmp_path, file_format)
    assert check_alike(report, events, forge.STREAM_OPTIONS) == {"stored-twice"}


@pytest.mark.soak  # the next test shows that nothing false is found
def test_a_long_run_that_keeps_its_promises_passes(spark, tmp_path):
    long_history.write(tmp_path, 1)
    events = history.load(tmp_path / history.FILE)
    assert check_alike(judge.run(spark, tmp_path), events, options.load(tmp_path)) == set()


def test_a_long_run_with_forgeries_is_judged_alike(spark, tmp_path):
    """Deliveries that are lost, doubled, damaged and out of order, among thousands that are not."""
    long_history.write(tmp_path, 1)
    chosen = random.Random(5)
    events = history.load(tmp_path / history.FILE)
    deliveries = [n for n, event in enumerate(events) if event.op == "deliver"]
    for place in chosen.sample(deliveries, 30):
        columns = chosen.choice(
            [{"body_crc": 1}, {"redelivered": False}, {"op": "consume"}, {"msg_id": "p1.1|1"},
             {"publisher": "", "seq": 0}, {"ts_us": events[place].ts_us + 20_000_000}]
        )  # fmt: skip
        events[place] = msgspec.structs.replace(events[place], **columns)
    report = judge.run(spark, stored(tmp_path, events, options.load(tmp_path)))
    assert len(check_alike(report, events, options.load(tmp_path))) > 2


def test_two_runs_in_one_history_are_refused(spark, tmp_path):
    events = forge.clean()
    events[5] = msgspec.structs.replace(events[5], run_id="another")
    with pytest.raises(QualityFailed, match="expected one run, found 2"):
        judge.run(spark, stored(tmp_path, events))


# Each is a judgement of its own in Spark (21 s in CI); unit/chaos has all of them without Spark.
@pytest.mark.parametrize(
    "name",
    ["starved", "gap"]
    + [
        pytest.param(each, marks=pytest.mark.soak)
        for each in ("no fault", "nobody served", "undrained")
    ],
)
def test_what_is_said_of_the_run_is_said_of_all_of_it(spark, tmp_path, name):
    events = forge.MUTATIONS[name][0](forge.clean())
    report = judge.run(spark, stored(tmp_path, events))
    assert (report.findings, dict(report.counts), report.silences_ms) == pure(events)


def test_a_history_of_nothing_is_no_pass(spark, tmp_path):
    report = judge.run(spark, stored(tmp_path, []))
    assert report.findings == pure([])[0]


def test_a_damaged_line_stops_the_job_and_is_shown(spark, tmp_path):
    stored(tmp_path, forge.clean())
    with (tmp_path / history.FILE).open("a") as file:
        file.write("{\n")
    with pytest.raises(QualityFailed, match=r"found 1 lines that are none: \{"):
        judge.run(spark, tmp_path)
