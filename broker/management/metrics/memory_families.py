"""Families of `/metrics/memory-breakdown`: `broker.management.memory` under RabbitMQ's names. Pure.

Source: prometheus_rabbitmq_core_metrics_collector.erl (METRICS_MEMORY_BREAKDOWN). Left out is what
this node has not: plugins, Khepri, workers of dead-lettering, atoms, Erlang's processes,
tables and allocator beside those below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from broker.management.metrics.exposition import Family
from broker.management.metrics.rows import family

_NAMES: Final = {
    "code": ("rabbitmq_memory_code_module_bytes", "The process before it opened its store"),
    "connection_readers": (
        "rabbitmq_memory_client_connection_reader_bytes",
        "Messages that are not complete",
    ),
    "connection_writers": (
        "rabbitmq_memory_client_connection_writer_bytes",
        "Output that sockets have not taken",
    ),
    "connection_channels": (
        "rabbitmq_memory_client_connection_channel_bytes",
        "Channels and consumers",
    ),
    "connection_other": ("rabbitmq_memory_client_connection_other_bytes", "Connections"),
    "queue_procs": (
        "rabbitmq_memory_classic_queue_erlang_process_bytes",
        "Classic queues that are served here, without bodies",
    ),
    "queue_slave_procs": (
        "warrenmq_memory_mirror_bytes",
        "Mirrors of queues that other nodes serve, with bodies",
    ),
    "quorum_queue_procs": (
        "rabbitmq_memory_quorum_queue_erlang_process_bytes",
        "Replicas of quorum queues, without bodies",
    ),
    "stream_queue_procs": (
        "rabbitmq_memory_stream_erlang_process_bytes",
        "Replicas of streams: what they know of clients, and where to read",
    ),
    "stream_queue_replica_reader_procs": (
        "rabbitmq_memory_stream_replica_reader_erlang_process_bytes",
        "What is kept of streams for their consumers",
    ),
    "mgmt_db": ("rabbitmq_memory_management_stats_db_bytes", "The past of statistics"),
    "mnesia": ("rabbitmq_memory_classic_metadata_store_bytes", "Records of group 0"),
    "quorum_ets": (
        "rabbitmq_memory_quorum_queue_ets_table_bytes",
        "Entries of Raft logs that are kept at hand",
    ),
    "binary": ("rabbitmq_memory_binary_heap_bytes", "Bodies in classic and quorum queues"),
    "msg_index": (
        "rabbitmq_memory_message_index_bytes",
        "RocksDB's cache, memtables and indexes of tables",
    ),
    "other_system": ("rabbitmq_memory_other_system_bytes", "The rest"),
}


def memory(parts: Mapping[str, int]) -> Iterator[Family]:
    """Yield a family for each category that means something here.

    Args:
        parts: From `broker.management.memory.breakdown`.
    """
    for key, (name, text) in _NAMES.items():
        yield family(name, "g", text, [("", parts[key])])
