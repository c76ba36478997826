from __future__ import annotations

import msgspec
import pytest

from broker.fifo.ready.fifo import body_bytes
from broker.fifo.ready.priority import PriorityQueue
from broker.message import Delivery
from tests.model.fifo_model import message


def _item(number: int, priority: int, expires_ms: int = 0) -> Delivery:
    plain = message(number)
    return Delivery(
        number, 0, msgspec.structs.replace(plain, priority=priority, expires_ms=expires_ms)
    )


def _ready(*items: Delivery, top: int = 9) -> PriorityQueue:
    ready = PriorityQueue(top)
    ready.append(list(items), body_bytes(list(items)))
    return ready


def _numbers(items: list[Delivery]) -> list[int]:
    return [item.number for item in items]


def test_the_highest_level_leaves_first_and_in_order():
    ready = _ready(_item(1, 0), _item(2, 5), _item(3, 9), _item(4, 5))
    assert _numbers(ready.in_order()) == [3, 2, 4, 1]
    items, size_bytes = ready.take(3)
    assert (_numbers(items), size_bytes) == ([3, 2, 4], 9)
    assert (len(ready), ready.size_bytes) == (1, 1)


def test_more_than_the_highest_priority_counts_as_the_highest():
    ready = _ready(_item(1, 2), _item(2, 255), _item(3, 2), top=2)
    assert _numbers(ready.in_order()) == [1, 2, 3]


@pytest.mark.parametrize(("asked", "levels"), [(0, 2), (1, 2), (255, 256), (900, 256)])
def test_there_are_two_to_256_levels(asked, levels):
    items = [_item(number, number - 1) for number in range(1, 257)]
    ready = _ready(*items, top=asked)
    highest = _numbers(ready.in_order())[0]
    assert highest == levels


def test_returned_messages_go_to_their_own_level_and_old_place():
    ready = _ready(_item(1, 5), _item(2, 0), _item(3, 5), _item(4, 0))
    items, _ = ready.take(3)
    assert _numbers(items) == [1, 3, 2]
    ready.append([_item(5, 5)], 5)
    ready.give_back([items[1], items[2], items[0]])
    assert _numbers(ready.in_order()) == [1, 3, 5, 2, 4]


def test_expiry_stops_at_the_first_level_it_does_not_empty():
    ready = _ready(_item(1, 0, 5), _item(2, 3, 5), _item(3, 9, 5), _item(4, 3, 0), _item(5, 3, 5))
    assert _numbers(ready.take_expired(6)) == [3, 2]
    assert _numbers(ready.in_order()) == [4, 5, 1]
    assert (len(ready), ready.size_bytes) == (3, 10)
    ready.take(1)
    assert _numbers(ready.take_expired(6)) == [5, 1]
    assert ready.head() is None


def test_numbers_are_known_across_levels():
    ready = _ready(_item(3, 0), _item(4, 5), _item(7, 0), _item(8, 5))
    assert ready.lowest() == 3
    assert ready.among({*range(4, 12)}) == {4, 7, 8}
    assert _numbers(ready.drop([7, 4, 99])) == [4, 7]
    assert (_numbers(ready.in_order()), ready.size_bytes) == ([8, 3], 11)
    ready.take(9)
    assert ready.lowest() is None


def test_a_loaded_queue_is_the_saved_one():
    ready = _ready(_item(1, 5), _item(2, 0), _item(3, 5), _item(4, 1))
    taken, _ = ready.take(3)
    ready.give_back(taken[:1])
    other = PriorityQueue(9)
    other.load(ready.fresh(), ready.returned(), ready.next_return)
    assert other.in_order() == ready.in_order()
    assert (len(other), other.size_bytes, other.head()) == (
        len(ready),
        ready.size_bytes,
        ready.head(),
    )
    assert (other.fresh(), other.returned()) == (ready.fresh(), ready.returned())
