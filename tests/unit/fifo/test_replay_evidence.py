"""broker.fifo.sessions: which numbers of a session brought which messages (P11)."""

from __future__ import annotations

from broker.fifo.sessions import ReplayEvidence


def _known(evidence: ReplayEvidence, first: int, last: int, absent=frozenset()) -> set[int]:
    asked, known = [], set()
    for low, high, is_known in evidence.judge(first, last, absent):
        asked += range(low, high + 1)
        known |= set(range(low, high + 1)) if is_known else set()
    assert asked == list(range(first, last + 1)), "every number is judged once, in order"
    return known


def test_what_was_enqueued_is_known_and_nothing_else():
    evidence = ReplayEvidence()
    evidence.add(3, 5, 100)
    evidence.add(8, 8, 200)
    assert _known(evidence, 1, 10) == {3, 4, 5, 8}
    assert _known(evidence, 4, 4) == {4}
    assert _known(evidence, 6, 7) == set()


def test_messages_that_are_absent_prove_nothing():
    evidence = ReplayEvidence()
    evidence.add(3, 5, 100)
    assert _known(evidence, 3, 5, {101}) == {3, 5}


def test_one_long_publish_is_one_span():
    evidence = ReplayEvidence()
    for first in range(1, 1001, 10):
        evidence.add(first, first + 9, 500 + first)
    assert evidence.spans() == [(1, 1000, 501)]
    evidence.add(1001, 1001, 9_000)  # another session's messages came between
    assert evidence.spans() == [(1, 1000, 501), (1001, 1001, 9_000)]


def test_nothing_is_kept_below_the_lowest_unanswered_number():
    evidence = ReplayEvidence()
    evidence.add(1, 10, 100)
    evidence.add(11, 12, 500)
    evidence.forget_below(8)
    assert evidence.spans() == [(8, 10, 107), (11, 12, 500)]
    assert _known(evidence, 8, 12, {107}) == {9, 10, 11, 12}
    evidence.forget_below(12)
    assert evidence.spans() == [(12, 12, 501)]
    evidence.forget_below(13)
    assert evidence.spans() == []
