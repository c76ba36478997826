from __future__ import annotations

from broker.fifo.consumers import SLACK_MIN, UNLIMITED, Consumer, Consumers
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


def _ring(consumers: Consumers) -> list[str]:
    return [consumer.tag for consumer in consumers.next_ring() or []]


def test_the_highest_priority_that_can_take_is_served():
    consumers = Consumers(None)
    low, high = _consumer("low"), _consumer("high", priority=3)
    consumers.add(low)
    consumers.add(high)
    assert _ring(consumers) == ["high"]
    high.is_active = False
    consumers.refresh(high)
    assert _ring(consumers) == ["low"]


def test_a_consumer_without_credit_leaves_and_comes_back_last():
    consumers = Consumers(None)
    first, second = _consumer("first", prefetch=1), _consumer("second")
    consumers.add(first)
    consumers.add(second)
    first.held[1] = Delivery(1, 0, message())
    consumers.refresh(first)
    assert _ring(consumers) == ["second"]
    first.held.clear()
    consumers.refresh(first)
    assert _ring(consumers) == ["second", "first"]


def test_prefetch_zero_is_what_the_queue_says():
    consumers = Consumers(7)
    consumer, free = _consumer("a"), _consumer("b", no_ack=True)
    consumers.add(consumer)
    consumers.add(free)
    assert (consumer.credit, free.credit) == (7, UNLIMITED)


def test_a_lowered_prefetch_never_makes_credit_negative():
    consumers = Consumers(None)
    consumer = _consumer("a", prefetch=5)
    consumers.add(consumer)
    consumer.held.update({n: Delivery(n, 0, message()) for n in (1, 2, 3)})
    consumers.set_prefetch(consumer, 1)
    assert consumer.credit == 0
    assert not consumer.in_ring


def test_removing_the_last_consumer_leaves_nothing():
    consumers = Consumers(None)
    consumer = _consumer("a", priority=2)
    consumers.add(consumer)
    consumers.remove(consumer)
    assert consumers.next_ring() is None
    assert (consumers.count, consumers.channel_ids(), consumers.ring_keys()) == (0, [], [])


def _single(*, by_priority: bool = True) -> Consumers:
    return Consumers(None, is_single_active=True, by_priority=by_priority)


def _actives(consumers: Consumers, *arriving: Consumer) -> list[str | None]:
    """Who is active after each consumer came."""
    active = []
    for consumer in arriving:
        consumers.add(consumer)
        active.append(None if consumers.active is None else consumers.active.tag)
    return active


def test_the_first_to_come_stays_active_whatever_comes_later():
    consumers = _single()
    assert _actives(consumers, _consumer("a"), _consumer("b", priority=9)) == ["a", "a"]
    assert _ring(consumers) == ["a"]


def test_the_next_active_is_the_oldest_of_the_highest_priority():
    consumers = _single()
    first = _consumer("first")
    _actives(
        consumers,
        first,
        _consumer("old", priority=1),
        _consumer("high", priority=2),
        _consumer("later", priority=2),
    )
    order = []
    while consumers.active is not None:
        order.append(consumers.active.tag)
        assert _ring(consumers) == [consumers.active.tag]
        consumers.remove(consumers.active)
    assert order == ["first", "high", "later", "old"]


def test_where_priority_does_not_count_the_next_active_is_the_oldest():
    consumers = _single(by_priority=False)
    first = _consumer("first")
    _actives(consumers, first, _consumer("old"), _consumer("high", priority=2))
    consumers.remove(first)
    assert _ring(consumers) == ["old"]


def test_a_waiting_consumer_that_goes_changes_nothing():
    consumers = _single()
    waiting = _consumer("b")
    _actives(consumers, _consumer("a"), waiting)
    consumers.remove(waiting)
    assert (_ring(consumers), consumers.count) == (["a"], 1)


def test_nobody_is_served_while_the_active_one_can_take_nothing():
    consumers = _single()
    active, waiting = _consumer("a", prefetch=1), _consumer("b", priority=5)
    _actives(consumers, active, waiting)
    active.held[1] = Delivery(1, 0, message())
    consumers.refresh(active)
    consumers.refresh(waiting)
    assert consumers.next_ring() is None
    active.held.clear()
    consumers.refresh(active)
    assert _ring(consumers) == ["a"]


def test_a_consumer_that_attaches_again_keeps_its_place_and_activity():
    consumers = _single()
    _actives(consumers, _consumer("a"), _consumer("b"), _consumer("c"))
    assert _actives(consumers, _consumer("a", priority=-1)) == ["a"]
    consumers.add(_consumer("b"))
    assert (consumers.count, _ring(consumers)) == (3, ["a"])
    consumers.remove(consumers.active)
    assert consumers.active.tag == "b"


def test_without_a_single_active_one_who_attaches_again_goes_to_the_end():
    consumers = Consumers(None)
    for tag in ("a", "b", "a"):
        consumers.add(_consumer(tag))
    assert (_ring(consumers), consumers.count, consumers.active) == (["b", "a"], 2, None)


def test_the_turn_of_a_single_active_consumer_outlives_a_snapshot():
    consumers, copy = _single(), _single()
    first = _consumer("a")
    _actives(consumers, first, _consumer("b", priority=1), _consumer("c"), _consumer("d"))
    consumers.remove(first)
    consumers.add(_consumer("a"))
    for consumer in consumers:
        copy.add(_consumer(consumer.tag, priority=consumer.priority))
    copy.load_rings(consumers.ring_keys())
    assert copy.ring_keys() == consumers.ring_keys()
    for each in (consumers, copy):
        assert _ring(each) == ["b"]
        order = []
        while each.active is not None:
            order.append(each.active.tag)
            each.remove(each.active)
        assert order == ["b", "c", "d", "a"]


def test_rings_of_a_time_without_the_rule_still_load():
    consumers, copy = Consumers(None), _single()
    for tag in ("a", "b"):
        consumers.add(_consumer(tag))
        copy.add(_consumer(tag))
    consumers.next_ring().rotate(1)
    copy.load_rings(consumers.ring_keys())
    assert copy.active.tag == "b"
    assert _ring(copy) == ["b"]


def _refused(consumers: Consumers, *, exclusive: bool, known: Consumer | None = None) -> str | None:
    refusal = consumers.refusal("queue 'q' in vhost '/'", exclusive=exclusive, known=known)
    return None if refusal is None else f"{refusal.code.name} {refusal.text}"


IN_USE = "ACCESS_REFUSED queue 'q' in vhost '/' in exclusive use"


def test_an_exclusive_consumer_is_alone():
    consumers = Consumers(None)
    consumer = _consumer("a")
    assert _refused(consumers, exclusive=True) is None
    consumers.add(consumer)
    assert _refused(consumers, exclusive=True) == IN_USE
    assert _refused(consumers, exclusive=True, known=consumer) is None
    assert _refused(consumers, exclusive=False) is None
    consumer.exclusive = True
    assert _refused(consumers, exclusive=False) == IN_USE


def test_no_consumer_is_exclusive_where_one_at_a_time_is_active():
    assert _refused(_single(), exclusive=True) == IN_USE
    assert _refused(_single(), exclusive=False) is None


def test_consumers_that_come_and_go_leave_no_ballast():
    consumers = _single()
    consumers.add(_consumer("stays"))
    for number in range(10 * SLACK_MIN):
        passing = _consumer("passing", priority=number)
        consumers.add(passing)
        consumers.remove(passing)
    assert len(consumers._candidates) <= SLACK_MIN + 2
    consumers.remove(consumers.active)
    assert consumers.active is None


def test_another_priority_counts_when_the_next_active_is_chosen():
    consumers = _single()
    for tag in ("a", "b", "c"):
        consumers.add(_consumer(tag))
    consumers.add(_consumer("c", priority=1))
    consumers.add(_consumer("b", priority=5))
    consumers.add(_consumer("b", priority=1))
    consumers.remove(consumers.active)
    assert consumers.active.tag == "b"
