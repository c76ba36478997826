from __future__ import annotations

from broker.errors import Refusal
from broker.fifo.command_sizes import BATCH_BYTES_MAX, size_of
from broker.fifo.commands import Cancel, Checkout, CommandBatch, Enqueue, Get, Purge, Settle, Skip
from broker.fifo.effects import Reply, Verdict
from broker.queues.client.pending_commands import CommandOutcome, PendingCommands
from tests.model.fifo_model import message

SESSION = "a/1/7/0"
SETTLE = Settle("a/1/1/1", "t", [1])


def _publish(count: int, size: int = 1) -> Enqueue:
    return Enqueue([message(size)] * count)


def _pending(**limits: int) -> PendingCommands:
    return PendingCommands("a", "1", 7, **limits)


def _verdict(first: int, last: int, *, ok: bool = True) -> Verdict:
    return Verdict(SESSION, first, last, ok)


def test_commands_are_sent_once_in_order_under_consecutive_numbers():
    pending = _pending()
    pending.add(_publish(3), 0)
    pending.add(SETTLE, 0)
    assert pending.to_send() == [CommandBatch(SESSION, 1, 1, [_publish(3), SETTLE])]
    assert pending.to_send() == []
    pending.add(SETTLE, 0)
    assert pending.to_send() == [CommandBatch(SESSION, 1, 5, [SETTLE])]


def test_a_new_leader_is_sent_all_that_has_no_answer():
    pending = _pending()
    pending.add(_publish(3), 0)
    pending.add(SETTLE, 0)
    pending.to_send()
    pending.answered(_verdict(1, 2))
    pending.retarget()
    assert pending.to_send() == [CommandBatch(SESSION, 3, 3, [_publish(1), SETTLE])]


def test_each_message_ends_once_whatever_is_answered_twice():
    pending = _pending()
    pending.add(_publish(4), 0, "token")
    assert pending.answered(_verdict(2, 3)) == [CommandOutcome("token", 1, 2, True, None)]
    assert pending.answered(_verdict(1, 3)) == [CommandOutcome("token", 0, 1, True, None)]
    assert pending.answered(_verdict(1, 4, ok=False)) == [
        CommandOutcome("token", 3, 1, False, None)
    ]
    assert pending.answered(_verdict(1, 4)) == []
    assert (len(pending), pending.held_bytes, pending.lowest) == (0, 0, 5)


def test_answered_numbers_between_held_ones_are_skipped_when_sent_again():
    pending = _pending()
    pending.add(_publish(2), 0)
    pending.add(SETTLE, 0)
    pending.add(_publish(1), 0)
    pending.to_send()
    pending.answered(_verdict(3, 3))
    pending.retarget()
    assert pending.to_send() == [CommandBatch(SESSION, 1, 1, [_publish(2), Skip(1), _publish(1)])]


def test_batches_end_at_a_thousand_numbers_or_a_megabyte():
    """P13."""
    pending = _pending()
    pending.add(_publish(2_500), 0, "many")
    pending.add(_publish(5, size=BATCH_BYTES_MAX // 2), 0, "large")
    sent = pending.to_send()
    assert [(o.first, sum(len(c.messages) for c in o.commands)) for o in sent] == [
        (1, 1_000),
        (1_001, 1_000),
        (2_001, 501),
        (2_502, 1),
        (2_503, 1),
        (2_504, 1),
        (2_505, 1),
    ]
    assert pending.answered(_verdict(1_001, 1_002)) == [
        CommandOutcome("many", 1_000, 2, True, None)
    ]


def test_a_message_larger_than_a_batch_goes_alone():
    pending = _pending()
    pending.add(_publish(1, size=2 * BATCH_BYTES_MAX), 0)
    pending.add(SETTLE, 0)
    assert [len(batch.commands) for batch in pending.to_send()] == [1, 1]


def test_a_publish_beyond_the_limit_is_refused_and_settles_are_not():
    """P12."""
    pending = _pending(held_bytes_max=1_000)
    assert pending.add(_publish(1, size=5_000), 0)  # alone it may be as large as it likes
    assert pending.is_congested
    assert not pending.add(_publish(1), 0)
    assert pending.add(SETTLE, 0)
    pending.answered(_verdict(1, 1))
    assert not pending.is_congested
    assert pending.add(_publish(1), 0)


def test_old_publishes_are_given_up_and_settles_kept():
    """P12."""
    pending = _pending(held_ms_max=100)
    pending.add(SETTLE, 0)
    pending.add(_publish(2), 0, "old")
    pending.add(_publish(1), 50, "young")
    pending.to_send()
    assert pending.expire(99) == []
    assert pending.expire(100) == [CommandOutcome("old", 0, 2, False, None)]
    pending.retarget()
    assert pending.to_send() == [CommandBatch(SESSION, 1, 1, [SETTLE, Skip(2), _publish(1)])]
    assert pending.answered(_verdict(1, 4)) == [
        CommandOutcome(None, 0, 1, True, None),
        CommandOutcome("young", 0, 1, True, None),
    ]


def test_questions_may_be_given_up_before_publishes():
    pending = _pending(held_ms_max=100)
    pending.add(_publish(1), 0, "published")
    pending.add(Purge(), 0, "asked")
    assert pending.expire(9, 10) == []
    (outcome,) = pending.expire(10, 10)
    assert (outcome.token, type(outcome.value)) == ("asked", Refusal)


def test_given_up_numbers_before_all_others_raise_the_lowest():
    """P10."""
    pending = _pending(held_ms_max=100)
    pending.add(_publish(2), 0)
    pending.to_send()
    pending.expire(100)
    pending.add(_publish(1), 100)
    assert pending.to_send() == [CommandBatch(SESSION, 3, 3, [_publish(1)])]


def test_a_consume_that_is_given_up_is_cancelled():
    pending = _pending(held_ms_max=100)
    pending.add(Checkout("h", "t", False, False, 0, 0, {}), 0, "consume")
    pending.to_send()
    (outcome,) = pending.expire(100)
    assert isinstance(outcome.value, Refusal)
    assert pending.to_send() == [CommandBatch(SESSION, 2, 2, [Cancel("h", "t")])]


def test_a_value_ends_its_question_once():
    pending = _pending()
    pending.add(SETTLE, 0)
    pending.add(Get("h", False), 0, "get")
    assert pending.replied(Reply(SESSION, 2, "value")) == CommandOutcome("get", 0, 1, True, "value")
    assert pending.replied(Reply(SESSION, 2, "value")) is None


def test_a_gap_is_sent_again_once_until_something_is_answered():
    pending = _pending()
    for _ in range(3):
        pending.add(SETTLE, 0)
    pending.to_send()
    assert pending.out_of_sequence(SESSION, 2)
    assert pending.to_send() == [CommandBatch(SESSION, 1, 2, [SETTLE, SETTLE])]
    assert not pending.out_of_sequence(SESSION, 2)
    pending.answered(_verdict(2, 2))
    assert pending.out_of_sequence(SESSION, 3)


def test_a_lost_session_ends_all_and_the_next_begins_with_one():
    pending = _pending()
    pending.add(_publish(2), 0, "publish")
    pending.add(Get("h", False), 0, "get")
    pending.to_send()
    pending.answered(_verdict(1, 1))
    first, second = pending.session_lost(SESSION)
    assert first == CommandOutcome("publish", 1, 1, False, None)
    assert (second.token, second.ok) == ("get", False)
    assert pending.session_lost(SESSION) == []
    pending.add(SETTLE, 0)
    assert pending.to_send() == [CommandBatch("a/1/7/1", 1, 1, [SETTLE])]
    assert pending.answered(_verdict(1, 1)) == []


def test_an_enqueue_without_messages_holds_no_number():
    pending = _pending()
    assert pending.add(Enqueue([]), 0)
    assert (len(pending), pending.to_send()) == (0, [])


# A master dies


def test_the_next_master_is_sent_the_publishes_alone_under_their_numbers():
    """P10, P11: what an earlier master may have enqueued counts as redelivered from then on."""
    pending = _pending()
    pending.add(_publish(2), 0, "sent")
    pending.add(SETTLE, 0, "settle")
    pending.add(_publish(1), 0, "sent too")
    pending.add(Get("h", False), 7, "get")
    pending.to_send()
    pending.add(_publish(3), 0, "not sent")
    assert pending.fail_over() == [(SETTLE, "settle", 0), (Get("h", False), "get", 7)]
    again, too = (Enqueue(_publish(count).messages, redelivered=True) for count in (2, 1))
    commands = [again, Skip(1), too, Skip(1), _publish(3)]
    assert pending.to_send() == [CommandBatch(SESSION, 1, 1, commands)]
    assert pending.fail_over() == []
    last = Enqueue(_publish(3).messages, redelivered=True)
    assert pending.to_send() == [CommandBatch(SESSION, 1, 1, [again, Skip(1), too, Skip(1), last])]
    assert [each.token for each in pending.answered(_verdict(1, 8))] == [
        "sent",
        "sent too",
        "not sent",
    ]


def test_given_up_numbers_at_either_end_cost_nothing():
    pending = _pending()
    pending.add(SETTLE, 0)
    pending.add(_publish(1), 0)
    pending.add(SETTLE, 0)
    pending.fail_over()
    assert (pending.lowest, len(pending)) == (2, 1)
    assert pending.held_bytes == size_of(_publish(1))
    pending.answered(_verdict(2, 2))
    assert (len(pending), pending.held_bytes) == (0, 0)
    pending.add(SETTLE, 0)
    assert pending.to_send()[-1] == CommandBatch(SESSION, 4, 4, [SETTLE])


def test_a_forgotten_session_goes_on_in_the_next_with_what_nobody_else_was_sent():
    """P10: what an earlier master may have is nacked, what was answered in part too."""
    pending = _pending()
    pending.add(_publish(2), 0, "old")
    pending.to_send()
    pending.fail_over()
    pending.add(_publish(1), 1, "new")
    pending.add(SETTLE, 2, "settle")
    pending.add(_publish(2), 3, "begun")
    pending.add(_publish(3), 4, "newer")
    pending.to_send()
    pending.answered(_verdict(6, 6))
    outcomes, reissuable = pending.renew(SESSION)
    assert outcomes == [
        CommandOutcome("old", 0, 2, False, None),
        CommandOutcome("begun", 0, 1, False, None),
    ]
    assert reissuable == [(SETTLE, "settle", 2)]
    assert pending.renew(SESSION) == ([], [])
    assert pending.to_send() == [CommandBatch("a/1/7/1", 1, 1, [_publish(1), _publish(3)])]
    ended = pending.answered(Verdict("a/1/7/1", 1, 4, True))
    assert [each.token for each in ended] == ["new", "newer"]
    assert pending.held_bytes == 0


def test_publishes_can_be_given_up_at_once():
    """P12: nobody is going to serve the queue."""
    pending = _pending()
    pending.add(_publish(2), 0, "publish")
    pending.add(Get("h", False), 0, "get")
    assert pending.give_up_publishes() == [CommandOutcome("publish", 0, 2, False, None)]
    assert (len(pending), pending.lowest) == (1, 3)
    assert pending.to_send() == [CommandBatch(SESSION, 3, 3, [Get("h", False)])]


def test_what_was_asked_again_is_given_up_in_its_own_time():
    """It is older than commands of lower numbers."""
    pending = _pending(held_ms_max=100)
    pending.add(_publish(1), 60, "publish")
    pending.add(Get("h", False), 0, "get")
    assert [each.token for each in pending.expire(100)] == ["get"]
    assert [each.token for each in pending.expire(160)] == ["publish"]


def test_a_cancel_that_is_given_up_is_asked_again():
    """Else its consumer would stay at the queue, and take messages that nobody gets."""
    pending = _pending(held_ms_max=100)
    pending.add(Cancel("h", "t"), 0, "cancel")
    pending.to_send()
    (outcome,) = pending.expire(100)
    assert outcome.token == "cancel"
    assert pending.to_send() == [CommandBatch(SESSION, 2, 2, [Cancel("h", "t")])]


def test_publishers_wait_above_the_queues_own_limit():
    pending = _pending(unanswered_max=4)
    pending.add(_publish(4), 0)
    assert not pending.is_congested
    pending.add(SETTLE, 0)
    assert pending.is_congested
