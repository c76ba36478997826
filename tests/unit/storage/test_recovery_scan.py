"""broker.storage.recovery_scan: counting goes on over what can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from broker.message import Message
from broker.storage import message_keys as keys
from broker.storage.message_store import MessageStore
from broker.storage.recovery_scan import TOLD_MAX, walk
from broker.storage.store import StoreDamaged
from tests.memory_journal import MemoryJournal

Place = tuple[int, int]


class Disk:
    """Records, some in blocks that can't be read."""

    def __init__(self, places: list[Place], bad: set[Place]) -> None:
        self.places = sorted(places)
        self.bad = bad

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for place in self.places:
            key = keys.index_key(*place)
            if start <= key < end:
                if place in self.bad:
                    raise StoreDamaged(Path("store"), "block checksum mismatch")
                yield key, b"value"


def walked(disk: Disk) -> tuple[list[Place], list[tuple[int, int, str]]]:
    lost: list[tuple[int, int, str]] = []
    found = [keys.parse_index_key(key) for key, _ in walk(disk.scan, lambda *e: lost.append(e))]
    return found, lost


def test_a_block_in_a_queue_costs_its_own_messages() -> None:
    places = [(5, number) for number in range(1, 200)]
    found, lost = walked(Disk(places, {(5, number) for number in range(50, 66)}))
    assert found == [(5, n) for n in range(1, 200) if not 50 <= n < 66]
    assert [(uid, number) for uid, number, _ in lost] == [(5, n) for n in range(50, 66)]
    assert lost[0][2] == "block checksum mismatch"


def test_a_block_over_the_end_of_a_queue_is_told_for_both() -> None:
    places = [(5, 1), (5, 2), (900, 7), (900, 8)]
    found, lost = walked(Disk(places, {(5, 2), (900, 7)}))
    assert found == [(5, 1), (900, 8)]
    assert [(uid, number) for uid, number, _ in lost] == [(5, 2), (900, 7)]


def test_the_first_and_the_last_block_may_be_bad() -> None:
    places = [(5, 1), (6, 1), (7, 1)]
    found, lost = walked(Disk(places, {(5, 1), (7, 1)}))
    assert found == [(6, 1)]
    assert {uid for uid, _, _ in lost} >= {6}
    assert walked(Disk(places, set(places)))[0] == []


def test_a_wide_gap_is_told_in_one() -> None:
    places = [(5, 1), (5, 2), (5, TOLD_MAX * 3)]
    found, lost = walked(Disk(places, {(5, 2)}))
    assert found == [(5, 1), (5, TOLD_MAX * 3)]
    assert [(uid, number) for uid, number, _ in lost] == [(5, 2)]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), unique=True, max_size=60), st.data()
)
def test_nothing_readable_is_missed(places: list[Place], data: st.DataObject) -> None:
    """Each bad stretch is one run of neighbours; between two runs there is something good."""
    places = sorted(places)
    marks = data.draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    bad = {place for place, mark in zip(places, marks, strict=True) if mark}
    found, _ = walked(Disk(places, bad))
    assert set(found) <= set(places) - bad
    # The search by halves finds an end of damage; with several it may step over good ones
    # between them, but never over those behind the last.
    last_bad = max(bad, default=(-1, -1))
    assert [place for place in places if place > last_bad] == [p for p in found if p > last_bad]
    first_bad = min(bad, default=(9, 0))
    assert [place for place in places if place < first_bad] == [p for p in found if p < first_bad]


def test_progress_is_told_and_damaged_heads_cost_only_themselves() -> None:
    journal = MemoryJournal()
    message = Message("", "q", b"x", 1, 14, 1, True)
    MessageStore(journal).put_many(5, [(number, message) for number in range(1, 1001)])
    journal.sync()
    index = journal.disk.families["queue_index"]
    index[keys.index_key(5, 3)] = b"\x01\x00 of an older version"
    index[keys.index_key(5, 4)] = b"\x02\x01 too short"
    index[keys.index_key(5, 5)] = b"\x02"
    told: list[int] = []

    store = MessageStore(MemoryJournal(disk=journal.crash()), told.append)

    assert told == [1000]
    assert [lost.number for lost in store.take_lost()] == [3, 4, 5]
    assert [number for number, _ in store.recover(5)] == [1, 2, *range(6, 1001)]
