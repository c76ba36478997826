"""Samples for the longest queues and one for all others: bounded, however many queues there are."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from typing import Final

from broker.management.metrics.exposition import Family, labelled
from broker.management.metrics.facts import QueueFacts
from broker.management.metrics.rows import Row, family

OTHER: Final = labelled((("queue", "other"),))
"""Labels of all others together: no queue has them, for each has a `vhost`."""

_SOME: Final = 512

_ROWS: Final[tuple[Row[QueueFacts], ...]] = (
    Row("warrenmq_queue_messages_ready", "g", "Messages that wait", lambda q: q.ready),
    Row(
        "warrenmq_queue_messages_unacked",
        "g",
        "Messages that were delivered and not acknowledged",
        lambda q: q.unacked,
    ),
    Row(
        "warrenmq_queue_messages_bytes",
        "g",
        "Bytes of their bodies",
        lambda q: q.ready_bytes + q.unacked_bytes,
    ),
    Row("warrenmq_queue_consumers", "g", "Consumers", lambda q: q.consumers),
)


def of_longest(queues: Sequence[QueueFacts], count: int) -> Generator[None, None, list[Family]]:
    """The queues with the most messages, in steps. Levels only: counters of others would fall.

    Args:
        queues: All queues of the node.
        count: Most queues with samples of their own; 0 shows nothing.
    """
    if not count:
        return []
    longest: list[QueueFacts] = []
    sums = [0.0] * len(_ROWS)
    for start in range(0, len(queues), _SOME):
        some = queues[start : start + _SOME]
        longest = heapq.nlargest(count, [*longest, *some], key=_length)
        sums = [
            all_so_far + sum(map(row.value, some))
            for all_so_far, row in zip(sums, _ROWS, strict=True)
        ]
        yield
    found = []
    for row, whole in zip(_ROWS, sums, strict=True):
        samples = [(queue.labels, row.value(queue)) for queue in longest]
        rest = whole - sum([value for _, value in samples])
        found.append(family(row.name, row.kind, row.help, [*samples, (OTHER, int(rest))]))
    return found


def _length(queue: QueueFacts) -> tuple[int, str, str]:
    return queue.ready + queue.unacked, queue.queue.vhost, queue.queue.name
