"""Families of queues and of their Raft replicas, by RabbitMQ's groups. Pure.

Source: prometheus_rabbitmq_core_metrics_collector.erl (METRICS_RAW: groups, names, types).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final

from broker.counters import MessageCounts
from broker.management.metrics.exposition import Family
from broker.management.metrics.facts import QueueFacts, ReplicaFacts
from broker.management.metrics.rows import PREFIX, SUMMED, Row, family, of_each


def _paged_out(queue: QueueFacts) -> int:
    return queue.ready + queue.unacked - queue.alpha if queue.is_classic else 0


def _paged_out_bytes(queue: QueueFacts) -> int:
    return queue.ready_bytes + queue.unacked_bytes - queue.alpha_bytes if queue.is_classic else 0


COARSE: Final[tuple[Row[QueueFacts], ...]] = (
    Row("rabbitmq_queue_messages_ready", "g", "Messages that wait", lambda q: q.ready),
    Row(
        "rabbitmq_queue_messages_unacked",
        "g",
        "Messages that were delivered and not acknowledged",
        lambda q: q.unacked,
    ),
    Row("rabbitmq_queue_messages", "g", "Both together", lambda q: q.ready + q.unacked),
)
CONSUMERS: Final[tuple[Row[QueueFacts], ...]] = (
    Row("rabbitmq_queue_consumers", "g", "Consumers", lambda q: q.consumers),
)
CONTENTS: Final[tuple[Row[QueueFacts], ...]] = (
    Row(
        "rabbitmq_queue_consumer_capacity",
        "g",
        "Share of time in which messages could be delivered at once",
        lambda q: q.capacity,
    ),
    Row(
        "rabbitmq_queue_consumer_utilisation",
        "g",
        "The same under its older name",
        lambda q: q.capacity,
    ),
    Row(
        "rabbitmq_queue_process_memory_bytes",
        "g",
        "Memory that the queue takes, about",
        lambda q: q.memory_bytes,
    ),
    Row(
        "rabbitmq_queue_messages_ram",
        "g",
        "Messages of classic queues that are in memory",
        lambda q: q.alpha,
    ),
    Row(
        "rabbitmq_queue_messages_ram_bytes",
        "g",
        "Bytes of their bodies",
        lambda q: q.alpha_bytes,
    ),
    Row(
        "rabbitmq_queue_messages_ready_ram",
        "g",
        "Of those, messages that wait",
        lambda q: q.alpha - q.unacked_alpha,
    ),
    Row(
        "rabbitmq_queue_messages_unacked_ram",
        "g",
        "Of those, messages that were delivered and not acknowledged",
        lambda q: q.unacked_alpha,
    ),
    Row(
        "rabbitmq_queue_messages_persistent",
        "g",
        "Messages that survive a restart of the node",
        lambda q: q.persistent,
    ),
    Row(
        "rabbitmq_queue_messages_persistent_bytes",
        "g",
        "Bytes of their bodies",
        lambda q: q.persistent_bytes,
    ),
    Row(
        "rabbitmq_queue_messages_bytes",
        "g",
        "Bytes of bodies",
        lambda q: q.ready_bytes + q.unacked_bytes,
    ),
    Row(
        "rabbitmq_queue_messages_ready_bytes",
        "g",
        "Bytes of bodies that wait",
        lambda q: q.ready_bytes,
    ),
    Row(
        "rabbitmq_queue_messages_unacked_bytes",
        "g",
        "Bytes of bodies that were delivered and not acknowledged",
        lambda q: q.unacked_bytes,
    ),
    Row(
        "rabbitmq_queue_messages_paged_out",
        "g",
        "Messages of classic queues whose content is not in memory",
        _paged_out,
    ),
    Row("rabbitmq_queue_messages_paged_out_bytes", "g", "Bytes of their bodies", _paged_out_bytes),
)
_HEAD: Final[Row[QueueFacts]] = Row(
    "rabbitmq_queue_head_message_timestamp",
    "g",
    "The timestamp of the oldest message, in seconds since 1970",
    lambda q: q.head_timestamp or 0,
)
_SEGMENTS: Final[Row[QueueFacts]] = Row(
    "rabbitmq_stream_segments", "c", "Segments of streams", lambda q: q.segments or 0
)
DELIVERY: Final[tuple[Row[QueueFacts], ...]] = (
    Row(
        "rabbitmq_queue_get_ack_total",
        "c",
        "Messages that basic.get took, to be acknowledged",
        lambda q: q.counts.get,
    ),
    Row(
        "rabbitmq_queue_get_total",
        "c",
        "Messages that basic.get took without",
        lambda q: q.counts.get_no_ack,
    ),
    Row(
        "rabbitmq_queue_messages_delivered_ack_total",
        "c",
        "Messages to consumers that acknowledge",
        lambda q: q.counts.deliver,
    ),
    Row(
        "rabbitmq_queue_messages_delivered_total",
        "c",
        "Messages to consumers that don't",
        lambda q: q.counts.deliver_no_ack,
    ),
    Row(
        "rabbitmq_queue_messages_redelivered_total",
        "c",
        "Messages that were handed out again",
        lambda q: q.counts.redeliver,
    ),
    Row(
        "rabbitmq_queue_messages_acked_total",
        "c",
        "Messages that were acknowledged",
        lambda q: q.counts.ack,
    ),
    Row(
        "rabbitmq_queue_get_empty_total",
        "c",
        "basic.get that found nothing",
        lambda q: q.counts.get_empty,
    ),
)
PUBLISHED: Final[tuple[Row[QueueFacts], ...]] = (
    Row(
        "rabbitmq_queue_messages_published_total",
        "c",
        "Messages that the queue took",
        lambda q: q.counts.publish,
    ),
)
RAFT: Final[tuple[Row[ReplicaFacts], ...]] = (
    Row("rabbitmq_raft_term_total", "c", "Raft term", lambda r: r.term),
    Row(
        "rabbitmq_raft_log_snapshot_index",
        "g",
        "Raft log: index of the newest snapshot",
        lambda r: r.snapshot_index,
    ),
    Row(
        "rabbitmq_raft_log_last_applied_index",
        "g",
        "Raft log: newest entry that was applied",
        lambda r: r.applied_index,
    ),
    Row(
        "rabbitmq_raft_log_commit_index",
        "g",
        "Raft log: newest entry that is committed",
        lambda r: r.commit_index,
    ),
    Row(
        "rabbitmq_raft_log_last_written_index",
        "g",
        "Raft log: newest entry",
        lambda r: r.last_index,
    ),
)
LATENCY: Final[tuple[Row[ReplicaFacts], ...]] = (
    Row(
        "rabbitmq_raft_entry_commit_latency_seconds",
        "g",
        "How long the latest entry took from its proposal to its apply at the leader",
        lambda r: (r.commit_ms or 0) / 1_000,
    ),
)


def condensed(queues: Sequence[QueueFacts]) -> Generator[None, None, list[QueueFacts]]:
    """Queues of which `ALL` has the same sums: idle ones are put together as one; in steps.

    Args:
        queues: All.
    """
    if not queues:
        return []
    found: list[QueueFacts] = []
    counts, memory_bytes = MessageCounts(), 0
    for start in range(0, len(queues), SUMMED):
        some = queues[start : start + SUMMED]
        found += [each for each in some if not each.is_idle]
        idle = [each for each in some if each.is_idle]
        counts.publish += sum([each.counts.publish for each in idle])
        memory_bytes += sum([each.memory_bytes for each in idle])
        yield
    found.append(QueueFacts(queues[0].queue, counts, memory_bytes, is_classic=False))
    return found


def mean_latency(replicas: Sequence[ReplicaFacts]) -> Family:
    """`LATENCY` for all queues led here: the mean, as RabbitMQ has it."""
    took_ms = [each.commit_ms for each in replicas if each.commit_ms is not None]
    mean_s = sum(took_ms) / len(took_ms) / 1_000 if took_ms else 0
    (row,) = LATENCY
    return family(row.name, row.kind, row.help, [("", mean_s)])


def head_timestamps(queues: Sequence[QueueFacts], *, prefix: str = PREFIX) -> Iterator[Family]:
    """A sample for each queue whose oldest message has a timestamp, as RabbitMQ has it.

    Args:
        queues: All.
        prefix: The name's beginning, in place of `PREFIX`.
    """
    stamped = [each for each in queues if each.head_timestamp is not None]
    return of_each((_HEAD,), stamped, prefix=prefix)


def segments(queues: Sequence[QueueFacts], *, prefix: str = PREFIX) -> Iterator[Family]:
    """A sample for each stream, as RabbitMQ has it: a counter that falls.

    Args:
        queues: All.
        prefix: The name's beginning, in place of `PREFIX`.
    """
    streams = [each for each in queues if each.segments is not None]
    return of_each((_SEGMENTS,), streams, prefix=prefix)


def sum_of_segments(queues: Sequence[QueueFacts]) -> Family:
    """The segments of all streams."""
    samples = [("", sum([each.segments or 0 for each in queues]))]
    return family(_SEGMENTS.name, _SEGMENTS.kind, _SEGMENTS.help, samples)


def oldest_head(queues: Sequence[QueueFacts]) -> Family:
    """The oldest of all timestamps: RabbitMQ adds them up, which says nothing."""
    stamps = [each.head_timestamp for each in queues if each.head_timestamp is not None]
    samples = [("", min(stamps))] if stamps else []
    return family(_HEAD.name, _HEAD.kind, _HEAD.help, samples)


GROUPS: Final = {
    "queue_coarse_metrics": COARSE,
    "queue_consumer_count": CONSUMERS,
    "queue_metrics": (*CONSUMERS, *CONTENTS),
    "queue_delivery_metrics": DELIVERY,
    "channel_queue_exchange_metrics": PUBLISHED,
}
"""What `/metrics/detailed` shows of queues, by RabbitMQ's names of groups."""

ALL: Final = (*COARSE, *CONSUMERS, *CONTENTS, *PUBLISHED)
"""What the other paths show."""
