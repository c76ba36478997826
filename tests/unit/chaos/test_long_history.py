"""The histories that measure the judges keep every promise, and are not trivial."""

from __future__ import annotations

from chaos import history, options
from chaos.checkers import verdict
from tests.perf import long_history


def test_a_long_history_passes_with_redeliveries_and_unanswered_publishes(tmp_path):
    long_history.write(tmp_path, 1)
    events = history.load(tmp_path / history.FILE)
    found = verdict.judge(events, options.load(tmp_path))
    assert (found.findings, found.valid) == ([], True)
    assert found.counts["faults"] == 1
    assert min(found.counts[name] for name in ("unknown", "requeued", "redelivered")) > 0
    assert [(event.recorder, event.event_no) for event in events] == sorted(
        (event.recorder, event.event_no) for event in events
    )
