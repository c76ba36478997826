"""Which filter values a chunk may hold, told by a few bytes behind its head.

A reader that wants some values reads the first bytes of a chunk, and leaves the rest where it is
when none of them can be there. A value sets two bits; bit 0 is set when some message has no value.

Source: osiris' osiris_bloom.erl (sizes, bit 0, two bits a value). The hash is another one: Erlang's
phash2 is known to no one else, and the filter never leaves the cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SIZE_MIN: Final = 16
SIZE_MAX: Final = 255
"""Size of a filter in bytes (`x-stream-filter-size-bytes`)."""

_REMEMBERED: Final = 4096


@lru_cache(maxsize=_REMEMBERED)
def _mask(value: str, bits: int) -> int:
    """The two bits of a value, never bit 0."""
    digest = hashlib.blake2b(value.encode("utf-8", "surrogateescape"), digest_size=16).digest()
    halves = (digest[:8], digest[8:])
    first, second = [1 + int.from_bytes(half, "big") % (bits - 1) for half in halves]
    return 1 << first | 1 << second


def bloom_of(values: Iterable[str], *, has_unfiltered: bool, size: int) -> bytes:
    """Make the filter of a chunk.

    Args:
        values: Its distinct values, at least one: a chunk without any has no filter.
        has_unfiltered: Some of its messages have no value.
        size: In bytes.
    """
    assert SIZE_MIN <= size <= SIZE_MAX, size
    found = int(has_unfiltered)
    for value in values:
        found |= _mask(value, size * 8)
    return found.to_bytes(size, "little")


def may_hold(bloom: bytes, filters: frozenset[str], *, match_unfiltered: bool) -> bool:
    """False if no message of a chunk can be wanted.

    Args:
        bloom: The chunk's filter; empty: none of its messages has a value.
        filters: Values that are wanted.
        match_unfiltered: Messages without a value are wanted too.
    """
    if not bloom:
        return match_unfiltered
    found = int.from_bytes(bloom, "little")
    if match_unfiltered and found & 1:
        return True
    bits = len(bloom) * 8
    return any(found & mask == mask for mask in [_mask(value, bits) for value in filters])
