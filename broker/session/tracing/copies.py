"""The firehose: copies of what is published and delivered, for `amq.rabbitmq.trace`. Pure.

A vhost is traced while its name is in `TracedVhosts`, which all sessions of a node share. A copy
has the message's body, and headers that say what happened to it; it is published to the topic
exchange amq.rabbitmq.trace with the key `publish.EXCHANGE` or `deliver.QUEUE`. Nobody waits for it:
a copy is never confirmed, returned, or traced itself.

Messages come in batches of one exchange or queue: a batch reads the clock and is routed once.

Source: rabbit_trace.erl (keys, headers, and that messages of the exchange itself are not traced).
Headers that RabbitMQ's copies have not are docs/decisions/0071.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.amqp.content import (
    Properties,
    build_message,
    decode_properties,
    facts_of,
    raw_properties,
)
from broker.amqp.frames import body_of
from broker.errors import AmqpError
from broker.message import Delivery, Message
from broker.metadata.records import Queue
from broker.session.channel import Channel
from broker.session.context import Context
from broker.session.effects import PublishTo
from broker.session.traced_vhosts import TracedVhosts
from broker.session.tracing.following import follow_delivered
from broker.session.tracing.routes import TRACE_EXCHANGE, route, where
from broker.session.tracing.settlements import TracedSettlements
from broker.session.unacked import DeliverySource


def trace_published(channel: Channel, messages: Iterable[Message], queues: Sequence[Queue]) -> None:
    """Publish copies of messages that came from a client.

    Args:
        channel: Where they came.
        messages: As they were sent, all to one exchange.
        queues: Where they go; none if they are unroutable.
    """
    context = channel.context
    if context.facts.vhost not in _vhosts(context).firehose:
        return  # only looked at for the sake of messages that are followed
    traced = [message for message in messages if message.exchange != TRACE_EXCHANGE]
    if not traced:
        return
    key, targets = route(context, f"publish.{traced[0].exchange}")
    if not targets:
        return
    vhosts = _vhosts(context)
    # The wall clock last: a pause of the process between the two clocks makes `received_in_us`
    # later. The other way round it would be earlier, even before the client sent the message.
    since_ms = vhosts.since_ms(context.now_ms)
    now_us = vhosts.now_us()
    more: dict[str, object] = {
        "routed_queues": [queue.name for queue in queues],
        "timestamp_in_us": now_us,
        "received_in_us": now_us - since_ms * 1000,
    }
    shared = where(channel) | more
    _emit(channel, targets, [_copy(key, message, shared, _table(message)) for message in traced])


def trace_delivered(
    channel: Channel, queue: Queue, deliveries: Iterable[Delivery], source: DeliverySource | None
) -> None:
    """Publish copies of messages that go to a client.

    Args:
        channel: Where they go.
        queue: Where they were.
        deliveries: With their messages as the client gets them.
        source: Whose acknowledgements settle them; None where they need none.
    """
    traced = [each for each in deliveries if each.message.exchange != TRACE_EXCHANGE]
    if not traced:
        return
    context = channel.context
    vhosts = _vhosts(context)
    if context.facts.vhost in vhosts.firehose:
        _copy_delivered(channel, queue, traced, source)
    if vhosts.followed:
        follow_delivered(channel, queue, traced, source)


def _copy_delivered(
    channel: Channel, queue: Queue, traced: Sequence[Delivery], source: DeliverySource | None
) -> None:
    context = channel.context
    key, targets = route(context, f"deliver.{queue.name}")
    vhosts = _vhosts(context)
    with_acks = source is not None and context.facts.vhost in vhosts.with_acks
    if not targets and not with_acks:
        return
    shared = where(channel) | {
        "queue": queue.name,
        "no_ack": source is None,
        "timestamp_in_us": vhosts.now_us(),
    }
    copies: list[Message] = []
    ids: dict[int, str] = {}
    for each in traced:
        message, properties = each.message, _table(each.message)
        ids[each.number] = str(properties.get("message_id", ""))
        again = int(each.delivery_count > 0)
        more: dict[str, object] = {"redelivered": again, "message_number": each.number}
        if targets:
            copies.append(_copy(key, message, shared | more, properties))
    if with_acks and source is not None:
        if source.traced is None:
            source.traced = TracedSettlements(channel, queue, source)
        source.traced.delivered(ids)
    _emit(channel, targets, copies)


def _vhosts(context: Context) -> TracedVhosts:
    assert context.tracing is not None, "asked by `is_traced`"
    return context.tracing


def _emit(channel: Channel, targets: Sequence[Queue], copies: list[Message]) -> None:
    """Have copies published after what the session has asked for so far."""
    for queue in targets:
        channel.emit(PublishTo(channel.key, queue, copies.copy(), None))


def _copy(
    key: str, message: Message, more: dict[str, object], properties: dict[str, object]
) -> Message:
    headers: dict[str, object] = {
        "exchange_name": message.exchange,
        "routing_keys": [message.routing_key, *message.bcc],
        "properties": properties,
        **more,
    }
    body = body_of(message)
    try:
        copy = build_message(TRACE_EXCHANGE, key, Properties(headers=headers), body)
        facts_of(raw_properties(copy))
    except AmqpError:  # two tables deeper, a client's headers may be beyond the bounds of a table
        del properties["headers"]
        copy = build_message(TRACE_EXCHANGE, key, Properties(headers=headers), body)
    return copy


def _table(message: Message) -> dict[str, object]:
    properties = decode_properties(message)
    values = {name: getattr(properties, name) for name in Properties.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}
