"""What nodes note of the cluster, how they keep it, and how their notes become one timeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.management.operations.timeline.happenings import (
    NAMED_MAX,
    ClusterView,
    Happening,
    QueueChange,
    began,
    differences,
    of_queues,
    put_together,
    sentence,
)
from broker.management.operations.timeline.notes import FILE_NAME, NOTES_MAX, Notes

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"
CALM = ClusterView(
    here=A,
    boots={A: "1", B: "2", C: "3"},
    drained=frozenset(),
    silent=frozenset(),
    metadata_leader=A,
    alarms=frozenset(),
)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (CALM, []),
        (CALM._replace(boots={A: "1", B: "", C: "3"}), ["b went down"]),
        (CALM._replace(boots={A: "1", B: "9", C: "3"}), ["b went down", "b runs"]),
        (CALM._replace(boots={A: "1", B: "2"}), ["c was removed from the cluster"]),
        (
            CALM._replace(boots={**CALM.boots, "rabbit@d": "4"}),
            ["d joined the cluster", "d runs"],
        ),
        (CALM._replace(silent=frozenset({B})), ["a hears nothing from b"]),
        (CALM._replace(drained=frozenset({C})), ["c is in maintenance"]),
        (CALM._replace(metadata_leader=B), ["b leads the metadata"]),
        (CALM._replace(metadata_leader=""), []),  # nobody yet: there will be one
        (CALM._replace(alarms=frozenset({"disk"})), ["disk alarm on a"]),
    ],
)
def test_what_happened_between_two_looks(after: ClusterView, expected: list[str]) -> None:
    assert [sentence(each) for each in differences(CALM, after, 5)] == expected


def test_what_is_over_is_told_too() -> None:
    before = CALM._replace(
        boots={A: "1", B: "", C: "3"},
        silent=frozenset({B, "rabbit@forgotten"}),
        drained=frozenset({C}),
        alarms=frozenset({"memory"}),
    )
    assert [sentence(each) for each in differences(before, CALM, 5)] == [
        "b runs",
        "c is out of maintenance",
        "a hears b again",
        "memory alarm on a is over",
    ]


def test_a_node_that_begins_tells_what_is_not_as_it_should_be() -> None:
    view = CALM._replace(silent=frozenset({B}), alarms=frozenset({"disk"}))
    assert [sentence(each) for each in began(view, 5)] == [
        "a runs",
        "a hears nothing from b",
        "disk alarm on a",
    ]


def led(count: int, before: str = A, after: str = B) -> list[QueueChange]:
    return [
        QueueChange(number, "queue.leader", "/", f"q{number}", after, before)
        for number in range(count)
    ]


def test_few_queues_have_a_line_each_and_many_have_one() -> None:
    few = list(of_queues(led(3)))
    assert [sentence(each) for each in few] == [
        f"'q{number}' is led by b now, before by a" for number in range(3)
    ]
    copies = [QueueChange(9, "copy.removed", f"v{n}", "q", C) for n in range(20)]
    many = list(of_queues([*led(3_000), *led(2, A, C), *copies]))
    assert [sentence(each) for each in many] == [
        "3,000 queues are led by b now, before by a",
        "'q0' is led by c now, before by a",
        "'q1' is led by c now, before by a",
        "c has no copy of 20 queues any more",
    ]
    assert len(many[0].queues) == NAMED_MAX
    assert (many[0].at_ms, many[0].vhost, many[3].vhost) == (0, "/", "")


def test_the_same_seen_by_several_nodes_is_one_line() -> None:
    down = Happening(1_000, "node.down", C, detail="3")
    notes = {
        A: [down, Happening(60_000, "node.up", C, detail="4")],
        B: [Happening(1_400, "node.down", C, detail="3"), Happening(2_000, "link.lost", B, A)],
        C: [Happening(59_500, "node.up", C, detail="4")],
    }
    found = put_together(notes)
    assert [(each.happening.at_ms, each.happening.kind, each.seen_by) for each in found] == [
        (59_500, "node.up", (A, C)),
        (2_000, "link.lost", (B,)),
        (1_000, "node.down", (A, B)),
    ]


def test_the_same_again_is_another_line() -> None:
    def lost(at_ms: int) -> Happening:
        return Happening(at_ms, "link.lost", A, B)

    found = put_together({A: [lost(0), lost(5_000), lost(90_000)]})
    assert [each.happening.at_ms for each in found] == [90_000, 5_000, 0]


def test_of_one_failover_the_note_with_more_queues_counts() -> None:
    def moved(at_ms: int, count: int) -> Happening:
        return Happening(at_ms, "queue.leader", B, A, "/", ("q",), count)

    (found,) = put_together({B: [moved(0, 900)], C: [moved(100, 1_000)]})
    assert (found.happening.count, found.happening.at_ms, found.seen_by) == (1_000, 0, (B, C))


def note(number: int) -> Happening:
    return Happening(number, "link.lost", A, B)


def test_notes_are_found_again_after_a_restart_and_stay_bounded(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    for number in range(0, 5 * NOTES_MAX, 100):
        notes.add([note(number + each) for each in range(100)])
    again = Notes(tmp_path)
    kept = [each.at_ms for each in again.all()]
    assert kept == [each.at_ms for each in notes.all()]
    assert kept == list(range(4 * NOTES_MAX, 5 * NOTES_MAX))
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines()
    assert len(lines) <= 2 * NOTES_MAX


def test_what_a_crash_left_in_the_file_is_passed_over(tmp_path: Path) -> None:
    Notes(tmp_path).add([note(1)])
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"at_ms":2,"kin\n\xff\xfe\n[]\n')
    notes = Notes(tmp_path)
    notes.add([note(3)])
    assert [each.at_ms for each in Notes(tmp_path).all()] == [1, 3]


def test_a_line_cut_at_the_end_does_not_spoil_the_next(tmp_path: Path) -> None:
    Notes(tmp_path).add([note(1)])
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b'{"at_ms":2,"kin')
    Notes(tmp_path).add([note(3)])
    assert [each.at_ms for each in Notes(tmp_path).all()] == [1, 3]


def test_a_node_that_was_reset_begins_anew(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.add([note(1)])
    (tmp_path / FILE_NAME).unlink()
    notes.add([note(2)])
    assert [each.at_ms for each in notes.all()] == [2]


def test_what_can_not_be_written_is_kept_in_memory(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "is not there")
    notes.add([note(1)])
    notes.add([note(2)])
    assert [each.at_ms for each in notes.all()] == [1, 2]
