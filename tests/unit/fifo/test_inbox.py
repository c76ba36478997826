"""P17: what a new leader sends again is dropped where it was seen."""

from __future__ import annotations

from broker.fifo.inbox import ConsumerInbox
from broker.message import Delivery
from tests.model.fifo_model import message


def _item(number: int, count: int = 0) -> Delivery:
    return Delivery(number, count, message())


def test_what_a_new_leader_repeats_is_dropped():
    inbox = ConsumerInbox()
    assert inbox.accept("h", "t", [_item(1), _item(2)]) == [_item(1), _item(2)]
    assert inbox.accept("h", "t", [_item(1), _item(2), _item(3)]) == [_item(3)]


def test_a_message_that_came_back_is_new():
    inbox = ConsumerInbox()
    inbox.accept("h", "t", [_item(1)])
    assert inbox.accept("h", "t", [_item(1, 1)]) == [_item(1, 1)]


def test_a_settled_delivery_is_remembered_until_the_settle_is_answered():
    inbox = ConsumerInbox()
    inbox.accept("h", "t", [_item(1)])
    leaving = inbox.leaving("h", "t", [1, 5])
    assert inbox.accept("h", "t", [_item(1)]) == []
    inbox.forget(leaving)
    assert len(inbox) == 0


def test_forgetting_a_requeue_leaves_the_next_delivery_known():
    inbox = ConsumerInbox()
    inbox.accept("h", "t", [_item(1)])
    leaving = inbox.leaving("h", "t", [1])
    inbox.accept("h", "t", [_item(1, 1)])
    inbox.forget(leaving)
    assert inbox.accept("h", "t", [_item(1, 1)]) == []


def test_no_ack_deliveries_are_not_remembered():
    inbox = ConsumerInbox()
    inbox.accept("h", "t", [_item(1)], no_ack=True)
    assert len(inbox) == 0


def test_a_gone_channel_is_forgotten():
    inbox = ConsumerInbox()
    inbox.accept("h", "t", [_item(1)])
    leaving = inbox.leaving("h", "t", [1])
    inbox.forget_holder("h")
    inbox.forget(leaving)
    assert len(inbox) == 0
