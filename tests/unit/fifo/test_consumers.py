from __future__ import annotations

from broker.fifo.consumers import SLACK_MIN, UNLIMITED, Consumer, Roster
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


def _single(*, by_priority: bool = True) -> Roster:
    return Roster(None, is_single_active=True, by_priority=by_priority)


def _actives(roster: Roster, *consumers: Consumer) -> list[str | None]:
    """Who is active after each consumer came."""
    active = []
    for consumer in consumers:
        roster.add(consumer)
        active.append(None if roster.active is None else roster.active.tag)
    return active


def test_the_first_to_come_stays_active_whatever_comes_later():
    roster = _single()
    assert _actives(roster, _consumer("a"), _consumer("b", priority=9)) == ["a", "a"]
    assert _ring(roster) == ["a"]


def test_the_next_active_is_the_oldest_of_the_highest_priority():
    roster = _single()
    first = _consumer("first")
    _actives(
        roster,
        first,
        _consumer("old", priority=1),
        _consumer("high", priority=2),
        _consumer("later", priority=2),
    )
    order = []
    while roster.active is not None:
        order.append(roster.active.tag)
        assert _ring(roster) == [roster.active.tag]
        roster.remove(roster.active)
    assert order == ["first", "high", "later", "old"]


def test_where_priority_does_not_count_the_next_active_is_the_oldest():
    roster = _single(by_priority=False)
    first = _consumer("first")
    _actives(roster, first, _consumer("old"), _consumer("high", priority=2))
    roster.remove(first)
    assert _ring(roster) == ["old"]


def test_a_waiting_consumer_that_goes_changes_nothing():
    roster = _single()
    waiting = _consumer("b")
    _actives(roster, _consumer("a"), waiting)
    roster.remove(waiting)
    assert (_ring(roster), roster.count) == (["a"], 1)


def test_nobody_is_served_while_the_active_one_can_take_nothing():
    roster = _single()
    active, waiting = _consumer("a", prefetch=1), _consumer("b", priority=5)
    _actives(roster, active, waiting)
    active.held[1] = Delivery(1, 0, message())
    roster.refresh(active)
    roster.refresh(waiting)
    assert roster.next_ring() is None
    active.held.clear()
    roster.refresh(active)
    assert _ring(roster) == ["a"]


def test_a_consumer_that_attaches_again_keeps_its_place_and_activity():
    roster = _single()
    _actives(roster, _consumer("a"), _consumer("b"), _consumer("c"))
    assert _actives(roster, _consumer("a", priority=-1)) == ["a"]
    roster.add(_consumer("b"))
    assert (roster.count, _ring(roster)) == (3, ["a"])
    roster.remove(roster.active)
    assert roster.active.tag == "b"


def test_without_a_single_active_one_who_attaches_again_goes_to_the_end():
    roster = Roster(None)
    for tag in ("a", "b", "a"):
        roster.add(_consumer(tag))
    assert (_ring(roster), roster.count, roster.active) == (["b", "a"], 2, None)


def test_the_turn_of_a_single_active_consumer_outlives_a_snapshot():
    roster, copy = _single(), _single()
    first = _consumer("a")
    _actives(roster, first, _consumer("b", priority=1), _consumer("c"), _consumer("d"))
    roster.remove(first)
    roster.add(_consumer("a"))
    for consumer in roster:
        copy.add(_consumer(consumer.tag, priority=consumer.priority))
    copy.load_rings(roster.ring_keys())
    assert copy.ring_keys() == roster.ring_keys()
    for each in (roster, copy):
        assert _ring(each) == ["b"]
        order = []
        while each.active is not None:
            order.append(each.active.tag)
            each.remove(each.active)
        assert order == ["b", "c", "d", "a"]


def test_rings_of_a_time_without_the_rule_still_load():
    roster, copy = Roster(None), _single()
    for tag in ("a", "b"):
        roster.add(_consumer(tag))
        copy.add(_consumer(tag))
    roster.next_ring().rotate(1)
    copy.load_rings(roster.ring_keys())
    assert copy.active.tag == "b"
    assert _ring(copy) == ["b"]


def _refused(roster: Roster, *, exclusive: bool, known: Consumer | None = None) -> str | None:
    refusal = roster.refusal("queue 'q' in vhost '/'", exclusive=exclusive, known=known)
    return None if refusal is None else f"{refusal.code.name} {refusal.text}"


IN_USE = "ACCESS_REFUSED queue 'q' in vhost '/' in exclusive use"


def test_an_exclusive_consumer_is_alone():
    roster = Roster(None)
    consumer = _consumer("a")
    assert _refused(roster, exclusive=True) is None
    roster.add(consumer)
    assert _refused(roster, exclusive=True) == IN_USE
    assert _refused(roster, exclusive=True, known=consumer) is None
    assert _refused(roster, exclusive=False) is None
    consumer.exclusive = True
    assert _refused(roster, exclusive=False) == IN_USE


def test_no_consumer_is_exclusive_where_one_at_a_time_is_active():
    assert _refused(_single(), exclusive=True) == IN_USE
    assert _refused(_single(), exclusive=False) is None


def test_consumers_that_come_and_go_leave_no_ballast():
    roster = _single()
    roster.add(_consumer("stays"))
    for number in range(10 * SLACK_MIN):
        passing = _consumer("passing", priority=number)
        roster.add(passing)
        roster.remove(passing)
    assert len(roster._candidates) <= SLACK_MIN + 2
    roster.remove(roster.active)
    assert roster.active is None


def test_another_priority_counts_when_the_next_active_is_chosen():
    roster = _single()
    for tag in ("a", "b", "c"):
        roster.add(_consumer(tag))
    roster.add(_consumer("c", priority=1))
    roster.add(_consumer("b", priority=5))
    roster.add(_consumer("b", priority=1))
    roster.remove(roster.active)
    assert roster.active.tag == "b"
