"""Channels and consumers as listings show them. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.counters import MessageCounts
from broker.session.channel import Channel, ChannelConsumer
from broker.session.unacked import DeliverySource, Holding


class ConsumerFacts(NamedTuple):
    """A consumer.

    Attributes:
        queue: Name of its queue.
        vhost: The queue's.
        tag: Consumer tag.
        no_ack: Deliveries need no acknowledgement.
        exclusive: It asked to be alone.
        prefetch: Its own limit; 0 is none.
        is_active: The queue knows it.
        arguments: As the client gave them.
    """

    queue: str
    vhost: str
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    is_active: bool
    arguments: dict[str, object]


class ChannelFacts(NamedTuple):
    """A channel.

    Attributes:
        number: Its number.
        is_closing: It waits for close-ok.
        is_transactional: After tx.select.
        is_confirming: After confirm.select.
        unacknowledged: Deliveries that wait for an ack.
        unconfirmed: Publishes that wait for a confirm.
        uncommitted_messages: Publishes that an open transaction holds.
        uncommitted_acks: Acknowledgements that it holds.
        prefetch: The limit of the next consumer; 0 is none.
        global_prefetch: The channel's own limit; 0 is none.
        consumer_count: How many consumers it has.
        consumers: Those, by tag; described as they are read, and read once.
        channel_id: Its id among queues.
        key: The channel's key.
        counts: What happened to its messages.
    """

    number: int
    is_closing: bool
    is_transactional: bool
    is_confirming: bool
    unacknowledged: int
    unconfirmed: int
    uncommitted_messages: int
    uncommitted_acks: int
    prefetch: int
    global_prefetch: int
    consumer_count: int
    consumers: Iterator[ConsumerFacts]
    channel_id: str
    key: int
    counts: MessageCounts


class HolderFacts(NamedTuple):
    """A consumer of one queue, or one that is gone but for the messages it holds.

    Attributes:
        number: Its channel's number.
        tag: Consumer tag; "" for what basic.get took.
        held: Messages of the queue that it holds, unacknowledged.
        oldest_ms: When the first of them went out, monotonic; 0 if it holds none.
        newest_ms: When the last one did.
        prefetch: Its own limit; 0 is none.
        no_ack: Its deliveries need no acknowledgement.
        channel_prefetch: The channel's limit; 0 is none.
        channel_held: What counts for that.
        is_attached: It consumes.
    """

    number: int
    tag: str
    held: int
    oldest_ms: int
    newest_ms: int
    prefetch: int
    no_ack: bool
    channel_prefetch: int
    channel_held: int
    is_attached: bool


class ChannelFlows(NamedTuple):
    """What went between a channel and single exchanges and queues.

    Attributes:
        number: The channel's number.
        key: The channel's key.
        by_exchange: How many messages it published, by exchange.
        unroutable: Of those, how many were returned and how many were dropped.
        by_queue: What happened to those from a queue, by its uid.
    """

    number: int
    key: int
    by_exchange: dict[str, int]
    unroutable: dict[str, tuple[int, int]]
    by_queue: dict[int, MessageCounts]


def facts_of_channel(channel: Channel) -> ChannelFacts:
    """Say how a channel is."""
    transaction = channel.transaction
    return ChannelFacts(
        number=channel.number,
        is_closing=channel.is_closing,
        is_transactional=transaction is not None,
        is_confirming=channel.confirms is not None,
        unacknowledged=channel.unacked.count,
        unconfirmed=0 if channel.confirms is None else channel.confirms.unanswered,
        uncommitted_messages=0 if transaction is None else transaction.message_count,
        uncommitted_acks=0
        if transaction is None
        else sum(len(entries) for _, entries in transaction.taken),
        prefetch=channel.prefetch,
        global_prefetch=channel.window.limit,
        consumer_count=len(channel.consumers),
        consumers=(
            ConsumerFacts(
                consumer.queue.name,
                consumer.queue.vhost,
                consumer.tag,
                consumer.no_ack,
                consumer.exclusive,
                consumer.prefetch,
                consumer.is_attached,
                consumer.arguments,
            )
            for consumer in list(channel.consumers.values())
        ),
        channel_id=channel.channel_id,
        key=channel.key,
        counts=channel.counts,
    )


def flows_of(channels: Iterable[Channel]) -> list[ChannelFlows]:
    """Say what went between each channel and single exchanges and queues.

    Its dicts are the channel's own: drop from them what is gone, and nothing else.
    """
    return [
        ChannelFlows(each.number, each.key, each.by_exchange, each.unroutable, each.by_queue)
        for each in channels
    ]


def holders_of_channel(channel: Channel, queue_uid: int) -> Iterator[HolderFacts]:
    """Yield who of a channel consumes from a queue, or holds messages of it.

    Args:
        channel: The channel.
        queue_uid: The queue's incarnation.
    """
    holdings = channel.unacked.holdings()
    found: dict[DeliverySource, Holding] = {
        consumer: Holding(0, 0, 0)
        for consumer in channel.consumers.values()
        if consumer.queue_uid == queue_uid
    }
    found |= {
        source: holding
        for source, holding in holdings.items()
        if source.queue_uid == queue_uid and not source.is_lost
    }
    for source, holding in found.items():
        consumer = source if isinstance(source, ChannelConsumer) else None
        is_attached = consumer is not None and channel.consumers.get(source.tag) is consumer
        yield HolderFacts(
            number=channel.number,
            tag=source.tag,
            held=holding.messages,
            oldest_ms=holding.oldest_ms,
            newest_ms=holding.newest_ms,
            prefetch=0 if consumer is None else consumer.prefetch,
            no_ack=consumer is not None and consumer.no_ack,
            channel_prefetch=channel.window.limit,
            channel_held=channel.in_use,
            is_attached=is_attached,
        )
