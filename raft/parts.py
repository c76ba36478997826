"""Proposals larger than an entry should be: cut into several entries, joined again at apply. Pure.

An entry of at most `ENTRY_BYTES_MAX` keeps records, appends and payloads below their limits
(docs/protocol-rules.md P13), however large a proposal is. The parts of a proposal are appended in
one go by one leader, so they follow each other in the log; where a part is missing its successor,
because leadership ended in between, every replica drops the torn beginning in the same place.

```
whole      data as it is, if it does not begin with 0xC1 (msgpack never does)
framed     | 0xC1 | what 1 | data |       what: 0 whole, 1 first of several, 2 more, 3 last
lost       | 0xC1 | 4 |                   an entry that stood here is lost (`raft.segments.damage`)
```
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from raft.core.messages import NORMAL, Entry

ENTRY_BYTES_MAX: Final = 1024 * 1024 - 64

_MARK: Final = 0xC1
_MARK_BYTE: Final = b"\xc1"
_WHOLE, _FIRST, _MORE, _LAST = range(4)
_LOST: Final = 4
LOST: Final = bytes((_MARK, _LOST))
"""The data of an entry that is lost: nobody knows what it proposed. Only machines of groups that
are read around damage are ever given it."""

_HEADS: Final = [bytes((_MARK, what)) for what in range(4)]
_HEAD_BYTES: Final = 2
_DATA_BYTES_MAX: Final = ENTRY_BYTES_MAX - _HEAD_BYTES


def cut(data: bytes) -> list[bytes]:
    """The entries' data for a proposal: one, or several if it is large."""
    if len(data) <= ENTRY_BYTES_MAX:
        return [data] if data[0] != _MARK else _frame(data)
    return _frame(data)


def count(data: bytes) -> int:
    """How many entries a proposal takes."""
    if len(data) <= ENTRY_BYTES_MAX and (data[0] != _MARK or len(data) <= _DATA_BYTES_MAX):
        return 1
    return -(-len(data) // _DATA_BYTES_MAX)


def _frame(data: bytes) -> list[bytes]:
    if len(data) <= _DATA_BYTES_MAX:
        return [_HEADS[_WHOLE] + data]
    pieces = [data[at : at + _DATA_BYTES_MAX] for at in range(0, len(data), _DATA_BYTES_MAX)]
    middle = [_HEADS[_MORE] + piece for piece in pieces[1:-1]]
    return [_HEADS[_FIRST] + pieces[0], *middle, _HEADS[_LAST] + pieces[-1]]


def extra(size_bytes: int) -> int:
    """How many entries a proposal of that size takes beside its last one."""
    return 0 if size_bytes <= ENTRY_BYTES_MAX else (size_bytes - 1) // _DATA_BYTES_MAX


def goes_on(entry: Entry) -> bool:
    """True for a part of a proposal that the entry before it began."""
    return entry.kind == NORMAL and not begins(entry.data)


def begins(head: bytes) -> bool:
    """True if an entry is a whole proposal, or the first part of one.

    Args:
        head: At least its data's first two bytes, or all of it.
    """
    return head[:1] != _MARK_BYTE or head[1] in (_WHOLE, _FIRST, _LOST)


def unframed(head: bytes) -> bytes:
    """What of an entry's data is its proposer's.

    Args:
        head: The data, or its beginning.
    """
    return head[_HEAD_BYTES:] if head[:1] == _MARK_BYTE else head


class Proposal(NamedTuple):
    """A whole proposal, as a machine gets it.

    Attributes:
        first_index: Its first entry.
        last_index: Its last one, the index that the machine is given.
        data: The proposer's bytes.
    """

    first_index: int
    last_index: int
    data: bytes


class Proposals(NamedTuple):
    """The proposals in some entries.

    Attributes:
        whole: Those that end there.
        begins_before: True if the first entries are parts of a proposal whose beginning was not
            given. It may end there; it is not among `whole`.
        open_from: First entry of a proposal that may go on behind those given; 0: there is none.
    """

    whole: list[Proposal]
    begins_before: bool
    open_from: int


def proposals(entries: Iterable[Entry], assembler: ProposalAssembler | None = None) -> Proposals:
    """Put together what was proposed, exactly as it is applied.

    What nobody completed is left out: leadership ended in between.

    Args:
        entries: Entries that follow each other.
        assembler: Has got the entries before them, and keeps what is open for those behind. None:
            what goes on behind them must be read again from `open_from` on.
    """
    assembler = assembler or ProposalAssembler()
    whole, begins_before, is_first = [], False, True
    for entry in entries:
        if is_first:
            begins_before = goes_on(entry) and not assembler.is_open
            is_first = False
        data = assembler.join(entry)
        if data is not None:
            whole.append(Proposal(assembler.first_index, entry.index, data))
    return Proposals(whole, begins_before, assembler.first_index if assembler.is_open else 0)


class ProposalAssembler:
    """Puts proposals together again while their entries are applied.

    Invariant: `is_open` is part of no snapshot, so none may be taken while it is true.

    Attributes:
        first_index: First entry of the proposal that is open, or was returned last.
    """

    __slots__ = ("_next_index", "_parts", "_term", "first_index")

    def __init__(self) -> None:
        self.first_index = 0
        self._parts: list[bytes] = []
        self._next_index = 0
        self._term = 0

    @property
    def is_open(self) -> bool:
        """True between the first part of a proposal and its last."""
        return bool(self._parts)

    def reset(self) -> None:
        """Forget a beginning: a snapshot takes the place of what would follow."""
        self._parts = []

    def join(self, entry: Entry) -> bytes | None:
        """Take an entry; the whole proposal that it ends, or None.

        An entry of another kind ends what is open, too: parts follow each other.
        """
        data = entry.data
        if entry.kind != NORMAL:
            self._parts = []
            return None
        if data[0] != _MARK:
            return self._whole(entry, data)
        what = data[1]
        if what == _WHOLE:
            return self._whole(entry, data[_HEAD_BYTES:])
        if what == _LOST:
            return self._whole(entry, LOST)
        if what == _FIRST:
            self._parts = [data[_HEAD_BYTES:]]
            self.first_index = entry.index
        elif self._parts and (entry.index, entry.term) == (self._next_index, self._term):
            self._parts.append(data[_HEAD_BYTES:])
        else:
            self._parts = []
            return None
        self._next_index, self._term = entry.index + 1, entry.term
        if what != _LAST:
            return None
        whole = b"".join(self._parts)
        self._parts = []
        return whole

    def _whole(self, entry: Entry, data: bytes) -> bytes:
        self._parts = []
        self.first_index = entry.index
        return data
