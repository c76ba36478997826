"""The firehose: copies of what is published and delivered, for `amq.rabbitmq.trace`. Pure.

A vhost is traced while its name is in `TracedVhosts`, which all sessions of a node share. A copy
has the message's body, and headers that say what happened to it; it is published to the topic
exchange amq.rabbitmq.trace with the key `publish.EXCHANGE` or `deliver.QUEUE`. Nobody waits for it:
a copy is never confirmed, returned, or traced itself.

Source: rabbit_trace.erl (keys, headers, and that messages of the exchange itself are not traced).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

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
from broker.session.effects import PublishTo

TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
_KEY_BYTES_MAX: Final = 255


class TracedVhosts:
    """The vhosts that are traced on this node; it forgets them when it stops, as RabbitMQ does.

    Attributes:
        names: Their names. Empty: nothing is traced, and publishing looks no further.
    """

    __slots__ = ("names",)

    def __init__(self) -> None:
        self.names: set[str] = set()

    def set(self, vhost: str, *, is_traced: bool) -> None:
        """Trace a vhost, or end that."""
        if is_traced:
            self.names.add(vhost)
        else:
            self.names.discard(vhost)


def trace_published(channel: Channel, messages: Iterable[Message], queues: Sequence[Queue]) -> None:
    """Publish copies of messages that came from a client.

    Args:
        channel: Where they came.
        messages: As they were sent.
        queues: Where they go; none if they are unroutable.
    """
    routed: list[object] = [queue.name for queue in queues]
    for message in messages:
        if message.exchange != TRACE_EXCHANGE:
            _publish(channel, f"publish.{message.exchange}", message, {"routed_queues": routed})


def trace_delivered(channel: Channel, queue: Queue, deliveries: Iterable[Delivery]) -> None:
    """Publish copies of messages that go to a client.

    Args:
        channel: Where they go.
        queue: Where they were.
        deliveries: With their messages as the client gets them.
    """
    for delivery in deliveries:
        if delivery.message.exchange != TRACE_EXCHANGE:
            again: dict[str, object] = {"redelivered": int(delivery.delivery_count > 0)}
            _publish(channel, f"deliver.{queue.name}", delivery.message, again)


def _publish(channel: Channel, key: str, message: Message, more: dict[str, object]) -> None:
    """Route one copy, and have it published after what the session has asked for so far."""
    context = channel.context
    facts = context.facts
    key = key.encode("utf-8", "surrogateescape")[:_KEY_BYTES_MAX].decode("utf-8", "surrogateescape")
    routed = context.catalogue.route(facts.vhost, TRACE_EXCHANGE, key)
    if routed is None or not routed.queues:
        return
    properties = _table(message)
    headers: dict[str, object] = {
        "exchange_name": message.exchange,
        "routing_keys": [message.routing_key, *message.bcc],
        "properties": properties,
        "node": facts.node,
        "vhost": facts.vhost,
        "connection": facts.name,
        "channel": channel.number,
        "user": facts.user,
        **more,
    }
    body = body_of(message)
    try:
        copy = build_message(TRACE_EXCHANGE, key, Properties(headers=headers), body)
        facts_of(raw_properties(copy))
    except AmqpError:  # two tables deeper, a client's headers may be beyond the bounds of a table
        del properties["headers"]
        copy = build_message(TRACE_EXCHANGE, key, Properties(headers=headers), body)
    for queue in routed.queues:
        context.emit(PublishTo(channel.key, queue, [copy], None))


def _table(message: Message) -> dict[str, object]:
    properties = decode_properties(message)
    values = {name: getattr(properties, name) for name in Properties.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}
