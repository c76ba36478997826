from __future__ import annotations

import msgspec

from broker.fifo.config import QueueConfig
from broker.fifo.message_state import ready_queue
from broker.fifo.ready.due import DueQueue
from broker.fifo.ready.fifo import PagedFifo, body_bytes
from broker.fifo.ready.priority import PriorityQueue
from broker.message import Delivery
from tests.model.fifo_model import message


def _items(*numbers: int) -> list[Delivery]:
    return [Delivery(number, 0, message(number)) for number in numbers]


def _expiring(number: int, expires_ms: int) -> Delivery:
    return Delivery(number, 0, msgspec.structs.replace(message(), expires_ms=expires_ms))


def _numbers(items: list[Delivery]) -> list[int]:
    return [item.number for item in items]


def _ready(*numbers: int, by_number: bool = True) -> PagedFifo:
    ready = PagedFifo(by_number=by_number)
    items = _items(*numbers)
    ready.append(items, body_bytes(items))
    return ready


def test_messages_leave_in_the_order_they_came():
    ready = _ready(1, 2, 3)
    items, size_bytes = ready.take(2)
    assert (_numbers(items), size_bytes) == ([1, 2], 3)
    assert (len(ready), ready.size_bytes) == (1, 3)


def test_taking_more_than_there_is_takes_all():
    assert _numbers(_ready(1, 2).take(9)[0]) == [1, 2]


def test_returned_messages_go_to_their_old_places():
    ready = _ready(1, 2, 3, 4)
    items, _ = ready.take(3)
    ready.give_back([items[2]])
    ready.give_back([items[0]])
    assert _numbers(ready.in_order()) == [1, 3, 4]
    assert _numbers(ready.take(2)[0]) == [1, 3]


def test_returned_messages_keep_the_order_of_return_where_asked():
    ready = _ready(1, 2, 3, 4, by_number=False)
    items, _ = ready.take(3)
    ready.give_back([items[2]])
    ready.give_back([items[0]])
    assert _numbers(ready.take(9)[0]) == [3, 1, 4]


def test_a_loaded_queue_is_the_saved_one():
    ready = _ready(1, 2, 3, by_number=False)
    ready.give_back(ready.take(1)[0])
    other = PagedFifo(by_number=False)
    other.load(ready.fresh(), ready.returned(), ready.next_return)
    assert other.in_order() == ready.in_order()
    assert (other.size_bytes, other.next_return) == (ready.size_bytes, ready.next_return)


def test_the_head_is_what_is_taken_next():
    ready = _ready(1, 2, 3)
    first, _ = ready.take(1)
    assert ready.head() == ready.peek(0, 1)[0]
    ready.give_back(first)
    assert ready.head() == first[0]
    ready.take(9)
    assert ready.head() is None


def test_what_expires_behind_a_head_that_lives_stays():
    ready = PagedFifo(by_number=True)
    items = [_expiring(1, 5), _expiring(2, 9), _expiring(3, 5), _expiring(4, 0)]
    ready.append(items, body_bytes(items))
    assert _numbers(ready.take_expired(4)) == []
    assert _numbers(ready.take_expired(5)) == [1]
    assert _numbers(ready.take_expired(9)) == [2, 3]
    assert _numbers(ready.take_expired(1 << 60)) == []
    assert (len(ready), ready.size_bytes) == (1, 3)


def test_a_returned_message_that_lives_keeps_fresh_ones_from_expiring():
    ready = PagedFifo(by_number=True)
    items = [_expiring(1, 5), _expiring(2, 0), _expiring(3, 5)]
    ready.append(items, body_bytes(items))
    taken, _ = ready.take(2)
    ready.give_back(taken)
    assert _numbers(ready.take_expired(7)) == [1]
    assert _numbers(ready.in_order()) == [2, 3]


def test_messages_are_dropped_by_number_wherever_they_stand():
    ready = _ready(1, 2, 3, 4, 5)
    taken, _ = ready.take(2)
    ready.give_back(taken)
    assert _numbers(ready.drop([4, 2, 9])) == [2, 4]
    assert _numbers(ready.drop([4])) == []
    assert (_numbers(ready.in_order()), ready.size_bytes) == ([1, 3, 5], 9)


def test_a_queue_gets_the_order_its_settings_ask_for():
    by_kind = {
        order: type(ready_queue(QueueConfig(name="q", order=order, priority_max=2)))
        for order in ("fifo", "priority", "due")
    }
    assert by_kind == {"fifo": PagedFifo, "priority": PriorityQueue, "due": DueQueue}


def test_only_an_original_place_goes_by_number():
    ready = ready_queue(QueueConfig(name="q", requeue="front"))
    items = _items(1, 2)
    ready.give_back([items[1], items[0]])
    assert _numbers(ready.in_order()) == [2, 1]
