"""Large contents on disk, each once for all messages that name it. Used by `message_store`.

Invariants:

1. A content lies in its family as long as a message names it, and goes in the batch that removes
   the last one (docs/protocol-rules.md P29).
2. Counts come from the records that name a content: a start counts those that are there, and who
   writes or removes one says so here.

A content that several queues store in the same publish is recognised by the identity of its bytes
object among the last few stored, so a queue needs no token from the router. A count takes some
ten bytes of memory, however large the content.
"""

from __future__ import annotations

from typing import Final

from broker.ports import Journal
from broker.storage import message_keys as keys
from broker.storage.int_map import IntMap

RECENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""Contents remembered for sharing; a publish of one message to many queues happens at once."""

_PARTS_BITS: Final = 20  # of a count: how many records the content takes
_PARTS_MASK: Final = (1 << _PARTS_BITS) - 1
_RANGE_MIN: Final = 256  # fewer bodies are removed one by one: RocksDB keeps ranges in mind
_ONE: Final = 1 << _PARTS_BITS


class Bodies:
    """The contents in one family.

    Args:
        journal: Where they go.
        family: `bodies` or `page_bodies`.
        mark_key: Key in `meta` of the mark of used ids; None for a family that a start empties.
        reserved: One mark is written for so many ids.
    """

    def __init__(
        self, journal: Journal, family: str, mark_key: bytes | None, reserved: int
    ) -> None:
        self._journal = journal
        self._family = family
        self._mark_key = mark_key
        self._reserved = reserved
        # Per body id: how many messages name it, and above it its number of parts.
        self._counts = IntMap()
        # By id() of the content, which is held so that the id() stays its own.
        self._recent: dict[int, tuple[keys.BodyAddress, bytes]] = {}
        self._recent_ids: dict[int, int] = {}
        self._recent_bytes = 0
        self._last_id = 0
        self._mark = 0

    def begin_after(self, mark: int) -> None:
        """Give out ids behind `mark`, the highest that an earlier life may have used."""
        self._last_id = self._mark = mark

    def count(self, body: keys.BodyAddress) -> None:
        """One more message that was found at start names this content."""
        before = self._counts.get(body.body_id)
        self._counts.set(body.body_id, before + _ONE if before else _ONE | body.parts)

    def dump(self) -> list[tuple[int, bytes]]:
        """All counts, for `load` in the next life."""
        return self._counts.dump()

    def load(self, counts: list[tuple[int, bytes]]) -> None:
        """Take over what an earlier life has counted.

        Raises:
            ValueError: It is not what `dump` wrote.
        """
        self._counts = IntMap.load(counts)

    def name(self, content: bytes) -> keys.BodyAddress:
        """Store a content, or count one more reference if it was just stored for another queue."""
        known = self._recent.get(id(content))
        if known is not None:
            body = known[0]
            self._counts.set(body.body_id, self._counts.get(body.body_id) + _ONE)
            return body
        body_id = self._take_id()
        body = keys.BodyAddress(body_id, len(content), keys.body_checksum(body_id, content))
        for part, value in enumerate(keys.cut_body(content)):
            self._journal.put(self._family, keys.body_key(body_id, part), value)
        self._counts.set(body_id, _ONE | body.parts)
        self._remember(body, content)
        return body

    def release(self, body_id: int) -> None:
        """Drop one reference to a content; remove the content with the last one."""
        left = self._counts.get(body_id) - _ONE
        if left >= _ONE:
            self._counts.set(body_id, left)
            return
        self._counts.pop(body_id)
        known = self._recent_ids.get(body_id)
        if known is not None:
            self._forget(known)
        for part in range(left & _PARTS_MASK):
            self._journal.delete(self._family, keys.body_key(body_id, part))

    def release_many(self, body_ids: list[int]) -> None:
        """One message less names each of these; long runs of neighbours go by ranges."""
        gone: list[int] = []
        for body_id in body_ids:
            left = self._counts.get(body_id) - _ONE
            if left >= _ONE or body_id in self._recent_ids:
                self.release(body_id)
            else:
                self._counts.pop(body_id)
                gone.extend([body_id] * left)  # what is left of the count is its parts
        gone.sort()
        at = 0
        for after in range(1, len(gone) + 1):
            if after < len(gone) and gone[after] - gone[after - 1] <= 1:
                continue
            self._remove_run(gone[at:after])
            at = after

    def _remove_run(self, body_ids: list[int]) -> None:
        """Remove the parts of neighbours; an id stands once for each of its parts."""
        if len(body_ids) >= _RANGE_MIN:
            start, _ = keys.body_range(body_ids[0])
            _, end = keys.body_range(body_ids[-1])
            self._journal.delete_range(self._family, start, end)
            return
        part = 0
        for before, body_id in zip([-1, *body_ids], body_ids, strict=False):
            part = part + 1 if body_id == before else 0
            self._journal.delete(self._family, keys.body_key(body_id, part))

    def read(self, body: keys.BodyAddress) -> bytes:
        """A content, pending writes included.

        Raises:
            RecordDamaged: If a part is missing or it is not what was stored.
        """
        known = self._recent_ids.get(body.body_id)
        if known is not None:
            return self._recent[known][1]
        parts = []
        for part in range(body.parts):
            value = self._journal.get(self._family, keys.body_key(body.body_id, part))
            if value is None:
                raise keys.RecordDamaged(f"part {part} of body {body.body_id} is missing")
            parts.append(value)
        return keys.join_body(body, parts)

    def read_start(self, body: keys.BodyAddress) -> bytes:
        """The first part of a content, pending writes included; one of one part is checked.

        Raises:
            RecordDamaged: As `read`.
        """
        if body.parts == 1 or body.body_id in self._recent_ids:
            return self.read(body)
        value = self._journal.get(self._family, keys.body_key(body.body_id, 0))
        if value is None:
            raise keys.RecordDamaged(f"part 0 of body {body.body_id} is missing")
        return value

    def _take_id(self) -> int:
        self._last_id += 1
        if self._last_id > self._mark and self._mark_key is not None:
            self._mark = self._last_id + self._reserved
            self._journal.put("meta", self._mark_key, keys.number_mark(self._mark))
        return self._last_id

    def _remember(self, body: keys.BodyAddress, content: bytes) -> None:
        self._recent[id(content)] = (body, content)
        self._recent_ids[body.body_id] = id(content)
        self._recent_bytes += len(content)
        while self._recent_bytes > RECENT_BYTES_MAX and len(self._recent) > 1:
            self._forget(next(iter(self._recent)))

    def _forget(self, content_id: int) -> None:
        body, content = self._recent.pop(content_id)
        del self._recent_ids[body.body_id]
        self._recent_bytes -= len(content)
