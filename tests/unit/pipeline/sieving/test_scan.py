"""What is kept of a history has every finding about messages that the whole of it has.

The pure judge says which those are: of the whole history, and of what is kept.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos import history
from chaos.checkers import verdict
from chaos.history import Event
from pipeline.sieving import marks, sources
from pipeline.sieving.compact import Registers
from pipeline.sieving.keys import Names
from pipeline.sieving.scan import Scan
from pipeline.sieving.sources import Ndjson, Parquet
from pipeline.sources import conversion
from pipeline.tables import STARVED_AFTER_US
from tests.unit.chaos import forge

CLAIMS = {
    "lost": "lost", "phantom": "phantom", "corrupt": "corrupt", "aborted": "refused",
    "unroutable": "refused", "duplicated": "duplicated", "flag": "flag",
    "held-twice": "held-twice", "confirm-twice": "confirm-once",
    "confirm-unasked": "confirm-once", "unanswered": "unanswered", "order": "order",
}  # fmt: skip
"""Kind of a finding about a message -> the claim that has to be asked."""
OF_THE_REST_TOO = "unanswered"
"""It asks what was confirmed meanwhile; Spark's judge has a table of that for all events."""


class Left:
    """What a scan keeps of events."""

    def __init__(self, events, folder, kind=Ndjson):
        history.save(folder / history.FILE, events)
        source = Ndjson(folder / history.FILE)
        if kind is Parquet:
            (folder / "parquet").mkdir()
            if events:
                table = conversion.table_of((folder / history.FILE).read_bytes())
                pq.write_table(table, folder / "parquet" / "0.parquet", row_group_size=100)
            source = Parquet(folder / "parquet")
        (folder / "made").mkdir()
        scan = Scan(source, folder / "made")
        self.summary = scan.summary
        last_us = max((event.ts_us for event in events), default=0)
        ends = {event.op_id: event.ts_us for event in events if event.op == "fault_end"}
        windows = [
            (event.ts_us, ends.get(event.op_id, last_us))
            for event in events if event.op == "fault_start"
        ]  # fmt: skip
        after_us = max(end for _, end in windows) + STARVED_AFTER_US if windows else None
        self.picked = scan.pick(windows, after_us)
        rows = pq.read_table(scan.events).to_pylist()
        self.events = sorted(
            (msgspec.convert(row, Event) for row in rows), key=lambda e: (e.recorder, e.event_no)
        )
        self.confirms_us = pq.read_table(scan.confirms)["at_us"].to_pylist()

    @property
    def ids(self):
        return {event.msg_id for event in self.events if event.op in marks.ABOUT_MESSAGES}


def left(events, kind=Ndjson):
    with tempfile.TemporaryDirectory() as folder:
        return Left(events, Path(folder), kind)


def about_messages(events):
    found = verdict.judge(events, forge.OPTIONS).findings
    return {(item.kind, item.subject, item.queue) for item in found if item.kind in CLAIMS}


def check(events, found):
    """Nothing that the whole has is missing, and nothing is split."""
    asked = about_messages(events)
    assert {CLAIMS[kind] for kind, _, _ in asked} <= found.picked.claims
    same = {item for item in asked if item[0] != OF_THE_REST_TOO}
    assert {item for item in about_messages(found.events) if item[0] != OF_THE_REST_TOO} == same
    for event in events:
        is_about = event.op in marks.ABOUT_MESSAGES
        assert (event in found.events) == (not is_about or event.msg_id in found.ids)
    op_ids = {event.op_id for event in found.events if event.op in marks.HAVE_OP_ID}
    assert {subject for _, subject, _ in asked} <= found.ids | op_ids
    cut = [
        event for event in events
        if event.op in marks.HAVE_OP_ID and event.op_id in op_ids and event not in found.events
    ]  # fmt: skip
    assert cut == []


@cache
def short():
    """The clean history without most of what happens when nothing does."""
    return [
        event for event in forge.clean()
        if event.op not in marks.ABOUT_MESSAGES
        or 6 <= int(event.msg_id.partition("|")[2]) <= 9
        or 35 <= int(event.msg_id.partition("|")[2]) <= 41
        or int(event.msg_id.partition("|")[2]) > 88
    ]  # fmt: skip


TEXTS = st.sampled_from(
    [
        "",
        "p1.1|7",
        "p1.1/7",
        "p1.1|8",
        "p2.1/8",
        "p1.1|07",
        "p1.1/07",
        "p1|1/7",
        "p1/1|7",
        "x",
        "é|7",
    ]
)
CHANGES = st.one_of(
    st.fixed_dictionaries({"msg_id": TEXTS}),
    st.fixed_dictionaries({"op_id": TEXTS}),
    st.fixed_dictionaries({"msg_id": TEXTS, "op_id": TEXTS}),
    st.fixed_dictionaries({"queue": st.sampled_from(["", "other"])}),
    st.fixed_dictionaries({"publisher": st.sampled_from(["", "p1.1", "p2.1"])}),
    st.fixed_dictionaries({"seq": st.integers(0, 90)}),
    st.fixed_dictionaries({"consumer_tag": st.sampled_from(["c1.1", "c2.1", "c1.2"])}),
    st.fixed_dictionaries({"body_crc": st.integers(0, 3)}),
    st.fixed_dictionaries({"redelivered": st.booleans()}),
    st.fixed_dictionaries({"ts_us": st.integers(1_500_000, 30_000_000)}),
    st.fixed_dictionaries({"op": st.sampled_from([*marks.ABOUT_MESSAGES, "close", "consume"])}),
    st.fixed_dictionaries({"type": st.sampled_from(["invoke", "ok", "fail", "info"])}),
    st.fixed_dictionaries({"code": st.sampled_from(["", *marks.GIVEN_UP_CODES])}),
)


SPOILS = st.lists(
    st.tuples(st.integers(0, 1_000), st.sampled_from(["change", "add", "remove"]), CHANGES),
    max_size=4,
)
"""Which event, what happens to it, and its columns then."""


def spoilt(spoils):
    events = list(short())
    places = [n for n, event in enumerate(events) if event.op in marks.ABOUT_MESSAGES]
    for number, how, columns in spoils:
        place = places[number % len(places)]
        now = msgspec.structs.replace(events[place], **columns)
        if how == "change":
            events[place] = now
        elif how == "add":
            events.append(now)
        else:
            events[place] = msgspec.structs.replace(events[place], op="close", msg_id="")
    return forge.renumbered(events)


@given(SPOILS, st.sampled_from([Ndjson, Parquet]), st.sampled_from([1_000, 1 << 24]))
@settings(deadline=None, max_examples=60)
def test_random_forgeries_are_all_found_in_what_is_kept(spoils, kind, part_bytes):
    events = spoilt(spoils)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PART_BYTES", part_bytes)
        check(events, left(events, kind))


@given(SPOILS, st.integers(0, 2))
@settings(deadline=None, max_examples=30)
def test_messages_that_have_no_key_are_only_kept(spoils, publishers):
    """All that is mixed up into one card is kept, whatever the card says."""
    events = spoilt(spoils)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.sieving.scan.Registers", lambda: Registers(heads=Names(publishers)))
        found = left(events)
    check(events, found)
    if publishers == 0:
        assert found.events == events


@pytest.mark.parametrize("name", sorted(forge.MUTATIONS))
@pytest.mark.parametrize("kind", [Ndjson, Parquet])
def test_each_forged_finding_is_kept(name, kind):
    events = forge.MUTATIONS[name][0](forge.clean())
    found = left(events, kind)
    check(events, found)
    assert found.summary.torn() == (["c1"] if name == "gap" else [])


def test_of_a_clean_history_next_to_nothing_is_kept():
    found = left(forge.clean())
    # The one that was given back, and the one whose ack the fault swallowed, came twice.
    assert found.ids == {"p1.1|8", "p1.1|36"}
    assert found.picked.claims == {"duplicated", "held-twice"}
    assert found.picked.kept == sum(event.op in marks.ABOUT_MESSAGES for event in found.events)


def test_a_history_whose_messages_are_named_in_another_way_is_kept_whole():
    events = [
        msgspec.structs.replace(
            event, msg_id=event.msg_id.replace("|", "-"), op_id=event.op_id.replace("/", "-")
        )
        for event in forge.spoiled(forge.clean())
    ]
    found = left(events)
    check(events, found)
    assert found.events == events


def test_one_message_that_is_sent_again_and_again_is_kept():
    events = forge.clean()
    confirm = forge.find(events, "confirm", "p1.1|5")
    events = forge.renumbered(events + [confirm] * 32)
    found = left(events)
    check(events, found)
    assert "p1.1|5" in found.ids


def test_a_publish_that_is_confirmed_in_another_queue_is_kept():
    """A confirm belongs to it by `op_id`: in its own queue it is lost."""
    events = forge.clean()
    again = msgspec.structs.replace(forge.find(events, "publish", "p1.1|5"), queue="other")
    events = forge.renumbered([*events, again])
    assert ("lost", "p1.1|5", "other") in about_messages(events)
    check(events, left(events))


def test_a_publish_under_a_wrong_number_has_the_lines_of_its_consumer_kept():
    """`order` takes the publish's number, not the one of `msg_id`."""
    events = forge.clean()
    events = forge.changed(events, forge.find(events, "publish", "p1.1|5"), seq=80)
    found = left(events)
    check(events, found)
    assert "order" in found.picked.claims
    assert "p1.1|70" in found.ids
    assert "p2.1|70" not in found.ids


def test_the_confirms_of_faults_and_the_ends_of_other_seconds_are_told():
    events = forge.clean()
    confirms = sorted(event.ts_us for event in events if event.op == "confirm")
    found = sorted(left(events).confirms_us)
    near = [us for us in confirms if forge.FAULT_US <= us < forge.HEAL_US + 500_000]
    assert [us for us in found if forge.FAULT_US <= us < forge.HEAL_US + 500_000] == near
    for second in range(26):
        ours = [us for us in confirms if us // 1_000_000 == second]
        theirs = [us for us in found if us // 1_000_000 == second]
        assert ours == theirs == [] or (ours[0], ours[-1]) == (theirs[0], theirs[-1])
    assert set(found) <= set(confirms)


def test_what_each_recorder_got_after_the_last_heal_is_counted():
    events = forge.clean()
    after_us = forge.HEAL_US + STARVED_AFTER_US
    got = [e.recorder for e in events if e.op == "deliver" and e.ts_us > after_us]
    found = left(events)
    assert found.picked.served == {name: got.count(name) for name in set(got)}
    no_fault = left([event for event in events if not event.op.startswith("fault")])
    assert not no_fault.picked.served
    assert no_fault.picked.wanted == 0


def test_a_history_of_nothing_is_nothing():
    found = left([])
    assert (found.events, found.picked.claims, found.picked.kept) == ([], frozenset(), 0)
    assert found.summary.totals()["events"] == 0
