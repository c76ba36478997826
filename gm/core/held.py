"""Holds messages of views that this member does not know yet, within a limit (P21).

The view of a sender never goes back, so what it sends after a held message is held as well. At the
limit further messages of a sender are dropped until the next view, and a catch-up closes the gap.
Pausing its stream instead could deadlock two nodes (P14).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from gm.core.messages import Activity, Catchup, Message
from gm.core.view import MemberId


def size_bytes(message: Message) -> int:
    """About how much memory a message keeps."""
    if isinstance(message, Activity):
        return 64 + sum(64 + sum(map(len, item.pubs)) for item in message.items)
    if isinstance(message, Catchup):
        return 64 + sum(64 + sum(map(len, s.pubs)) for s in message.states.values())
    return 64


class Held:
    """Messages that wait for a view, in order for each sender."""

    __slots__ = ("_by_sender", "_bytes_max", "_size_bytes", "overflowed")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_sender: dict[MemberId, deque[tuple[int, Message]]] = {}
        self._size_bytes = 0
        self.overflowed: dict[MemberId, None] = {}

    def put(self, sender: MemberId, view_version: int, message: Message) -> bool:
        """Hold a message; False if there is no room, then this sender has a gap."""
        size = size_bytes(message)
        if sender in self.overflowed or self._size_bytes + size > self._bytes_max:
            self.overflowed[sender] = None
            return False
        self._size_bytes += size
        self._by_sender.setdefault(sender, deque()).append((view_version, message))
        return True

    def release(self, version: int) -> Iterator[tuple[MemberId, int, Message]]:
        """Return the messages that may be processed now that `version` is known, in order."""
        for sender in list(self._by_sender):
            waiting = self._by_sender[sender]
            while waiting and waiting[0][0] <= version:
                view_version, message = waiting.popleft()
                self._size_bytes -= size_bytes(message)
                yield sender, view_version, message
            if not waiting:
                del self._by_sender[sender]

    def clear(self) -> None:
        """Forget everything."""
        self._by_sender.clear()
        self.overflowed.clear()
        self._size_bytes = 0
