"""The in-memory end of the log against a plain list, and its marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.core.messages import NORMAL, Entry
from raft.core.unstable import Unstable

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "truncate", "write", "sync", "trim"]), st.integers(1, 5)),
    max_size=60,
)


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, NORMAL, b"x")


@given(STEPS)
def test_marks_follow_a_model_of_the_disk(steps: list[Step]) -> None:
    """`stable` never claims an entry that the synced writes, replayed, would not leave."""
    unstable = Unstable(0, 4, 1 << 20)
    log: list[Entry] = []
    writes: list[tuple[int, int, list[Entry]]] = []  # (number, first index, entries)
    durable: list[Entry] = []
    number = term = 0
    for action, amount in steps:
        if action == "append":
            term += 1
            new = [entry(len(log) + 1 + offset, term) for offset in range(amount)]
            unstable.append(new)
            log += new
        elif action == "truncate" and len(log) >= amount and len(log) - amount >= _floor(unstable):
            unstable.truncate(len(log) - amount + 1)
            del log[len(log) - amount :]
        elif action == "write":
            number += 1
            taken = unstable.take_unwritten(number)
            if taken:
                writes.append((number, taken[0].index, taken))
        elif action == "sync" and writes:
            synced, first, entries = writes.pop(0)
            unstable.synced(synced)
            durable[first - 1 :] = entries
        elif action == "trim":
            unstable.trim(unstable.stable)
        assert unstable.last_index == len(log)
        assert unstable.stable <= unstable.handed <= unstable.last_index
        assert unstable.offset <= unstable.stable + 1
        assert durable[: unstable.stable] == log[: unstable.stable]
        assert unstable.entries == log[unstable.offset - 1 :]


def _floor(unstable: Unstable) -> int:
    """What was trimmed was committed, and is never truncated."""
    return unstable.offset - 1


def test_cache_is_bounded_by_bytes_too() -> None:
    unstable = Unstable(0, 1000, 10_000)
    for index in range(1, 101):
        unstable.append([Entry(index, 1, NORMAL, b"x" * 1000)])
        unstable.take_unwritten(index)
        unstable.synced(index)
        unstable.trim(index)
    assert len(unstable.entries) <= 10


def test_nothing_unsynced_is_trimmed() -> None:
    unstable = Unstable(0, 4, 1 << 20)
    unstable.append([entry(index) for index in range(1, 101)])
    unstable.take_unwritten(1)
    unstable.trim(100)
    assert len(unstable.entries) == 100
