"""broker.fifo.fill: the batches of a synchronisation (P26)."""

from __future__ import annotations

from broker.fifo.fill import HELD_MAX, Fill, cut_fills
from broker.fifo.handshake import ranges_of
from broker.message import Delivery, Message
from tests.model.fifo_model import message


def _contents(*numbers: int) -> list[Delivery]:
    return [Delivery(number, 0, message(number % 50)) for number in numbers]


def _cut(contents, next_number, has=(), items_max=100, bytes_max=1 << 20) -> list[Fill]:
    fills = list(
        cut_fills(contents, next_number, list(has), items_max=items_max, bytes_max=bytes_max)
    )
    assert fills[0].low == 1
    assert fills[-1].high == next_number - 1
    assert [fill.low for fill in fills[1:]] == [fill.high + 1 for fill in fills[:-1]]
    return fills


def test_batches_tell_of_every_number_and_end_at_the_item_limit():
    fills = _cut(_contents(2, 3, 5, 9), 12, items_max=2)
    assert [(f.low, f.high, f.held, f.numbers) for f in fills] == [
        (1, 4, [(2, 3)], [2, 3]),
        (5, 11, [(5, 5), (9, 9)], [5, 9]),
    ]


def test_batches_end_before_the_byte_limit_and_a_larger_message_goes_alone():
    small, huge = message(10), Message("", "q", bytes(500), 1, 14, 500, True)
    contents = [Delivery(n, 0, m) for n, m in ((1, small), (2, small), (3, huge), (4, small))]
    assert [f.numbers for f in _cut(contents, 5, bytes_max=60)] == [[1, 2], [3], [4]]


def test_only_the_difference_is_sent_but_all_that_is_held_is_told():
    (fill,) = _cut(_contents(1, 2, 3, 7, 8), 9, has=[(2, 2), (4, 6), (8, 8)])
    assert fill.held == [(1, 3), (7, 8)]
    assert fill.numbers == [1, 3, 7]
    assert [m.body_size for m in fill.messages] == [1, 3, 7]


def test_an_empty_queue_is_told_too():
    assert _cut([], 41) == [Fill(1, 40, [], [], [])]


def test_a_mirror_that_has_much_looks_through_it_in_pieces():
    many = [Delivery(n, 0, message()) for n in range(1, 2 * HELD_MAX + 2)]
    fills = _cut(many, 2 * HELD_MAX + 2, has=[(1, 2 * HELD_MAX + 1)])
    assert len(fills) == 3
    assert all(not fill.numbers for fill in fills)


def test_numbers_as_ranges():
    assert ranges_of([]) == []
    assert ranges_of([0, 1, 2, 5, 7, 8]) == [(0, 2), (5, 5), (7, 8)]
