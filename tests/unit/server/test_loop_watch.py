"""The statistics of the turns of the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.server.loop_watch import LONG_MS, WINDOW_S, RunQueue, TurnStats

SCHEDSTAT = Path("/proc/thread-self/schedstat")


def test_the_longest_turn_of_the_window_counts():
    stats = TurnStats()
    stats.note(12.0, 10.0, 100.0)
    stats.note(80.0, 5.0, 101.0)
    stats.note(20.0, 18.0, 102.0)
    facts = stats.facts(103.0)
    assert (facts["longest_turn_ms"], facts["longest_busy_ms"]) == (80.0, 18.0)


def test_what_a_turn_waited_for_a_processor_is_not_its_own():
    stats = TurnStats()
    stats.note(40.0, 6.0, 100.0, waited_ms=31.0)
    stats.note(12.0, 2.0, 100.1)
    stats.note(20.0, 8.0, 105.0, waited_ms=19.0)  # the kernel's two clocks differ a little
    assert stats.facts(103.0)["longest_turn_ms"] == 40.0
    assert stats.facts(103.0)["longest_own_ms"] == 12.0
    stats.note(40.0, 16.0, 106.0, waited_ms=31.0)
    assert stats.facts(107.0)["longest_own_ms"] == 16.0


@pytest.mark.skipif(not SCHEDSTAT.exists(), reason="this kernel does not count it")
def test_the_kernel_says_how_long_a_thread_waited_for_a_processor():
    queue = RunQueue()
    before_ns = int(SCHEDSTAT.read_text().split()[1])
    found_ms = queue.waited_ms()
    after_ns = int(SCHEDSTAT.read_text().split()[1])
    assert before_ns <= round(found_ms * 1e6) <= after_ns
    queue.close()
    assert queue.waited_ms() == 0.0


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
