from __future__ import annotations

import msgspec

from broker.fifo.ready.due import PEEK_FEW, SLACK_MIN, DueQueue
from broker.fifo.ready.fifo import body_bytes
from broker.message import Delivery
from tests.model.fifo_model import message


def _item(number: int, expires_ms: int) -> Delivery:
    return Delivery(number, 0, msgspec.structs.replace(message(number), expires_ms=expires_ms))


def _ready(*items: Delivery) -> DueQueue:
    ready = DueQueue()
    ready.append(list(items), body_bytes(list(items)))
    return ready


def _numbers(items: list[Delivery]) -> list[int]:
    return [item.number for item in items]


def test_what_is_due_first_leaves_first_and_equals_by_number():
    ready = _ready(_item(1, 30), _item(2, 10), _item(3, 10), _item(4, 0), _item(5, 20))
    assert _numbers(ready.in_order()) == [2, 3, 5, 1, 4]
    assert ready.head() == _item(2, 10)
    items, size_bytes = ready.take(3)
    assert (_numbers(items), size_bytes) == ([2, 3, 5], 10)
    assert (len(ready), ready.size_bytes) == (2, 5)


def test_all_that_is_due_is_taken_and_nothing_else():
    ready = _ready(_item(1, 30), _item(2, 10), _item(3, 20), _item(4, 0))
    assert _numbers(ready.take_expired(9)) == []
    assert _numbers(ready.take_expired(20)) == [2, 3]
    assert _numbers(ready.take_expired(1 << 62)) == [1]
    assert _numbers(ready.in_order()) == [4]


def test_a_page_of_the_queue_is_a_slice_of_its_order():
    ready = _ready(*[_item(number, 100 - number) for number in range(1, 51)])
    assert ready.peek(10, 7) == ready.in_order()[10:17]
    assert ready.peek(49, 7) == ready.in_order()[49:]
    assert ready.peek(50, 1) == []


def test_a_cancelled_message_is_gone_though_it_was_next():
    ready = _ready(_item(1, 10), _item(2, 20), _item(3, 30))
    assert _numbers(ready.drop([1, 7, 3])) == [1, 3]
    assert ready.head() == _item(2, 20)
    assert (len(ready), ready.size_bytes, ready.lowest()) == (1, 2, 2)
    assert _numbers(ready.take(9)[0]) == [2]
    assert ready.head() is None


def test_a_returned_message_stands_where_it_stood():
    ready = _ready(_item(1, 10), _item(2, 20))
    taken, _ = ready.take(1)
    ready.give_back(taken)
    assert _numbers(ready.in_order()) == [1, 2]
    assert ready.returned() == []


def test_what_was_cancelled_and_given_back_is_there_once():
    ready = _ready(_item(1, 10), _item(2, 20))
    ready.give_back(ready.drop([2]))
    assert _numbers(ready.take(9)[0]) == [1, 2]
    assert len(ready) == 0


def test_cancelling_most_leaves_no_ballast():
    count = 10 * SLACK_MIN
    ready = _ready(*[_item(number, number) for number in range(1, count + 1)])
    ready.drop(range(1, count, 2))
    ready.drop(range(2, count, 2))
    assert len(ready) == 1
    assert len(ready._heap) <= SLACK_MIN + 2


def test_a_loaded_queue_is_the_saved_one():
    ready = _ready(_item(1, 30), _item(2, 10), _item(3, 20))
    ready.drop([3])
    other = DueQueue()
    other.load(ready.fresh(), ready.returned(), ready.next_return)
    assert other.in_order() == ready.in_order()
    assert (other.head(), other.size_bytes, other.among({1, 2, 3})) == (_item(2, 10), 3, {1, 2})


def test_a_look_far_down_the_queue_leaves_its_order_as_it_is():
    total = 2 * PEEK_FEW
    ready = _ready(*[_item(number, (7 * number) % total + 1) for number in range(1, total + 1)])
    ready.give_back(ready.drop([3, 4, 5])[1:])
    wanted = ready.in_order()
    assert ready.peek(PEEK_FEW, 10) == wanted[PEEK_FEW : PEEK_FEW + 10]
    ready.append([_item(total + 1, 1)], 5)
    wanted = ready.in_order()
    assert ready.peek(0, total) == wanted
    assert ready.take(total)[0] == wanted
