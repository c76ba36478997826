from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.session.confirms import Confirms, ConfirmVerdict


def ack(seqno: int, *, multiple: bool = False) -> ConfirmVerdict:
    return ConfirmVerdict(seqno, multiple, ok=True)


def nack(seqno: int) -> ConfirmVerdict:
    return ConfirmVerdict(seqno, multiple=False, ok=False)


def test_a_row_of_confirms_becomes_one_multiple_ack() -> None:
    ledger = Confirms()
    assert ledger.issue(50) == 1
    ledger.confirm(list(range(1, 31)))
    ledger.confirm(list(range(31, 51)))
    assert ledger.flush() == [ack(50, multiple=True)]
    assert ledger.flush() == []
    assert ledger.unanswered == 0


def test_one_confirm_is_a_plain_ack() -> None:
    ledger = Confirms()
    ledger.issue(1)
    ledger.confirm([1])
    assert ledger.flush() == [ack(1)]


def test_multi_queue_publish_waits_for_all_queues() -> None:
    ledger = Confirms()
    ledger.issue(2, queues=3)
    ledger.confirm([1, 2])
    ledger.confirm([1, 2])
    assert not ledger.has_news
    ledger.confirm([2])
    assert ledger.flush() == [ack(2)]
    ledger.confirm([1])
    assert ledger.flush() == [ack(1)]


def test_one_refusal_is_a_nack_and_later_verdicts_are_ignored() -> None:
    ledger = Confirms()
    ledger.issue(1, queues=2)
    ledger.reject([1])
    ledger.confirm([1])
    assert ledger.flush() == [nack(1)]


def test_nacks_go_before_the_multiple_ack_that_would_cover_them() -> None:
    ledger = Confirms()
    ledger.issue(4)
    ledger.confirm([1])
    ledger.reject([2])
    ledger.confirm([3])
    assert ledger.flush() == [nack(2), ack(3, multiple=True)]


def test_gap_is_not_covered_by_multiple() -> None:
    ledger = Confirms()
    ledger.issue(5)
    ledger.confirm([1, 2, 4, 5])
    assert ledger.flush() == [ack(2, multiple=True), ack(4), ack(5)]
    ledger.confirm([3])
    assert ledger.flush() == [ack(3)]


def test_numbers_never_issued_or_answered_before_are_ignored() -> None:
    ledger = Confirms()
    ledger.issue(2)
    ledger.confirm([3, 0])
    ledger.confirm([1])
    ledger.confirm([1])
    ledger.reject([1])
    assert ledger.flush() == [ack(1)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("issue"), st.integers(1, 6), st.integers(1, 3)),
        st.tuples(st.just("confirm"), st.lists(st.integers(1, 25)), st.just(0)),
        st.tuples(st.just("reject"), st.lists(st.integers(1, 25), max_size=3), st.just(0)),
        st.tuples(st.just("row"), st.integers(1, 25), st.integers(0, 8)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Told:
    """What a client knows: `multiple` expanded over what it still waits for."""

    def __init__(self) -> None:
        self.waits: dict[int, int] = {}
        self.verdicts: dict[int, bool] = {}
        self.told: dict[int, bool] = {}

    def answer(self, seqnos: list[int], *, ok: bool) -> None:
        for seqno in seqnos:
            if seqno in self.waits and seqno not in self.verdicts:
                self.waits[seqno] -= 1
                if not ok or self.waits[seqno] == 0:
                    self.verdicts[seqno] = ok

    def hear(self, verdicts: list[ConfirmVerdict]) -> None:
        for verdict in verdicts:
            covered = [verdict.seqno]
            if verdict.multiple:
                covered += [n for n in self.waits if n < verdict.seqno and n not in self.told]
            for seqno in covered:
                assert seqno not in self.told
                self.told[seqno] = verdict.ok
        assert self.told == self.verdicts


@settings(max_examples=400, deadline=None)
@given(steps)
def test_every_number_gets_exactly_one_verdict(script: list[tuple[str, object, int]]) -> None:
    """Never before it was settled, and never twice."""
    ledger = Confirms()
    client = Told()
    for name, first, second in script:
        if name == "issue":
            start = ledger.issue(first, second)
            client.waits.update({start + n: second for n in range(first)})
        elif name == "flush":
            client.hear(ledger.flush())
        else:
            numbers = list(range(first, first + second)) if name == "row" else first
            (ledger.reject if name == "reject" else ledger.confirm)(numbers)
            client.answer(numbers, ok=name != "reject")
    client.hear(ledger.flush())
    assert ledger.unanswered == len(client.waits) - len(client.verdicts)
