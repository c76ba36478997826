"""Bounds of what a stream's arguments may say. Pure.

Source: rabbit_stream_queue.erl check_max_segment_size_bytes/1, check_filter_size/1.
"""

from __future__ import annotations

from typing import Final

SEGMENT_BYTES_MAX: Final = 3_000_000_000
"""A segment is no larger."""

FILTER_SIZES: Final = range(16, 256)
"""What the filter of a chunk may take, in bytes."""
