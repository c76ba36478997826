"""A line that pages, where random lives rarely get."""

from __future__ import annotations

import msgspec
import pytest

from broker.fifo.ready.fifo import PagedFifo
from broker.fifo.ready.queue import Eviction, body_bytes
from broker.message import Delivery
from tests.model.fifo_model import message


def _line(sizes: dict[int, int]) -> PagedFifo:
    line = PagedFifo(by_number=True)
    items = [Delivery(number, 0, message(size)) for number, size in sizes.items()]
    line.append(items, body_bytes(items))
    return line


def _cut(excess_bytes: int, *, window_bytes: int, stub_bytes: int) -> Eviction:
    return Eviction(excess_bytes, window_bytes=window_bytes, stub_bytes=stub_bytes, durable=False)


def test_what_is_read_for_the_returned_ends_before_the_stubs():
    """Else what follows the stubs would be handed out before them."""
    sizes = {1: 2_000, 2: 2_000, 3: 2_000, 4: 0, 5: 4_096, 6: 0, 7: 0}
    line = _line(sizes)
    back = [msgspec.structs.replace(item, delivery_count=1) for item in line.take(3)[0]]
    line.give_back(back)
    line.page_out(_cut(1 << 30, window_bytes=5_500, stub_bytes=0))
    line.page_out(_cut(100, window_bytes=0, stub_bytes=9_000))
    assert (line.stubs.count, line.delta[0]) == (1, 3)
    given = []
    while len(line):
        if not line.at_hand():
            numbers = line.needed(1 << 20)
            assert line.page_in(numbers, {n: message(sizes[n]) for n in numbers}) == []
        given += [(item.number, item.delivery_count) for item in line.take(9)[0]]
    assert given == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0), (6, 0), (7, 0)]


def test_numbers_that_have_gone_meanwhile_are_ignored():
    line = _line(dict.fromkeys(range(1, 11), 10))
    line.page_out(_cut(1 << 30, window_bytes=0, stub_bytes=0))
    line.take(1)
    numbers = line.needed(1 << 20)
    line.drop(numbers[:3])
    assert line.page_in(numbers, {n: message(10) for n in numbers}) == []
    assert [item.number for item in line.take(99)[0]] == numbers[3:]
    assert (len(line), line.size_bytes, line.ram_bytes) == (0, 0, 0)
    assert line.page_in(numbers, {}) == []


def test_what_comes_back_later_stands_behind_what_came_back_and_was_paged_out():
    line = _line(dict.fromkeys(range(1, 11), 10))
    out = [msgspec.structs.replace(item, delivery_count=1) for item in line.take(10)[0]]
    line.give_back(out[:4])
    line.page_out(_cut(1 << 30, window_bytes=0, stub_bytes=0))
    line.take(1)
    numbers = line.needed(1 << 20)
    line.page_in(numbers, {n: message(10) for n in numbers})
    line.give_back(out[4:])
    assert [item.number for item in line.take(99)[0]] == list(range(2, 11))


@pytest.mark.parametrize("count", [2_000, 3_000])
def test_a_delta_takes_four_bytes_a_message(count):
    line = _line(dict.fromkeys(range(1, count + 1), 100))
    line.page_out(_cut(1 << 30, window_bytes=0, stub_bytes=0))
    assert line.delta == (count - 1, 100 * (count - 1))
    assert line.ram_bytes < 5 * count + 6_000
