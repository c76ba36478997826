"""What channels hold of a queue whose bodies are in its log.

What is handed out may be a stub from the beginning. Whole ones lose their bodies when they are too
many: a settle needs none, and what is given back is read again when it is delivered again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from typing_extensions import override

from broker.fifo.checked_out import CheckedOut, Held
from broker.fifo.logged.blocks import bare
from broker.fifo.logged.positions import Positions, Span
from broker.fifo.ready.queue import body_bytes
from broker.fifo.ready.ram import MESSAGE_RAM_BYTES
from broker.message import Delivery

HELD_WHOLE_BYTES: Final = 4 * 1024 * 1024
"""Memory of bodies that were handed out and may stay."""


class LoggedCheckedOut(CheckedOut):
    """The unacknowledged messages of a queue whose bodies are in its log; no stub is counted.

    Args:
        positions: Where the bodies are.
    """

    __slots__ = ("_added_bytes", "_positions")

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self._positions = positions
        self._added_bytes = 0  # since bodies were let go

    @override
    def add(self, held: Held, items: list[Delivery], size_bytes: int) -> None:
        super().add(held, items, size_bytes)
        self._added_bytes += size_bytes + len(items) * MESSAGE_RAM_BYTES

    @override
    def release(self, channel_id: str) -> list[Delivery]:
        tags = self._held.pop(channel_id, None)
        if tags is None:
            return []
        items = [item for held in tags.values() for item in held.values()]
        self.count -= len(items)
        self.size_bytes -= body_bytes(items)
        return items

    def let_go(self, limit_bytes: int = HELD_WHOLE_BYTES) -> None:
        """Let go of bodies if they may take more memory than a limit.

        What was handed out is with its consumers, so call this when the effects were taken.
        """
        whole_bytes = self.size_bytes + self.count * MESSAGE_RAM_BYTES
        if min(self._added_bytes, whole_bytes) <= limit_bytes:
            return
        self._added_bytes = 0
        positions = self._positions
        for _, _, held in self:
            held.update([(n, bare(i, positions)) for n, i in held.items() if i.message.content])

    def come_into_log(self, numbers: Collection[int], limit_bytes: int = HELD_WHOLE_BYTES) -> None:
        """Let go of bodies that are in the log now, if all that are held may be too many."""
        if self.size_bytes + self.count * MESSAGE_RAM_BYTES <= limit_bytes:
            return
        positions = self._positions
        for _, _, held in self:
            held.update([(n, bare(held[n], positions)) for n in numbers if n in held])

    def spans(self) -> list[Span]:
        """Return the numbers held, one by one, in any order."""
        return [(number, number) for _, _, held in self for number in held]
