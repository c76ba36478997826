"""Families of connections, channels and exchanges, by RabbitMQ's groups. Pure.

Source: prometheus_rabbitmq_core_metrics_collector.erl (METRICS_RAW, METRICS_CLUSTER).
"""

from __future__ import annotations

from typing import Final

from broker.management.metrics.facts import (
    ChannelExchangeNumbers,
    ChannelNumbers,
    ChannelQueueNumbers,
    ConnectionFacts,
    ExchangeFacts,
    PairFacts,
)
from broker.management.metrics.rows import Row

CHANNEL: Final[tuple[Row[ChannelNumbers], ...]] = (
    Row("rabbitmq_channel_consumers", "g", "Consumers", lambda c: c.consumer_count),
    Row(
        "rabbitmq_channel_messages_unacked",
        "g",
        "Messages that were delivered and not acknowledged",
        lambda c: c.unacknowledged,
    ),
    Row(
        "rabbitmq_channel_messages_unconfirmed",
        "g",
        "Messages that were published and not confirmed",
        lambda c: c.unconfirmed,
    ),
    Row(
        "rabbitmq_channel_messages_uncommitted",
        "g",
        "Messages that open transactions hold",
        lambda c: c.uncommitted_messages,
    ),
    Row(
        "rabbitmq_channel_acks_uncommitted",
        "g",
        "Acknowledgements that open transactions hold",
        lambda c: c.uncommitted_acks,
    ),
    Row("rabbitmq_consumer_prefetch", "g", "Limit of the next consumer", lambda c: c.prefetch),
    Row(
        "rabbitmq_channel_prefetch",
        "g",
        "Limit of all consumers of a channel",
        lambda c: c.global_prefetch,
    ),
)
CHANNEL_PUBLISHES: Final[tuple[Row[ChannelExchangeNumbers], ...]] = (
    Row(
        "rabbitmq_channel_messages_published_total",
        "c",
        "Messages that the client published",
        lambda c: c.published,
    ),
    Row(
        "rabbitmq_channel_messages_unroutable_returned_total",
        "c",
        "Messages that were returned",
        lambda c: c.returned,
    ),
    Row(
        "rabbitmq_channel_messages_unroutable_dropped_total",
        "c",
        "Messages that were dropped without a route",
        lambda c: c.dropped,
    ),
)
CHANNEL_CONFIRMS: Final[tuple[Row[ChannelNumbers], ...]] = (
    Row(
        "rabbitmq_channel_messages_confirmed_total",
        "c",
        "Messages that were confirmed",
        lambda c: c.counts.confirm,
    ),
)
"""Part of `channel_exchange_metrics`: not counted by exchange."""
CHANNEL_DELIVERIES: Final[tuple[Row[ChannelQueueNumbers], ...]] = (
    Row(
        "rabbitmq_channel_get_ack_total",
        "c",
        "Messages that basic.get took, to be acknowledged",
        lambda c: c.counts.get,
    ),
    Row(
        "rabbitmq_channel_get_total",
        "c",
        "Messages that basic.get took without",
        lambda c: c.counts.get_no_ack,
    ),
    Row(
        "rabbitmq_channel_messages_delivered_ack_total",
        "c",
        "Messages to consumers that acknowledge",
        lambda c: c.counts.deliver,
    ),
    Row(
        "rabbitmq_channel_messages_delivered_total",
        "c",
        "Messages to consumers that don't",
        lambda c: c.counts.deliver_no_ack,
    ),
    Row(
        "rabbitmq_channel_messages_redelivered_total",
        "c",
        "Messages that were handed out again",
        lambda c: c.counts.redeliver,
    ),
    Row(
        "rabbitmq_channel_messages_acked_total",
        "c",
        "Messages that were acknowledged",
        lambda c: c.counts.ack,
    ),
    Row(
        "rabbitmq_channel_get_empty_total",
        "c",
        "basic.get that found nothing",
        lambda c: c.counts.get_empty,
    ),
)
CONNECTION: Final[tuple[Row[ConnectionFacts], ...]] = (
    Row(
        "rabbitmq_connection_pending_packets",
        "g",
        "Bytes that wait to be sent to clients",
        lambda c: c.unsent_bytes,
    ),
    Row("rabbitmq_connection_channels", "g", "Channels of connections", lambda c: c.channels),
)
CONNECTION_GROUPS: Final[dict[str, tuple[Row[ConnectionFacts], ...]]] = {
    "connection_coarse_metrics": (
        Row(
            "rabbitmq_connection_incoming_bytes_total",
            "c",
            "Bytes from the client",
            lambda c: c.received_bytes,
        ),
        Row(
            "rabbitmq_connection_outgoing_bytes_total",
            "c",
            "Bytes to the client",
            lambda c: c.sent_bytes,
        ),
    ),
    "connection_metrics": (
        Row(
            "rabbitmq_connection_incoming_packets_total",
            "c",
            "Pieces in which they came",
            lambda c: c.reads,
        ),
        Row(
            "rabbitmq_connection_outgoing_packets_total",
            "c",
            "Pieces in which they were sent",
            lambda c: c.writes,
        ),
        *CONNECTION,
    ),
}
"""What `/metrics/detailed` shows of connections, by RabbitMQ's names of groups."""

EXCHANGE_GROUPS: Final[dict[str, tuple[Row[ExchangeFacts], ...]]] = {
    "exchange_metrics": (
        Row(
            "rabbitmq_exchange_messages_published_total",
            "c",
            "Messages that clients published to the exchange",
            lambda e: e.published,
        ),
        Row(
            "rabbitmq_exchange_messages_unroutable_returned_total",
            "c",
            "Of those, messages that were returned",
            lambda e: e.returned,
        ),
        Row(
            "rabbitmq_exchange_messages_unroutable_dropped_total",
            "c",
            "Of those, messages that were dropped without a route",
            lambda e: e.dropped,
        ),
    ),
}
"""What `/metrics/detailed` shows of exchanges, by RabbitMQ's names of groups."""

PAIR_GROUPS: Final[dict[str, tuple[Row[PairFacts], ...]]] = {
    "queue_exchange_metrics": (
        Row(
            "rabbitmq_queue_exchange_messages_published_total",
            "c",
            "Messages that went to the queue through the exchange",
            lambda p: p.published,
        ),
    ),
}
"""What `/metrics/detailed` shows of exchanges and queues, by RabbitMQ's names of groups."""
