"""The log of a stream whose nearest replica is on another node.

Consumers of a node without a replica read through this: places and entries are asked for from a
member that is alive, and kept for all readers here as a local log's pieces are. While a reader
waits at the end, one question waits there, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from typing_extensions import override

from broker.errors import Refusal
from broker.ports import Done
from broker.queues.streams.log import READ_BYTES, Piece, PieceStore, Waiter, piece_of
from broker.streams.chunk import ChunkDamaged
from broker.streams.entry import EntryDamaged
from broker.streams.machine import Place
from broker.streams.offsets import OffsetSpec
from broker.streams.questions import StreamAnswer, StreamQuestion
from raft.core.messages import Entry

WAIT_MS: Final = 1_000
"""How long a question waits at the other node for more to read."""

TRIES: Final = 10
"""How often a question is asked before its readers end; each time a member that is alive."""

RETRY_S: Final = 0.5

_SHOWN_MAX: Final = 5


class Neighbours(Protocol):
    """The nodes with a replica of one stream."""

    def ask(self, question: StreamQuestion, done: Done, *, is_again: bool) -> None:
        """Ask one of them that is alive.

        Args:
            question: The question.
            done: Called once, with a `StreamAnswer` or a `Refusal`.
            is_again: Another one could not answer.
        """
        ...

    def after(self, seconds: float, call: Callable[[], None]) -> object:
        """Call something after so many seconds."""
        ...


class NeighbourLog(PieceStore):
    """`ReadableLog` of a stream without a replica on this node.

    Args:
        uid: The stream.
        neighbours: Who has its log.
    """

    def __init__(self, uid: int, neighbours: Neighbours) -> None:
        super().__init__()
        self.applied_index = 0
        self.first_index = 0
        self._uid = uid
        self._neighbours = neighbours
        self._waiting: dict[Waiter, None] = {}
        self._is_asking = False

    def place(self, spec: OffsetSpec, done: Callable[[Place | Exception], None]) -> None:
        """Look up where to read."""

        def answered(found: StreamAnswer | Exception) -> None:
            if isinstance(found, Exception):
                done(found)
            elif found.place is None:
                done(LookupError("the node did not say where to read"))
            else:
                done(Place(*found.place))

        self._ask(StreamQuestion(self._uid, spec=(spec.kind, spec.value)), answered, TRIES)

    def wait(self, reader: Waiter) -> None:
        """Wake a reader when another entry is applied."""
        self._waiting[reader] = None
        if not self._is_asking:
            self._is_asking = True
            index = self.applied_index + 1
            question = StreamQuestion(self._uid, index, READ_BYTES, WAIT_MS)
            self._ask(question, self._waited, TRIES)

    def _waited(self, found: StreamAnswer | Exception) -> None:
        self._is_asking = False
        if not isinstance(found, Exception) and found.entries:
            with suppress(EntryDamaged, ChunkDamaged):  # who reads on meets it, and is told
                self.take(found.entries)
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.wake()

    def read_later(
        self, low: int, size_bytes_max: int, done: Callable[[list[Entry] | Exception], None]
    ) -> None:
        """Read entries of the other node."""

        def answered(found: StreamAnswer | Exception) -> None:
            done(found if isinstance(found, Exception) else found.entries)

        self._ask(StreamQuestion(self._uid, low, size_bytes_max), answered, TRIES)

    def _ask(
        self,
        question: StreamQuestion,
        done: Callable[[StreamAnswer | Exception], None],
        tries: int,
    ) -> None:
        def answered(found: object) -> None:
            if isinstance(found, StreamAnswer) and _follow(found.entries, question.index):
                self.applied_index = max(self.applied_index, found.applied_index)
                self.first_index = max(self.first_index, found.first_index)
                done(found)
            elif tries > 1:
                self._neighbours.after(RETRY_S, lambda: self._ask(question, done, tries - 1))
            else:
                done(LookupError(_why(found)))

        self._neighbours.ask(question, answered, is_again=tries < TRIES)

    @override
    def _piece(self, next_index: int, data: bytes | None, size_bytes: int) -> Piece:
        piece = piece_of(next_index, data, size_bytes)
        if piece.chunk is not None:
            piece.chunk.check()  # its checksums came with it
        return piece


def _follow(entries: list[Entry], index: int) -> bool:
    """True for entries that follow each other, the first at `index` or behind it."""
    if not entries:
        return True
    first = entries[0].index
    return first >= index and all(each.index == first + i for i, each in enumerate(entries))


def _why(found: object) -> str:
    """Why an answer is none."""
    if isinstance(found, StreamAnswer):
        return f"entries {[each.index for each in found.entries[:_SHOWN_MAX]]} do not follow"
    return found.text if isinstance(found, Refusal) else repr(found)
