"""What the sieve leaves out raises no finding: both judges say the same without it."""

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
from pipeline.sources import history as source
from pipeline.verdict import Finding
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
    # They are long by name alone: compiling queries would take most of the time.
    monkeypatch.setattr(sieve, "SCANNING", sieve.JUDGING)


def test_every_forged_finding_is_found_by_way_of_parquet_and_sieve(spark, tmp_path):
    events = forged()
    report = judge.run(spark, stored(tmp_path, events))
    findings, counts, silences_ms = pure(events)
    assert report.findings == findings
    assert dict(report.counts) == counts
    assert report.silences_ms == silences_ms
    kinds = {item.kind for item in findings}
    assert kinds >= {
        "lost", "duplicated", "phantom", "corrupt", "aborted", "unroutable", "order", "flag",
        "held-twice", "confirm-twice", "confirm-unasked", "unanswered",
    }  # fmt: skip


def test_of_a_clean_history_next_to_nothing_is_left_to_judge(spark, tmp_path):
    events = forge.clean()
    stored(tmp_path, events)
    lines = source.read_parquet(spark, tmp_path / history.FILE, tmp_path / source.PARQUET)
    left = sieve.sieve(lines)
    others = [event for event in events if event.op not in sieve.ABOUT_MESSAGES]
    seen = {row["msg_id"] for row in left.tables.events.select("msg_id").collect()} - {""}
    left.tables.release()
    # The one that was given back, and the one whose ack the fault swallowed, came twice.
    assert seen == {"p1.1|8", "p1.1|36"}
    assert left.claims == {"duplicated", "held-twice"}
    assert left.kept == len(others) + sum(event.msg_id in seen for event in events)


@pytest.mark.parametrize("name", ["no fault", "starved", "nobody served", "gap", "undrained"])
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
