"""Families of the node as a whole, by RabbitMQ's groups. Pure.

Source: prometheus_rabbitmq_core_metrics_collector.erl (METRICS_RAW, TOTALS: groups, names, types),
prometheus_rabbitmq_global_metrics_collector.erl, prometheus_rabbitmq_alarm_metrics_collector.erl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.counters import CHURN_KEYS, MESSAGE_KEYS
from broker.management.metrics.exposition import Family, labelled
from broker.management.metrics.facts import NodeFacts, Totals
from broker.management.metrics.rows import DETAILED, PREFIX, Row, family


def _fact(key: str, scale: float = 1) -> Callable[[NodeFacts], float]:
    return lambda facts: facts.node[key] * scale if scale != 1 else facts.node[key]


def _journal(key: str) -> Callable[[NodeFacts], float]:
    return lambda facts: (facts.node.get("journal") or {}).get(key, 0)


def _churn(key: str) -> Callable[[NodeFacts], float]:
    at = CHURN_KEYS.index(key)
    return lambda facts: facts.churn[at]


def _messages(*keys: str) -> Callable[[NodeFacts], float]:
    places = [MESSAGE_KEYS.index(key) for key in keys]
    return lambda facts: sum([facts.messages[at] for at in places])


ALARMS: Final[tuple[Row[NodeFacts], ...]] = (
    Row(
        "rabbitmq_alarms_file_descriptor_limit",
        "u",
        "is 1 if the alarm about file descriptors is set",
        lambda s: int(s.node["file_descriptor_limit_alarm"]),
    ),
    Row(
        "rabbitmq_alarms_free_disk_space_watermark",
        "u",
        "is 1 if the disk alarm is set",
        lambda s: int(s.node["disk_alarm"]),
    ),
    Row(
        "rabbitmq_alarms_memory_used_watermark",
        "u",
        "is 1 if the memory alarm is set",
        lambda s: int(s.node["memory_alarm"]),
    ),
)
CHURN: Final[tuple[Row[NodeFacts], ...]] = (
    Row(
        "rabbitmq_connections_opened_total",
        "c",
        "Connections that were accepted",
        _churn("connection_created"),
    ),
    Row(
        "rabbitmq_connections_closed_total",
        "c",
        "Connections that ended",
        _churn("connection_closed"),
    ),
    Row(
        "rabbitmq_channels_opened_total",
        "c",
        "Channels that were opened",
        _churn("channel_created"),
    ),
    Row("rabbitmq_channels_closed_total", "c", "Channels that ended", _churn("channel_closed")),
    Row("rabbitmq_queues_declared_total", "c", "Declares of queues", _churn("queue_declared")),
    Row(
        "rabbitmq_queues_created_total",
        "c",
        "Queues that were made with this node as their home",
        _churn("queue_created"),
    ),
    Row(
        "rabbitmq_queues_deleted_total",
        "c",
        "Queues of this node that were deleted",
        _churn("queue_deleted"),
    ),
)
COARSE: Final[tuple[Row[NodeFacts], ...]] = (
    Row("rabbitmq_process_open_fds", "g", "Open file descriptors", _fact("files")),
    Row("rabbitmq_process_open_tcp_sockets", "g", "Sockets of AMQP clients", _fact("sockets")),
    Row(
        "rabbitmq_process_resident_memory_bytes",
        "g",
        "Resident memory of the node",
        _fact("memory_bytes"),
    ),
    Row(
        "rabbitmq_disk_space_available_bytes",
        "g",
        "Free where the data lies",
        _fact("disk_free_bytes"),
    ),
)
LIMITS: Final[tuple[Row[NodeFacts], ...]] = (
    Row("rabbitmq_process_max_fds", "g", "How many may be open", _fact("files_max")),
    Row("rabbitmq_process_max_tcp_sockets", "g", "How many there may be", _fact("sockets_max")),
    Row(
        "rabbitmq_resident_memory_limit_bytes",
        "g",
        "Memory high watermark",
        _fact("memory_limit_bytes"),
    ),
    Row(
        "rabbitmq_disk_space_available_limit_bytes",
        "g",
        "Less than this is an alarm",
        _fact("disk_free_limit_bytes"),
    ),
    Row(
        "rabbitmq_erlang_uptime_seconds",
        "g",
        "Since the process started",
        _fact("uptime_ms", 0.001),
    ),
)
PERSISTER: Final[tuple[Row[NodeFacts], ...]] = (
    Row("rabbitmq_io_write_ops_total", "c", "Batches written to the store", _journal("batches")),
    Row("rabbitmq_io_write_bytes_total", "c", "Bytes written to the store", _journal("bytes")),
    Row("rabbitmq_io_write_time_seconds_total", "c", "Time in those writes", _journal("write_s")),
    Row("rabbitmq_io_sync_ops_total", "c", "Syncs of the store's log", _journal("syncs")),
    Row("rabbitmq_io_sync_time_seconds_total", "c", "Time in those syncs", _journal("sync_s")),
)
TOTALS: Final[tuple[Row[Totals], ...]] = (
    Row("rabbitmq_connections", "g", "Connections of clients", lambda t: t.connections),
    Row("rabbitmq_channels", "g", "Channels of clients", lambda t: t.channels),
    Row(
        "rabbitmq_consumers",
        "g",
        "Consumers of the queues that this node serves",
        lambda t: t.queue_consumers,
    ),
    Row("rabbitmq_queues", "g", "Queues that this node serves", lambda t: t.queues),
)
GLOBAL_TOTALS: Final[tuple[Row[Totals], ...]] = (
    Row(
        "rabbitmq_global_publishers",
        "g",
        "Channels of this node's clients that have published",
        lambda t: t.publishers,
    ),
    Row(
        "rabbitmq_global_consumers", "g", "Consumers of this node's clients", lambda t: t.consumers
    ),
)
CLIENTS: Final[tuple[Row[NodeFacts], ...]] = (
    Row(
        "rabbitmq_connection_incoming_bytes_total",
        "c",
        "Bytes from clients",
        lambda s: s.received_bytes,
    ),
    Row(
        "rabbitmq_connection_outgoing_bytes_total", "c", "Bytes to clients", lambda s: s.sent_bytes
    ),
    Row(
        "rabbitmq_connection_incoming_packets_total",
        "c",
        "Pieces in which bytes of clients came",
        lambda s: s.reads,
    ),
    Row(
        "rabbitmq_connection_outgoing_packets_total",
        "c",
        "Pieces in which bytes to clients were sent",
        lambda s: s.writes,
    ),
    Row(
        "rabbitmq_channel_messages_published_total",
        "c",
        "Messages that clients published",
        _messages("publish"),
    ),
    Row(
        "rabbitmq_channel_messages_confirmed_total",
        "c",
        "Messages that were confirmed",
        _messages("confirm"),
    ),
    Row(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "c",
        "Messages that were returned",
        _messages("return_unroutable"),
    ),
    Row(
        "rabbitmq_channel_messages_unroutable_dropped_total",
        "c",
        "Messages that were dropped without a route",
        _messages("drop_unroutable"),
    ),
    Row(
        "rabbitmq_channel_messages_delivered_ack_total",
        "c",
        "Messages to consumers that acknowledge",
        _messages("deliver"),
    ),
    Row(
        "rabbitmq_channel_messages_delivered_total",
        "c",
        "Messages to consumers that don't",
        _messages("deliver_no_ack"),
    ),
    Row(
        "rabbitmq_channel_messages_redelivered_total",
        "c",
        "Messages that were handed out again",
        _messages("redeliver"),
    ),
    Row(
        "rabbitmq_channel_messages_acked_total",
        "c",
        "Messages that were acknowledged",
        _messages("ack"),
    ),
    Row(
        "rabbitmq_channel_get_ack_total",
        "c",
        "Messages that basic.get took, to be acknowledged",
        _messages("get"),
    ),
    Row(
        "rabbitmq_channel_get_total",
        "c",
        "Messages that basic.get took without",
        _messages("get_no_ack"),
    ),
    Row(
        "rabbitmq_channel_get_empty_total",
        "c",
        "basic.get that found nothing",
        _messages("get_empty"),
    ),
)
AMQP: Final = labelled((("protocol", "amqp091"),))
GLOBAL: Final[tuple[Row[NodeFacts], ...]] = (
    Row(
        "rabbitmq_global_messages_received_total",
        "c",
        "Messages that clients published",
        _messages("publish"),
    ),
    Row(
        "rabbitmq_global_messages_received_confirm_total",
        "c",
        "Of those, messages on channels that confirm, once they are confirmed",
        _messages("confirm"),
    ),
    Row(
        "rabbitmq_global_messages_confirmed_total",
        "c",
        "Messages that were confirmed",
        _messages("confirm"),
    ),
    Row(
        "rabbitmq_global_messages_routed_total",
        "c",
        "Copies of messages that went to queues",
        lambda s: s.routed,
    ),
    Row(
        "rabbitmq_global_messages_unroutable_dropped_total",
        "c",
        "Messages that were dropped without a route",
        _messages("drop_unroutable"),
    ),
    Row(
        "rabbitmq_global_messages_unroutable_returned_total",
        "c",
        "Messages that were returned",
        _messages("return_unroutable"),
    ),
    Row(
        "rabbitmq_global_messages_delivered_total",
        "c",
        "Messages that were delivered or taken",
        _messages("deliver", "deliver_no_ack", "get", "get_no_ack"),
    ),
    Row(
        "rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "c",
        "Messages to consumers without acknowledgements",
        _messages("deliver_no_ack"),
    ),
    Row(
        "rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "c",
        "Messages to consumers that acknowledge",
        _messages("deliver"),
    ),
    Row(
        "rabbitmq_global_messages_delivered_get_auto_ack_total",
        "c",
        "Messages that basic.get took without acknowledgement",
        _messages("get_no_ack"),
    ),
    Row(
        "rabbitmq_global_messages_delivered_get_manual_ack_total",
        "c",
        "Messages that basic.get took, to be acknowledged",
        _messages("get"),
    ),
    Row(
        "rabbitmq_global_messages_get_empty_total",
        "c",
        "basic.get that found nothing",
        _messages("get_empty"),
    ),
    Row(
        "rabbitmq_global_messages_redelivered_total",
        "c",
        "Messages that were handed out again",
        _messages("redeliver"),
    ),
    Row(
        "rabbitmq_global_messages_acknowledged_total",
        "c",
        "Messages that were acknowledged",
        _messages("ack"),
    ),
)

GROUPS: Final = {
    "connection_churn_metrics": CHURN,
    "node_coarse_metrics": COARSE,
    "node_metrics": LIMITS,
    "node_persister_metrics": PERSISTER,
}
"""What `/metrics/detailed` shows of the node, by RabbitMQ's names of groups."""


_STRATEGIES: Final = {
    "expired": ("at_most_once", "disabled", "at_least_once"),
    "rejected": ("at_most_once", "disabled", "at_least_once"),
    "maxlen": ("at_most_once", "disabled"),
    "delivery_limit": ("at_most_once", "disabled", "at_least_once"),
}
_OF_CLASSIC: Final = frozenset(
    (strategy, reason)
    for reason in ("expired", "rejected", "maxlen")
    for strategy in ("at_most_once", "disabled")
)
_DEATHS: Final = {
    "expired": "Messages whose time to live was over",
    "rejected": "Messages that were rejected",
    "maxlen": "Messages for which their queue had become too long",
    "delivery_limit": "Messages that were delivered too often",
}


def dead_letters(facts: NodeFacts) -> Iterator[Family]:
    """Yield `rabbitmq_global_messages_dead_lettered_*`, with RabbitMQ's labels from the start.

    Source: rabbit_global_counters.erl, rabbit_fifo_dlx.erl (which reasons a queue type counts).
    """
    counted = facts.queueing.deaths
    for reason, text in _DEATHS.items():
        keys = [
            (queue_type, strategy, reason)
            for queue_type in ("classic", "quorum")
            for strategy in _STRATEGIES[reason]
            if queue_type == "quorum" or (strategy, reason) in _OF_CLASSIC
        ]
        keys += [key for key in counted if key[2] == reason and key not in keys]
        samples = [(_strategy(*key[:2]), counted.get(key, 0)) for key in keys]
        name = f"rabbitmq_global_messages_dead_lettered_{reason}_total"
        yield family(name, "c", text, samples)
    confirmed = [(_strategy("quorum", "at_least_once"), facts.queueing.dead_confirmed)]
    name = "rabbitmq_global_messages_dead_lettered_confirmed_total"
    yield family(name, "c", "Dead messages that all their targets confirmed", confirmed)


def _strategy(queue_type: str, strategy: str) -> str:
    return labelled(
        (("queue_type", f"rabbit_{queue_type}_queue"), ("dead_letter_strategy", strategy))
    )


def identity(facts: NodeFacts, endpoint: str) -> Iterator[Family]:
    """Yield the two families that every path ends with.

    Args:
        facts: The node.
        endpoint: "aggregated", "per-object", "detailed" or "memory-breakdown": a board that selects
            by it works though Prometheus scrapes several paths of one node.
    """
    node = facts.node
    versions = (("rabbitmq_version", node["compat_version"]), ("warrenmq_version", node["version"]))
    yield family("rabbitmq_build_info", "u", "Versions", [(labelled(versions), 1)])
    names = (
        ("rabbitmq_node", facts.name),
        ("rabbitmq_cluster", facts.cluster),
        ("rabbitmq_cluster_permanent_id", facts.cluster_id),
        ("rabbitmq_endpoint", endpoint),
    )
    text = "The node and its cluster"
    yield family("rabbitmq_identity_info", "u", text, [(labelled(names), 1)])


def attempts(facts: NodeFacts, prefix: str = PREFIX) -> Iterator[Family]:
    """Yield `auth_attempt_metrics`: logins by protocol."""
    for end in ("", "_succeeded", "_failed"):
        samples = [
            (labelled((("protocol", str(each["protocol"])),)), each[f"auth_attempts{end}"])
            for each in facts.attempts
        ]
        yield family(f"{prefix}auth_attempts{end}_total", "c", "Logins that were tried", samples)


def attempts_by_source(facts: NodeFacts) -> Iterator[Family]:
    """Yield `auth_attempt_detailed_metrics`: logins by address, user and protocol."""
    keys = ("remote_address", "username", "protocol")
    labels = [
        labelled(tuple((key, str(each[key])) for key in keys if each[key]))
        for each in facts.sources
    ]
    for end in ("", "_succeeded", "_failed"):
        values = [each[f"auth_attempts{end}"] for each in facts.sources]
        name = f"{DETAILED}auth_attempts_detailed{end}_total"
        samples = list(zip(labels, values, strict=True))
        yield family(name, "c", "Logins that were tried, by who tried", samples)
