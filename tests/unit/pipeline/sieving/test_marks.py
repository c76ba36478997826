"""Cards count what messages' events say, and suspect more rather than less."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sieving import marks
from pipeline.sieving.marks import Card, Mark

CLEAN = Card(sent=1, confirms=1, answers=1, deliveries=1, fresh=1, acks=1)
EVENTS = st.lists(st.integers(0, 2 * max(Mark) - 1), max_size=marks.COUNT_MAX)


@given(EVENTS)
def test_a_sum_of_marks_is_the_card_of_the_events(events):
    card = marks.card(sum(marks.SPREAD[each].as_py() for each in events))
    for name, mark in (("sent", Mark.SENT), ("acks", Mark.ACK), ("odd", Mark.ODD)):
        assert getattr(card, name) == sum(each & mark > 0 for each in events)
    assert card.answers == sum(each & (Mark.CONFIRM | Mark.NACK) > 0 for each in events)
    assert card.late == 0


def test_what_was_sent_confirmed_delivered_and_acked_once_is_suspected_of_nothing():
    assert marks.claims(CLEAN) == 0
    assert marks.claims(CLEAN._replace(late=1)) == 0


@pytest.mark.parametrize(
    ("card", "suspected"),
    [
        (CLEAN._replace(acks=0), {"lost"}),
        (CLEAN._replace(sent=0, confirms=0, answers=0), {"phantom"}),
        (CLEAN._replace(is_changed=True), {"corrupt"}),
        (CLEAN._replace(refusals=1), {"refused"}),
        (CLEAN._replace(is_late_delivery=True), {"duplicated"}),
        (CLEAN._replace(deliveries=2), {"held-twice"}),
        (CLEAN._replace(deliveries=2, fresh=2), {"flag", "held-twice"}),
        (CLEAN._replace(answers=2), {"confirm-once"}),
        (Card(confirms=1, answers=1, acks=1), {"confirm-once"}),
        (CLEAN._replace(given_up=1), {"unanswered"}),
        (CLEAN._replace(strays=1), set(marks.SUSPICIONS)),
        (CLEAN._replace(misnamed=1), set(marks.SUSPICIONS)),
        (CLEAN._replace(odd=1), set(marks.SUSPICIONS)),
        (CLEAN._replace(sent=2), set(marks.SUSPICIONS)),
    ],
)
def test_each_claim_suspects_what_it_may_be_about(card, suspected):
    assert marks.names_of(marks.claims(card)) == suspected


def test_a_card_that_nobody_can_be_sure_of_is_suspected_of_everything():
    assert marks.names_of(marks.claims(CLEAN, is_unsure=True)) == set(marks.SUSPICIONS)


@pytest.mark.parametrize(
    ("op", "type_", "found"),
    [
        ("publish", "invoke", Mark.SENT),
        ("publish", "fail", Mark.REFUSAL),
        ("publish", "ok", 0),
        ("return", "fail", Mark.REFUSAL),
        ("confirm", "ok", Mark.CONFIRM),
        ("nack", "fail", Mark.NACK),
        ("unknown", "info", Mark.GIVEN_UP),
        ("deliver", "ok", Mark.DELIVERY | Mark.PUSHED),
        ("get", "ok", Mark.DELIVERY),
        ("get", "fail", 0),
        ("ack", "ok", Mark.ACK),
        ("requeue", "ok", 0),
        ("fault_start", "info", marks.NO_MESSAGE),
        ("", "", marks.NO_MESSAGE),
    ],
)
def test_an_event_says_what_its_operation_says(op, type_, found):
    assert marks.marks_of(op, type_, is_given_up=True) == found
