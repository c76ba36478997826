"""What nodes know of redrives, and counts that are put together."""

from __future__ import annotations

import msgspec

from broker.management.operations.redriving.exceptions import OTHERS
from broker.management.operations.redriving.letters import DeadLetter
from broker.management.operations.redriving.planning import Job, Selection
from broker.management.operations.redriving.records import Redrive, ended, kept, taken_over
from broker.management.operations.redriving.tally import (
    EXCEPTIONS_MAX,
    KEYS_MAX,
    ROWS_MAX,
    Tally,
)

KNOWN = Redrive("1", Job("/", "dead"), "a", sent=5, kept={"looped": 2}, version=70)


def letter(queue: str = "work", seen_ms: int | None = 5, key: str = "key") -> DeadLetter:
    return DeadLetter("rejected", queue, "origin", (key,), seen_ms, 1, 0)


def test_who_takes_over_knows_better_than_the_node_that_was_silent() -> None:
    over = taken_over(KNOWN, "b")
    assert over.is_newer(msgspec.structs.replace(KNOWN, version=99))
    assert not KNOWN.is_newer(over)
    assert (over.node, over.sent, over.kept, over.is_running) == ("b", 5, {}, True)


def test_a_redrive_that_was_ended_for_another_node_stays_ended() -> None:
    end = ended(KNOWN, "stopped", "by hand", 9)
    assert end.is_newer(msgspec.structs.replace(KNOWN, version=99))
    assert (end.is_running, end.ended_ms) == (False, 9)


def test_a_record_is_the_same_after_its_way_to_another_node() -> None:
    assert msgspec.json.decode(msgspec.json.encode(KNOWN), type=Redrive) == KNOWN


def test_reasons_to_stay_are_shown_with_their_text() -> None:
    assert kept({"unroutable": 1, "looped": 3, "forbidden": 0}) == [
        {
            "why": "looped",
            "text": "were sent back as often as allowed (max_redrives)",
            "messages": 3,
        },
        {"why": "unroutable", "text": "would reach no queue", "messages": 1},
    ]


def test_exceptions_tell_groups_apart_and_those_beyond_are_one() -> None:
    whole = Tally()
    for part in range(3):
        tally = Tally()
        for number in range(EXCEPTIONS_MAX):
            named = msgspec.structs.replace(letter(), exception=f"{part} {number}")
            tally.note(named, 1)
            tally.note(letter(), 1)
        whole.add(tally)
    counts = {each.exception: each.messages for each in whole.groups}
    assert len(counts) == EXCEPTIONS_MAX + 2
    assert (counts[None], counts[OTHERS]) == (3 * EXCEPTIONS_MAX, 2 * EXCEPTIONS_MAX)
    assert sum(counts.values()) == 6 * EXCEPTIONS_MAX


def test_parts_of_a_queue_are_put_together() -> None:
    whole, part = Tally(), Tally()
    whole.note(letter(seen_ms=7), 10)
    part.note(letter(seen_ms=3, key="other"), 5)
    part.note(None, 1)
    part.note(letter(seen_ms=None), 1)
    whole.add(part)
    [group] = whole.groups
    assert (whole.looked, whole.others, group.messages, group.bytes) == (4, 1, 3, 16)
    assert (group.first_seen, group.last_seen) == (3, 7)
    assert group.routing_keys == ["key", "other"]


def test_names_that_clients_invent_take_no_room() -> None:
    tally = Tally()
    for number in range(ROWS_MAX + 50):
        tally.note(letter(f"q{number}"), 1)
        tally.note(letter("q0", key=f"k{number}"), 1)
    assert (len(tally.groups), tally.more_groups) == (ROWS_MAX, 50)
    assert len(tally.groups[0].routing_keys) == KEYS_MAX


def test_a_selection_looks_at_all_that_it_names() -> None:
    assert Selection().picks(letter())
    assert Selection(reason="rejected", queue="work", exchange="origin").picks(letter())
    assert not Selection(queue="other").picks(letter())
    assert Selection(seen_from_ms=5, seen_until_ms=6).picks(letter(seen_ms=5))
    assert not Selection(seen_until_ms=5).picks(letter(seen_ms=5))
    assert not Selection(seen_from_ms=0).picks(letter(seen_ms=None)), "nobody knows when"
