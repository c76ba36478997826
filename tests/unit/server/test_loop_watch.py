"""The statistics of the turns of the event loop."""

from __future__ import annotations

import pytest

from broker.server.loop_watch import LONG_MS, WINDOW_S, TurnStats


def test_the_longest_turn_of_the_window_counts():
    stats = TurnStats()
    stats.note(12.0, 10.0, 100.0)
    stats.note(80.0, 5.0, 101.0)
    stats.note(20.0, 18.0, 102.0)
    facts = stats.facts(103.0)
    assert (facts["longest_turn_ms"], facts["longest_busy_ms"]) == (80.0, 18.0)


@pytest.mark.parametrize("began_s", [0.0, 3.0, 9.9])
def test_a_turn_is_forgotten_when_the_window_has_passed_over_it(began_s: float):
    stats = TurnStats()
    stats.note(80.0, 80.0, began_s)
    for second in range(1, 200):
        stats.note(7.0, 7.0, began_s + second)
        longest_ms = stats.facts(began_s + second)["longest_turn_ms"]
        if second <= WINDOW_S * 5 / 6:
            assert longest_ms == 80.0
        elif second >= WINDOW_S:
            assert longest_ms == 7.0
    assert stats.facts(began_s + 1_000)["longest_turn_ms"] == 0.0


def test_turns_over_30_ms_are_counted_from_the_start():
    stats = TurnStats()
    for turn_ms in (29.0, LONG_MS, 30.1, 500.0):
        stats.note(turn_ms, turn_ms, 0.0)
    assert stats.facts(1_000.0)["long_turns"] == 2
