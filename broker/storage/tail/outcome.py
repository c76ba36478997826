"""What the writes in the tail come to, file by file: a start carries out each file's at once. Pure.

The tail has a write for each batch, many files have hundreds of them, and the last word counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.storage.tail.log_tail import Kind, TailWrite


class Outcome:
    """What a file has in the end.

    Attributes:
        keep_bytes: So much of what is on disk stays.
        data: What follows.
        is_removed: It went, and did not come back.
    """

    __slots__ = ("data", "is_removed", "keep_bytes")

    def __init__(self, keep_bytes: int) -> None:
        self.keep_bytes = keep_bytes
        self.data = bytearray()
        self.is_removed = False

    def repeat(self, write: TailWrite) -> bool:
        """Take the next write; False if it leaves a hole behind what is known."""
        if write.kind == Kind.REMOVE:
            self.keep_bytes, self.is_removed = 0, True
            self.data.clear()
            return True
        at = write.position
        if at > self.keep_bytes + len(self.data):
            return False
        # An earlier position than all before: what they need may be gone, and is not needed.
        self.keep_bytes = min(self.keep_bytes, at)
        del self.data[at - self.keep_bytes :]
        if write.kind == Kind.APPEND:
            self.data += write.data
        self.is_removed = False
        return True


class Outcomes(dict[str, Outcome]):
    """Outcomes by the names of files.

    Args:
        records: What the tail holds, in order.

    Attributes:
        holes: Files of which something between two writes is missing.
    """

    def __init__(self, records: Iterable[list[TailWrite]]) -> None:
        super().__init__()
        self.holes: list[str] = []
        for writes in records:
            for write in writes:
                self._take(write)

    def _take(self, write: TailWrite) -> None:
        found = self.get(write.name)
        if found is None:
            found = self[write.name] = Outcome(write.position)
        if not found.repeat(write):
            self.holes.append(write.name)
