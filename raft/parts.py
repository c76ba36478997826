"""Proposals larger than an entry should be: cut into several entries, joined again at apply. Pure.

An entry of at most `ENTRY_BYTES_MAX` keeps records, appends and payloads below their limits
(docs/protocol-rules.md P13), however large a proposal is. The parts of a proposal are appended in
one go by one leader, so they follow each other in the log; where a part is missing its successor,
because leadership ended in between, every replica drops the torn beginning in the same place.

```
whole      data as it is, if it does not begin with 0xC1 (msgpack never does)
framed     | 0xC1 | what 1 | data |       what: 0 whole, 1 first of several, 2 more, 3 last
```
"""

from __future__ import annotations

from typing import Final

from raft.core.messages import Entry

ENTRY_BYTES_MAX: Final = 1024 * 1024 - 64

_MARK: Final = 0xC1
_WHOLE, _FIRST, _MORE, _LAST = range(4)
_HEADS: Final = [bytes((_MARK, what)) for what in range(4)]
_HEAD_BYTES: Final = 2
_DATA_BYTES_MAX: Final = ENTRY_BYTES_MAX - _HEAD_BYTES


def cut(data: bytes) -> list[bytes]:
    """The entries' data for a proposal: one, or several if it is large."""
    if len(data) <= ENTRY_BYTES_MAX:
        return [data] if data[0] != _MARK else _frame(data)
    return _frame(data)


def _frame(data: bytes) -> list[bytes]:
    if len(data) <= _DATA_BYTES_MAX:
        return [_HEADS[_WHOLE] + data]
    pieces = [data[at : at + _DATA_BYTES_MAX] for at in range(0, len(data), _DATA_BYTES_MAX)]
    middle = [_HEADS[_MORE] + piece for piece in pieces[1:-1]]
    return [_HEADS[_FIRST] + pieces[0], *middle, _HEADS[_LAST] + pieces[-1]]


class ProposalAssembler:
    """Puts proposals together again while their entries are applied.

    Invariant: `is_open` is part of no snapshot, so none may be taken while it is true.
    """

    __slots__ = ("_next_index", "_parts", "_term")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._next_index = 0
        self._term = 0

    @property
    def is_open(self) -> bool:
        """True between the first part of a proposal and its last."""
        return bool(self._parts)

    def reset(self) -> None:
        """Forget a beginning: an entry that belongs to no proposal came."""
        self._parts = []

    def join(self, entry: Entry) -> bytes | None:
        """Take an entry's data; the whole proposal, or None while parts are missing."""
        data = entry.data
        if data[0] != _MARK:
            self._parts = []
            return data
        what = data[1]
        if what == _WHOLE:
            self._parts = []
            return data[_HEAD_BYTES:]
        if what == _FIRST:
            self._parts = [data[_HEAD_BYTES:]]
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
