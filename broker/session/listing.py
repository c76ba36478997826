"""Channels and consumers as listings show them. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.counters import MessageCounts
from broker.session.channel import Channel


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


class ChannelFlows(NamedTuple):
    """What went between a channel and single exchanges and queues.

    Attributes:
        number: The channel's number.
        key: The channel's key.
        by_exchange: How many messages it published, by exchange.
        by_queue: What happened to those from a queue, by its uid.
    """

    number: int
    key: int
    by_exchange: dict[str, int]
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
        uncommitted_messages=0 if transaction is None else len(transaction.publishes),
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
