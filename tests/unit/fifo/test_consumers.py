from __future__ import annotations

from broker.fifo.consumers import UNLIMITED, Consumer, Roster
from broker.message import Delivery
from tests.model.fifo_model import message


def _consumer(tag: str, *, prefetch: int = 0, priority: int = 0, no_ack: bool = False) -> Consumer:
    return Consumer(
        "h",
        tag,
        {},
        no_ack=no_ack,
        exclusive=False,
        prefetch=prefetch,
        priority=priority,
        arguments={},
    )


def _ring(roster: Roster) -> list[str]:
    return [consumer.tag for consumer in roster.next_ring() or []]


def test_the_highest_priority_that_can_take_is_served():
    roster = Roster(None)
    low, high = _consumer("low"), _consumer("high", priority=3)
    roster.add(low)
    roster.add(high)
    assert _ring(roster) == ["high"]
    high.is_active = False
    roster.refresh(high)
    assert _ring(roster) == ["low"]


def test_a_consumer_without_credit_leaves_and_comes_back_last():
    roster = Roster(None)
    first, second = _consumer("first", prefetch=1), _consumer("second")
    roster.add(first)
    roster.add(second)
    first.held[1] = Delivery(1, 0, message())
    roster.refresh(first)
    assert _ring(roster) == ["second"]
    first.held.clear()
    roster.refresh(first)
    assert _ring(roster) == ["second", "first"]


def test_prefetch_zero_is_what_the_queue_says():
    roster = Roster(7)
    consumer, free = _consumer("a"), _consumer("b", no_ack=True)
    roster.add(consumer)
    roster.add(free)
    assert (consumer.credit, free.credit) == (7, UNLIMITED)


def test_a_lowered_prefetch_never_makes_credit_negative():
    roster = Roster(None)
    consumer = _consumer("a", prefetch=5)
    roster.add(consumer)
    consumer.held.update({n: Delivery(n, 0, message()) for n in (1, 2, 3)})
    roster.set_prefetch(consumer, 1)
    assert consumer.credit == 0
    assert not consumer.in_ring


def test_removing_the_last_consumer_leaves_nothing():
    roster = Roster(None)
    consumer = _consumer("a", priority=2)
    roster.add(consumer)
    roster.remove(consumer)
    assert roster.next_ring() is None
    assert (roster.count, roster.holders(), roster.ring_keys()) == (0, [], [])
