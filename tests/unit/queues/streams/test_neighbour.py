"""What a neighbour answers is checked: a lie ends who reads it, and nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from broker.amqp.content import Properties, build_message
from broker.ports import Done
from broker.queues.streams.log import Piece
from broker.queues.streams.neighbour import TRIES, NeighbourLog
from broker.streams.chunk import HEAD_SIZE, ChunkDamaged, encode_chunk
from broker.streams.entry import Delta, StreamEntry, encode_entry
from broker.streams.questions import StreamAnswer, StreamQuestion
from raft.core.messages import NORMAL, Entry
from raft.parts import cut


class Liar:
    """The members of the stream, all of which answer the same."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.asked = 0

    def ask(self, question: StreamQuestion, done: Done, *, is_again: bool) -> None:
        self.asked += 1
        done(StreamAnswer(5, 0, None, self.entries))

    def after(self, seconds: float, call: Callable[[], None]) -> object:
        call()
        return None


def entry(index: int, chunk: bytes) -> Entry:
    data = encode_entry(StreamEntry(0, 1, 3, Delta(), chunk))
    return Entry(index, 1, NORMAL, cut(data)[0])


def chunk_of(count: int = 3) -> bytes:
    messages = [build_message("", "q", Properties(), b"%d" % number) for number in range(count)]
    return encode_chunk(messages, first_offset=0, timestamp_ms=1, term=1, filter_size=16)


def forged() -> bytes:
    """A chunk whose bodies go back, with the checksums of one that was written so."""
    data = bytearray(chunk_of())
    at = HEAD_SIZE + 32
    data[at + 4 : at + 12] = data[at + 8 : at + 12] + data[at + 4 : at + 8]
    data[32:36] = zlib.crc32(data[HEAD_SIZE:]).to_bytes(4, "big")
    return bytes(data)


def loaded(liar: Liar, index: int) -> Piece | Exception:
    found: list[Piece | Exception] = []
    log = NeighbourLog(7, liar)
    log.load(index, found.append)
    return found[0]


def test_what_is_right_is_read() -> None:
    liar = Liar()
    liar.entries = [entry(3, chunk_of()), entry(4, chunk_of())]
    piece = loaded(liar, 3)
    assert isinstance(piece, Piece)
    assert (piece.next_index, piece.chunk is not None) == (4, True)


def test_a_chunk_whose_checksums_are_right_is_looked_at_all_the_same() -> None:
    liar = Liar()
    liar.entries = [entry(3, forged())]
    assert isinstance(loaded(liar, 3), ChunkDamaged)


@pytest.mark.parametrize("indexes", [[2], [0], [3, 3], [3, 5], [4, 3]])
def test_entries_of_other_places_are_asked_for_elsewhere(indexes: list[int]) -> None:
    """A reader that believed them would go back, and never end its turn."""
    liar = Liar()
    liar.entries = [entry(index, chunk_of()) for index in indexes]
    assert isinstance(loaded(liar, 3), LookupError)
    assert liar.asked == TRIES


def test_who_waits_is_woken_by_a_damaged_answer_too() -> None:
    liar = Liar()
    liar.entries = [entry(1, forged())]
    log = NeighbourLog(7, liar)
    woken: list[bool] = []

    class Reader:
        def wake(self) -> None:
            woken.append(True)

    log.wait(Reader())
    assert woken == [True]
    assert log.find(1) is None
