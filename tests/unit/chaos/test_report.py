from __future__ import annotations

from chaos import report
from chaos.checkers.verdict import judge
from tests.unit.chaos import forge


def page(events):
    found = judge(events, forge.OPTIONS)
    return report.page(forge.OPTIONS, found, events, {"n1": "a line of its log"})


def test_report_of_a_pass_says_how_to_repeat_it():
    text = page(forge.clean())
    assert text.startswith("# forged: pass\n")
    assert "python -m chaos.run --queue quorum --fault kill-leader --seed 1" in text
    assert "| fault-1 | kill-leader | n1 | 3010 ms |" in text
    assert "a line of its log" not in text


def test_report_of_a_violation_shows_finding_and_logs():
    text = page(forge.drop_delivered(forge.clean()))
    assert text.startswith("# forged: VIOLATED\n")
    assert "- lost q `p1.1|5`" in text
    assert "a line of its log" in text


def test_empty_history_has_a_report():
    assert "Nothing happened." in page([])
