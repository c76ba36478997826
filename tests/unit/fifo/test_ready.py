from __future__ import annotations

from broker.fifo.ready import ReadyLine, body_bytes
from broker.message import Delivery
from tests.model.fifo_model import message


def _items(*numbers: int) -> list[Delivery]:
    return [Delivery(number, 0, message(number)) for number in numbers]


def _numbers(items: list[Delivery]) -> list[int]:
    return [item.number for item in items]


def _line(*numbers: int, by_number: bool = True) -> ReadyLine:
    line = ReadyLine(by_number=by_number)
    items = _items(*numbers)
    line.append(items, body_bytes(items))
    return line


def test_messages_leave_in_the_order_they_came():
    line = _line(1, 2, 3)
    items, size_bytes = line.take(2)
    assert (_numbers(items), size_bytes) == ([1, 2], 3)
    assert (len(line), line.size_bytes) == (1, 3)


def test_taking_more_than_there_is_takes_all():
    assert _numbers(_line(1, 2).take(9)[0]) == [1, 2]


def test_returned_messages_go_to_their_old_places():
    line = _line(1, 2, 3, 4)
    items, _ = line.take(3)
    line.give_back([items[2]])
    line.give_back([items[0]])
    assert _numbers(line.in_order()) == [1, 3, 4]
    assert _numbers(line.take(2)[0]) == [1, 3]


def test_returned_messages_keep_the_order_of_return_where_asked():
    line = _line(1, 2, 3, 4, by_number=False)
    items, _ = line.take(3)
    line.give_back([items[2]])
    line.give_back([items[0]])
    assert _numbers(line.take(9)[0]) == [3, 1, 4]


def test_a_loaded_line_is_the_saved_one():
    line = _line(1, 2, 3, by_number=False)
    line.give_back(line.take(1)[0])
    other = ReadyLine(by_number=False)
    other.load(line.fresh(), line.returned(), line.next_return)
    assert other.in_order() == line.in_order()
    assert (other.size_bytes, other.next_return) == (line.size_bytes, line.next_return)
