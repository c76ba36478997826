from __future__ import annotations

import msgspec

from broker.fifo.ready.due import PEEK_FEW, SLACK_MIN, DueQueue
from broker.fifo.ready.fifo import body_bytes
from broker.message import Delivery
from tests.model.fifo_model import message


def _item(number: int, expires_ms: int) -> Delivery:
    return Delivery(number, 0, msgspec.structs.replace(message(number), expires_ms=expires_ms))


def _line(*items: Delivery) -> DueQueue:
    line = DueQueue()
    line.append(list(items), body_bytes(list(items)))
    return line


def _numbers(items: list[Delivery]) -> list[int]:
    return [item.number for item in items]


def test_what_is_due_first_leaves_first_and_equals_by_number():
    line = _line(_item(1, 30), _item(2, 10), _item(3, 10), _item(4, 0), _item(5, 20))
    assert _numbers(line.in_order()) == [2, 3, 5, 1, 4]
    assert line.head() == _item(2, 10)
    items, size_bytes = line.take(3)
    assert (_numbers(items), size_bytes) == ([2, 3, 5], 10)
    assert (len(line), line.size_bytes) == (2, 5)


def test_all_that_is_due_is_taken_and_nothing_else():
    line = _line(_item(1, 30), _item(2, 10), _item(3, 20), _item(4, 0))
    assert _numbers(line.take_expired(9)) == []
    assert _numbers(line.take_expired(20)) == [2, 3]
    assert _numbers(line.take_expired(1 << 62)) == [1]
    assert _numbers(line.in_order()) == [4]


def test_a_page_of_the_line_is_a_slice_of_its_order():
    line = _line(*[_item(number, 100 - number) for number in range(1, 51)])
    assert line.peek(10, 7) == line.in_order()[10:17]
    assert line.peek(49, 7) == line.in_order()[49:]
    assert line.peek(50, 1) == []


def test_a_cancelled_message_is_gone_though_it_was_next():
    line = _line(_item(1, 10), _item(2, 20), _item(3, 30))
    assert _numbers(line.drop([1, 7, 3])) == [1, 3]
    assert line.head() == _item(2, 20)
    assert (len(line), line.size_bytes, line.lowest()) == (1, 2, 2)
    assert _numbers(line.take(9)[0]) == [2]
    assert line.head() is None


def test_a_returned_message_stands_where_it_stood():
    line = _line(_item(1, 10), _item(2, 20))
    taken, _ = line.take(1)
    line.give_back(taken)
    assert _numbers(line.in_order()) == [1, 2]
    assert line.returned() == []


def test_what_was_cancelled_and_given_back_is_there_once():
    line = _line(_item(1, 10), _item(2, 20))
    line.give_back(line.drop([2]))
    assert _numbers(line.take(9)[0]) == [1, 2]
    assert len(line) == 0


def test_cancelling_most_leaves_no_ballast():
    count = 10 * SLACK_MIN
    line = _line(*[_item(number, number) for number in range(1, count + 1)])
    line.drop(range(1, count, 2))
    line.drop(range(2, count, 2))
    assert len(line) == 1
    assert len(line._heap) <= SLACK_MIN + 2


def test_a_loaded_line_is_the_saved_one():
    line = _line(_item(1, 30), _item(2, 10), _item(3, 20))
    line.drop([3])
    other = DueQueue()
    other.load(line.fresh(), line.returned(), line.next_return)
    assert other.in_order() == line.in_order()
    assert (other.head(), other.size_bytes, other.among({1, 2, 3})) == (_item(2, 10), 3, {1, 2})


def test_a_look_far_down_the_line_leaves_its_order_as_it_is():
    total = 2 * PEEK_FEW
    line = _line(*[_item(number, (7 * number) % total + 1) for number in range(1, total + 1)])
    line.give_back(line.drop([3, 4, 5])[1:])
    wanted = line.in_order()
    assert line.peek(PEEK_FEW, 10) == wanted[PEEK_FEW : PEEK_FEW + 10]
    line.append([_item(total + 1, 1)], 5)
    wanted = line.in_order()
    assert line.peek(0, total) == wanted
    assert line.take(total)[0] == wanted
