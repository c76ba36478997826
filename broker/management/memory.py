"""What takes a node's memory, by RabbitMQ's categories. Pure.

The parts add up to the resident memory of the process:

    counted in bytes      half-sent messages, output that sockets have not taken, RocksDB's cache,
                          memtables and table indexes, entries that Raft keeps at hand, bodies,
                          what streams keep for readers, the past of statistics, the process before
                          it opened its store
    so many times so much connections, channels, consumers, queues, records of group 0
    the rest              the allocator's room, the interpreter's objects: `other_system`

A body in several queues is one object and counts in each of them, so `binary` yields where all
parts together would be more than the process has.

Source: rabbit_vm.erl, memory/0 of RabbitMQ 3.13 (keys, order); rabbit_mgmt_wm_node_memory.erl
(percentages). What one of a thing takes was measured as the growth of a node's resident memory over
2,000 classic queues and bindings, 300 quorum queues and connections, 900 channels and consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker.fifo.ready.ram import MESSAGE_RAM_BYTES
from broker.ports import QueueStat

CONNECTION_BYTES: Final = 17_000
CHANNEL_BYTES: Final = 3_400
CONSUMER_BYTES: Final = 4_200
CLASSIC_QUEUE_BYTES: Final = 7_900
QUORUM_QUEUE_BYTES: Final = 17_500
QUEUE_RECORD_BYTES: Final = 1_100
EXCHANGE_RECORD_BYTES: Final = 1_000
BINDING_RECORD_BYTES: Final = 1_300

_ABSENT: Final = 0
"""For what RabbitMQ has and this node has not: plugins, Khepri, a coordinator of streams, atoms."""


class MemoryFacts(NamedTuple):
    """What a node knows of its memory.

    Attributes:
        rss_bytes: Resident memory of the process.
        start_bytes: The same before the store was opened and the first client came.
        half_sent_bytes: Of messages that are not complete.
        unsent_bytes: Output that sockets have not taken.
        connections: How many clients.
        channels: How many they have.
        consumers: Of the queues that are served here.
        classic_queues: Served here.
        classic_bytes: What their messages take beside the bodies.
        mirrors: Of queues that other nodes serve.
        mirror_bytes: What their messages take, bodies included.
        quorum_queues: Replicas here.
        quorum_bytes: What their messages take beside the bodies.
        streams: Replicas here.
        stream_bytes: What they know of clients, and where to read.
        stream_reader_bytes: Of streams, what is kept in memory for consumers of this node.
        body_bytes: Bodies in memory in classic queues and quorum queues.
        raft_bytes: Entries of Raft logs that are kept at hand.
        statistics_bytes: The past of what is counted.
        queue_records: Queues of the cluster.
        exchange_records: Exchanges of the cluster.
        binding_records: Bindings of the cluster.
        store_bytes: RocksDB's cache, memtables and table indexes.
    """

    rss_bytes: int
    start_bytes: int = 0
    half_sent_bytes: int = 0
    unsent_bytes: int = 0
    connections: int = 0
    channels: int = 0
    consumers: int = 0
    classic_queues: int = 0
    classic_bytes: int = 0
    mirrors: int = 0
    mirror_bytes: int = 0
    quorum_queues: int = 0
    quorum_bytes: int = 0
    streams: int = 0
    stream_bytes: int = 0
    stream_reader_bytes: int = 0
    body_bytes: int = 0
    raft_bytes: int = 0
    statistics_bytes: int = 0
    queue_records: int = 0
    exchange_records: int = 0
    binding_records: int = 0
    store_bytes: int = 0


def breakdown(facts: MemoryFacts) -> dict[str, int]:
    """Divide a process's memory.

    Args:
        facts: Of the node.

    Returns:
        Bytes by RabbitMQ's keys, in its order; the sum is `rss_bytes`, unless what is known without
        the bodies is more than that.
    """
    found = _known(facts)
    rest = facts.rss_bytes - sum(found.values())
    if rest < 0:
        found["binary"] = max(0, found["binary"] + rest)
    found["other_system"] = max(0, rest)
    return found


def _known(facts: MemoryFacts) -> dict[str, int]:
    """All categories, but for the rest."""
    return {
        "connection_readers": facts.half_sent_bytes,
        "connection_writers": facts.unsent_bytes,
        "connection_channels": facts.channels * CHANNEL_BYTES + facts.consumers * CONSUMER_BYTES,
        "connection_other": facts.connections * CONNECTION_BYTES,
        "queue_procs": facts.classic_queues * CLASSIC_QUEUE_BYTES + facts.classic_bytes,
        "queue_slave_procs": facts.mirrors * CLASSIC_QUEUE_BYTES + facts.mirror_bytes,
        "quorum_queue_procs": facts.quorum_queues * QUORUM_QUEUE_BYTES + facts.quorum_bytes,
        "quorum_queue_dlx_procs": _ABSENT,
        "stream_queue_procs": facts.streams * QUORUM_QUEUE_BYTES + facts.stream_bytes,
        "stream_queue_replica_reader_procs": facts.stream_reader_bytes,
        "stream_queue_coordinator_procs": _ABSENT,
        "plugins": _ABSENT,
        "metadata_store": _ABSENT,
        "other_proc": _ABSENT,
        "metrics": _ABSENT,
        "mgmt_db": facts.statistics_bytes,
        "mnesia": (
            facts.queue_records * QUEUE_RECORD_BYTES
            + facts.exchange_records * EXCHANGE_RECORD_BYTES
            + facts.binding_records * BINDING_RECORD_BYTES
        ),
        "quorum_ets": facts.raft_bytes,
        "metadata_store_ets": _ABSENT,
        "other_ets": _ABSENT,
        "binary": facts.body_bytes,
        "msg_index": facts.store_bytes,
        "code": facts.start_bytes,
        "atom": _ABSENT,
        "other_system": _ABSENT,
        "allocated_unused": _ABSENT,
        "reserved_unallocated": _ABSENT,
    }


def of_queue(stat: QueueStat, queue_type: str) -> int:
    """Return what a queue takes of the memory of the node that serves it, about, in bytes.

    Args:
        stat: Its counts. A quorum queue that does not say otherwise has all messages in memory.
        queue_type: "classic", "quorum" or "stream". A stream has its messages on disk.
    """
    if queue_type == "classic":
        return CLASSIC_QUEUE_BYTES + stat.ram_bytes
    if queue_type == "stream":
        return of_stream(stat.ram_bytes)
    if stat.ram_bytes:
        return QUORUM_QUEUE_BYTES + stat.ram_bytes
    messages_bytes = (stat.ready + stat.unacked) * MESSAGE_RAM_BYTES
    return QUORUM_QUEUE_BYTES + messages_bytes + stat.ready_bytes + stat.unacked_bytes


def of_stream(ram_bytes: int) -> int:
    """Return what a replica of a stream takes of its node's memory, about, in bytes.

    Args:
        ram_bytes: What it keeps for readers and knows of clients.
    """
    return QUORUM_QUEUE_BYTES + ram_bytes  # a Raft group as well


def absolute(parts: Mapping[str, int], rss_bytes: int) -> dict[str, Any]:
    """A breakdown as `/api/nodes/NODE/memory` shows it.

    Args:
        parts: From `breakdown`.
        rss_bytes: Resident memory of the process.
    """
    totals = {"allocated": rss_bytes, "erlang": rss_bytes, "rss": rss_bytes}
    return {**parts, "strategy": "rss", "total": totals}


def relative(parts: Mapping[str, int], rss_bytes: int) -> dict[str, int]:
    """A breakdown as `/api/nodes/NODE/memory/relative` shows it: whole per cent, at least 1.

    Args:
        parts: From `breakdown`.
        rss_bytes: Resident memory of the process.
    """
    return {"total": 100, **{key: _percentage(part, rss_bytes) for key, part in parts.items()}}


def _percentage(part: int, total: int) -> int:
    return max(int(part > 0), round(100 * part / total)) if total else 0
