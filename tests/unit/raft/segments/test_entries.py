"""A log in segments against a list: appends, truncations, compactions, snapshots and crashes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.core.messages import NORMAL, Entry
from raft.errors import LogCorrupt
from raft.log_keys import Base
from raft.segments import records
from raft.segments.entries import INDEXES_KEPT, SegmentedEntries
from raft.segments.segment import Segment
from tests.torn_journal import TornDisk, TornJournal

GROUP = 7
SEGMENT_BYTES = 400
READ_BYTES_MAX = 1 << 20


class Life:
    """One process that has a log, and what it must still have after its death.

    Attributes:
        expected: The entries now, by index.
        allowed: Per index every entry that a crash may leave there.
        floors: What must be left at least: the log's end since the last sync, after truncations.
    """

    def __init__(self, disk: TornDisk | None, *, random: Random, snapshot_index: int = 0) -> None:
        self.random = random
        self.journal = TornJournal(disk)
        self.log = SegmentedEntries(self.journal, self.journal, GROUP, SEGMENT_BYTES)
        self.term = 1
        if disk is None:
            self.log.create()
            self.journal.sync()
        else:
            self.log.recover(snapshot_index)
            self.journal.sync()
        self.base = self.log.base
        self.expected: dict[int, Entry] = {e.index: e for e in self.read()}
        self.settled()

    def read(self) -> list[Entry]:
        found: list[Entry] = []
        low = self.log.base.index + 1
        while low <= self.log.last:
            found += self.log.entries(low, self.log.last + 1, READ_BYTES_MAX)
            low = found[-1].index + 1
        return found

    def settled(self) -> None:
        self.allowed = {index: {entry} for index, entry in self.expected.items()}
        self.bases = {self.log.base.index}
        self.floors = [self.log.last]
        self.was_reset = False

    # what a group does

    def append(self, count: int, size: int) -> None:
        self.write(self.log.last + 1, count, size)

    def overwrite(self, back: int, count: int, size: int) -> None:
        self.term += 1
        first = max(self.log.base.index + 1, self.log.last + 1 - back)
        for index in range(first, self.log.last + 1):
            self.expected.pop(index, None)
        self.floors.append(first - 1)
        self.write(first, count, size)

    def write(self, first: int, count: int, size: int) -> None:
        entries = [
            Entry(first + place, self.term, NORMAL, self.random.randbytes(size))
            for place in range(count)
        ]
        self.log.append(entries)
        for entry in entries:
            self.expected[entry.index] = entry
            self.allowed.setdefault(entry.index, set()).add(entry)
        self.journal.turn()

    def compact(self, part: float) -> None:
        index = self.log.base.index + int((self.log.last - self.log.base.index) * part)
        self.log.compact(index)
        assert self.log.base.index <= index
        for gone in [each for each in self.expected if each <= self.log.base.index]:
            del self.expected[gone]
        self.bases.add(self.log.base.index)
        self.journal.turn()

    def reset(self, ahead: int) -> None:
        self.term += 1
        base = Base(self.log.last + ahead, self.term)
        self.log.reset(base)
        self.expected.clear()
        self.bases.add(base.index)
        self.was_reset = True
        self.journal.turn()

    def sync(self) -> None:
        self.journal.sync()
        self.settled()
        assert {entry.index: entry for entry in self.read()} == self.expected

    def crash(self) -> Life:
        """Die, and check what the next life finds."""
        after = Life(self.journal.crash(self.random), random=self.random, snapshot_index=1 << 60)
        after.term = self.term + 1
        assert after.base.index in self.bases
        if not self.was_reset:
            assert after.log.last >= min(self.floors)
        for index, entry in after.expected.items():
            assert entry in self.allowed[index]
        terms = [entry.term for entry in after.expected.values()]
        assert terms == sorted(terms)
        return after


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6), st.integers(0, 150)),
    st.tuples(st.just("overwrite"), st.integers(1, 12), st.integers(1, 4), st.integers(0, 150)),
    st.tuples(st.just("compact"), st.floats(0, 1)),
    st.tuples(st.just("reset"), st.integers(0, 9)),
    st.tuples(st.just("sync")),
    st.tuples(st.just("crash")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(ACTIONS, max_size=40), st.integers(0, 2**32))
def test_what_was_synced_is_there_and_nothing_else_than_was_written(
    actions: list[tuple[object, ...]], seed: int
) -> None:
    life = Life(None, random=Random(seed))
    for name, *arguments in actions:
        if name == "crash":
            life = life.crash()
        else:
            getattr(life, str(name))(*arguments)
    life.sync()


def play(seed: int) -> None:
    """Some actions that are drawn, a crash after most of them."""
    draw = Random(seed)
    life = Life(None, random=draw)
    for _ in range(25):
        chance = draw.random()
        if chance < 0.5:
            life.append(draw.randint(1, 6), draw.randint(0, 150))
        elif chance < 0.65:
            life.overwrite(draw.randint(1, 12), draw.randint(1, 4), draw.randint(0, 150))
        elif chance < 0.72:
            life.compact(draw.random())
        elif chance < 0.77:
            life.reset(draw.randint(0, 9))
        elif chance < 0.85:
            life.sync()
        else:
            life = life.crash()


def compact_at_once(log: SegmentedEntries, index: int) -> None:
    while len(log._segments) > 1 and log._segments[0].last <= index:
        log._segments.pop(0).remove()


def reset_at_once(log: SegmentedEntries, base: Base) -> None:
    gone, log._segments = log._segments, []
    log._loaded.clear()
    for segment in gone:
        segment.remove()
    log._begin(base, gone[-1].sequence + 1)


def keep_torn_end(log: SegmentedEntries) -> None:
    tail = log._segments.pop()
    scanned = tail.scan()
    places = (scanned.positions, scanned.terms)
    count, size = len(scanned.positions), scanned.size_bytes
    kept = Segment(log._files, GROUP, tail.sequence, tail.base, places, count, size)
    log._segments.append(kept)


def tell_at_once(journal: TornJournal, done: Callable[[], None]) -> None:
    done()


BUGS: dict[str, tuple[type, str, Callable[..., None]]] = {
    "a segment is begun before the one before it is durable": (
        TornJournal, "barrier", lambda journal, name: None,
    ),
    "segments go before the journal knows": (SegmentedEntries, "compact", compact_at_once),
    "a log goes before the one that replaces it counts": (
        SegmentedEntries, "reset", reset_at_once,
    ),
    "what a crash tore stays": (SegmentedEntries, "_recover_tail", keep_torn_end),
    "told before the sync": (TornJournal, "when_synced", tell_at_once),
}  # fmt: skip


def test_plays_find_nothing() -> None:
    for seed in range(300):
        play(seed)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, planted = BUGS[bug]
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises((AssertionError, LogCorrupt, KeyError)):
        test_plays_find_nothing()


def full(segments: int = 4) -> Life:
    """A log of several sealed segments, synced."""
    life = Life(None, random=Random(1))
    while len(life.journal.names(records.folder_of(GROUP))) < 2 * segments - 1:
        life.append(1, 90)
        life.sync()
    return life


def reopened(life: Life) -> SegmentedEntries:
    log = SegmentedEntries(life.journal, life.journal, GROUP, SEGMENT_BYTES)
    log.recover(0)
    return log


def test_a_flipped_bit_anywhere_in_a_segment_is_found_or_was_never_promised() -> None:
    """In sealed segments always; in the last one all but its last record, which can be torn."""
    life = full()
    files = life.journal.disk.files
    last = life.log.last
    for name in [name for name in files if name.endswith(".segment")]:
        good = files[name]
        for at in range(len(good)):
            files[name] = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
            try:
                log = reopened(life)
                found = [
                    entry
                    for low in range(log.base.index + 1, log.last + 1)
                    for entry in log.entries(low, low + 1, READ_BYTES_MAX)
                ]
            except LogCorrupt:
                continue
            finally:
                files[name] = good
            assert len(found) >= last - 1, f"{name} at {at}"
            assert all(life.expected[entry.index] == entry for entry in found)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_segment_that_is_gone_is_no_shorter_log(place: int) -> None:
    life = full()
    names = [name for name in life.journal.disk.files if name.endswith(".segment")]
    del life.journal.disk.files[sorted(names)[place]]
    with pytest.raises(LogCorrupt):
        reopened(life)


@pytest.mark.parametrize("content", [b"", b"WMSX", b"x" * 200])
def test_an_index_that_is_lost_or_damaged_is_made_anew(content: bytes) -> None:
    life = full()
    for name in [name for name in life.journal.disk.files if name.endswith(".index")]:
        life.journal.disk.files[name] = content
    log = reopened(life)
    for index, entry in life.expected.items():
        assert log.entries(index, index + 1, READ_BYTES_MAX) == [entry]
        assert log.term(index) == entry.term


def test_a_foreign_groups_segment_is_refused() -> None:
    life = full(2)
    name = records.segment_name(GROUP, 0)
    other = SegmentedEntries(life.journal, life.journal, GROUP + 1, SEGMENT_BYTES)
    other.create()
    life.journal.sync()
    life.journal.disk.files[name] = life.journal.disk.files[records.segment_name(GROUP + 1, 0)]
    with pytest.raises(LogCorrupt, match="one of group 8"):
        reopened(life)


def test_reads_are_bounded_and_never_empty() -> None:
    life = full()
    low, high = life.log.base.index + 1, life.log.last + 1
    assert len(life.log.entries(low, high, 1)) == 1
    assert len(life.log.entries(low, low + 2, READ_BYTES_MAX)) == 2
    with pytest.raises(LogCorrupt, match="missing"):
        life.log.entries(high, high + 1, 1)


def test_segments_that_are_sealed_together_keep_their_indexes_until_they_are_durable() -> None:
    """Many end in one turn; then their terms are asked for before anything of them is on disk."""
    life = Life(None, random=Random(1))
    life.append(60, 90)
    segments = life.log.segments()
    assert len(segments) > 2 * INDEXES_KEPT
    for _ in range(2):
        for index in range(1, life.log.last + 1):
            assert life.log.term(index) == life.term
        life.journal.sync()
    assert {entry.index: entry for entry in life.read()} == life.expected


def test_a_batch_fills_segments_and_no_segment_grows_for_it() -> None:
    """So segments end at the same entries however entries come."""
    one_by_one, together = Life(None, random=Random(1)), Life(None, random=Random(1))
    for _ in range(60):
        one_by_one.append(1, 90)
    together.append(60, 90)
    assert together.log.segments() == one_by_one.log.segments()
    largest = max(each.size_bytes for each in together.log.segments())
    assert largest < SEGMENT_BYTES + records.RECORD_HEAD_BYTES + 90
