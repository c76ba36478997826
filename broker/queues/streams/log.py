"""A replica's log as readers see it: pieces in the order of the log, each with its chunk.

A piece is a proposal: mostly one entry of the Raft log, several where it is large. Pieces that were
read lately are kept, so that many readers at one place read and check them once. What is not in
memory is read behind the loop, and whoever asked is called back.

Nothing is read that is not applied here, so a reader can't see what may still be overwritten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from typing_extensions import override

from broker.streams.chunk import Chunk
from broker.streams.entry import read_head
from broker.streams.machine import Place, StreamMachine
from broker.streams.offsets import OffsetSpec
from raft.core.messages import Entry
from raft.parts import LOST, ProposalAssembler

KEPT_BYTES_MAX: Final = 8 << 20
"""What a stream keeps in memory for its readers."""

READ_BYTES: Final = 1 << 20
"""Read at once: a hundredth of a second of a fast consumer's work."""

FILE_BYTES_LEAST: Final = 1 << 20
FILE_BYTES_MAX: Final = 64 << 20

ReadDone = Callable[[list[Entry] | Exception], None]


def log_file_bytes(segment_bytes: int) -> int:
    """Size of the files of a stream's log: what retention drops is off the disk that soon.

    Args:
        segment_bytes: Of the stream, by which retention goes.
    """
    return max(FILE_BYTES_LEAST, min(FILE_BYTES_MAX, segment_bytes))


class Piece(NamedTuple):
    """A proposal of the log.

    Attributes:
        next_index: Raft index of the entry behind it.
        chunk: Its messages; None where there are none.
        size_bytes: In the log.
    """

    next_index: int
    chunk: Chunk | None
    size_bytes: int


Loaded = Callable[[Piece | Exception], None]
"""Gets a piece, or what went wrong."""


class Waiter(Protocol):
    """A reader at the end of the log."""

    def wake(self) -> None:
        """There is more to read."""
        ...


class LogGroup(Protocol):
    """What the log needs of its Raft group."""

    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        """Read applied entries from an index on."""
        ...


class PieceStore(ABC):
    """Pieces in memory, and how others come there.

    Attributes:
        applied_index: Raft index of the newest entry applied.
    """

    applied_index: int

    def __init__(self) -> None:
        self._pieces: OrderedDict[int, Piece] = OrderedDict()
        self._kept_bytes = 0
        self._is_used = False  # since the last `rest`
        self._loading: dict[int, list[Loaded]] = {}

    @property
    def kept_bytes(self) -> int:
        """Of the pieces in memory."""
        return self._kept_bytes

    def find(self, index: int) -> Piece | None:
        """Return the piece that begins at an index, if it is in memory."""
        found = self._pieces.get(index)
        if found is not None:
            self._is_used = True
            self._pieces.move_to_end(index)
        return found

    def load(self, index: int, done: Loaded) -> None:
        """Bring the piece at an index to memory, and some behind it.

        Whoever asks is given the piece: it may be too large to stay here until they look.

        Args:
            index: Of an applied entry.
            done: Called with the piece, or with what went wrong.
        """
        waiting = self._loading.get(index)
        if waiting is not None:
            waiting.append(done)
            return
        self._loading[index] = [done]
        self._read(index, index, ProposalAssembler(), 0)

    def keep(self, index: int, piece: Piece) -> None:
        """Keep a piece for readers."""
        if index in self._pieces:
            self._kept_bytes -= self._pieces.pop(index).size_bytes
        self._is_used = True
        self._pieces[index] = piece
        self._kept_bytes += piece.size_bytes
        while self._kept_bytes > KEPT_BYTES_MAX and len(self._pieces) > 1:
            self._kept_bytes -= self._pieces.popitem(last=False)[1].size_bytes

    def forget(self) -> None:
        """Let go of all pieces."""
        self._pieces.clear()
        self._kept_bytes = 0

    def rest(self) -> None:
        """Let go of all pieces, if nobody has read since the last call."""
        if not self._is_used and self._pieces:
            self.forget()
        self._is_used = False

    def take(self, entries: list[Entry]) -> None:
        """Keep the pieces of entries that came without being asked for by an index."""
        self._join(entries, entries[0].index, ProposalAssembler(), 0)

    @abstractmethod
    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        """Read applied entries from an index on."""

    def _read(self, begin: int, index: int, assembler: ProposalAssembler, size: int) -> None:
        """Read from `index` on, where a proposal that begins at `begin` may go on."""

        def read(found: list[Entry] | Exception) -> None:
            if isinstance(found, Exception):
                self._loaded(begin, found)
                return
            try:
                at, rest, pieces = self._join(found, begin, assembler, size)
            except Exception as error:  # noqa: BLE001 - damage of any kind ends the readers
                self._loaded(begin, error)
                return
            if pieces:
                self._loaded(begin, pieces[0])
            elif not found:
                self._loaded(begin, self._absent(at))
            elif at > self.applied_index:
                self._loaded(begin, LookupError(f"entry {at} is not there"))
            else:  # a large proposal goes on
                self._read(begin, at, assembler, rest)

        self.read_later(index, READ_BYTES, read)

    def _absent(self, index: int) -> Piece | Exception:
        """What stands for an entry that is applied and not in the log."""
        return LookupError(f"entry {index} is not there")

    def _join(
        self, entries: list[Entry], begin: int, assembler: ProposalAssembler, size: int
    ) -> tuple[int, int, list[Piece]]:
        """Keep the pieces of these entries.

        Returns:
            The index behind them, the bytes of an unfinished piece, the pieces.
        """
        pieces: list[Piece] = []
        for entry in entries:
            size += len(entry.data)
            data = assembler.join(entry)
            if data is None and assembler.is_open:
                continue
            pieces.append(self._piece(entry.index + 1, data, size))
            self.keep(begin, pieces[-1])
            begin, size = entry.index + 1, 0
        return (entries[-1].index + 1 if entries else begin), size, pieces

    def _piece(self, next_index: int, data: bytes | None, size_bytes: int) -> Piece:
        """As `piece_of`."""
        return piece_of(next_index, data, size_bytes)

    def _loaded(self, begin: int, found: Piece | Exception) -> None:
        for done in self._loading.pop(begin, ()):
            done(found)


class StreamLog(PieceStore):
    """The readable part of a replica's log (`broker.queues.streams.reader.ReadableLog`).

    Args:
        machine: The replica's state.

    Attributes:
        group: Where the log is; None when the replica is closed.
    """

    def __init__(self, machine: StreamMachine) -> None:
        super().__init__()
        self.applied_index = 0
        self.group: LogGroup | None = None
        self._machine = machine
        self._waiting: dict[Waiter, None] = {}

    @property
    def first_index(self) -> int:
        """Raft index of the oldest entry that is needed; 0 while all are."""
        return self._machine.first_index

    @property
    def is_waited_for(self) -> bool:
        """True if a reader waits for the next entry."""
        return bool(self._waiting)

    def place(self, spec: OffsetSpec, done: Callable[[Place | Exception], None]) -> None:
        """Look up where to read."""
        done(self._machine.place(spec, self.applied_index + 1))

    def wait(self, reader: Waiter) -> None:
        """Wake a reader when another entry is applied."""
        self._waiting[reader] = None

    def wake(self) -> None:
        """Another entry was applied: wake who waits."""
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.wake()

    @override
    def read_later(self, low: int, size_bytes_max: int, done: ReadDone) -> None:
        if self.group is None:
            done(LookupError("the replica is closed"))
        else:
            self.group.read_later(low, size_bytes_max, done)

    @override
    def _absent(self, index: int) -> Piece | Exception:
        if index > self.applied_index:
            return super()._absent(index)
        # A checkpoint took the place of the log: what it had is cut, by an entry still to come.
        return Piece(self.applied_index + 1, None, 0)


def piece_of(next_index: int, data: bytes | None, size_bytes: int) -> Piece:
    """Return the piece of a proposal.

    Args:
        next_index: Raft index behind it.
        data: The proposal; None for an entry that is none, `LOST` for one that is lost.
        size_bytes: In the log.

    Raises:
        EntryDamaged: It is no entry of a stream.
        ChunkDamaged: Its chunk is damaged.
    """
    if data is None or data == LOST:
        return Piece(next_index, None, size_bytes)
    _, _, count, begin = read_head(data)
    return Piece(next_index, Chunk.parse(data, begin) if count else None, size_bytes)
