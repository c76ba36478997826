"""broker.fifo.sync_batch: the batches of a synchronisation (P26)."""

from __future__ import annotations

from broker.fifo.join_state import joined_ranges, ranges_of
from broker.fifo.ready.queue import Facts
from broker.fifo.sync_batch import EndedSinceMark, SyncBatchPlan, gaps, plan_sync_batch


def _items(*numbers: int) -> list[Facts]:
    return [(number, number % 50, None) for number in numbers]


def _cuts(items: list[Facts], last: int, has=(), items_max=100, bytes_max=1 << 20, look=1_000):
    """All batches there are of a queue."""
    cuts: list[tuple[int, SyncBatchPlan]] = []
    low = 1
    while low <= last:
        part = [item for item in items if item[0] >= low][:look]
        cut = plan_sync_batch(
            part,
            last,
            list(has),
            is_rest=len(part) < look,
            items_max=items_max,
            bytes_max=bytes_max,
        )
        cuts.append((low, cut))
        low = cut.high + 1
    assert low == last + 1
    return cuts


def _numbers(cut: SyncBatchPlan) -> list[int]:
    return [number for number, _, _ in cut.wanted]


def test_batches_tell_of_every_number_and_end_at_the_item_limit():
    cuts = _cuts(_items(2, 3, 5, 9), 11, items_max=2)
    assert [(low, cut.high, cut.held, _numbers(cut)) for low, cut in cuts] == [
        (1, 4, [(2, 3)], [2, 3]),
        (5, 11, [(5, 5), (9, 9)], [5, 9]),
    ]


def test_batches_end_before_the_byte_limit_and_a_larger_message_goes_alone():
    items: list[Facts] = [(1, 10, None), (2, 10, None), (3, 500, None), (4, 10, None)]
    assert [_numbers(cut) for _, cut in _cuts(items, 4, bytes_max=25)] == [[1, 2], [3], [4]]


def test_only_the_difference_is_sent_but_all_that_is_held_is_told():
    ((_, cut),) = _cuts(_items(1, 2, 3, 7, 8), 8, has=[(2, 2), (4, 6), (8, 8)])
    assert cut.held == [(1, 3), (7, 8)]
    assert _numbers(cut) == [1, 3, 7]


def test_an_empty_queue_is_told_too():
    assert _cuts([], 40) == [(1, SyncBatchPlan(40, [], []))]


def test_what_came_behind_the_mark_is_no_part_of_it():
    assert _cuts(_items(3, 9), 7) == [(1, SyncBatchPlan(7, [(3, 3)], _items(3)))]


def test_a_mirror_that_has_much_looks_through_it_in_pieces():
    cuts = _cuts(_items(*range(1, 22)), 30, has=[(1, 21)], look=10)
    assert [(low, cut.high) for low, cut in cuts] == [(1, 10), (11, 20), (21, 30)]
    assert not any(cut.wanted for _, cut in cuts)


def test_gaps_are_all_that_ranges_leave_out():
    assert list(gaps(1, 10, [(2, 3), (5, 9)])) == [(1, 1), (4, 4), (10, 10)]
    assert list(gaps(1, 10, [(1, 10)])) == []
    assert list(gaps(4, 10, [])) == [(4, 10)]


def test_what_ended_is_known_until_a_batch_has_told_of_it():
    gone = EndedSinceMark()
    gone.add([2, 5_000, 9])
    gone.add_range(100, 200)
    assert [n for n in (2, 3, 9, 100, 200, 201, 5_000) if n in gone] == [2, 9, 100, 200, 5_000]
    gone.forget_up_to(150)
    assert [n for n in (2, 9, 160, 200, 5_000) if n in gone] == [160, 200, 5_000]
    gone.add([7])
    gone.add_range(1, 150)
    assert len(gone) == 2, "nobody asks for these any more"


def test_numbers_as_ranges():
    assert ranges_of([]) == []
    assert ranges_of([0, 1, 2, 5, 7, 8]) == [(0, 2), (5, 5), (7, 8)]
    assert ranges_of([5, 6, 1, 2]) == [(5, 6), (1, 2)]
    assert joined_ranges([(5, 6), (9, 9), (1, 4)]) == [(1, 6), (9, 9)]
