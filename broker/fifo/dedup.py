"""Message deduplication: the keys that a queue has seen, so that it drops duplicates.

A publish is remembered by its key (`Message.dedup`) from when it is first seen, for `ttl_ms` and as
long as at most `size` younger ones followed. A double renews nothing: who repeats himself for ever
is heard again when the time is over. Time comes in with each question and never goes back (the
queue machine sees to that), so the oldest stand first.

Invariants: 1. at most `size` keys. 2. keys stand in the order of their times.
"""

from __future__ import annotations

from collections import OrderedDict


class Dedup:
    """The deduplication keys of one queue.

    Args:
        size: Most keys it remembers; 0 remembers none.
        ttl_ms: How long; None is for as long as there is room.
    """

    __slots__ = ("_seen_ms", "_size", "_ttl_ms")

    def __init__(self, size: int, ttl_ms: int | None) -> None:
        self._size = size
        self._ttl_ms = ttl_ms
        self._seen_ms: OrderedDict[str, int] = OrderedDict()  # dict is slow to lose its first

    def __len__(self) -> int:
        return len(self._seen_ms)

    def is_double(self, key: str, now_ms: int) -> bool:
        """True if a key is known; otherwise it is remembered from now on.

        Args:
            key: What tells publishes apart; "" is never a double.
            now_ms: Milliseconds since the epoch.
        """
        if not key:
            return False
        seen_ms = self._seen_ms
        self._forget(now_ms)
        if key in seen_ms:
            return True
        if self._size > 0:
            if len(seen_ms) >= self._size:
                seen_ms.popitem(last=False)
            seen_ms[key] = now_ms
        return False

    def records(self) -> list[tuple[str, int]]:
        """Return the keys with the milliseconds since the epoch of each, oldest first."""
        return list(self._seen_ms.items())

    def load(self, records: list[tuple[str, int]]) -> None:
        """Load what `records` returned; the newest `size` of them."""
        kept = records[-self._size :] if self._size > 0 else []
        self._seen_ms = OrderedDict(kept)

    def _forget(self, now_ms: int) -> None:
        """Forget what was seen `ttl_ms` ago or longer."""
        if self._ttl_ms is None:
            return
        seen_ms = self._seen_ms
        while seen_ms:
            key, first_ms = next(iter(seen_ms.items()))
            if first_ms + self._ttl_ms > now_ms:
                break
            del seen_ms[key]
