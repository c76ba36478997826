"""Families of streams that RabbitMQ has not: how far they reach, and what they take. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from typing import Final

from broker.management.metrics.exposition import Family
from broker.management.metrics.facts import StreamNumbers
from broker.management.metrics.longest_queues import OTHER
from broker.management.metrics.rows import Row, family, of_each, of_sum

GROUP: Final = "warrenmq_stream_metrics"
"""The group of `/metrics/detailed`."""

_ADDED: Final[tuple[Row[StreamNumbers], ...]] = (
    Row("warrenmq_stream_bytes", "g", "Bytes, as retention counts them", lambda s: s.size_bytes),
    Row(
        "warrenmq_stream_publishers",
        "g",
        "Named publishers that are remembered",
        lambda s: s.publishers,
    ),
    Row("warrenmq_stream_offsets", "g", "Offsets that consumers have stored", lambda s: s.offsets),
)
_OF_ONE: Final[tuple[Row[StreamNumbers], ...]] = (
    Row(
        "warrenmq_stream_first_offset",
        "g",
        "Offset of the oldest message kept",
        lambda s: s.first_offset,
    ),
    Row(
        "warrenmq_stream_next_offset",
        "g",
        "Offset of the next message",
        lambda s: s.next_offset,
    ),
    Row(
        "warrenmq_stream_commit_seconds",
        "g",
        "How long the latest entry took from its proposal to its apply at the leader",
        lambda s: s.commit_ms / 1_000,
    ),
)
_OF_REPLICAS: Final[tuple[Row[StreamNumbers], ...]] = (
    Row(
        "warrenmq_stream_disk_bytes",
        "g",
        "Bytes of the files of a replica's log",
        lambda s: s.disk_bytes,
    ),
)


def each_stream(streams: Sequence[StreamNumbers], *, prefix: str) -> list[Family]:
    """Samples for each stream that is led here, and for each replica.

    Args:
        streams: All replicas on the node.
        prefix: As in `broker.management.metrics.rows`.
    """
    led = [each for each in streams if each.is_leading]
    return [
        *of_each((*_ADDED, *_OF_ONE), led, prefix=prefix),
        *of_each(_OF_REPLICAS, streams, prefix=prefix),
    ]


def together(streams: Sequence[StreamNumbers], count: int) -> Generator[None, None, list[Family]]:
    """Sums over all streams, or the largest streams and one sample for all others; in steps.

    Args:
        streams: All replicas on the node.
        count: Most streams with samples of their own; 0: sums alone.
    """
    led = [each for each in streams if each.is_leading]
    yield
    if not count:
        found = yield from of_sum(_ADDED, led)
        found += yield from of_sum(_OF_REPLICAS, streams)
        return found
    largest = heapq.nlargest(count, led, key=lambda each: (each.size_bytes, each.labels))
    yield
    found = yield from _with_others(_ADDED, largest, led)
    found += of_each(_OF_ONE, largest)
    largest = heapq.nlargest(count, streams, key=lambda each: (each.disk_bytes, each.labels))
    yield
    found += yield from _with_others(_OF_REPLICAS, largest, streams)
    return found


def _with_others(
    rows: Sequence[Row[StreamNumbers]],
    largest: Sequence[StreamNumbers],
    every: Sequence[StreamNumbers],
) -> Generator[None, None, list[Family]]:
    found = []
    for row in rows:
        samples = [(each.labels, row.value(each)) for each in largest]
        rest = sum(map(row.value, every)) - sum([value for _, value in samples])
        found.append(family(row.name, row.kind, row.help, [*samples, (OTHER, rest)]))
        yield
    return found
