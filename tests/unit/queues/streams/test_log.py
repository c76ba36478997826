"""The log of a replica as its readers see it: who asks for a piece gets it."""

from __future__ import annotations

import pytest

from broker.queues.streams.log import KEPT_BYTES_MAX, Piece, ReadDone, StreamLog
from broker.queues.streams.service import answer
from broker.streams.chunk import encode_chunk
from broker.streams.entry import Delta, StreamEntry, encode_entry
from broker.streams.machine import StreamMachine
from broker.streams.questions import StreamAnswer, StreamQuestion
from raft import parts
from raft.core.messages import NORMAL, Entry
from tests.unit.streams.messages import plain
from tests.virtual_loop import run


class Entries:
    """A group whose log is a list; each read gives all that is left of it."""

    def __init__(self, sizes: list[int]) -> None:
        self.entries: list[Entry] = []
        for offset, size in enumerate(sizes):
            chunk = encode_chunk(
                plain(1, size=size), first_offset=offset, timestamp_ms=1, term=1, filter_size=16
            )
            entry = encode_entry(StreamEntry(offset, 1, 1, Delta(), chunk))
            for piece in parts.cut(entry):
                self.entries.append(Entry(len(self.entries) + 1, 1, NORMAL, piece))

    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        done(self.entries[low - 1 :])


def test_a_reader_is_given_a_piece_that_is_too_large_to_be_kept() -> None:
    """Two readers would otherwise drop each other's pieces for ever."""
    group = Entries([KEPT_BYTES_MAX + 1, 100, 100])
    log = StreamLog(StreamMachine())
    log.group = group
    log.applied_index = len(group.entries)
    got: list[Piece | Exception] = []
    log.load(1, got.append)
    (piece,) = got
    assert isinstance(piece, Piece)
    assert piece.chunk is not None
    assert piece.chunk.first_offset == 0


def test_what_a_checkpoint_took_the_place_of_is_passed_over() -> None:
    """It is cut at the leader; here the entry that says so is still to come."""
    group = Entries([])
    log = StreamLog(StreamMachine())
    log.group = group
    log.applied_index = 35
    got: list[Piece | Exception] = []
    log.load(28, got.append)
    assert got == [Piece(36, None, 0)]


def test_a_replica_that_lags_does_not_answer_for_others() -> None:
    """It would end the readers of a node that knows from another replica that there is more."""

    async def scenario() -> None:
        log = StreamLog(StreamMachine())
        log.group = Entries([])
        log.applied_index = 4
        with pytest.raises(LookupError):
            await answer(log, StreamQuestion(7, 5, 1_000))
        assert await answer(log, StreamQuestion(7, 5, 1_000, 50)) == StreamAnswer(4, 0)
        with pytest.raises(LookupError):  # its log begins behind a checkpoint at 4
            await answer(log, StreamQuestion(7, 3, 1_000))

    run(scenario())


def test_pieces_that_nobody_reads_any_more_leave_the_memory() -> None:
    group = Entries([100, 100])
    log = StreamLog(StreamMachine())
    log.group = group
    log.applied_index = len(group.entries)
    log.load(1, lambda _found: None)
    log.rest()
    assert log.kept_bytes
    assert log.find(2) is not None
    log.rest()
    assert log.kept_bytes, "it was read since"
    log.rest()
    assert not log.kept_bytes
    assert log.find(2) is None
