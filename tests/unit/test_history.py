"""The past of counters: rings, their bounds, and what a query asks for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker.management.answers import ApiError
from broker.management.statistics.ages import NO_SPAN, Span, asked
from broker.management.statistics.history import DAY, HOUR, MINUTE, History, Series
from broker.management.statistics.measured import Measured, total
from broker.management.statistics.message_stats import detailed

BEGIN_MS = 1_700_000_000_000
COLUMN_BYTES = 8 * (MINUTE.slots + HOUR.slots)


def _counted(until_s: int, per_s: int = 3) -> History[str]:
    history = History[str]((MINUTE, HOUR, DAY))
    for second in range(until_s + 1):
        history.add("q", BEGIN_MS + second * 1_000, (second * per_s, 0))
    return history


def test_a_minute_has_each_second():
    history = _counted(200)
    found = history.series("q", 0, Span(BEGIN_MS + 200_000, 1_000, 60))
    assert found.values == [3 * second for second in range(200, 140, -1)]


def test_an_hour_has_every_tenth_second_and_a_day_every_fifth_minute():
    history = _counted(7_200)
    end_ms = BEGIN_MS + 7_200_000
    hour = history.series("q", 0, Span(end_ms // 60_000 * 60_000, 60_000, 60)).values
    assert all(a is not None and b is not None and a - b == 180 for a, b in pairwise(hour))
    day = history.series("q", 0, Span(end_ms // 300_000 * 300_000, 300_000, 24)).values
    grown = [a - b for a, b in pairwise(day[1:]) if a is not None and b is not None]
    assert len(grown) >= 20
    assert set(grown[:-1]) == {900}


def test_a_number_that_stands_still_is_what_it_was():
    history = History[str]()
    for second in range(30):
        history.add("q", BEGIN_MS + second * 1_000, (5,))
    history.add("q", BEGIN_MS + 30_000, (7,))
    found = history.series("q", 0, Span(BEGIN_MS + 40_000, 1_000, 43)).values
    assert found == [7] * 11 + [5] * 30 + [None] * 2


@pytest.mark.parametrize("phase_ms", [0, 3, 500, 997])
def test_samples_that_come_early_or_late_show_the_rate_that_there_was(phase_ms: int):
    history, begin_ms = History[str](), BEGIN_MS + phase_ms
    late_ms = [0, 4, -4, 130, 0, 480, -2, 3, 250, 0, 1, -1, 1_300, 900, 0, 7, -3, 2]
    for second, late in enumerate(late_ms):
        now_ms = begin_ms + second * 1_000 + late
        history.add("q", now_ms, ((now_ms - begin_ms) // 5,))  # 200 a second
    values = history.series("q", 0, Span(BEGIN_MS + 17_000, 1_000, 16)).values
    assert {
        newer - older
        for newer, older in pairwise(values)
        if newer is not None and older is not None
    } <= {199, 200, 201}
    assert None not in values[:-1]


def test_what_grew_between_two_samples_grew_evenly():
    history = History[str]()
    history.add("q", BEGIN_MS + 500, (100,))
    history.add("other", BEGIN_MS + 1_500, (1,))
    history.add("q", BEGIN_MS + 1_500, (100,))
    history.add("q", BEGIN_MS + 5_500, (500,))
    found = history.series("q", 0, Span(BEGIN_MS + 6_000, 1_000, 7)).values
    assert found == [500, 450, 350, 250, 150, 100, None]


def test_a_number_that_begins_later_was_0_before():
    history = History[str]()
    history.add("q", BEGIN_MS, (5, 0))
    history.add("q", BEGIN_MS + 2_000, (5, 1))
    assert history.series("q", 1, Span(BEGIN_MS + 2_000, 1_000, 3)).values == [1, 0, 0]


def test_numbers_that_never_were_above_0_cost_nothing():
    history = History[int]()
    for key in range(100):
        history.add(key, BEGIN_MS, (0,) * 13)
    assert history.bytes == 0
    history.add(1, BEGIN_MS, (4,) + (0,) * 12)
    assert history.bytes == COLUMN_BYTES


def test_memory_stays_below_its_bound_and_who_is_idle_for_an_hour_makes_room():
    history = History[int](bytes_max=3 * COLUMN_BYTES)
    for key in range(5):
        history.add(key, BEGIN_MS, (1,))
    assert history.bytes == 3 * COLUMN_BYTES
    now = Span(BEGIN_MS, 1_000, 1)
    assert [history.series(key, 0, now).values for key in range(5)] == [[1]] * 3 + [[None]] * 2
    later_ms = BEGIN_MS + 3_601_000
    history.add(1, later_ms, (2,))
    history.add(4, later_ms, (2,))
    now = Span(later_ms, 1_000, 1)
    assert [history.series(key, 0, now).values for key in (0, 1, 4)] == [[None], [2], [2]]
    assert history.bytes == 3 * COLUMN_BYTES


def test_objects_that_are_gone_are_forgotten():
    history = _counted(3)
    history.keep(())
    assert history.bytes == 0
    assert history.series("q", 0, Span(BEGIN_MS, 1_000, 2)).values == [None, None]


def test_the_past_of_nodes_is_added_up_by_time():
    one = Measured((3,), (1.0,), [Series(9_000, 1_000, [3, 2, None])])
    other = Measured((5,), (1.0,), [Series(9_000, 1_000, [5, None, None])])
    assert total((one, other)).past == [Series(9_000, 1_000, [8, 2, None])]


def test_details_have_rabbitmqs_shape():
    measured = Measured((30,), (10.0,), [Series(9_000, 1_000, [30, 20, 10, None])])
    assert detailed(("publish",), measured)["publish_details"] == {
        "rate": 10.0,
        "samples": [
            {"sample": 30, "timestamp": 9_000},
            {"sample": 20, "timestamp": 8_000},
            {"sample": 10, "timestamp": 7_000},
        ],
        "avg_rate": 10.0,
        "avg": 20.0,
    }


def test_a_query_names_age_and_increment_together():
    ages = asked({"lengths_age": "60", "lengths_incr": "5", "data_rates_age": "60"}, 1_234_567)
    assert ages.lengths == Span(1_230_000, 5_000, 13), "the newest has settled"
    assert ages.data == ages.messages == ages.node == NO_SPAN


@pytest.mark.parametrize(("age", "step"), [("x", "1"), ("60", "0"), ("-5", "1"), ("86401", "9")])
def test_an_age_that_is_no_time_is_refused(age: str, step: str):
    with pytest.raises(ApiError, match="number of seconds"):
        asked({"lengths_age": age, "lengths_incr": step}, 0)


def test_more_samples_than_a_screen_has_points_are_refused():
    with pytest.raises(ApiError, match="at most 1000"):
        asked({"lengths_age": "3600", "lengths_incr": "1"}, 0)
