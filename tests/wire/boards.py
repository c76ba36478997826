"""What RabbitMQ's own Grafana boards ask for, as data, and a load that makes them show something.

Boards: RabbitMQ-Overview (grafana.com 10991) and RabbitMQ-Quorum-Queues-Raft (11340), as of 3.13
and as of 4.0, which selects by `rabbitmq_endpoint`.
"""

from __future__ import annotations

from itertools import chain

import pika

GAUGES = (
    "rabbitmq_queue_messages_ready",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_global_publishers",
    "rabbitmq_global_consumers",
    "rabbitmq_consumers",
    "rabbitmq_connections",
    "rabbitmq_channels",
    "rabbitmq_queues",
    "rabbitmq_disk_space_available_bytes",
)
"""Overview shows them, and their sums."""

COUNTERS = (
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_received_confirm_total",
    "rabbitmq_global_messages_confirmed_total",
    "rabbitmq_global_messages_routed_total",
    "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_global_messages_unroutable_returned_total",
    "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_get_empty_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_queues_declared_total",
    "rabbitmq_queues_created_total",
    "rabbitmq_queues_deleted_total",
    "rabbitmq_channels_opened_total",
    "rabbitmq_channels_closed_total",
    "rabbitmq_connections_opened_total",
    "rabbitmq_connections_closed_total",
    "rabbitmq_raft_log_commit_index",
    "rabbitmq_raft_term_total",
)
"""Overview shows their rates, Quorum-Queues-Raft those of the last two."""

DIFFERENCES = (
    ("rabbitmq_resident_memory_limit_bytes", "rabbitmq_process_resident_memory_bytes"),
    ("rabbitmq_process_max_fds", "rabbitmq_process_open_fds"),
    ("rabbitmq_process_max_tcp_sockets", "rabbitmq_process_open_tcp_sockets"),
    ("rabbitmq_raft_log_last_written_index", "rabbitmq_raft_log_commit_index"),
    ("rabbitmq_raft_log_last_written_index", "rabbitmq_raft_log_last_applied_index"),
    ("rabbitmq_raft_log_last_written_index", "rabbitmq_raft_log_snapshot_index"),
)
"""What is left, what lags."""

OTHERS = (
    "rabbitmq_build_info",
    "rabbitmq_identity_info",
    "rabbitmq_erlang_uptime_seconds",
    "rabbitmq_raft_entry_commit_latency_seconds",
)

NAMES = tuple(dict.fromkeys((*GAUGES, *COUNTERS, *chain(*DIFFERENCES), *OTHERS)))
"""All names in their queries."""

ZERO_BY_NATURE = {
    "rabbitmq_raft_log_snapshot_index": "no snapshot before a log is long",
    "rabbitmq_raft_entry_commit_latency_seconds": "measured in whole milliseconds",
}
"""Names that may be 0 under a load, and why."""


def queries(cluster: str, endpoint: str = "") -> list[str]:
    """The boards' queries.

    Args:
        cluster: What `$rabbitmq_cluster` stands for.
        endpoint: What `$endpoint` of 4.0 stands for; "" are the boards of 3.13.
    """
    chosen = f'rabbitmq_cluster="{cluster}", namespace=""'
    chosen += f', rabbitmq_endpoint="{endpoint}"' if endpoint else ""
    identity = f"rabbitmq_identity_info{{{chosen}}}"
    join = f"* on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) {identity}"
    rates = [f"rate({name}[60s]) {join}" for name in COUNTERS]
    unconfirmed, confirmed = (
        f"rate(rabbitmq_global_messages_{name}_total[60s]) {join}"
        for name in ("received_confirm", "confirmed")
    )
    versions = "on(instance, job) group_left(rabbitmq_version) rabbitmq_build_info"
    return [
        *[f"sum({name} {join})" for name in GAUGES],
        *[f"sum({name} {join}) by(rabbitmq_node)" for name in GAUGES],
        *[f"sum({rate})" for rate in rates],
        *[f"sum({rate}) by(rabbitmq_node)" for rate in rates],
        *[
            f"sum(({most} {join}) - ({used} {join})) by(rabbitmq_node)"
            for most, used in DIFFERENCES
        ],
        f"sum({unconfirmed} - {confirmed}) by(rabbitmq_node)",
        f"rabbitmq_raft_entry_commit_latency_seconds {join}",
        f"rabbitmq_build_info {join}",
        f"rabbitmq_erlang_uptime_seconds * {versions} {join}",
        f"count({identity})",
    ]


def load(connection: pika.BlockingConnection) -> None:
    """Do at least one of everything that the boards count; the connection stays as it is left."""
    connection.channel().close()
    channel, other = connection.channel(), connection.channel()
    channel.confirm_delivery()
    for name, arguments in (("raft", {"x-queue-type": "quorum"}), ("plain", {}), ("gone", {})):
        channel.queue_declare(f"board-{name}", durable=True, arguments=arguments)
    channel.queue_delete("board-gone")
    for queue in ("board-raft", "board-plain"):
        for _ in range(20):
            channel.basic_publish("", queue, b"12345")
    channel.basic_publish("", "board-gone", b"")
    try:
        channel.basic_publish("", "board-gone", b"", mandatory=True)
    except pika.exceptions.UnroutableError:
        pass
    else:
        raise AssertionError("it was routed")

    method, _, _ = channel.basic_get("board-plain")
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.basic_get("board-plain", auto_ack=True)
    channel.basic_get("board-plain")
    channel.queue_purge("board-plain")
    channel.basic_get("board-plain")
    channel.basic_publish("", "board-plain", b"12345")
    other.basic_consume("board-plain", lambda *_: None, auto_ack=True)
    tags: list[int] = []
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("board-raft", lambda _, method, *__: tags.append(method.delivery_tag))
    while len(tags) < 5:
        connection.process_data_events(0.1)
    channel.basic_ack(tags[0])
    channel.queue_declare("board-raft", passive=True)  # answered after the ack
