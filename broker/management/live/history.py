"""What a watched path answered lately: the last answer, and what led to it. Pure.

Each new answer has the next version. A viewer says which version it has, and gets the changes since
then, or the whole answer where they are no longer known: so nothing is queued for a viewer, however
slow it reads.

    version   1      2        3        4
    kept             2->3     3->4     whole
    viewer at 2 gets both changes, at 1 the whole, at 4 nothing
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal, NamedTuple

from broker.management.live.deltas import Answer, difference, parsed

CHANGES_MAX: Final = 4
"""Kept for viewers whose turn came late."""

Kind = Literal["value", "change", "error"]


class Told(NamedTuple):
    """Something to tell a viewer.

    Attributes:
        kind: "value": the whole answer; "change": as of `deltas`; "error": status and reason.
        at_ms: When it was found, in milliseconds since the epoch.
        body: JSON.
    """

    kind: Kind
    at_ms: int
    body: bytes


class History:
    """The answers of one path to viewers with the same rights.

    Attributes:
        version: Of the last answer; 0: there was none.
        checked_ms: When it was last found to be so, in milliseconds since the epoch.
    """

    def __init__(self) -> None:
        self.version = 0
        self.checked_ms = 0
        self._answer: Answer | None = None
        self._last = Told("value", 0, b"")
        self._changes: deque[Told] = deque(maxlen=CHANGES_MAX)

    def answered(self, raw: bytes, now_ms: int) -> None:
        """Note an answer.

        Args:
            raw: JSON.
            now_ms: Milliseconds since the epoch.

        Raises:
            msgspec.DecodeError: It is no JSON.
        """
        self.checked_ms = now_ms
        before = self._answer
        if before is not None and before.raw == raw:
            return
        answer = parsed(raw)
        change = difference(before, answer) if before is not None else None
        self._answer = answer
        self._follow(Told("value", now_ms, raw), change)

    def failed(self, error: bytes, now_ms: int) -> None:
        """Note that the path had no answer.

        Args:
            error: JSON.
            now_ms: Milliseconds since the epoch.
        """
        self.checked_ms = now_ms
        if self._answer is None and self._last.body == error:
            return
        self._answer = None
        self._follow(Told("error", now_ms, error), None)

    def since(self, version: int) -> list[Told]:
        """What a viewer has to be told.

        Args:
            version: Which it has.
        """
        behind = self.version - version
        if not behind:
            return []
        if 0 < behind <= len(self._changes):
            return list(self._changes)[-behind:]
        return [self._last]

    def _follow(self, whole: Told, change: bytes | None) -> None:
        self.version += 1
        self._last = whole
        if change is None:
            self._changes.clear()
        else:
            self._changes.append(Told("change", whole.at_ms, change))
