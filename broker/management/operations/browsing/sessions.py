"""Which browse requests go on with an earlier one: the audit log has one line for all. Pure.

A request that begins anew is always told. One that goes on behind a place, or asks for one message,
is told unless the same user has asked from the same address, for the same queue, a short while ago:
nobody escapes the log by inventing a place.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LASTING_MS: Final = 600_000
"""A request after so long a pause is told again."""
REMEMBERED_MAX: Final = 1_000
"""Beyond them the longest unused is forgotten, and told again."""


class Viewer(NamedTuple):
    """Who browses what.

    Attributes:
        user: The user.
        address: Where the request comes from.
        queue_uid: The queue's incarnation.
    """

    user: str
    address: str
    queue_uid: int


class BrowseSessions:
    """The browses that are under way at a node."""

    def __init__(self) -> None:
        self._last_ms: dict[Viewer, int] = {}  # the longest unused first

    def is_news(self, viewer: Viewer, now_ms: int, *, goes_on: bool) -> bool:
        """Note a request; True if it shall be told.

        Args:
            viewer: Who asks.
            now_ms: Monotonic milliseconds.
            goes_on: It asks for what stands behind a place, or for one message.
        """
        last_ms = self._last_ms.pop(viewer, None)
        self._last_ms[viewer] = now_ms
        if len(self._last_ms) > REMEMBERED_MAX:
            del self._last_ms[next(iter(self._last_ms))]
        return not goes_on or last_ms is None or now_ms - last_ms >= LASTING_MS
