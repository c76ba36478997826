from __future__ import annotations

import random

from broker.fifo.logged.positions import COMPACT_MIN, Position, Positions, joined, spans_of


def filled(entries: int, each: int) -> Positions:
    positions = Positions()
    for at in range(entries):
        positions.add(1 + at * each, each, 10 + at, 3)
    return positions


def test_messages_of_an_entry_are_one_run() -> None:
    positions = Positions()
    positions.add(1, 5, 10, 0)
    positions.add(6, 2, 10, 5)
    positions.add(8, 1, 10, 9)  # one between them was refused
    assert len(positions) == 2
    assert [positions.find(n) for n in (1, 7, 8, 9)] == [
        Position(10, 0), Position(10, 6), Position(10, 9), None,
    ]  # fmt: skip


def test_a_message_of_a_snapshot_is_not_in_the_log() -> None:
    positions = filled(2, 3)
    positions.logged_from = 3
    assert positions.has(1)
    assert not Positions().find(1)
    positions.compact([(4, 6)])
    assert not positions.has(2)
    assert positions.has(5)


def test_runs_of_ended_messages_go_when_they_are_many() -> None:
    positions = filled(COMPACT_MIN, 2)
    assert positions.is_compact_due
    positions.compact([(1, 1), (2001, 2004)])
    assert len(positions) == 3
    assert positions.find(1) == Position(10, 3)
    assert positions.find(2003) == Position(1011, 3)
    assert positions.find(1001) is None
    assert not positions.is_compact_due


def test_the_log_is_needed_from_the_first_live_message_on() -> None:
    positions = filled(100, 10)
    assert positions.lowest_index([(995, 1000), (2000, 2001)]) == 109
    assert positions.lowest_index([]) is None
    assert positions.lowest_index([(2000, 2001)]) is None
    positions.move([1, 5, 11], 500, 0)
    assert [positions.find(n) for n in (1, 2, 5, 11, 12)] == [
        Position(500, 0), Position(10, 4), Position(500, 1), Position(500, 2), Position(11, 4),
    ]  # fmt: skip
    assert positions.lowest_index([(1, 1), (11, 11)]) == 500
    assert positions.lowest_index([(1, 1), (300, 301)]) == 39
    assert [*positions.up_to(11, [(1, 20)])] == [2, 3, 4, *range(6, 11), *range(12, 21)]
    assert [*positions.up_to(500, [(1, 1), (11, 11)])] == [1, 11]


def test_positions_behave_as_a_dict() -> None:
    draw = random.Random(1)
    for _ in range(60):
        positions, model = Positions(), dict[int, Position]()
        number = index = 1
        for _ in range(60):
            index += draw.randint(1, 3)
            if draw.random() < 0.7 or not model:
                ordinal = 0
                for _ in range(draw.randint(1, 3)):
                    ordinal += draw.randint(0, 1)
                    count = draw.randint(1, 4)
                    positions.add(number, count, index, ordinal)
                    model |= {number + i: Position(index, ordinal + i) for i in range(count)}
                    number, ordinal = number + count, ordinal + count
            else:
                numbers = sorted(draw.sample([*model], min(len(model), 5)))
                positions.move(numbers, index, 2)
                model |= {n: Position(index, 2 + at) for at, n in enumerate(numbers)}
            for ended in draw.sample([*model], len(model) // 8):
                del model[ended]
            live = spans_of(sorted(model))
            if draw.random() < 0.2:
                positions.compact(live)
            assert {n: positions.find(n) for n in model} == model
            lowest = min([each.entry for each in model.values()], default=None)
            assert positions.lowest_index(live) == lowest
            middle = index // 2
            assert [*positions.up_to(middle, live)] == [
                n for n in sorted(model) if model[n].entry <= middle
            ]


def test_spans_are_joined() -> None:
    assert joined([(5, 6), (1, 2), (3, 3), (6, 9), (11, 11)]) == [(1, 3), (5, 9), (11, 11)]
    assert spans_of([1, 2, 5, 7, 8]) == [(1, 2), (5, 5), (7, 8)]
    assert spans_of([]) == []
