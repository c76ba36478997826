"""broker.storage.summary: written by a clean stop, read by the next start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from broker.fifo.fresh import NOTHING_FRESH, Fresh
from broker.message import Message
from broker.storage import summary
from broker.storage.message_store import MessageStore
from tests.memory_journal import MemoryJournal

FRAMES = [b"first", b"", b"x" * 100_000]


def test_it_is_read_once(tmp_path: Path) -> None:
    summary.write(tmp_path, 7, FRAMES)
    assert summary.take(tmp_path, 7) == FRAMES
    assert summary.take(tmp_path, 7) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("batch", [6, 8, 0])
def test_that_of_another_batch_describes_another_store(tmp_path: Path, batch: int) -> None:
    summary.write(tmp_path, 7, FRAMES)
    assert summary.take(tmp_path, batch) is None
    assert summary.take(tmp_path, 7) is None, "it is removed all the same"


@pytest.mark.parametrize("at", [0, 1, 5, 12, 16, 18, 25, 30, 1000, -1])
def test_a_damaged_one_is_ignored(tmp_path: Path, at: int) -> None:
    summary.write(tmp_path, 7, FRAMES)
    file = tmp_path / summary.FILE
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    assert summary.take(tmp_path, 7) is None


@pytest.mark.parametrize("size", [0, 3, 17, 20, 26, 5000])
def test_a_short_one_is_ignored(tmp_path: Path, size: int) -> None:
    summary.write(tmp_path, 7, FRAMES)
    file = tmp_path / summary.FILE
    file.write_bytes(file.read_bytes()[:size])
    assert summary.take(tmp_path, 7) is None


class Unread(MemoryJournal):
    """A disk whose messages nobody may read."""

    def scan(self, family: str, start: bytes, end: bytes) -> object:
        assert family == "meta", "counted in spite of a summary"
        return super().scan(family, start, end)


def test_a_start_with_a_summary_reads_no_message(tmp_path: Path) -> None:
    journal = MemoryJournal()
    store = MessageStore(journal)
    big = Message("", "q", bytes(5000), 1, 14, 5000, True, expires_ms=9)
    store.put_many(5, [(number, big) for number in range(1, 6000)])
    store.put(6, 1, big)
    store.settle(5, range(1, 5990))
    journal.sync()
    summary.write(tmp_path, 1, store.dump())

    again = MessageStore(Unread(disk=journal.crash()), summary=summary.take(tmp_path, 1))

    paged, is_timed = again.stored(5)
    assert list(paged) == list(range(5990, 6000))
    assert (paged.size_bytes, is_timed) == (50_000, True)
    assert again.read_many(6, [1]) == [(1, big)]
    again.settle(5, range(5990, 6000))
    again.settle(6, [1])
    again._journal.sync()
    assert again._journal.disk.families["bodies"] == {}


@pytest.mark.parametrize(
    "frames", [[], [b"junk"], [b"\x90", b"\x92\x05\x93\xc2\x91\x92\x01\xc4\x00\x90"]]
)
def test_one_that_makes_no_sense_is_counted_again(frames: list[bytes]) -> None:
    journal = MemoryJournal()
    MessageStore(journal).put(5, 1, Message("", "q", b"x", 1, 14, 1, True))
    journal.sync()
    again = MessageStore(MemoryJournal(disk=journal.crash()), summary=frames)
    assert list(again.stored(5).paged) == [1]


def test_what_was_never_handed_out_is_told_once_after_a_clean_stop_only() -> None:
    """P16. A summary of an older version tells nothing."""
    journal = MemoryJournal()
    store = MessageStore(journal)
    store.put_many(5, [(number, Message("", "q", b"x", 1, 14, 1, True)) for number in range(1, 9)])
    fresh = Fresh(3, 8, [5])
    store.note_fresh(5, fresh)
    store.note_fresh(6, fresh)  # nothing is stored of it
    journal.sync()
    frames, disk = list(store.dump()), journal.crash()
    again = MessageStore(MemoryJournal(disk=disk), summary=frames)
    assert [again.take_fresh(uid) for uid in (5, 5, 6)] == [fresh, NOTHING_FRESH, NOTHING_FRESH]
    assert MessageStore(MemoryJournal(disk=disk)).take_fresh(5) == NOTHING_FRESH

    older = [frames[0]]
    for frame in frames[1:]:
        uid, record = msgspec.msgpack.decode(frame)
        older.append(msgspec.msgpack.encode((uid, record[:3])))
    again = MessageStore(MemoryJournal(disk=disk), summary=older)
    assert list(again.stored(5).paged) == list(range(1, 9))
    assert again.take_fresh(5) == NOTHING_FRESH
