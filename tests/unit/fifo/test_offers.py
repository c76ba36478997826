from __future__ import annotations

from broker.errors import Refusal
from broker.fifo.commands import Cancel, Checkout, Enqueue, Get, Offer, Purge, Settle, Skip
from broker.fifo.effects import Reply, Verdict
from broker.fifo.offers import OFFER_BYTES_MAX, Offers, Outcome, size_of
from tests.model.fifo_model import message

SESSION = "a/1/7/0"
SETTLE = Settle("a/1/1/1", "t", [1])


def _publish(count: int, size: int = 1) -> Enqueue:
    return Enqueue([message(size)] * count)


def _offers(**limits: int) -> Offers:
    return Offers("a", "1", 7, **limits)


def _verdict(first: int, last: int, *, ok: bool = True) -> Verdict:
    return Verdict(SESSION, first, last, ok)


def test_commands_are_offered_once_in_order_under_consecutive_numbers():
    offers = _offers()
    offers.add(_publish(3), 0)
    offers.add(SETTLE, 0)
    assert offers.to_send() == [Offer(SESSION, 1, 1, [_publish(3), SETTLE])]
    assert offers.to_send() == []
    offers.add(SETTLE, 0)
    assert offers.to_send() == [Offer(SESSION, 1, 5, [SETTLE])]


def test_a_new_leader_is_offered_all_that_has_no_answer():
    offers = _offers()
    offers.add(_publish(3), 0)
    offers.add(SETTLE, 0)
    offers.to_send()
    offers.answered(_verdict(1, 2))
    offers.retarget()
    assert offers.to_send() == [Offer(SESSION, 3, 3, [_publish(1), SETTLE])]


def test_each_message_ends_once_whatever_is_answered_twice():
    offers = _offers()
    offers.add(_publish(4), 0, "token")
    assert offers.answered(_verdict(2, 3)) == [Outcome("token", 1, 2, True, None)]
    assert offers.answered(_verdict(1, 3)) == [Outcome("token", 0, 1, True, None)]
    assert offers.answered(_verdict(1, 4, ok=False)) == [Outcome("token", 3, 1, False, None)]
    assert offers.answered(_verdict(1, 4)) == []
    assert (len(offers), offers.held_bytes, offers.lowest) == (0, 0, 5)


def test_answered_numbers_between_held_ones_are_skipped_when_offered_again():
    offers = _offers()
    offers.add(_publish(2), 0)
    offers.add(SETTLE, 0)
    offers.add(_publish(1), 0)
    offers.to_send()
    offers.answered(_verdict(3, 3))
    offers.retarget()
    assert offers.to_send() == [Offer(SESSION, 1, 1, [_publish(2), Skip(1), _publish(1)])]


def test_offers_end_at_a_thousand_numbers_or_a_megabyte():
    """P13."""
    offers = _offers()
    offers.add(_publish(2_500), 0, "many")
    offers.add(_publish(5, size=OFFER_BYTES_MAX // 2), 0, "large")
    sent = offers.to_send()
    assert [(o.first, sum(len(c.messages) for c in o.commands)) for o in sent] == [
        (1, 1_000),
        (1_001, 1_000),
        (2_001, 501),
        (2_502, 1),
        (2_503, 1),
        (2_504, 1),
        (2_505, 1),
    ]
    assert offers.answered(_verdict(1_001, 1_002)) == [Outcome("many", 1_000, 2, True, None)]


def test_a_message_larger_than_an_offer_goes_alone():
    offers = _offers()
    offers.add(_publish(1, size=2 * OFFER_BYTES_MAX), 0)
    offers.add(SETTLE, 0)
    assert [len(offer.commands) for offer in offers.to_send()] == [1, 1]


def test_a_publish_beyond_the_limit_is_refused_and_settles_are_not():
    """P12."""
    offers = _offers(held_bytes_max=1_000)
    assert offers.add(_publish(1, size=5_000), 0)  # alone it may be as large as it likes
    assert offers.is_congested
    assert not offers.add(_publish(1), 0)
    assert offers.add(SETTLE, 0)
    offers.answered(_verdict(1, 1))
    assert not offers.is_congested
    assert offers.add(_publish(1), 0)


def test_old_publishes_are_given_up_and_settles_kept():
    """P12."""
    offers = _offers(held_ms_max=100)
    offers.add(SETTLE, 0)
    offers.add(_publish(2), 0, "old")
    offers.add(_publish(1), 50, "young")
    offers.to_send()
    assert offers.expire(99) == []
    assert offers.expire(100) == [Outcome("old", 0, 2, False, None)]
    offers.retarget()
    assert offers.to_send() == [Offer(SESSION, 1, 1, [SETTLE, Skip(2), _publish(1)])]
    assert offers.answered(_verdict(1, 4)) == [
        Outcome(None, 0, 1, True, None),
        Outcome("young", 0, 1, True, None),
    ]


def test_questions_may_be_given_up_before_publishes():
    offers = _offers(held_ms_max=100)
    offers.add(_publish(1), 0, "published")
    offers.add(Purge(), 0, "asked")
    assert offers.expire(9, 10) == []
    (outcome,) = offers.expire(10, 10)
    assert (outcome.token, type(outcome.value)) == ("asked", Refusal)


def test_given_up_numbers_before_all_others_raise_the_lowest():
    """P10."""
    offers = _offers(held_ms_max=100)
    offers.add(_publish(2), 0)
    offers.to_send()
    offers.expire(100)
    offers.add(_publish(1), 100)
    assert offers.to_send() == [Offer(SESSION, 3, 3, [_publish(1)])]


def test_a_consume_that_is_given_up_is_cancelled():
    offers = _offers(held_ms_max=100)
    offers.add(Checkout("h", "t", False, False, 0, 0, {}), 0, "consume")
    offers.to_send()
    (outcome,) = offers.expire(100)
    assert isinstance(outcome.value, Refusal)
    assert offers.to_send() == [Offer(SESSION, 2, 2, [Cancel("h", "t")])]


def test_a_value_ends_its_question_once():
    offers = _offers()
    offers.add(SETTLE, 0)
    offers.add(Get("h", False), 0, "get")
    assert offers.replied(Reply(SESSION, 2, "value")) == Outcome("get", 0, 1, True, "value")
    assert offers.replied(Reply(SESSION, 2, "value")) is None


def test_a_gap_is_offered_again_once_until_something_is_answered():
    offers = _offers()
    for _ in range(3):
        offers.add(SETTLE, 0)
    offers.to_send()
    assert offers.out_of_sequence(SESSION, 2)
    assert offers.to_send() == [Offer(SESSION, 1, 2, [SETTLE, SETTLE])]
    assert not offers.out_of_sequence(SESSION, 2)
    offers.answered(_verdict(2, 2))
    assert offers.out_of_sequence(SESSION, 3)


def test_a_lost_session_ends_all_and_the_next_begins_with_one():
    offers = _offers()
    offers.add(_publish(2), 0, "publish")
    offers.add(Get("h", False), 0, "get")
    offers.to_send()
    offers.answered(_verdict(1, 1))
    first, second = offers.session_lost(SESSION)
    assert first == Outcome("publish", 1, 1, False, None)
    assert (second.token, second.ok) == ("get", False)
    assert offers.session_lost(SESSION) == []
    offers.add(SETTLE, 0)
    assert offers.to_send() == [Offer("a/1/7/1", 1, 1, [SETTLE])]
    assert offers.answered(_verdict(1, 1)) == []


def test_an_enqueue_without_messages_holds_no_number():
    offers = _offers()
    assert offers.add(Enqueue([]), 0)
    assert (len(offers), offers.to_send()) == (0, [])


# A master dies


def test_the_next_master_is_offered_the_publishes_alone_under_their_numbers():
    """P10, P11: what an earlier master may have enqueued counts as redelivered from then on."""
    offers = _offers()
    offers.add(_publish(2), 0, "offered")
    offers.add(SETTLE, 0, "settle")
    offers.add(_publish(1), 0, "offered too")
    offers.add(Get("h", False), 7, "get")
    offers.to_send()
    offers.add(_publish(3), 0, "not offered")
    assert offers.fail_over() == [(SETTLE, "settle", 0), (Get("h", False), "get", 7)]
    again, too = (Enqueue(_publish(count).messages, redelivered=True) for count in (2, 1))
    commands = [again, Skip(1), too, Skip(1), _publish(3)]
    assert offers.to_send() == [Offer(SESSION, 1, 1, commands)]
    assert offers.fail_over() == []
    last = Enqueue(_publish(3).messages, redelivered=True)
    assert offers.to_send() == [Offer(SESSION, 1, 1, [again, Skip(1), too, Skip(1), last])]
    assert [each.token for each in offers.answered(_verdict(1, 8))] == [
        "offered",
        "offered too",
        "not offered",
    ]


def test_given_up_numbers_at_either_end_cost_nothing():
    offers = _offers()
    offers.add(SETTLE, 0)
    offers.add(_publish(1), 0)
    offers.add(SETTLE, 0)
    offers.fail_over()
    assert (offers.lowest, len(offers)) == (2, 1)
    assert offers.held_bytes == size_of(_publish(1))
    offers.answered(_verdict(2, 2))
    assert (len(offers), offers.held_bytes) == (0, 0)
    offers.add(SETTLE, 0)
    assert offers.to_send()[-1] == Offer(SESSION, 4, 4, [SETTLE])


def test_a_forgotten_session_goes_on_in_the_next_with_what_nobody_else_was_offered():
    """P10: what an earlier master may have is nacked, what was answered in part too."""
    offers = _offers()
    offers.add(_publish(2), 0, "old")
    offers.to_send()
    offers.fail_over()
    offers.add(_publish(1), 1, "new")
    offers.add(SETTLE, 2, "settle")
    offers.add(_publish(2), 3, "begun")
    offers.add(_publish(3), 4, "newer")
    offers.to_send()
    offers.answered(_verdict(6, 6))
    outcomes, unasked = offers.renew(SESSION)
    assert outcomes == [
        Outcome("old", 0, 2, False, None),
        Outcome("begun", 0, 1, False, None),
    ]
    assert unasked == [(SETTLE, "settle", 2)]
    assert offers.renew(SESSION) == ([], [])
    assert offers.to_send() == [Offer("a/1/7/1", 1, 1, [_publish(1), _publish(3)])]
    ended = offers.answered(Verdict("a/1/7/1", 1, 4, True))
    assert [each.token for each in ended] == ["new", "newer"]
    assert offers.held_bytes == 0


def test_publishes_can_be_given_up_at_once():
    """P12: nobody is going to serve the queue."""
    offers = _offers()
    offers.add(_publish(2), 0, "publish")
    offers.add(Get("h", False), 0, "get")
    assert offers.give_up_publishes() == [Outcome("publish", 0, 2, False, None)]
    assert (len(offers), offers.lowest) == (1, 3)
    assert offers.to_send() == [Offer(SESSION, 3, 3, [Get("h", False)])]


def test_what_was_asked_again_is_given_up_in_its_own_time():
    """It is older than commands of lower numbers."""
    offers = _offers(held_ms_max=100)
    offers.add(_publish(1), 60, "publish")
    offers.add(Get("h", False), 0, "get")
    assert [each.token for each in offers.expire(100)] == ["get"]
    assert [each.token for each in offers.expire(160)] == ["publish"]


def test_a_cancel_that_is_given_up_is_asked_again():
    """Else its consumer would stay at the queue, and take messages that nobody gets."""
    offers = _offers(held_ms_max=100)
    offers.add(Cancel("h", "t"), 0, "cancel")
    offers.to_send()
    (outcome,) = offers.expire(100)
    assert outcome.token == "cancel"
    assert offers.to_send() == [Offer(SESSION, 2, 2, [Cancel("h", "t")])]


def test_publishers_wait_above_the_queues_own_limit():
    offers = _offers(unanswered_max=4)
    offers.add(_publish(4), 0)
    assert not offers.is_congested
    offers.add(SETTLE, 0)
    assert offers.is_congested
