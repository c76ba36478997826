"""The in-memory end of the log against a plain list, and its marks."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from raft.core.messages import NORMAL, Entry
from raft.core.unstable import Unstable, size_bytes

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "truncate", "write", "sync", "trim"]), st.integers(1, 5)),
    max_size=60,
)


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, NORMAL, b"x" * (index % 7))


FEWER_ENTRIES_AND_STILL_TOO_MANY_BYTES = [
    ("append", 1),
    ("append", 5),
    ("write", 1),
    ("sync", 1),
    ("trim", 1),
]


@example(FEWER_ENTRIES_AND_STILL_TOO_MANY_BYTES, 64)
@given(STEPS, st.sampled_from([64, 1 << 20]))
def test_marks_follow_a_model_of_the_disk(steps: list[Step], cache_bytes: int) -> None:
    """`stable` never claims an entry that the synced writes, replayed, would not leave."""
    unstable = Unstable(0, 4, cache_bytes)
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
            durable_bytes = sum(map(size_bytes, log[unstable.offset - 1 : unstable.stable]))
            assert durable_bytes < cache_bytes * 5 // 4
        assert unstable.last_index == len(log)
        assert unstable.stable <= unstable.handed <= unstable.last_index
        assert unstable.offset <= unstable.stable + 1
        assert durable[: unstable.stable] == log[: unstable.stable]
        assert unstable.entries == log[unstable.offset - 1 :]


def _floor(unstable: Unstable) -> int:
    """What was trimmed was committed, and is never truncated."""
    return unstable.offset - 1


class CountedBytes(bytes):
    """Counts how often anybody asks for its length."""

    asked = 0

    def __len__(self) -> int:
        CountedBytes.asked += 1
        return super().__len__()


def test_large_entries_cost_the_same_however_many_are_cached() -> None:
    def looks(cache_bytes: int) -> int:
        CountedBytes.asked = 0
        unstable = Unstable(0, 1000, cache_bytes)
        for index in range(1, 501):
            unstable.append([Entry(index, 1, NORMAL, CountedBytes(b"x" * 1000))])
            unstable.take_unwritten(index)
            unstable.synced(index)
            unstable.trim(index)
        assert sum(map(size_bytes, unstable.entries)) <= cache_bytes * 5 // 4
        return CountedBytes.asked

    assert looks(200_000) <= looks(10_000) <= 4 * 500


def test_nothing_unsynced_is_trimmed() -> None:
    unstable = Unstable(0, 4, 1 << 20)
    unstable.append([entry(index) for index in range(1, 101)])
    unstable.take_unwritten(1)
    unstable.trim(100)
    assert len(unstable.entries) == 100
