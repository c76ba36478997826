"""A ready queue that pages: cases that random tests rarely reach."""

from __future__ import annotations

import msgspec
import pytest

from broker.fifo.ready.fifo import PagedFifo
from broker.fifo.ready.queue import Eviction, body_bytes
from broker.message import Delivery
from tests.model.fifo_model import message


def _ready(sizes: dict[int, int]) -> PagedFifo:
    ready = PagedFifo(by_number=True)
    items = [Delivery(number, 0, message(size)) for number, size in sizes.items()]
    ready.append(items, body_bytes(items))
    return ready


def _cut(excess_bytes: int, *, window_bytes: int, stub_bytes: int) -> Eviction:
    return Eviction(excess_bytes, window_bytes=window_bytes, stub_bytes=stub_bytes, durable=False)


def test_what_is_read_for_the_returned_ends_before_the_stubs():
    """Else what follows the stubs would be handed out before them."""
    sizes = {1: 2_000, 2: 2_000, 3: 2_000, 4: 0, 5: 4_096, 6: 0, 7: 0}
    ready = _ready(sizes)
    back = [msgspec.structs.replace(item, delivery_count=1) for item in ready.take(3)[0]]
    ready.give_back(back)
    ready.page_out(_cut(1 << 30, window_bytes=5_500, stub_bytes=0))
    ready.page_out(_cut(100, window_bytes=0, stub_bytes=9_000))
    assert (ready.stubs.count, ready.delta[0]) == (1, 3)
    given = []
    while len(ready):
        if not ready.at_hand():
            numbers = ready.needed(1 << 20)
            assert ready.page_in(numbers, {n: message(sizes[n]) for n in numbers}) == []
        given += [(item.number, item.delivery_count) for item in ready.take(9)[0]]
    assert given == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0), (6, 0), (7, 0)]


def test_numbers_that_have_gone_meanwhile_are_ignored():
    ready = _ready(dict.fromkeys(range(1, 11), 10))
    ready.page_out(_cut(1 << 30, window_bytes=0, stub_bytes=0))
    ready.take(1)
    numbers = ready.needed(1 << 20)
    ready.drop(numbers[:3])
    assert ready.page_in(numbers, {n: message(10) for n in numbers}) == []
    assert [item.number for item in ready.take(99)[0]] == numbers[3:]
    assert (len(ready), ready.size_bytes, ready.ram_bytes) == (0, 0, 0)
    assert ready.page_in(numbers, {}) == []


def test_what_comes_back_later_stands_behind_what_came_back_and_was_paged_out():
    ready = _ready(dict.fromkeys(range(1, 11), 10))
    out = [msgspec.structs.replace(item, delivery_count=1) for item in ready.take(10)[0]]
    ready.give_back(out[:4])
    ready.page_out(_cut(1 << 30, window_bytes=0, stub_bytes=0))
    ready.take(1)
    numbers = ready.needed(1 << 20)
    ready.page_in(numbers, {n: message(10) for n in numbers})
    ready.give_back(out[4:])
    assert [item.number for item in ready.take(99)[0]] == list(range(2, 11))


@pytest.mark.parametrize("count", [2_000, 3_000])
def test_a_delta_takes_four_bytes_a_message(count):
    ready = _ready(dict.fromkeys(range(1, count + 1), 100))
    ready.page_out(_cut(1 << 30, window_bytes=0, stub_bytes=0))
    assert ready.delta == (count - 1, 100 * (count - 1))
    assert ready.ram_bytes < 5 * count + 6_000
