"""P17: what a new leader sends again is dropped where it was seen."""

from __future__ import annotations

from broker.message import Delivery
from broker.queues.client.redelivery_filter import RedeliveryFilter
from tests.model.fifo_model import message


def _item(number: int, count: int = 0) -> Delivery:
    return Delivery(number, count, message())


def test_what_a_new_leader_repeats_is_dropped():
    redeliveries = RedeliveryFilter()
    assert redeliveries.accept("h", "t", [_item(1), _item(2)]) == [_item(1), _item(2)]
    assert redeliveries.accept("h", "t", [_item(1), _item(2), _item(3)]) == [_item(3)]


def test_a_message_that_came_back_is_new():
    redeliveries = RedeliveryFilter()
    redeliveries.accept("h", "t", [_item(1)])
    assert redeliveries.accept("h", "t", [_item(1, 1)]) == [_item(1, 1)]


def test_a_settled_delivery_is_remembered_until_the_settle_is_answered():
    redeliveries = RedeliveryFilter()
    redeliveries.accept("h", "t", [_item(1)])
    pending_settlement = redeliveries.pending_settlement("h", "t", [1, 5])
    assert redeliveries.accept("h", "t", [_item(1)]) == []
    redeliveries.forget(pending_settlement)
    assert len(redeliveries) == 0


def test_forgetting_a_requeue_leaves_the_next_delivery_known():
    redeliveries = RedeliveryFilter()
    redeliveries.accept("h", "t", [_item(1)])
    pending_settlement = redeliveries.pending_settlement("h", "t", [1])
    redeliveries.accept("h", "t", [_item(1, 1)])
    redeliveries.forget(pending_settlement)
    assert redeliveries.accept("h", "t", [_item(1, 1)]) == []


def test_no_ack_deliveries_are_not_remembered():
    redeliveries = RedeliveryFilter()
    redeliveries.accept("h", "t", [_item(1)], no_ack=True)
    assert len(redeliveries) == 0


def test_a_gone_channel_is_forgotten():
    redeliveries = RedeliveryFilter()
    redeliveries.accept("h", "t", [_item(1)])
    pending_settlement = redeliveries.pending_settlement("h", "t", [1])
    redeliveries.forget_channel("h")
    redeliveries.forget(pending_settlement)
    assert len(redeliveries) == 0
