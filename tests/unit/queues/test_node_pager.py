"""The node's memory is divided among its queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from broker.queues.paging.memory_budget import BUDGET_MIN_BYTES, budget_bytes, fair_limit
from broker.queues.paging.node_pager import TRIM_MAX_MS, TRIM_MIN_MS, MemoryUse, NodePager
from tests.unit.queues.rig import Clock

MIB = 1 << 20

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=50)


@given(SIZES, st.integers(0, 60_000))
def test_no_queue_is_robbed_for_a_larger_one(sizes: list[int], budget: int) -> None:
    """Max-min fair: the limit fits, and a byte more for each queue above it would not."""
    found = fair_limit(sizes, budget)
    if found is None:
        assert sum(sizes) <= budget
        return
    assert sum(sizes) > budget
    assert sum(min(size, found) for size in sizes) <= budget
    assert sum(min(size, found + 1) for size in sizes) > budget


def test_what_the_rest_of_the_process_uses_is_not_to_be_had() -> None:
    assert budget_bytes(400 * MIB, 0.5, 150 * MIB, 60 * MIB) == 110 * MIB
    assert budget_bytes(100 * MIB, 0.5, 90 * MIB, 10 * MIB) == BUDGET_MIN_BYTES
    assert budget_bytes(0, 0.5, 90 * MIB, 10 * MIB) == BUDGET_MIN_BYTES


STEP = MIB


class Hoard:
    """A queue with so many bytes of messages, that pages out a step when told."""

    def __init__(self, ram_bytes: int, *, held: int = 0) -> None:
        self.ram_bytes = ram_bytes
        self.held = held  # what can't be paged out
        self.limit_bytes: int | None = None
        self.looks = 0

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        self.looks += 1
        self.limit_bytes = limit_bytes
        if limit_bytes is not None and self.ram_bytes > limit_bytes:
            self.ram_bytes = max(limit_bytes, self.held, self.ram_bytes - STEP)


class Machine:
    """A process whose memory is its queues, something else, and what it has not given back."""

    def __init__(self, *queues: Hoard, others: int) -> None:
        self.queues = list(queues)
        self.others = others
        self.kept = 0
        self.is_keeping = False  # freed memory stays with the process until it is trimmed
        self.trims = 0
        self.clock = Clock()
        self.watermark = 400 * MIB
        self.deferred: deque[Callable[[], None]] = deque()
        self.pager = NodePager(self, 0.5, self, self.clock, self.deferred.append)

    def tick(self) -> None:
        """A tick, and all turns of the loop that follow it."""
        before = self.used
        self.pager.tick()
        while self.deferred:
            self.deferred.popleft()()
        if self.is_keeping:
            self.kept += max(0, before - self.used)
            self.is_keeping = False

    @property
    def used(self) -> int:
        return self.others + self.kept + sum(queue.ram_bytes for queue in self.queues)

    def in_memory(self) -> list[Hoard]:
        return self.queues

    def look(self) -> MemoryUse:
        return MemoryUse(self.used, self.watermark)

    def trim(self) -> None:
        self.trims += 1
        self.kept = 0


def test_queues_are_left_alone_while_the_node_is_below_its_share() -> None:
    queue = Hoard(90 * MIB)
    machine = Machine(queue, others=100 * MIB)
    for _ in range(10):
        machine.tick()
    assert (queue.looks, machine.trims) == (0, 0)


def test_the_largest_queue_pages_out_and_the_small_one_does_not() -> None:
    small, large = Hoard(10 * MIB), Hoard(300 * MIB)
    machine = Machine(small, large, others=100 * MIB)
    machine.tick()
    assert (small.ram_bytes, large.ram_bytes) == (10 * MIB, 90 * MIB)
    machine.tick()
    assert large.limit_bytes == 90 * MIB  # they fit now, but the next messages would not
    machine.others -= 30 * MIB
    machine.tick()
    assert small.limit_bytes is large.limit_bytes is None


def test_queues_take_turns_of_one_step_so_that_the_node_goes_on() -> None:
    queues = [Hoard(100 * MIB) for _ in range(3)]
    machine = Machine(*queues, others=100 * MIB)
    machine.pager.tick()
    turns = 0
    while machine.deferred:
        before = machine.used
        machine.deferred.popleft()()
        assert before - machine.used <= STEP
        turns += 1
    assert turns >= 200
    assert machine.used <= 200 * MIB


def test_a_queue_that_can_not_let_go_does_not_keep_the_node_busy() -> None:
    stuck, other = Hoard(150 * MIB, held=140 * MIB), Hoard(150 * MIB)
    machine = Machine(stuck, other, others=100 * MIB)
    machine.tick()
    assert stuck.ram_bytes == 140 * MIB
    assert other.ram_bytes == 50 * MIB
    assert stuck.looks < 20


def test_a_queue_that_is_new_hears_of_the_limit_that_others_have() -> None:
    machine = Machine(Hoard(300 * MIB), others=250 * MIB)
    machine.tick()
    late = Hoard(1 * MIB)
    machine.queues.append(late)
    machine.tick()
    assert late.limit_bytes == machine.queues[0].limit_bytes


def test_memory_that_was_freed_goes_back_to_the_system() -> None:
    """Else the alarm would go on for memory that nobody uses."""
    queue = Hoard(300 * MIB)
    machine = Machine(queue, others=100 * MIB)
    machine.is_keeping = True
    machine.tick()
    assert machine.used == 400 * MIB
    machine.tick()
    assert machine.used == 200 * MIB
    assert queue.ram_bytes == 100 * MIB  # nothing was paged out for memory that was free


def test_a_trim_that_does_not_help_is_tried_ever_more_rarely() -> None:
    machine = Machine(others=300 * MIB)
    for _ in range(4 * 600):  # ten minutes
        machine.tick()
        machine.clock.ms += 250
    assert 10 < machine.trims < 10 + 2 * 600_000 // TRIM_MAX_MS
    assert TRIM_MIN_MS < TRIM_MAX_MS
