"""Retention of streams: which segments go. Pure.

Whole segments go, oldest first, and the newest never. By size those go that do not fit any more,
counted from the newest back; by age those whose last message is too old. The leader decides, when a
segment begins and once a minute, and an entry tells all replicas.

Source: osiris_log.erl eval_max_bytes/2, eval_age/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.streams.machine import StreamSegment

SEGMENT_CHUNKS_MAX: Final = 256_000
"""A segment ends with so many chunks, however small it is."""


class Retention(NamedTuple):
    """The limits of a stream.

    Attributes:
        max_bytes: Of all segments together; None is without limit.
        max_age_ms: Of a segment's last message; None is without limit.
        segment_bytes: A segment that has grown so far ends.
    """

    max_bytes: int | None
    max_age_ms: int | None
    segment_bytes: int


def first_kept(segments: Sequence[StreamSegment], limits: Retention, now_ms: int) -> int:
    """Return the first offset to keep.

    Args:
        segments: The stream's, oldest first.
        limits: What may stay.
        now_ms: Milliseconds since the epoch.
    """
    if not segments:
        return 0
    keep = len(segments) - 1
    size_bytes = segments[keep].size_bytes
    while keep:
        before = segments[keep - 1]
        size_bytes += before.size_bytes
        is_too_large = limits.max_bytes is not None and size_bytes > limits.max_bytes
        is_too_old = limits.max_age_ms is not None and before.last_ms < now_ms - limits.max_age_ms
        if is_too_large or is_too_old:
            break
        keep -= 1
    return segments[keep].offset


def is_full(segment: StreamSegment, limits: Retention) -> bool:
    """True if the next entry shall begin another segment."""
    return segment.size_bytes >= limits.segment_bytes or segment.chunks >= SEGMENT_CHUNKS_MAX
