"""Linearizable reads without log entries (ReadIndex, thesis 6.4).

The leader notes its commit index, proves with one round of heartbeats that it still leads, and
then the read may be served by whoever asked once that index is applied there. A leader that has
not committed an entry of its term does not know the commit index yet; reads wait for it.
"""

from __future__ import annotations

from collections import deque

import msgspec


class PendingRead(msgspec.Struct, frozen=True):
    """A read that waits for its round of heartbeats."""

    round: int
    context: int
    requester: str
    index: int


class Reads:
    """The leader's book of reads. Rounds rise; a heartbeat carries the newest."""

    __slots__ = ("_postponed", "_waiting", "round")

    def __init__(self) -> None:
        self.round = 0
        self._waiting: deque[PendingRead] = deque()
        self._postponed: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting) + len(self._postponed)

    def postpone(self, context: int, requester: str) -> None:
        """Keep a read until the term's first commit."""
        self._postponed.append((context, requester))

    def take_postponed(self) -> list[tuple[int, str]]:
        """Take the postponed reads, to begin them now."""
        postponed, self._postponed = self._postponed, []
        return postponed

    def begin(self, context: int, requester: str, index: int) -> None:
        """Open a round for a read at `index`; the caller sends heartbeats."""
        self.round += 1
        self._waiting.append(PendingRead(self.round, context, requester, index))

    def confirmed(self, read_round: int) -> list[PendingRead]:
        """Return the reads that may be served: a quorum has answered `read_round`."""
        served = []
        while self._waiting and self._waiting[0].round <= read_round:
            served.append(self._waiting.popleft())
        return served
